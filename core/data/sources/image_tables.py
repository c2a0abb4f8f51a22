"""A table with a column of images: which column that is, and what its cells hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from core.data.sources.image_files import image_bytes
from core.data.sources.inside import is_file, lies_inside
from core.data.sources.matching import IMAGE_COLUMNS, plain, training_columns
from core.data.sources.records import SPLITS, Record
from core.data.sources.text_tables import (
    holds_bytes,
    is_text,
    not_read,
    plain_type,
    texts,
    unique_headings,
)
from core.files.texts import listed


@dataclass(frozen=True)
class ImageTable:
    """A file with a column of images.

    Attributes:
        path: The file.
        headings: Of its columns, each once.
        number: Of the column with the images.
        features: What Hugging Face wrote about the columns.
        root: The folder that was given, which paths in cells must not leave.
        split: That it holds, None if it does not say.
        allow_outside: Whether paths in cells may leave `root`.
        notes: What is not read of it, a sentence each.
    """

    path: Path
    headings: tuple[str, ...]
    number: int
    features: dict
    root: Path = Path()
    split: str | None = None
    allow_outside: bool = False
    notes: tuple[str, ...] = ()

    def records(self, batch: pa.RecordBatch, first: int) -> Iterator[Record]:
        """Yield the records of a few rows, the first of which has this number."""
        columns = {}
        for number, heading in enumerate(self.headings):
            # The column of images may be paths, which are text, or pixels in lists.
            if number != self.number and is_text(batch.column(number).type):
                feature = self.features.get(heading)
                columns[heading] = texts(batch.column(number), feature)
        for i, cell in enumerate(batch.column(self.number)):
            facts = {heading: values[i] for heading, values in columns.items()}
            if self.split is not None:
                facts["split"] = SPLITS.get(self.split, self.split)
            elif "split" in facts:
                facts["split"] = SPLITS.get(facts["split"].lower(), facts["split"])
            image, trouble = self.image(cell.as_py())
            place = f"{self.path.name}, row {first + i}"
            yield Record(image, facts, place, trouble)

    def image(self, cell) -> tuple[bytes | np.ndarray, str]:
        """Return a cell as the bytes of an image file or as pixels (H, W, C).

        A cell may hold bytes, a path, both, or nested lists of pixels. What cannot be
        got becomes no bytes, with the reason.
        """
        if isinstance(cell, dict):
            cell = cell.get("bytes") or cell.get("path")
        if isinstance(cell, bytes):
            return cell, ""
        if isinstance(cell, str):
            return self.file(cell)
        if isinstance(cell, list):
            return pixels_of(cell), ""
        return b"", "The cell is empty."

    def file(self, name: str) -> tuple[bytes, str]:
        """Return the bytes of a file that a cell names, or why there are none."""
        path = self.path.parent / name.replace("\\", "/")  # an absolute one stays so
        if not self.allow_outside and not lies_inside(path, self.root):
            return b"", (
                f"Its path, {listed([name])}, lies outside of the folder that was "
                "given. To read such files, add --allow-outside."
            )
        if not is_file(path):
            return b"", f"There is no file at {listed([name])}."
        return image_bytes(path)


def image_table(
    path: Path, schema: pa.Schema, features: dict, columns: list[int] | None = None
) -> ImageTable:
    """Return a table with its column of images.

    Args:
        path: The file.
        schema: Of the table.
        features: As Hugging Face wrote them.
        columns: The columns that may hold the images; None looks for them.

    Raises:
        ValueError: If none does, or several do.
    """
    columns = image_columns(schema, features) if columns is None else columns
    headings, notes = unique_headings(path, schema.names)
    if len(columns) > 1:
        raise ValueError(
            f"'{path.name}' has several columns of images: "
            f"{listed([headings[n] for n in columns], 8)}. Call the one with the "
            "training images 'image'."
        )
    if not columns:
        raise ValueError(
            f"'{path.name}' has the columns {listed(headings, 8) or 'none'}; none "
            "holds images. Name the column with their file bytes 'image'."
        )
    left_out = [
        headings[number]
        for number, field in enumerate(schema)
        if number not in columns and not is_text(field.type)
    ]
    notes += not_read(path, left_out)
    return ImageTable(path, tuple(headings), columns[0], features, notes=tuple(notes))


def image_columns(schema: pa.Schema, features: dict) -> list[int]:
    """Return the numbers of the columns that can hold the training images.

    What Hugging Face wrote tells, else the headings, else that a column holds bytes.
    Several where none of these does.

    Args:
        schema: Of the table.
        features: As Hugging Face wrote them.
    """
    holding = [
        number
        for number, field in enumerate(schema)
        if _may_hold_images(plain_type(field.type))
    ]
    marked = [n for n in holding if _kind_of(features.get(schema.names[n])) == "Image"]
    named = [n for n in holding if plain(schema.names[n]) in IMAGE_COLUMNS]
    files = [n for n in holding if _is_file(plain_type(schema.field(n).type))]
    packed = [n for n in holding if holds_bytes(plain_type(schema.field(n).type))]
    candidates = marked or named or files or packed
    chosen = training_columns(schema.names[n] for n in candidates)
    return [n for n in candidates if schema.names[n] in chosen]


def _kind_of(feature) -> str | None:
    return feature.get("_type") if isinstance(feature, dict) else None


def _is_file(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0


def _may_hold_images(kind: pa.DataType) -> bool:
    """Return whether a column may hold bytes, files, paths or lists of pixels."""
    texts_or_lists = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
        pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list,
    )  # fmt: skip
    known = (holds_bytes, _is_file, *texts_or_lists)
    return any(is_kind(kind) for is_kind in known)


def class_names(features: dict) -> tuple[str, ...]:
    """Return the names of the classes, where the features list them."""
    for feature in features.values():
        if _kind_of(feature) == "ClassLabel":
            names = feature.get("names")
            return tuple(map(str, names)) if isinstance(names, list) else ()
    return ()


def pixels_of(cell: list) -> bytes | np.ndarray:
    """Return nested lists as pixels (H, W, C); no bytes where they are none."""
    try:
        pixels = np.asarray(cell)
    except ValueError:  # rows of unequal length
        return b""
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] > 4:
        pixels = pixels.transpose(1, 2, 0)
    whole = np.issubdtype(pixels.dtype, np.integer)
    if whole and pixels.ndim == 3 and 0 <= pixels.min() and pixels.max() < 256:
        return pixels.astype(np.uint8)
    return b""


def records_of(table: ImageTable, batches) -> Iterator[Record]:
    """Yield the records of a table's batches of rows, numbered through."""
    first = 0
    for batch in batches:
        yield from table.records(batch, first)
        first += batch.num_rows


def notes_of(tables: list[ImageTable]) -> tuple[str, ...]:
    """Return what tables note, each sentence once."""
    return tuple(dict.fromkeys(note for table in tables for note in table.notes))


def splits_of(tables: list[ImageTable]) -> tuple[str, ...]:
    """Return the splits that tables say they hold."""
    splits = [table.split for table in tables if table.split is not None]
    return tuple(dict.fromkeys(SPLITS.get(split, split) for split in splits))


def unreadable(path: Path) -> ValueError:
    """Return the error for a file that pyarrow cannot read."""
    return ValueError(
        f"'{path.name}' could not be read as a table. It may be damaged: get the file "
        "again."
        if path.exists()
        else f"'{path.name}' is missing, which belongs to the data set. Get it again."
    )
