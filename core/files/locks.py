"""One process at a time: locks that end with the process that holds them.

Knows neither what is locked nor why. The system frees such a lock when its process
ends, even by a kill; the empty file that a kill leaves behind says nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from core.files.whole import made_folders


def take_lock(path: Path, busy: str) -> BaseFileLock:
    """Return a lock that is held until it is released or its process ends.

    Args:
        path: Of the lock's file, in a folder that exists.
        busy: What to say where another process holds it.

    Raises:
        ValueError: With `busy`, at once.
    """
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise ValueError(busy) from None
    return lock


def free_lock(lock: BaseFileLock) -> None:
    """Let others take a lock, and remove its file.

    While it is held no other process can have it. One that waits on the removed file
    tries again with a new one.
    """
    if lock.is_locked:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


@contextmanager
def alone(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock for a `with` block; see `take_lock`.

    Missing folders on the way to it are made, and removed again if they stay empty.

    Yields:
        Nothing.
    """
    with made_folders(path.parent):
        lock = take_lock(path, busy)
        try:
            yield
        finally:
            free_lock(lock)
