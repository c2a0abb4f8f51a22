"""MNIST-like IDX files, also compressed, read an image at a time."""

import math
import re
import struct
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np

from core.data.sources.compressed import AT_ONCE, PackedError, Unpacked
from core.data.sources.records import Record, Source
from core.files.images import EXTENSIONS, MAX_PIXELS

IMAGES, LABELS = 3, 1  # dimensions of the arrays


def idx_files(folder: Path, only: Path | None = None) -> Source | None:
    """Return an MNIST-style data set, None if this is something else.

    Args:
        folder: That holds it.
        only: The one file of images that is wanted; None takes all.
    """
    # A folder of images may hold a million: none of them need be opened.
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() not in EXTENSIONS and path.is_file()
    ]
    arrays = {p: shape for p in files if (shape := idx_header(p)) is not None}
    images = [p for p, shape in arrays.items() if len(shape) == IMAGES]
    if only is not None:
        images = [path for path in images if path == only]
    if not images:
        return None
    # Training images first, each with the labels that share its name's beginning.
    images.sort(key=lambda path: (idx_split(path) == "test", path.name))
    labels = {idx_stem(p): p for p, s in arrays.items() if len(s) == LABELS}

    def read() -> Iterator[Record]:
        for path in images:
            beside, count = labels.get(idx_stem(path)), arrays[path][0]
            if beside is not None and arrays[beside][0] != count:
                raise ValueError(
                    f"'{path.name}' has {count} images and '{beside.name}' "
                    f"{arrays[beside][0]} labels. Get the files again."
                )
            classes = repeat(None) if beside is None else idx_values(beside)
            rows = zip(idx_values(path), classes, strict=beside is not None)
            for row, (image, label) in enumerate(rows):
                facts = {"split": idx_split(path), "row": str(row)}
                if label is not None:
                    facts["label"] = str(label)
                yield Record(image[..., None], facts, f"{path.name}, row {row}")

    splits = tuple(dict.fromkeys(map(idx_split, images)))
    return Source("MNIST-like IDX files", folder, read, splits=splits)


def idx_header(path: Path) -> tuple[int, ...] | None:
    """Return the shape of the uint8 array in an IDX file, None for another."""
    try:
        with Unpacked(path) as file:
            return _shape(file)
    except (OSError, PackedError):
        return None


def _shape(file: Unpacked) -> tuple[int, ...] | None:
    start = file.read(4)
    if (
        len(start) < 4
        or start[:3] != b"\x00\x00\x08"
        or start[3] not in (LABELS, IMAGES)
    ):
        return None
    sizes = file.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        return None
    shape = struct.unpack(f">{start[3]}I", sizes)
    return shape if 0 < math.prod(shape[1:]) <= MAX_PIXELS else None


def idx_values(path: Path) -> Iterator[np.ndarray]:
    """Yield the values along the first axis of an IDX file's array.

    Raises:
        ValueError: If there are fewer or more than its header promises.
    """
    with Unpacked(path) as file:
        count, *shape = whole = _shape(file)
        size = math.prod(shape)
        at_once = max(1, AT_ONCE // size)
        for first in range(0, count, at_once):
            values = min(at_once, count - first)
            data = b"".join(_pieces(file, values * size))
            if len(data) < values * size:
                break
            yield from np.frombuffer(data, np.uint8).reshape(values, *shape)
        else:
            if not file.read(1):
                return
    raise ValueError(
        f"'{path.name}' does not hold the {'x'.join(map(str, whole))} values that "
        "its header promises. Get the file again."
    )


def _pieces(file: Unpacked, size: int) -> Iterator[bytes]:
    while size and (piece := file.read(min(size, AT_ONCE))):
        yield piece
        size -= len(piece)


def idx_stem(path: Path) -> str:
    """Return what the names of images and of their labels have in common."""
    return re.split(r"images|labels", path.name)[0]


def idx_split(path: Path) -> str:
    """Return the split that a file's name says."""
    return "test" if re.search(r"(^|[-_.])(t10k|test)[-_.]", path.name) else "train"
