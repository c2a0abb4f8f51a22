"""The bytes of an image file, or why there are none.

Knows names and first bytes, not what an image shows: that is `core.files.images`.
"""

import os
from pathlib import Path, PurePath

from core.files.images import EXTENSIONS, MAX_BYTES, START, begins_as_image, too_large


def looks_like_image(path: Path) -> bool:
    """Return whether a file begins as an image of a kind that is read."""
    try:
        with path.open("rb") as file:
            return begins_as_image(file.read(START))
    except OSError:
        return False


def likely_first(files: list[PurePath]) -> list[PurePath]:
    """Return files with those first that are called as images are."""
    return sorted(files, key=lambda file: file.suffix.lower() not in EXTENSIONS)


def image_bytes(path: Path) -> tuple[bytes, str]:
    """Return the bytes of an image file; or none, and the reason in a sentence.

    Of a large file of another kind only the first bytes are read, by which
    `open_image` tells.
    """
    try:
        with path.open("rb") as file:
            start, size = file.read(START), os.fstat(file.fileno()).st_size
            if size <= MAX_BYTES:
                return start + file.read(MAX_BYTES), ""
            return (b"", too_large(size)) if begins_as_image(start) else (start, "")
    except OSError as error:
        return b"", f"The file could not be read: {os.strerror(error.errno)}."
