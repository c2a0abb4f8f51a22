"""A file read forwards, unpacked where it is compressed, a piece at a time.

Whatever its header promises, reading it takes a few megabytes, and it ends where
a file unpacks to more than anyone's images do. Knows nothing of what is inside.
"""

import bz2
import gzip
import io
import lzma
from pathlib import Path
from typing import BinaryIO

AT_ONCE = 1 << 20  # bytes that one call may ask for
SMALL = 10**9  # bytes that any file may unpack to
TIMES = 100  # its own size that a larger one may unpack to; zeros reach 1,000
XZ_MEMORY = 256 << 20  # bytes that unpacking may take; `xz -9` needs 65 MiB


class PackedError(ValueError):
    """A packed file that is damaged, or made to do harm; the message is for people."""


class _Xz(io.RawIOBase):
    """An xz file, with a limit of memory, which the standard library's has not."""

    def __init__(self, file: BinaryIO):
        self._file, self._data = file, b""
        self._decoder = lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, buffer) -> int:
        """Fill a buffer from its beginning; return how many bytes there were."""
        made = b""
        while not made:
            if self._decoder.eof:
                self._data = self._decoder.unused_data.lstrip(b"\0") or self._next()
                if not self._data:
                    return 0
                self._decoder = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
            elif self._decoder.needs_input and not self._data:
                self._data = self._file.read(1 << 16)
                if not self._data:
                    raise EOFError("the file ends early")
            made = self._decoder.decompress(self._data, len(buffer))
            self._data = b""
        buffer[: len(made)] = made
        return len(made)

    def _next(self) -> bytes:
        """Return what follows one stream, without the zeros between them."""
        while data := self._file.read(1 << 16):
            if data := data.lstrip(b"\0"):
                return data
        return b""


PACKED = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lambda file: io.BufferedReader(_Xz(file)),
}


class Unpacked:
    """A file's content from its beginning to its end; use it with `with`.

    Only what `tarfile` needs of a file. Each error is a `PackedError`.

    Args:
        path: The file.

    Attributes:
        compressed: Whether it is compressed.
    """

    def __init__(self, path: Path):
        self._path, self._at = path, 0
        self._raw = path.open("rb")
        start = self._raw.read(8)
        self._raw.seek(0)
        openers = [make for magic, make in PACKED.items() if start.startswith(magic)]
        self.compressed = bool(openers)
        self._file = openers[0](self._raw) if openers else self._raw
        size = path.stat().st_size
        self._most = max(SMALL, TIMES * size) if openers else size

    def __enter__(self) -> "Unpacked":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()
        self._raw.close()

    def tell(self) -> int:
        """Return how many bytes lie before what is read next."""
        return self._at

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end only.

        Raises:
            PackedError: If more are wanted than a piece has, the file is damaged,
                or it unpacks to too much.
        """
        if not 0 <= size <= AT_ONCE:
            raise PackedError(
                f"'{self._path.name}' has a header of {size:,} bytes, which no data "
                "set has. Get the file again."
            )
        blocks = []
        while size:
            try:
                data = self._file.read(size)
            except Exception as error:  # decoders raise nearly anything
                raise PackedError(
                    f"'{self._path.name}' could not be unpacked "
                    f"({type(error).__name__}). Get the file again."
                ) from None
            if not data:
                break
            blocks.append(data)
            size -= len(data)
            self._at += len(data)
            if self.compressed:
                check_expansion(self._path, self._at, self._most)
        return b"".join(blocks)

    def seek(self, position: int) -> None:
        """Go forward to a place, or to the end if that lies before it.

        Raises:
            PackedError: If the place lies before what was read.
        """
        if position < self._at:
            raise PackedError(
                f"'{self._path.name}' is damaged: a part of it begins before the one "
                "that it follows. Get the file again."
            )
        if self.compressed:
            check_expansion(self._path, position, self._most)
            while self._at < position and self.read(min(AT_ONCE, position - self._at)):
                pass
        else:
            self._at = min(position, self._most)
            self._raw.seek(self._at)


def check_expansion(path: Path, unpacked: int, most: int | None = None) -> None:
    """Refuse a file that unpacks to more than anyone's images do.

    Args:
        path: The file.
        unpacked: Bytes that it unpacks to.
        most: Bytes that it may unpack to; None finds out.

    Raises:
        PackedError: If it unpacks to more.
    """
    if most is None:
        most = max(SMALL, TIMES * path.stat().st_size)
    if unpacked > most:
        raise PackedError(
            f"'{path.name}' unpacks to more than {most / 1e9:.3g} GB, "
            f"{most / max(1, path.stat().st_size):,.0f} times its size. Files that do "
            "so are made to fill a disk. If it is yours, unpack it and give the folder."
        )
