"""Writing a file whole or not at all, and what to say when that fails.

Knows nothing of what the files hold.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# What /dev/stdout is a link to, once /proc/self was followed.
OPEN_FILE = re.compile(r"/proc/(?P<process>\d+)(/task/\d+)?/fd/(?P<number>\d+)")


class Damaged(Exception):
    """A file is not as it was written."""


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Write a file in place of another; a partly written one is removed.

    A kill at any moment leaves the old file or the new one, with the
    old one's permissions. A link leads to what is written; a device, a pipe or an open
    file cannot be replaced, so it is written into.

    Yields:
        What to write into.
    """
    if is_stream(path):
        with _opened_stream(path) as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            if path.is_file():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def is_stream(path: Path) -> bool:
    """Return whether a path leads to a device, a pipe or an open file of a process."""
    end = _end_of_links(path)
    is_open = OPEN_FILE.fullmatch(str(end)) is not None
    return is_open or (end.exists() and not end.is_file() and not end.is_dir())


def _end_of_links(path: Path) -> Path:
    """Return where links lead to, but for those of the system to open files."""
    path = path.absolute()
    for _ in range(40):  # as many as Linux follows
        # The folder of a name may be behind a link, as /dev/fd is.
        path = Path(os.path.realpath(path.parent)) / path.name
        if OPEN_FILE.fullmatch(str(path)) or not path.is_symlink():
            break
        path = path.parent / os.readlink(path)
    return path


def _opened_stream(path: Path) -> BinaryIO:
    """Return a device, pipe or open file, opened for writing."""
    found = OPEN_FILE.fullmatch(str(_end_of_links(path)))
    if found and int(found["process"]) == os.getpid():
        return open(os.dup(int(found["number"])), "wb")  # goes on where it is
    return open(path, "wb")


@contextmanager
def made_folders(folder: Path) -> Iterator[None]:
    """Make a folder for a `with` block; folders that stay empty are removed.

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
    """Make a file of a size, and take its room on the disk where the system can.

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
