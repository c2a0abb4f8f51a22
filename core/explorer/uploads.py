"""What visitors uploaded: kept in memory within bounds, and freed when they are gone.

One place counts all of it, whoever holds the bytes: what a page keeps to go back to,
and what a server took in before any page looked at it. Knows neither pages nor servers.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST = 4  # uploads of one visitor: one chosen in the form, three to go back to
MOST_BYTES = 32_000_000  # of one visitor
ALL_BYTES = 256_000_000  # of all visitors together
PATIENCE = 20.0  # seconds that someone may be away, as when a page is loaded again


@dataclass(frozen=True)
class Upload:
    """One file that somebody uploaded.

    Attributes:
        size: In bytes.
        data: The bytes, None where something else holds them.
        free: Makes that something let them go.
    """

    size: int
    data: bytes | None
    free: Callable[[], None]


class Uploads:
    """The uploads of all visitors, the oldest first; safe to call from any thread."""

    def __init__(
        self,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        all_bytes: int = ALL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Start with none.

        Args:
            most: Uploads kept of one visitor; the oldest goes first, here and below.
            most_bytes: Bytes kept of one visitor.
            all_bytes: Bytes kept of all visitors.
            clock: Returns seconds.
        """
        self._most, self._most_bytes, self._all_bytes = most, most_bytes, all_bytes
        self._clock = clock
        self._kept: dict[tuple[str, str], Upload] = {}
        self._away: dict[str, float] = {}  # since when a visitor was not seen
        self._lock = threading.Lock()

    def keep(
        self,
        visitor: str,
        name: str,
        size: int,
        data: bytes | None = None,
        free: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep an upload, and let older ones go until all bounds hold.

        The newest stays, also where it alone is larger than the bounds: how large one
        file may be is decided where it is taken in.

        Args:
            visitor: Whose it is.
            name: Tells it from the visitor's others; a known one is replaced.
            size: In bytes.
            data: The bytes, None where something else holds them.
            free: Called when the upload is let go.
        """
        with self._lock:
            self._kept.pop((visitor, name), None)  # its bytes were replaced as well
            self._kept[visitor, name] = Upload(size, data, free)
            dropped = []
            keys = [key for key in self._kept if key[0] == visitor]
            while len(keys) > 1 and (
                len(keys) > self._most or self._size(keys) > self._most_bytes
            ):
                dropped.append(self._kept.pop(keys.pop(0)))
            while len(self._kept) > 1 and self._size(self._kept) > self._all_bytes:
                dropped.append(self._kept.pop(next(iter(self._kept))))
        for upload in dropped:
            upload.free()

    def find(self, visitor: str, name: str) -> bytes | None:
        """Return the bytes of a visitor's upload, None where they are not kept here."""
        with self._lock:
            upload = self._kept.get((visitor, name))
        return None if upload is None else upload.data

    def forget(self, visitor: str, name: str) -> None:
        """Count an upload no longer that something else has let go."""
        with self._lock:
            self._kept.pop((visitor, name), None)

    def free_those_gone(self, is_there: Callable[[str], bool]) -> None:
        """Let the uploads go of visitors who were away for `PATIENCE` seconds.

        Args:
            is_there: Returns whether a visitor's page is open.
        """
        with self._lock:
            now = self._clock()
            away = {key[0] for key in self._kept if not is_there(key[0])}
            self._away = {one: self._away.get(one, now) for one in away}
            gone = {one for one, since in self._away.items() if now - since >= PATIENCE}
            keys = [key for key in self._kept if key[0] in gone]
            dropped = [self._kept.pop(key) for key in keys]
        for upload in dropped:
            upload.free()

    @property
    def bytes(self) -> int:
        """How many bytes all of them have."""
        with self._lock:
            return self._size(self._kept)

    def _size(self, keys) -> int:
        return sum(self._kept[key].size for key in keys)
