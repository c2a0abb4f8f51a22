"""Archives of images: which plain files they hold, and whether to unpack them.

An archive may come from anywhere. Only plain files are taken, each is written by this
module's own code under a name that it has checked, and no link is ever made, so that
nothing can be written outside the folder. An archive is judged whole before a byte of
it is written. Knows nothing of what the files are.
"""

import io
import os
import re
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO

from core.data.sources.compressed import AT_ONCE, PackedError, Unpacked, check_expansion
from core.data.sources.names import storable
from core.data.sources.records import is_hidden
from core.files.texts import shortened
from core.files.whole import is_full

LARGEST = 500e9  # bytes that an archive may unpack to
MOST_FILES = 2_000_000
MOST_LISTED = 512 << 20  # bytes of a zip's list of its files
DEEPEST = 64  # folders within folders
BLOCK = 4096  # bytes that a disk gives to a file at a time
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
OTHERS = {
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "RAR",
    b"\x28\xb5\x2f\xfd": "zstd",
}
FILE, FOLDER = "a file", "a folder"
YOURSELF = "If you trust it, unpack it yourself and give the folder."


@dataclass(frozen=True)
class Entry:
    """What an archive holds under a name.

    Attributes:
        name: As the archive has it.
        size: Bytes that it unpacks to.
        kind: `FILE`, `FOLDER`, or in words why it cannot be taken.
        data: Opens its content.
    """

    name: str
    size: int
    kind: str
    data: Callable[[], BinaryIO]


def is_archive(path: Path) -> bool:
    """Return whether a file is a tar, perhaps compressed, or a zip; by content.

    Raises:
        PackedError: If it is damaged, or an archive of a kind that is not read.
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(8)
    for magic, kind in OTHERS.items():
        if start.startswith(magic):
            raise PackedError(
                f"'{path.name}' is a {kind} archive. Read are zip and tar, also as "
                f"gz, bz2 and xz. {YOURSELF}"
            )
    return start.startswith(ZIP) or _is_tar(path)


def _is_tar(path: Path) -> bool:
    with Unpacked(path) as file:
        start = file.read(512)
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def unpack(path: Path, folder: Path) -> None:
    """Write the plain files of an archive into a folder.

    Hidden ones, as systems leave them behind, stay packed.

    Args:
        path: Of a tar or zip.
        folder: Where to; empty, and nobody else writes there.

    Raises:
        PackedError: If the archive is damaged, holds more than plain files, has names
            that lead out of it, or needs more room than there is.
    """
    read = _zip_entries if _starts_as_zip(path) else _tar_entries
    try:
        files = wanted(path, read(path))
        _check_room(path, sum((e.size // BLOCK + 2) * BLOCK for _, e in files), folder)
        for names, entry in wanted(path, read(path)):
            _write(entry, folder.joinpath(*names))
    except PackedError:
        raise
    except OSError as error:
        why = _no_room(path, folder) if is_full(error) else _damage(path, error)
        raise PackedError(why) from None
    except Exception as error:  # both libraries raise whatever their parsers meet
        raise PackedError(_damage(path, error)) from None


def _damage(path: Path, error: Exception) -> str:
    why = shortened(getattr(error, "strerror", None) or error, 100).rstrip(".")
    return f"'{path.name}' could not be unpacked ({why}). Get the archive again."


# --- what may be written -------------------------------------------------------------


def wanted(
    path: Path, entries: Iterator[Entry]
) -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Yield the folders and name, as a disk can hold them, of each file to be written.

    Raises:
        PackedError: If one entry of the archive must not be unpacked.
    """
    total, files, folders = 0, {}, set()
    for number, entry in enumerate(entries):
        names = checked_parts(path, entry)
        if number >= MOST_FILES:
            why = f"it holds more than {MOST_FILES:,} files"
            raise PackedError(_refusal(path, why))
        if entry.kind == FOLDER or any(map(is_hidden, names)):
            continue
        total += entry.size
        if total > LARGEST:
            why = f"it holds more than {LARGEST / 1e9:.0f} GB"
            raise PackedError(_refusal(path, why))
        # Names that differ in capitals or in how an accent is written are one name on
        # many disks: one file would replace the other.
        paths = [_even("/".join(names[: i + 1])) for i in range(len(names))]
        twin = next(
            (files[path_so_far] for path_so_far in paths if path_so_far in files), None
        )
        if twin is not None or paths[-1] in folders:
            why = (
                f"'{_shown(twin or entry.name)}' and '{_shown(entry.name)}' in it "
                "would be one file on many disks"
            )
            raise PackedError(_refusal(path, why))
        files[paths[-1]] = entry.name
        folders.update(paths[:-1])
        yield names, entry


def checked_parts(path: Path, entry: Entry) -> tuple[str, ...]:
    """Return the folders and the name of an entry, as a disk can hold them.

    Raises:
        PackedError: If it is not a plain file or folder, or its name leads elsewhere.
    """
    if entry.kind not in (FILE, FOLDER) or entry.size < 0:
        why = (
            f"'{_shown(entry.name)}' in it is {entry.kind}, and only plain files and "
            "folders are taken"
        )
        raise PackedError(_refusal(path, why))
    names = [name for name in entry.name.split("/") if name not in ("", ".")]
    if (
        "\0" in entry.name
        or entry.name.startswith(("/", "\\"))
        or re.match("[A-Za-z]:", entry.name)  # a drive
        or ".." in re.split(r"[/\\]", entry.name)
        or (entry.kind == FILE and not names)
    ):
        raise PackedError(
            f"'{path.name}' was not unpacked: the name '{_shown(entry.name)}' in it "
            "leads out of the archive. Get the archive from its publisher."
        )
    if len(names) > DEEPEST:
        why = f"'{_shown(entry.name)}' in it lies too many folders deep"
        raise PackedError(_refusal(path, why))
    return tuple(map(storable, names))


def _refusal(path: Path, why: str) -> str:
    return f"'{path.name}' was not unpacked: {why}. {YOURSELF}"


def _shown(name: str) -> str:
    return shortened(name, 80)


def _even(name: str) -> int:
    """Return a number that two names share where a disk may take them for one."""
    folded = unicodedata.normalize("NFC", name).casefold()
    return hash(unicodedata.normalize("NFC", folded))


def check_temporary_folder() -> None:
    """Raise `PackedError` if there is no folder for temporary files."""
    try:
        gettempdir()
    except OSError:
        raise PackedError(
            "No folder for temporary files can be written to. Name one with TMPDIR."
        ) from None


def _check_room(path: Path, needed: int, folder: Path) -> None:
    """Refuse an archive that would fill the disk."""
    if needed > shutil.disk_usage(folder).free:
        raise PackedError(_no_room(path, folder, needed))


def _no_room(path: Path, folder: Path, needed: int | None = None) -> str:
    free = shutil.disk_usage(folder).free
    takes = "more" if needed is None else f"{needed / 1e9:.3g} GB"
    return (
        f"'{path.name}' takes {takes} unpacked, and '{folder.parent.parent}', the "
        f"folder for temporary files, has room for {free / 1e9:.3g} GB. Name a larger "
        "one with TMPDIR, or unpack it yourself and give the folder."
    )


def _write(entry: Entry, target: Path) -> None:
    """Write a file where none is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(target, flags, 0o600), "wb") as file, entry.data() as data:
        while piece := data.read(AT_ONCE):
            file.write(piece)


# --- tar -----------------------------------------------------------------------------


def _tar_entries(path: Path) -> Iterator[Entry]:
    """Yield what a tar holds; the content of each must be read before the next."""
    with Unpacked(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # which it would keep of millions
            yield Entry(
                member.name,
                member.size,
                _tar_kind(member),
                lambda member=member: archive.extractfile(member),
            )


def _tar_kind(member: tarfile.TarInfo) -> str:
    if member.isdir():
        return FOLDER
    if member.issym() or member.islnk():
        return "a link"
    if member.issparse():
        return "a file with holes"
    return FILE if member.isreg() else "a device, pipe or something else"


# --- zip -----------------------------------------------------------------------------


def _starts_as_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in ZIP


class _Listing(io.BufferedReader):
    """A zip whose list of files Python's `zipfile` always reads.

    It gives up on an archive with one name that is said to be UTF-8 and is not, so such
    a name is said to be of the old kind; and it reads a list of any length.
    """

    HEADER, UTF8 = b"PK\x01\x02", 0x800

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, with the names mended if they are the list's."""
        if size is not None and size > MOST_LISTED:
            raise zipfile.BadZipFile("its list of files is too long")
        data = super().read(size)
        return self._mended(data) if data[:4] == self.HEADER else data

    def _mended(self, data: bytes) -> bytes:
        data, offset, count = bytearray(data), 0, 0
        while data[offset : offset + 4] == self.HEADER and len(data) >= offset + 46:
            flags, *lengths = struct.unpack_from("<H18x3H", data, offset + 8)
            name = data[offset + 46 : offset + 46 + lengths[0]]
            if flags & self.UTF8 and not _is_utf8(name):
                struct.pack_into("<H", data, offset + 8, flags & ~self.UTF8)
            offset += 46 + sum(lengths)
            count += 1
            if count > MOST_FILES:
                raise zipfile.BadZipFile(f"it lists more than {MOST_FILES:,} files")
        return bytes(data)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _zip_entries(path: Path) -> Iterator[Entry]:
    """Yield what a zip holds."""
    with (
        _Listing(io.FileIO(path)) as file,
        zipfile.ZipFile(file) as archive,
    ):
        check_expansion(path, sum(info.file_size for info in archive.infolist()))
        for info in archive.infolist():
            yield Entry(
                _zip_name(info),
                info.file_size,
                _zip_kind(info),
                lambda info=info: archive.open(info),
            )


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Return a name with "/" between its parts, in UTF-8 where it reads as that.

    Many programs write UTF-8 without saying so; some of Windows write backslashes.
    """
    name = info.orig_filename
    if not info.flag_bits & _Listing.UTF8:
        try:
            name = name.encode("cp437").decode()
        except UnicodeError:
            pass
    return name.replace("\\", "/")


def _zip_kind(info: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & 0x1:
        return "encrypted"
    if kind == stat.S_IFLNK:
        return "a link"
    if kind == stat.S_IFDIR or info.is_dir() or info.orig_filename.endswith("\\"):
        return FOLDER
    # Others unpack megabytes from a few bytes at once.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"packed by method {info.compress_type}, which is not read"
    return FILE if kind in (0, stat.S_IFREG) else "a device, pipe or something else"
