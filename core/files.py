"""Writing a file so that it is there whole or not at all, and what to say if it is not.

Knows nothing of what the files hold.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Write a file in place of another; nothing is left of one that did not get whole.

    A kill at any moment leaves the old file or the new one.

    Yields:
        What to write into.
    """
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def made_folders(folder: Path) -> Iterator[None]:
    """Make a folder for a `with` block; what was made goes again if it stays empty.

    Yields:
        Nothing.
    """
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for one in new:
            with suppress(OSError):  # by now there is something in it
                one.rmdir()


def reserve(path: Path, size: int) -> None:
    """Make a file as long as that, with its room taken where the system can.

    Where the disk is full this is an OSError. Without the room, writing to the file as
    to memory would end the process.
    """
    with open(path, "ab") as file:
        file.truncate(size)
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def is_full(error: Exception) -> bool:
    """Return whether an error says that the disk, or the room given to us, is full."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # DuckDB has no numbers, only words.
    return getattr(error, "errno", None) in full or "No space left" in str(error)


def trouble(error: Exception) -> str:
    """Return in one sentence what is wrong with a file or disk, and what to do."""
    number, name = getattr(error, "errno", None), getattr(error, "filename", None)
    if is_full(error):
        return (
            "The disk is full. Make room, then run the same command again: it goes on "
            "where it stopped, and what was published before is as it was."
        )
    if number is None or name is None:
        return str(error.args[0] if error.args else error)
    return f"'{name}' could not be read or written: {os.strerror(number)}."
