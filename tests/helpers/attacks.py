"""Archives that an attacker would make, and such as broken programs write.

Each function writes one into a folder and returns its path; `victim` is the file beside
it that none may change.
"""

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.helpers.layouts import pixels, png

IMAGE = png(pixels(1, 0, 8)[0])
UNTOUCHED = "untouched"
EXPLODED = 60_000_000  # bytes


def victim(folder: Path) -> Path:
    """Return a file outside of what is unpacked."""
    path = folder / "outside" / "victim.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(UNTOUCHED)
    return path


def tar_of(path: Path, *members: tuple, mode: str = "w") -> Path:
    """Write a tar of (name, content) or (name, type, link target)."""
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as archive:
        for name, *what in members:
            member = tarfile.TarInfo(name)
            if len(what) == 1:
                member.size = len(what[0])
                archive.addfile(member, io.BytesIO(what[0]))
            else:
                member.type, member.linkname = what
                archive.addfile(member)
    return path


def zip_of(path: Path, *members: tuple, **options) -> Path:
    """Write a zip of (name or ZipInfo, content)."""
    with (
        warnings.catch_warnings(action="ignore"),  # of names that come twice
        zipfile.ZipFile(path, "w", **options) as archive,
    ):
        for name, content in members:
            archive.writestr(name, content)
    return path


def nested_links(folder: Path) -> Path:
    """Links within links, longer than Python 3.11 resolves, and a hard link through.

    Where a path has more letters than the system follows, `realpath` takes the rest for
    plain names, so that `filter="data"` sees nothing wrong (CVE-2025-4517).
    """
    part, steps = "d" * 247, "abcdefghijklmnop"
    members, path = [], ""
    for step in steps:
        members.append((f"{path}{part}", tarfile.DIRTYPE, ""))
        members.append((f"{path}{step}", tarfile.SYMTYPE, part))
        path += f"{part}/"
    long_way = "/".join(steps) + "/" + "l" * 254
    members.append((long_way, tarfile.SYMTYPE, "../" * len(steps)))
    # From the unpacked archive: its scratch folder, what holds that, and outside.
    out = f"{long_way}/../../../outside"
    members.append(("escape", tarfile.SYMTYPE, out))
    members.append(("hard", tarfile.LNKTYPE, "escape/victim.txt"))
    members.append(("hard", b"overwritten"))
    return tar_of(folder / "a.tar", *members)


def special(kind: bytes, target: str = "") -> Callable[[Path], Path]:
    """Return what writes a tar with a link or a special file beside an image."""
    return lambda folder: tar_of(
        folder / "a.tar", ("cat/1.png", IMAGE), ("cat/2.png", kind, target)
    )


def named(name: str, packed: str = "tar") -> Callable[[Path], Path]:
    """Return what writes an archive with an image of this name."""
    write = tar_of if packed == "tar" else zip_of
    members = [("cat/1.png", IMAGE), (name, IMAGE)]
    return lambda folder: write(folder / f"a.{packed}", *members)


def accents(folder: Path) -> Path:
    """Names that differ in how an accent is written."""
    return tar_of(folder / "a.tar", ("caf\u00e9.png", IMAGE), ("cafe\u0301.png", IMAGE))


def nul_in_zip(folder: Path) -> Path:
    """Python's zipfile would cut the name before its end."""
    path = zip_of(folder / "a.zip", ("cat/1.pngX.exe", IMAGE))
    path.write_bytes(path.read_bytes().replace(b"1.pngX.exe", b"1.png\0.exe"))
    return path


def nul_in_tar(folder: Path) -> Path:
    """A name with a NUL, as only an extended header can hold it."""
    member = tarfile.TarInfo("cat/1.png")
    member.pax_headers = {"path": "cat/1.png\0.exe"}
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member)
    return folder / "a.tar"


def zip_link(folder: Path) -> Path:
    """A symbolic link, as zips hold it."""
    info = zipfile.ZipInfo("cat/2.png")
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return zip_of(folder / "a.zip", ("cat/1.png", IMAGE), (info, "../../victim.txt"))


def encrypted(folder: Path) -> Path:
    """A zip that says it is encrypted."""
    path = zip_of(folder / "a.zip", ("1.png", IMAGE))
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    return path


def zip_bomb(folder: Path) -> Path:
    """Zeros, at a thousandth of their size."""
    options = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
    return zip_of(folder / "a.zip", ("1.png", bytes(EXPLODED)), **options)


def promised(folder: Path) -> Path:
    """A zip of a hundred bytes whose list promises four terabytes."""
    path = zip_of(folder / "a.zip", *((f"{i}.png", b"x") for i in range(1000)))
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02")
    while data[place : place + 4] == b"PK\x01\x02":
        struct.pack_into("<I", data, place + 24, 0xFFFF_FFFE)
        place += 46 + sum(struct.unpack_from("<3H", data, place + 28))
    path.write_bytes(data)
    return path


def long_header(folder: Path) -> Path:
    """A compressed tar whose one header has 60 MB, all of which tarfile would read."""
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, EXPLODED
    with gzip.open(folder / "a.tar.gz", "wb", 1) as file:
        file.write(member.tobuf() + bytes(EXPLODED))
    return folder / "a.tar.gz"


def zeros(packed: str) -> Callable[[Path], Path]:
    """Return what writes a compressed tar with a file of zeros."""

    def write(folder: Path) -> Path:
        member = tarfile.TarInfo("1.png")
        member.size = EXPLODED
        # Each of these formats allows files to follow one another.
        compress = {"gz": gzip, "bz2": bz2, "xz": lzma}[packed].compress
        path = folder / f"a.tar.{packed}"
        path.write_bytes(
            compress(member.tobuf()) + compress(bytes(EXPLODED // 10)) * 10
        )
        return path

    return write


def backwards(folder: Path) -> Path:
    """A tar with a negative size, after which Python 3.11 may go back for ever."""
    member = tarfile.TarInfo("1.png")
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 11 + b"\x00"  # -256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (folder / "a.tar").write_bytes(bytes(header) + bytes(1024))
    return folder / "a.tar"


def deep(folder: Path) -> Path:
    """Two thousand folders within one another."""
    return tar_of(folder / "a.tar", ("d/" * 2000 + "1.png", IMAGE))


def bzip2_zip(folder: Path) -> Path:
    """A zip whose method unpacks gigabytes from a few bytes at once."""
    return zip_of(
        folder / "a.zip", ("1.png", bytes(10_000)), compression=zipfile.ZIP_BZIP2
    )


def cut(packed: str) -> Callable[[Path], Path]:
    """Return what writes an archive that ends early."""

    def write(folder: Path) -> Path:
        data = os.urandom(20_000)
        if packed == "zip":
            path = zip_of(folder / "a.zip", ("1.png", data))
        else:
            path = tar_of(
                folder / f"a.{packed}", ("1.png", data), mode=f"w:{packed[4:]}"
            )
        path.write_bytes(path.read_bytes()[:10_000])
        return path

    return write


def twice(folder: Path) -> Path:
    """An archive within a compressed file within another."""
    path = tar_of(folder / "a.tar.gz", ("1.png", IMAGE), mode="w:gz")
    path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def other_kind(magic: bytes) -> Callable[[Path], Path]:
    """Return what writes a file that begins as another kind of archive."""

    def write(folder: Path) -> Path:
        (folder / "a.bin").write_bytes(magic + bytes(100))
        return folder / "a.bin"

    return write


OUT, LINK = "leads out of the archive", "only plain files and folders are taken"
TWIN, BOMB = "would be one file on many disks", "made to fill a disk"
REFUSED = {
    "nested links": (nested_links, LINK),
    "symbolic link": (special(tarfile.SYMTYPE, "1.png"), "'cat/2.png' in it is a link"),
    "link out": (special(tarfile.SYMTYPE, "/etc/passwd"), LINK),
    "hard link": (special(tarfile.LNKTYPE, "cat/1.png"), LINK),
    "device": (special(tarfile.CHRTYPE), "is a device, pipe or something else"),
    "pipe": (special(tarfile.FIFOTYPE), LINK),
    "link in a zip": (zip_link, LINK),
    "climbs": (named("../../outside/victim.txt"), OUT),
    "climbs inside": (named("cat/../../victim.txt"), OUT),
    "climbs in a zip": (named("cat/../../../victim.txt", "zip"), OUT),
    "climbs with backslashes": (named("..\\..\\victim.txt"), OUT),
    "climbs with backslashes in a zip": (named("..\\..\\victim.txt", "zip"), OUT),
    "absolute": (named("/tmp/victim.txt"), OUT),
    "absolute in a zip": (named("/tmp/victim.txt", "zip"), OUT),
    "absolute with a backslash": (named("\\server\\victim.txt", "zip"), OUT),
    "drive": (named("C:\\victim.txt", "zip"), OUT),
    "drive in a tar": (named("C:/victim.txt"), OUT),
    "NUL in a zip": (nul_in_zip, OUT),
    "NUL in a tar": (nul_in_tar, OUT),
    "the same twice": (named("cat/1.png"), TWIN),
    "the same twice in a zip": (named("cat/1.png", "zip"), TWIN),
    "the same in other words": (named("./cat//./1.png"), TWIN),
    "other capitals": (named("Cat/1.PNG"), TWIN),
    "other capitals in a zip": (named("CAT/1.png", "zip"), TWIN),
    "accents in two ways": (accents, TWIN),
    "a file for a folder": (named("cat/1.png/2.png"), TWIN),
    "a folder for a file": (named("cat"), TWIN),
    "zip bomb": (zip_bomb, BOMB),
    "zip that promises terabytes": (promised, BOMB),
    "tar.gz bomb": (zeros("gz"), BOMB),
    "tar.bz2 bomb": (zeros("bz2"), BOMB),
    "tar.xz bomb": (zeros("xz"), BOMB),
    "endless header": (long_header, "has a header of 60,000,"),
    "backwards": (backwards, LINK),
    "two thousand folders": (deep, "lies too many folders deep"),
    "bzip2 in a zip": (bzip2_zip, "is packed by method 12, which is not read"),
    "encrypted": (encrypted, "'1.png' in it is encrypted"),
    "cut zip": (cut("zip"), "could not be unpacked"),
    "cut tar": (cut("tar"), "could not be unpacked"),
    "cut tar.gz": (cut("tar.gz"), "could not be unpacked"),
    "cut tar.xz": (cut("tar.xz"), "could not be unpacked"),
    "cut tar.bz2": (cut("tar.bz2"), "could not be unpacked"),
    "compressed twice": (twice, "is a file of another kind than expected"),
    "7z": (other_kind(b"7z\xbc\xaf\x27\x1c"), "is a 7z archive"),
    "RAR": (other_kind(b"Rar!\x1a\x07\x01\x00"), "is a RAR archive"),
    "zstd": (other_kind(b"\x28\xb5\x2f\xfd"), "is a zstd archive"),
}
