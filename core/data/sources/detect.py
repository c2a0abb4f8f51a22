"""Which layout lies at a path, decided by content; archives are unpacked beside."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from core.data.sources import text_tables
from core.data.sources.archives import check_temporary_folder, is_archive, unpack
from core.data.sources.artbench import ARTBENCH_TABLE, artbench_table
from core.data.sources.batches import binary_batches, python_batches, title
from core.data.sources.below import below, files_below
from core.data.sources.folders import ARCHIVES, image_folder, may_be_image
from core.data.sources.idx import idx_files
from core.data.sources.parquet import names_files_only, parquet_files
from core.data.sources.records import Record, Source, split_word
from core.data.sources.saved_datasets import saved_dataset
from core.files.texts import count_of, listed

DEPTH = 3  # folders within folders that are searched for batches and tables

KNOWN = (
    "CIFAR or ArtBench batches (Python or binary), MNIST-like IDX files, a Hugging "
    "Face data set saved to disk, parquet files with an 'image' column, or folders of "
    "image files"
)


def find_source(path: Path, allow_outside: bool = False) -> Source:
    """Return the images at a path.

    Where the path names a split, as `t10k-images-idx3-ubyte` and a folder `val` do,
    that one is meant unless another is asked for.

    Args:
        path: A folder or a file; archives go through `opened` first.
        allow_outside: Whether tables may name image files out of that folder.

    Errors of `source_at` pass through.
    """
    source = source_at(path, allow_outside)
    # A split that is given on its own, as a file or as a folder that is called so.
    alone = source.splits[0] if path.is_file() and len(source.splits) == 1 else None
    wanted = alone or split_word(path.name)
    if wanted is None or "train" in source.splits:
        return source
    return replace(source, wanted_split=wanted)


def source_at(path: Path, allow_outside: bool) -> Source:
    """Return the images at a path, as `find_source` does before it asks for splits.

    Raises:
        FileNotFoundError: If nothing is there.
        ValueError: If no known layout is there, or several are; the message says what
            was found.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"There is nothing at '{path}'. Give the path of a folder, an archive or a "
            "parquet file with images."
        )
    if path.is_file():
        source = parquet_files(path, allow_outside) or packed_file(path)
        if source is None and path.suffix.lower() in text_tables.SUFFIXES:
            raise ValueError(
                f"'{path.name}' is a table without images. Give the folder that holds "
                "it and the images."
            )
        if source is None:
            raise ValueError(
                f"'{path.name}' is a file of another kind than expected: an archive, a "
                f"parquet file, or a batch of images. A folder may hold {KNOWN}."
            )
        return source
    sources = packed_sources(path, allow_outside)
    if len(sources) > 1:
        paths = "; ".join(
            f"{source.layout} in '{source.path.relative_to(path)}'"
            for source in sources
        )
        raise ValueError(
            f"'{path.name}' holds several data sets: {paths}. Give the path of one."
        )
    source = sources[0] if sources else images_in_files(path, allow_outside)
    if source is None:
        if packed := [f for f in path.iterdir() if f.suffix.lower() in ARCHIVES]:
            raise ValueError(
                f"'{path.name}' holds {listed([f.name for f in sorted(packed)])} and "
                "no images out of archives. Give the path of the archive, or unpack it "
                "in this folder to use it with the tables there."
            )
        entries = sorted(entry.name for entry in path.iterdir())
        notes = [f"{note} " for note in below(path).notes()]
        raise ValueError(
            f"No images were found in '{path.name}', which holds "
            f"{listed(entries, 8) or 'nothing'}. {''.join(notes)}Expected {KNOWN}."
        )
    return source


def images_in_files(path: Path, allow_outside: bool) -> Source | None:
    """Return the images in a folder's parquet files, otherwise its image files."""
    tables = parquet_files(path, allow_outside)
    if tables is None or names_files_only(tables):
        return image_folder(path, allow_outside) or tables
    if images := list(filter(may_be_image, files_below(path))):
        note = (
            f"{count_of(len(images), 'file')} beside parquet files that hold images, "
            f"not read: {listed(images)}. To read them, give a folder without these."
        )
        tables = replace(tables, notes=(*tables.notes, note))
    return with_tables_named(tables)


def with_tables_named(source: Source) -> Source:
    """Return a source whose images are not files, with the tables it cannot use."""
    if source.path.is_file():
        return source
    unread = [
        file
        for file in files_below(source.path)
        if file.suffix.lower() in text_tables.SUFFIXES - {".parquet"}
        and file.name != ARTBENCH_TABLE
    ]
    if not unread:
        return source
    note = (
        f"{count_of(len(unread), 'table')} beside images that are not files, not read: "
        f"{listed(unread)}."
    )
    return replace(source, notes=(*source.notes, note))


def packed_sources(path: Path, allow_outside: bool = False) -> list[Source]:
    """Return the data sets packed into few files, in a folder or below it."""
    layouts = (
        lambda folder: saved_dataset(folder, allow_outside),
        python_batches,
        binary_batches,
        idx_files,
    )
    sources = []
    for folder in below(path, DEPTH).folders:
        if any(folder.is_relative_to(source.path) for source in sources):
            continue  # a split of one that was found
        for layout in layouts:
            source = layout(folder)
            if source is not None:
                sources.append(with_tables_named(with_artists(source)))
                break
    return sources


def packed_file(path: Path) -> Source | None:
    """Return the images of one file of a data set that is packed into few."""
    for layout in (python_batches, binary_batches, idx_files):
        source = layout(path.parent, path)
        if source is not None:
            return with_artists(source)
    return None


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
