"""Images in parquet: one file, or a folder of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.data.sources.below import below
from core.data.sources.image_tables import (
    ImageTable,
    class_names,
    image_columns,
    image_table,
    notes_of,
    records_of,
    splits_of,
    unreadable,
)
from core.data.sources.matching import IMAGE_COLUMNS, plain
from core.data.sources.records import SPLITS, Record, Source, split_word
from core.data.sources.text_tables import features_of, holds_bytes, plain_type
from core.files.images import open_image
from core.files.texts import listed

ROWS = 64  # read at once
PEEKED = 1000  # rows that are looked at for a first image


def parquet_files(path: Path, allow_outside: bool = False) -> Source | None:
    """Return one parquet file, or a folder of them that hold images."""
    if path.is_file():
        if not _is_parquet(path):
            return None
        tables, without, root = [_parquet_table(path)], [], path.parent
    else:
        tables, without, root = [], [], path
        for file in parquet_below(path):
            try:
                if _columns_of(file):
                    tables.append(_parquet_table(file))
                    continue
            except (pa.ArrowException, OSError):
                pass  # what is damaged is not read either
            without.append(file)
    if not tables:
        return None
    tables = [
        replace(
            table, root=root, split=split_of(table.path), allow_outside=allow_outside
        )
        for table in tables
    ]
    tables.sort(key=lambda table: (table.split != "train", table.path))
    notes = notes_of(tables)
    if without:
        names = [file.relative_to(path) for file in without]
        notes += (f"Parquet files that hold no images are not read: {listed(names)}.",)

    def read() -> Iterator[Record]:
        for table in tables:
            try:
                rows = pq.ParquetFile(table.path).iter_batches(ROWS)
                yield from records_of(table, rows)
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                raise unreadable(table.path) from None

    classes = class_names(tables[0].features)
    return Source("Parquet", path, read, classes, notes, splits_of(tables))


def parquet_below(folder: Path) -> list[Path]:
    """Return the parquet files in and below a folder that are not hidden, in order."""
    files = below(folder).files
    return [f for f in files if f.suffix.lower() == ".parquet" and _is_parquet(f)]


def names_files_only(source: Source) -> bool:
    """Return whether the images of a parquet source are files that its cells name."""
    files = [source.path] if source.path.is_file() else parquet_below(source.path)
    return not any(_columns_of(f) and _holds_pixels(f) for f in files)


def _holds_pixels(path: Path) -> bool:
    table = _parquet_table(path)
    cell = _first_cell(path, table.number)
    return bool(cell.get("bytes") if isinstance(cell, dict) else cell) and not (
        isinstance(cell, str)
    )


def _first_cell(path: Path, number: int):
    """Return the first cell of a column that is not empty; None if there is none near.

    Errors of pyarrow pass through.
    """
    file = pq.ParquetFile(path)
    name = file.schema_arrow.names[number]
    for seen, batch in enumerate(file.iter_batches(1, columns=[name])):
        cell = batch.column(0)[0].as_py()
        if cell is not None or seen >= PEEKED:
            return cell
    return None


def _parquet_table(path: Path) -> ImageTable:
    try:
        schema = pq.read_schema(path)
        return image_table(path, schema, features_of(schema), _columns_of(path))
    except (pa.ArrowException, OSError):
        raise unreadable(path) from None


def _columns_of(path: Path) -> list[int]:
    """Return the columns of a parquet file that may hold images, by a look at cells.

    Errors of pyarrow pass through.
    """
    schema = pq.read_schema(path)
    columns = image_columns(schema, features_of(schema))
    first = schema.names[columns[0]] if columns else ""
    if len(columns) == 1 and plain(first) in IMAGE_COLUMNS:
        return columns  # as it says, whether that can be read or not
    files = [number for number in columns if _is_image(_first_cell(path, number))]
    bytes_only = all(holds_bytes(plain_type(schema.field(n).type)) for n in columns)
    return files if files or bytes_only else columns


def _is_image(cell) -> bool:
    if isinstance(cell, dict):
        cell = cell.get("bytes")
    if not isinstance(cell, bytes):
        return isinstance(cell, str | list)
    try:
        open_image(cell)
    except ValueError:
        return False
    return True


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def split_of(path: Path) -> str | None:
    """Return the split that a file's name or folder says, such as train-00000-of-1."""
    return split_word(path.name) or SPLITS.get(path.parent.name.lower())
