"""Which layout lies at a path, decided by content; archives are unpacked beside."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from core.sources.archives import check_temporary_folder, is_archive, unpack
from core.sources.batches import binary_batches, idx_files, python_batches, title
from core.sources.folders import artbench_table, image_folder
from core.sources.records import Record, Source, is_hidden
from core.sources.tables import parquet_files, saved_dataset

DEPTH = 3  # folders within folders that are searched for batches and tables

KNOWN = (
    "CIFAR or ArtBench batches (Python or binary), MNIST-like IDX files, a Hugging "
    "Face data set saved to disk, parquet files with an 'image' column, or folders of "
    "picture files"
)


def find_source(path: Path) -> Source:
    """Return the pictures at a path.

    Args:
        path: A folder or a parquet file; archives go through `opened` first.

    Raises:
        FileNotFoundError: If nothing is there.
        ValueError: If no known layout is there, or several are; the message says what
            was found.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"There is nothing at '{path}'. Give the path of a folder, an archive or a "
            "parquet file with pictures."
        )
    if path.is_file():
        source = parquet_files(path)
        if source is None:
            raise ValueError(
                f"'{path.name}' is a file of another kind than expected: an archive, "
                f"or a parquet file with pictures. A folder may hold {KNOWN}."
            )
        return source
    found = packed_sources(path)
    if len(found) > 1:
        places = "; ".join(
            f"{source.layout} in '{source.path.relative_to(path)}'" for source in found
        )
        raise ValueError(
            f"'{path.name}' holds several data sets: {places}. Give the path of one."
        )
    source = found[0] if found else parquet_files(path) or image_folder(path)
    if source is None:
        entries = sorted(entry.name for entry in path.iterdir())
        listed = ", ".join(map(repr, entries[:8])) + (" ..." if entries[8:] else "")
        raise ValueError(
            f"No pictures were found in '{path.name}', which holds "
            f"{listed or 'nothing'}. Expected {KNOWN}."
        )
    return source


def packed_sources(path: Path) -> list[Source]:
    """Return the data sets packed into few files, in a folder or below it."""
    found = []
    for folder in folders(path, DEPTH):
        if any(folder.is_relative_to(source.path) for source in found):
            continue  # a split of one that was found
        for layout in (saved_dataset, python_batches, binary_batches, idx_files):
            source = layout(folder)
            if source is not None:
                found.append(with_artists(source))
                break
    return found


def folders(path: Path, depth: int) -> Iterator[Path]:
    """Yield a folder and those below it, the nearer ones first; no hidden ones."""
    level = [path]
    for _ in range(depth + 1):
        yield from level
        level = [
            inner
            for folder in level
            for inner in sorted(folder.iterdir())
            if inner.is_dir() and not is_hidden(inner.name)
        ]


def with_artists(source: Source) -> Source:
    """Return ArtBench batches with the facts of its table, if that lies near them."""
    art = artbench_table(source.path)
    if art is None or not source.layout.startswith(title(("ukiyo_e",))):
        return source

    def read() -> Iterator[Record]:
        for record in source.read():
            key = record.facts.get("split"), record.facts.get("row")
            yield replace(record, facts=record.facts | art.by_row.get(key, {}))

    return replace(source, read=read)


@contextmanager
def opened(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """Open what may be an archive.

    Args:
        path: A folder, a file, or a tar or zip archive, by content.
        scratch: Where to unpack; None for the system's place for temporary files.

    Yields:
        A path that `find_source` reads; an archive's content is there meanwhile.

    An archive that is damaged, too large, or reaches outside itself is a `PackedError`.
    """
    if not is_archive(path):
        yield path
        return
    if scratch is None:
        check_temporary_folder()
    with TemporaryDirectory(dir=scratch) as folder:
        inside = Path(folder) / (path.name.split(".")[0] or "archive")
        inside.mkdir()
        unpack(path, inside)
        yield inside
