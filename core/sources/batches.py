"""Pictures packed into few files: CIFAR's and ArtBench's batches, MNIST's IDX."""

import gzip
import pickle
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.sources.records import Record, Source

PIXELS = 3 * 32 * 32
PICKLE, GZIP = b"\x80", b"\x1f\x8b"
BATCH = re.compile(r"(data_batch_(\d+)|test_batch|train|test)(\.bin)?")
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
IDX_PICTURES, IDX_LABELS = 3, 1  # dimensions of the arrays
IDX_FILES = 64  # more than any such data set has


class BatchUnpickler(pickle.Unpickler):
    """Reads arrays, lists and text, and refuses whatever else a pickle may run."""

    ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }

    def find_class(self, module: str, name: str):
        """Return a class or function that a batch needs."""
        if (module, name) not in self.ALLOWED:
            raise ValueError(
                f"The pickle asks for '{module}.{name}', which no batch of pictures "
                "needs, so it was not opened. Get the file from its publisher."
            )
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def unpickled(path: Path) -> dict:
    """Return the dictionary of a batch or meta file.

    Raises:
        ValueError: If it is damaged, no dictionary, or asks for more than data.
    """
    try:
        with path.open("rb") as file:
            found = BatchUnpickler(file, encoding="latin1").load()
    except ValueError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(
            f"'{path.name}' is no whole pickle ({type(error).__name__}). Get the file "
            "again."
        ) from None
    if not isinstance(found, dict):
        raise ValueError(
            f"'{path.name}' holds {type(found).__name__}, not the dictionary of a "
            "CIFAR batch."
        )
    return found


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


def batch_files(folder: Path, binary: bool) -> list[BatchFile]:
    """Return the batches in a folder, in their order."""
    found = []
    for path in folder.iterdir():
        match = BATCH.fullmatch(path.name)
        if not match or bool(match[3]) != binary or not path.is_file():
            continue
        with path.open("rb") as file:
            pickled = file.read(1) == PICKLE
        if binary or pickled:
            split = "test" if match[1].startswith("test") else "train"
            found.append(BatchFile(path, split, int(match[2] or 1)))
    return sorted(found, key=lambda f: (f.split == "test", f.number))


def python_batches(folder: Path) -> Source | None:
    """Return CIFAR or ArtBench as Python wrote it, None if this is something else."""
    files = batch_files(folder, binary=False)
    if not files:
        return None
    meta = next((folder / name for name in META if (folder / name).exists()), None)
    known = {} if meta is None else unpickled(meta)
    names = {
        CLASS_KEYS[key]: [str(name) for name in value]
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
    return Source(f"{title(classes)}, Python batches", folder, read, classes)


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
        columns["file"] = [str(name) for name in batch["filenames"]]
    for column, values in columns.items():
        if len(values) != len(rows):
            raise ValueError(
                f"'{path.name}' has {len(rows)} pictures and {len(values)} values of "
                f"'{column}'. Get the file again."
            )
    facts = [{c: values[i] for c, values in columns.items()} for i in range(len(rows))]
    return rows, facts


def labelled(labels, names: list[str] | None, path: Path) -> list[str]:
    """Return class names of numbers; the numbers as text where there are no names.

    Raises:
        ValueError: If a number has no name.
    """
    labels = [int(label) for label in labels]
    if names is None:
        return [str(label) for label in labels]
    if labels and not 0 <= min(labels) <= max(labels) < len(names):
        raise ValueError(
            f"'{path.name}' has the class number {max(labels)}, but only "
            f"{len(names)} classes have names. The names belong to another data set."
        )
    return [names[label] for label in labels]


def _records(file: BatchFile, rows: np.ndarray, facts: list[dict], first: int):
    """Yield a batch's records; `first` is the number of its first row in the split."""
    for i, row in enumerate(rows):
        pixels = row.reshape(3, 32, 32).transpose(1, 2, 0)
        own = {"split": file.split, "row": str(first + i), **facts[i]}
        yield Record(pixels, own, f"{file.path.name}, row {i}")


def title(classes: tuple[str, ...]) -> str:
    """Return the name of a batched data set, by its classes."""
    if "automobile" in classes:
        return "CIFAR-10"
    if "ukiyo_e" in classes:
        return "ArtBench-10"
    return "CIFAR-100" if len(classes) == 100 else "CIFAR-like"


def binary_batches(folder: Path) -> Source | None:
    """Return CIFAR or ArtBench in binary records, None if this is something else."""
    files = batch_files(folder, binary=True)
    if not files:
        return None
    names = {}
    for name, column in (
        ("batches.meta.txt", "label"),
        ("fine_label_names.txt", "label"),
        ("coarse_label_names.txt", "coarse_label"),
    ):
        if (folder / name).exists():
            names[column] = (folder / name).read_text().split()
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
    return Source(f"{title(classes)}, binary batches", folder, read, classes)


# --- IDX -----------------------------------------------------------------------------


def idx_header(path: Path) -> tuple[int, ...] | None:
    """Return the shape of the uint8 array in an IDX file, None if it is none."""
    try:
        with _maybe_gzip(path) as file:
            start = file.read(4)
            if len(start) < 4 or start[:3] != b"\x00\x00\x08" or start[3] not in (1, 3):
                return None
            sizes = file.read(4 * start[3])
            return struct.unpack(f">{start[3]}I", sizes)
    except (OSError, EOFError, struct.error):
        return None


def _maybe_gzip(path: Path):
    """Return a file opened for reading, unpacked where it is gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return gzip.open(path) if packed else path.open("rb")


def idx_array(path: Path) -> np.ndarray:
    """Return the array in an IDX file.

    Raises:
        ValueError: If the file ends early.
    """
    shape = idx_header(path)
    try:
        with _maybe_gzip(path) as file:
            data = file.read()[4 + 4 * len(shape) :]
    except (OSError, EOFError):
        data = b""
    if len(data) != np.prod(shape):
        raise ValueError(
            f"'{path.name}' does not hold the {'x'.join(map(str, shape))} values that "
            "its header promises. Get the file again."
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


def idx_files(folder: Path) -> Source | None:
    """Return an MNIST-style data set, None if this is something else."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    if len(files) > IDX_FILES:  # a folder of pictures: none of them need be opened
        return None
    arrays = {p: shape for p in files if (shape := idx_header(p)) is not None}
    pictures = [p for p, shape in arrays.items() if len(shape) == IDX_PICTURES]
    if not pictures:
        return None
    # Training pictures first, each with the labels that share its name's beginning.
    pictures.sort(key=lambda path: (idx_split(path) == "test", path.name))
    labels = {idx_stem(p): p for p, s in arrays.items() if len(s) == IDX_LABELS}

    def read() -> Iterator[Record]:
        for path in pictures:
            images, split = idx_array(path), idx_split(path)
            beside = labels.get(idx_stem(path))
            classes = None if beside is None else idx_array(beside)
            if classes is not None and len(classes) != len(images):
                raise ValueError(
                    f"'{path.name}' has {len(images)} pictures and '{beside.name}' "
                    f"{len(classes)} labels. Get the files again."
                )
            for i, image in enumerate(images):
                facts = {"split": split, "row": str(i)}
                if classes is not None:
                    facts["label"] = str(classes[i])
                yield Record(image[..., None], facts, f"{path.name}, row {i}")

    return Source("MNIST-like IDX files", folder, read)


def idx_stem(path: Path) -> str:
    """Return what the names of pictures and of their labels have in common."""
    return re.split(r"images|labels", path.name)[0]


def idx_split(path: Path) -> str:
    """Return the split that a file's name says."""
    return "test" if re.search(r"(^|[-_.])(t10k|test)[-_.]", path.name) else "train"
