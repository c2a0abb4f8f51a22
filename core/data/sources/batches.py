"""Images packed into few files, as CIFAR and ArtBench are published."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.data.sources.pickles import text_of, unpickled
from core.data.sources.records import Record, Source

PIXELS = 3 * 32 * 32
PICKLE = b"\x80"
BATCH = re.compile(r"(data_batch_(\d+)|test_batch|train|test)(\.bin|\.pkl|\.pickle)?")
META = ("batches.meta", "meta")
# Keys of class names in meta files, and of labels in batches: the column they become.
CLASS_KEYS = {
    "label_names": "label",
    "styles": "label",
    "fine_label_names": "label",
    "coarse_label_names": "coarse_label",
}
LABEL_KEYS = {
    "labels": "label",
    "fine_labels": "label",
    "coarse_labels": "coarse_label",
}


@dataclass(frozen=True)
class BatchFile:
    """A file of a batched data set.

    Attributes:
        path: The file.
        split: "train" or "test".
        number: Its place among the files of its split.
    """

    path: Path
    split: str
    number: int


def batch_files(folder: Path, binary: bool, only: Path | None) -> list[BatchFile]:
    """Return the batches in a folder, in their order; only the one, if one is named."""
    files = []
    for path in folder.iterdir() if only is None else [only]:
        match = BATCH.fullmatch(path.name)
        if not match or (match[3] == ".bin") != binary or not path.is_file():
            continue
        with path.open("rb") as file:
            pickled = file.read(1) == PICKLE
        if binary or pickled:
            split = "test" if match[1].startswith("test") else "train"
            files.append(BatchFile(path, split, int(match[2] or 1)))
    return sorted(files, key=lambda f: (f.split == "test", f.number))


def python_batches(folder: Path, only: Path | None = None) -> Source | None:
    """Return CIFAR or ArtBench as Python wrote it, None if this is something else.

    Args:
        folder: That holds the batches.
        only: The one that is wanted; None takes all.
    """
    files = batch_files(folder, False, only)
    if not files:
        return None
    meta = next((folder / name for name in META if (folder / name).exists()), None)
    known = {} if meta is None else unpickled(meta)
    names = {
        CLASS_KEYS[key]: [text_of(name) for name in value]
        for key, value in known.items()
        if key in CLASS_KEYS
    }

    def read() -> Iterator[Record]:
        first = {"train": 0, "test": 0}
        for file in files:
            rows, facts = python_batch(file.path, names)
            yield from _records(file, rows, facts, first[file.split])
            first[file.split] += len(rows)

    classes = tuple(names.get("label", ()))
    layout = f"{title(classes)}, Python batches"
    return Source(layout, folder, read, classes, splits=splits_of(files))


def python_batch(path: Path, names: dict) -> tuple[np.ndarray, list[dict]]:
    """Return pixels (n, 3072) of a batch and what is known of each row.

    Raises:
        ValueError: If the batch has another shape.
    """
    batch = unpickled(path)
    rows = np.asarray(batch.get("data", []))
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != PIXELS:
        raise ValueError(
            f"The pixels in '{path.name}' are {rows.dtype} of shape {rows.shape}; "
            f"expected uint8 of shape (n, {PIXELS}), 32x32 in colour."
        )
    columns = {
        column: labelled(batch[key], names.get(column), path)
        for key, column in LABEL_KEYS.items()
        if key in batch
    }
    if "filenames" in batch:
        columns["file"] = [text_of(name) for name in batch["filenames"]]
    for column, values in columns.items():
        if len(values) != len(rows):
            raise ValueError(
                f"'{path.name}' has {len(rows)} images and {len(values)} values of "
                f"'{column}'. Get the file again."
            )
    facts = [{c: values[i] for c, values in columns.items()} for i in range(len(rows))]
    return rows, facts


def labelled(labels, names: list[str] | None, path: Path) -> list[str]:
    """Return class names of numbers; the numbers as text where there are no names.

    Raises:
        ValueError: If a number has no name, or there is something else than numbers.
    """
    labels = np.asarray(labels).ravel().tolist()
    if labels and all(isinstance(label, str | bytes) for label in labels):
        return [text_of(label) for label in labels]
    try:
        numbers = [int(label) for label in labels]
        whole = numbers == labels
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(
            f"'{path.name}' has labels that are not whole numbers. Save it again with "
            "the number of each class, counted from 0."
        )
    if names is None:
        return [str(number) for number in numbers]
    for number in numbers:
        if not 0 <= number < len(names):
            raise ValueError(
                f"'{path.name}' has the class number {number}, but only {len(names)} "
                "classes have names. The names belong to another data set."
            )
    return [names[number] for number in numbers]


def splits_of(files: list[BatchFile]) -> tuple[str, ...]:
    """Return the splits that batches hold."""
    return tuple(dict.fromkeys(file.split for file in files))


def _records(file: BatchFile, rows: np.ndarray, facts: list[dict], first: int):
    """Yield a batch's records; `first` is the number of its first row in the split."""
    for i, row in enumerate(rows):
        pixels = row.reshape(3, 32, 32).transpose(1, 2, 0)
        row_facts = {"split": file.split, "row": str(first + i), **facts[i]}
        yield Record(pixels, row_facts, f"{file.path.name}, row {i}")


def title(classes: tuple[str, ...]) -> str:
    """Return the name of a batched data set, by its classes."""
    if "automobile" in classes:
        return "CIFAR-10"
    if "ukiyo_e" in classes:
        return "ArtBench-10"
    return "CIFAR-100" if len(classes) == 100 else "CIFAR-like"


def binary_batches(folder: Path, only: Path | None = None) -> Source | None:
    """Return CIFAR or ArtBench in binary records, None if this is something else.

    Args:
        folder: That holds the batches.
        only: The one that is wanted; None takes all.
    """
    files = batch_files(folder, True, only)
    if not files:
        return None
    names = {}
    for name, column in (
        ("batches.meta.txt", "label"),
        ("fine_label_names.txt", "label"),
        ("coarse_label_names.txt", "coarse_label"),
    ):
        if (folder / name).exists():
            text = (folder / name).read_text(errors="replace")
            names[column] = text.split()
    # CIFAR-100 has the coarse label first.
    columns = ["coarse_label", "label"] if "coarse_label" in names else ["label"]
    size = len(columns) + PIXELS

    def read() -> Iterator[Record]:
        first = {"train": 0, "test": 0}
        for file in files:
            length = file.path.stat().st_size
            if length % size or not length:
                raise ValueError(
                    f"'{file.path.name}' has {length:,} bytes, no whole number of "
                    f"records of {size}. Get the file again."
                )
            rows = np.memmap(file.path, np.uint8, "r").reshape(-1, size)
            values = {
                column: labelled(rows[:, i], names.get(column), file.path)
                for i, column in enumerate(columns)
            }
            facts = [
                {column: values[column][i] for column in columns}
                for i in range(len(rows))
            ]
            pixels = rows[:, len(columns) :]
            yield from _records(file, pixels, facts, first[file.split])
            first[file.split] += len(rows)

    classes = tuple(names.get("label", ()))
    layout = f"{title(classes)}, binary batches"
    return Source(layout, folder, read, classes, splits=splits_of(files))
