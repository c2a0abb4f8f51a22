"""Pictures in tables: Hugging Face's save_to_disk, and parquet; by pyarrow alone."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.sources.records import SPLITS, Record, Source

ROWS = 64  # read at once
IMAGE_NAMES = ("image", "img", "picture", "pixel_values")


def saved_dataset(folder: Path) -> Source | None:
    """Return what `save_to_disk` wrote, with or without splits; None for other."""
    if (folder / "dataset_dict.json").exists():
        splits = _json(folder / "dataset_dict.json").get("splits", [])
        parts = [(split, folder / split) for split in splits]
    elif (folder / "state.json").exists() and (folder / "dataset_info.json").exists():
        parts = [(_json(folder / "state.json").get("_split"), folder)]
    else:
        return None
    files = [
        (split, part / entry["filename"])
        for split, part in parts
        for entry in _json(part / "state.json").get("_data_files", [])
    ]
    if not files:
        raise ValueError(f"'{folder.name}' was saved without any data file.")
    features = _json(parts[0][1] / "dataset_info.json").get("features", {})

    def read() -> Iterator[Record]:
        for split, path in files:
            try:
                with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as rows:
                    column = image_column(rows.schema, features, path)
                    for number, batch in enumerate(rows):
                        yield from records(batch, column, features, split, path, number)
            except (pa.ArrowException, FileNotFoundError) as error:
                raise _unreadable(path, error) from None

    return Source("Hugging Face, saved to disk", folder, read, class_names(features))


def parquet_files(path: Path) -> Source | None:
    """Return one parquet file, or a folder of them that hold pictures."""
    if path.is_file():
        files = [path] if _is_parquet(path) else []
    else:
        files = sorted(p for p in path.rglob("*.parquet") if _is_parquet(p))
        files = [p for p in files if _has_image(p)]
    if not files:
        return None
    features = _features(files[0])

    def read() -> Iterator[Record]:
        for file in sorted(files, key=lambda p: (split_of(p) != "train", p)):
            try:
                table = pq.ParquetFile(file)
                column = image_column(table.schema_arrow, features, file)
                for number, batch in enumerate(table.iter_batches(ROWS)):
                    split = split_of(file)
                    yield from records(batch, column, features, split, file, number)
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(file, error) from None

    return Source("Parquet", path, read, class_names(features))


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"'{path.name}' could not be read as a table ({type(error).__name__}). It may "
        "be damaged: get the file again."
    )


def _json(path: Path) -> dict:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"'{path}' is missing or no JSON. Save the data set again.")
    return found


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _has_image(path: Path) -> bool:
    try:
        image_column(pq.read_schema(path), _features(path), path)
    except (ValueError, pa.ArrowException, OSError):
        return False
    return True


def _features(path: Path) -> dict:
    """Return what Hugging Face wrote about the columns; empty if it wrote nothing."""
    try:
        metadata = pq.read_schema(path).metadata or {}
        info = json.loads(metadata.get(b"huggingface", b"{}"))
    except (ValueError, pa.ArrowException, OSError):
        return {}
    return info.get("info", {}).get("features", {})


def split_of(path: Path) -> str | None:
    """Return the split that a file's name or folder says, such as train-00000-of-1."""
    first_word = re.split(r"[-_.]", path.name.lower())[0]
    return SPLITS.get(first_word) or SPLITS.get(path.parent.name.lower())


def image_column(schema: pa.Schema, features: dict, path: Path) -> str:
    """Return the name of the column that holds the pictures.

    Raises:
        ValueError: If none does.
    """
    for name, feature in features.items():
        if isinstance(feature, dict) and feature.get("_type") == "Image":
            return name
    for name in IMAGE_NAMES:
        if name in schema.names:
            return name
    for field in schema:
        if pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0:
            return field.name
    raise ValueError(
        f"'{path.name}' has the columns {', '.join(map(repr, schema.names))}; none "
        "holds pictures. Name the column with their file bytes 'image'."
    )


def class_names(features: dict) -> tuple[str, ...]:
    """Return the names of the classes, where the features list them."""
    for feature in features.values():
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            return tuple(map(str, feature.get("names", ())))
    return ()


def records(
    batch: pa.RecordBatch,
    column: str,
    features: dict,
    split: str | None,
    path: Path,
    number: int,
) -> Iterator[Record]:
    """Yield the records of a few rows."""
    scalars = {
        name: _texts(batch[name], features.get(name))
        for name in batch.schema.names
        if name != column
        and not pa.types.is_nested(batch[name].type)
        # A second binary column is no text.
        and not pa.types.is_binary(batch[name].type)
    }
    for i, value in enumerate(batch[column]):
        facts = {name: values[i] for name, values in scalars.items()}
        if split is not None:
            facts["split"] = SPLITS.get(split, split)
        place = f"{path.name}, row {number * ROWS + i}"
        yield Record(image_of(value.as_py(), path), facts, place)


def _texts(values: pa.Array, feature: dict | None) -> list[str]:
    """Return values as text, class numbers as the names of their classes."""
    names = None
    if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
        names = feature.get("names")
    return [
        names[value]
        if names and isinstance(value, int) and 0 <= value < len(names)
        else ("" if value is None else str(value))
        for value in values.to_pylist()
    ]


def image_of(value, path: Path) -> bytes | np.ndarray:
    """Return a cell as the bytes of a picture file, or as pixels (H, W, C).

    A cell may hold bytes, a path, both, or nested lists of pixels. What cannot be read
    becomes no bytes, which no picture is.
    """
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        outside = path.parent / value  # an absolute path stays one
        return outside.read_bytes() if outside.is_file() else b""
    if isinstance(value, list):
        try:
            pixels = np.asarray(value)
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
