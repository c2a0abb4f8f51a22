"""Images in tables: Hugging Face's save_to_disk, and parquet; by pyarrow alone."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.files.images import open_picture
from core.data.sources.below import below
from core.data.sources.image_files import image_bytes
from core.data.sources.inside import is_file, lies_inside
from core.data.sources.matching import IMAGE_COLUMNS, plain, training_columns
from core.data.sources.records import SPLITS, Record, Source, split_word
from core.data.sources.text_tables import (features_of, holds_bytes, is_text, not_read, plain_type, texts, unique_headings)
from core.files.texts import listed

ROWS = 64  # read at once
PEEKED = 1000  # rows that are looked at for a first image


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


def saved_dataset(folder: Path, allow_outside: bool = False) -> Source | None:
    """Return what `save_to_disk` wrote, with or without splits; None for other."""
    if (folder / "dataset_dict.json").exists():
        splits = _listed_in(folder / "dataset_dict.json", "splits", str)
        parts = [(split, folder / split) for split in splits]
    elif (folder / "state.json").exists() and (folder / "dataset_info.json").exists():
        parts = [(_json(folder / "state.json").get("_split"), folder)]
    else:
        return None
    files = [
        (split, part / str(entry.get("filename")))
        for split, part in parts
        for entry in _listed_in(part / "state.json", "_data_files", dict)
    ]
    if not files:
        raise ValueError(f"'{folder.name}' was saved without any data file.")
    for _, path in files:
        if not lies_inside(path, folder):
            raise ValueError(
                f"'{folder.name}' names the data file {listed([path])}, out of its "
                "folder. Save the data set again."
            )
    features = _json(parts[0][1] / "dataset_info.json").get("features")
    features = features if isinstance(features, dict) else {}
    tables = []
    for split, path in files:
        try:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as rows:
                table = image_table(path, rows.schema, features)
        except (pa.ArrowException, OSError):
            raise _unreadable(path) from None
        tables.append(
            replace(table, root=folder, split=split, allow_outside=allow_outside)
        )

    def read() -> Iterator[Record]:
        for table in tables:
            try:
                file = pa.memory_map(str(table.path))
                with file, pa.ipc.open_stream(file) as rows:
                    yield from _records(table, rows)
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                raise _unreadable(table.path) from None

    title = "Hugging Face, saved to disk"
    classes = class_names(features)
    return Source(title, folder, read, classes, _notes(tables), _splits(tables))


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
    notes = _notes(tables)
    if without:
        names = [file.relative_to(path) for file in without]
        notes += (f"Parquet files that hold no images are not read: {listed(names)}.",)

    def read() -> Iterator[Record]:
        for table in tables:
            try:
                rows = pq.ParquetFile(table.path).iter_batches(ROWS)
                yield from _records(table, rows)
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                raise _unreadable(table.path) from None

    classes = class_names(tables[0].features)
    return Source("Parquet", path, read, classes, notes, _splits(tables))


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
        raise _unreadable(path) from None


def _columns_of(path: Path) -> list[int]:
    """Return the columns of a parquet file that may hold images, by a look at cells.

    Errors of pyarrow pass through.
    """
    schema = pq.read_schema(path)
    found = image_columns(schema, features_of(schema))
    first = schema.names[found[0]] if found else ""
    if len(found) == 1 and plain(first) in IMAGE_COLUMNS:
        return found  # as it says, whether that can be read or not
    files = [number for number in found if _is_image(_first_cell(path, number))]
    bytes_only = all(holds_bytes(plain_type(schema.field(n).type)) for n in found)
    return files if files or bytes_only else found


def _is_image(cell) -> bool:
    if isinstance(cell, dict):
        cell = cell.get("bytes")
    if not isinstance(cell, bytes):
        return isinstance(cell, str | list)
    try:
        open_picture(cell)
    except ValueError:
        return False
    return True


def _records(table: ImageTable, batches) -> Iterator[Record]:
    first = 0
    for batch in batches:
        yield from table.records(batch, first)
        first += batch.num_rows


def _notes(tables: list[ImageTable]) -> tuple[str, ...]:
    """Return what tables note, each sentence once."""
    return tuple(dict.fromkeys(note for table in tables for note in table.notes))


def _splits(tables: list[ImageTable]) -> tuple[str, ...]:
    """Return the splits that tables say they hold."""
    said = [table.split for table in tables if table.split is not None]
    return tuple(dict.fromkeys(SPLITS.get(split, split) for split in said))


def _unreadable(path: Path) -> ValueError:
    return ValueError(
        f"'{path.name}' could not be read as a table. It may be damaged: get the file "
        "again."
        if path.exists()
        else f"'{path.name}' is missing, which belongs to the data set. Get it again."
    )


def _json(path: Path) -> dict:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"'{path}' is missing or no JSON. Save the data set again.")
    return found


def _listed_in(path: Path, name: str, kind: type) -> list:
    """Return a list in a JSON file.

    Raises:
        ValueError: If it is none, or holds something of another kind.
    """
    found = _json(path).get(name, [])
    if not isinstance(found, list) or not all(isinstance(f, kind) for f in found):
        raise ValueError(
            f"'{path}' holds no list of '{name}'. Save the data set again."
        )
    return found


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def split_of(path: Path) -> str | None:
    """Return the split that a file's name or folder says, such as train-00000-of-1."""
    return split_word(path.name) or SPLITS.get(path.parent.name.lower())


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
    found = marked or named or files or packed
    chosen = training_columns(schema.names[n] for n in found)
    return [n for n in found if schema.names[n] in chosen]


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


def image_table(
    path: Path, schema: pa.Schema, features: dict, found: list[int] | None = None
) -> ImageTable:
    """Return a table with its column of images.

    Args:
        path: The file.
        schema: Of the table.
        features: As Hugging Face wrote them.
        found: The columns that may hold the images; None looks for them.

    Raises:
        ValueError: If none does, or several do.
    """
    found = image_columns(schema, features) if found is None else found
    headings, notes = unique_headings(path, schema.names)
    if len(found) > 1:
        raise ValueError(
            f"'{path.name}' has several columns of images: "
            f"{listed([headings[n] for n in found], 8)}. Call the one with the "
            "training images 'image'."
        )
    if not found:
        raise ValueError(
            f"'{path.name}' has the columns {listed(headings, 8) or 'none'}; none "
            "holds pictures. Name the column with their file bytes 'image'."
        )
    left_out = [
        headings[number]
        for number, field in enumerate(schema)
        if number not in found and not is_text(field.type)
    ]
    notes += not_read(path, left_out)
    return ImageTable(path, tuple(headings), found[0], features, notes=tuple(notes))


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
