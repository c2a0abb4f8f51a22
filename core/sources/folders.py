"""Pictures as files in folders, with what tables beside them say of each."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.sources.records import SPLITS, Record, Source, is_hidden

# Files that lie beside pictures and are none; everything else is tried.
BESIDE = {
    ".csv", ".jsonl", ".json", ".parquet", ".txt", ".md", ".html", ".xml", ".yaml",
    ".yml", ".ini", ".db", ".lock", ".pdf", ".py", ".zip", ".tar", ".gz",
}  # fmt: skip
SNIFFED = 50  # files that are looked at before a folder is said to hold no picture
# The first bytes of the kinds of picture that a folder is told by.
MAGIC = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"II*\x00", b"MM\x00*",
    b"P1", b"P2", b"P3", b"P4", b"P5", b"P6",
)  # fmt: skip
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
ARTBENCH_TABLE = "ArtBench-10.csv"
ARTBENCH_FACTS = ("artist", "url", "is_public_domain")


def picture_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be pictures, in the order of their names.

    Hidden files and folders, as systems leave them behind, do not count.
    """
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() not in BESIDE
        and not any(map(is_hidden, path.relative_to(folder).parts))
        and path.is_file()
    )


def image_folder(folder: Path) -> Source | None:
    """Return pictures in folders by class and perhaps split, None if there are none."""
    files = picture_files(folder)
    if not any(map(_looks_like_picture, files[:SNIFFED])):
        return None
    has_splits = bool(files) and all(
        len(parts := path.relative_to(folder).parts) > 1 and parts[0].lower() in SPLITS
        for path in files
    )
    tables = metadata_tables(folder)
    depth = int(has_splits)
    classes = {
        path.relative_to(folder).parts[depth]
        for path in files
        if len(path.relative_to(folder).parts) > depth + 1
    }
    art = artbench_table(folder)
    known = art.by_name if art and classes & art.styles else {}

    def read() -> Iterator[Record]:
        for path in files:
            facts = folder_facts(path.relative_to(folder), has_splits)
            facts |= caption_beside(path)
            facts |= tables.get(path, {})
            key = (facts.get("split"), facts.get("label"), path.name)
            facts |= known.get(key) or known.get((None, *key[1:]), {})
            yield Record(path.read_bytes(), facts, str(path.relative_to(folder)))

    layout = "ArtBench-10, picture files" if known else "Picture files"
    return Source(layout, folder, read, tuple(sorted(classes)))


def _looks_like_picture(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith(MAGIC)


def caption_beside(path: Path) -> dict[str, str]:
    """Return the caption in a text file of a picture's name, as LoRA trainers read it.

    Nothing where there is no such file.
    """
    beside = path.with_suffix(".txt")
    if not beside.is_file():
        return {}
    return {"caption": beside.read_text("utf-8", errors="replace").strip()}


def folder_facts(inside: Path, has_splits: bool) -> dict[str, str]:
    """Return what a file's place says: its split, class and name."""
    parts = list(inside.parts)
    facts = {"file": inside.as_posix(), "name": inside.stem}
    if has_splits:
        facts["split"] = SPLITS[parts.pop(0).lower()]
    if len(parts) > 1:
        facts["label"] = parts[0]
    return facts


# --- tables beside -------------------------------------------------------------------


def metadata_tables(folder: Path) -> dict[Path, dict[str, str]]:
    """Return what metadata.csv, .jsonl and .parquet files say, by picture file.

    Raises:
        ValueError: If a table cannot be read or does not name files.
    """
    found = {}
    for name in METADATA:
        for path in sorted(folder.rglob(name)):
            for row in table_rows(path):
                file = next(
                    (row.pop(c) for c in list(row) if c.endswith("file_name")), None
                )
                if file is None:
                    raise ValueError(
                        f"'{path.name}' has the columns "
                        f"{', '.join(map(repr, row)) or 'none'}. It needs 'file_name', "
                        "relative to the table."
                    )
                found[path.parent / file] = row
    return found


def table_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a small table as text by column.

    Raises:
        ValueError: If it is damaged.
    """
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:
                rows = list(csv.DictReader(file))
        elif path.suffix == ".jsonl":
            lines = path.read_text("utf-8").splitlines()
            rows = [json.loads(line) for line in lines if line.strip()]
        else:
            rows = pq.read_table(path).to_pylist()
        return [
            {
                str(column): "" if value is None else str(value)
                for column, value in row.items()
                if not isinstance(value, dict | list) and column is not None
            }
            for row in rows
        ]
    except (ValueError, AttributeError, csv.Error, pa.ArrowException) as error:
        raise ValueError(
            f"'{path.name}' could not be read as a table ({type(error).__name__}). "
            "Save it again, as UTF-8."
        ) from None


class ArtBenchTable:
    """What ArtBench-10.csv, the only source of the artists, says of each picture.

    Attributes:
        by_name: Facts by (split, style, file name), and by (None, style, file name).
        by_row: Facts by (split, row of the batches).
        styles: All of them.
    """

    def __init__(self, path: Path):
        """Read the table."""
        self.by_name, self.by_row, self.styles = {}, {}, set()
        for row in table_rows(path):
            facts = {name: row.get(name, "") for name in ARTBENCH_FACTS}
            facts["title"] = artwork_title(row.get("name", ""))
            split, style, name = (row.get(c) for c in ("split", "label", "name"))
            self.styles.add(style)
            self.by_name[split, style, name] = facts
            self.by_name[None, style, name] = facts
            self.by_row[split, row.get("cifar_index")] = facts


def artwork_title(name: str) -> str:
    """Return the title in a file name such as "claude-monet_the-seine-1874.jpg"."""
    stem = name.rsplit(".", 1)[0]
    return stem.split("_", 1)[-1].replace("-", " ")


def artbench_table(folder: Path) -> ArtBenchTable | None:
    """Return ArtBench's table if it lies in a folder or up to two above it."""
    for place in (folder, *folder.parents[:2]):
        if (place / ARTBENCH_TABLE).is_file():
            return ArtBenchTable(place / ARTBENCH_TABLE)
    return None
