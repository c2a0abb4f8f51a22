"""Archives from anywhere: nothing is written outside, no memory or disk is filled."""

import io
import shutil
import tarfile
import tracemalloc
import zipfile
from collections import namedtuple

import pytest

from core.data.sources import archives, compressed, find_source, opened, selected
from tests.helpers import attacks
from tests.helpers.attacks import IMAGE, tar_of, zip_of
from tests.helpers.layouts import image_folder

Usage = namedtuple("Usage", "total used free")


def read(path) -> dict[str, str]:
    """Return the label of every image at a path, by its file."""
    with opened(path) as inside:
        records = list(selected(find_source(inside), "all"))
    return {r.facts["file"]: r.facts.get("label") for r in records}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return folders for an archive, for unpacking, and a file that must stay."""
    monkeypatch.setattr(compressed, "SMALL", 10**7)  # bombs explode after less
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return tmp_path, scratch, attacks.victim(tmp_path)


@pytest.mark.parametrize("make, said", attacks.REFUSED.values(), ids=attacks.REFUSED)
def test_an_attack_is_refused_before_anything_is_written(make, said, places):
    """In one sentence; no file but those that were there is there afterwards."""
    folder, scratch, victim = places
    path = make(folder)
    before = {p for p in folder.rglob("*") if not p.is_dir()}
    tracemalloc.start()
    with pytest.raises(ValueError) as found, opened(path, scratch) as inside:
        find_source(inside)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sentence = str(found.value)
    assert said in sentence and sentence.startswith(f"'{path.name}'")
    assert sentence.endswith(".") and "\n" not in sentence and len(sentence) < 400
    assert {p for p in folder.rglob("*") if not p.is_dir()} == before
    assert list(scratch.iterdir()) == [] and victim.read_text() == attacks.UNTOUCHED
    assert most < 25e6, f"reading took {most / 1e6:.0f} MB"


def test_the_room_is_compared_before_unpacking(places, monkeypatch):
    """The sentence names what is needed, what there is, and how to give more."""
    folder, scratch, _ = places
    image_folder(folder)
    path = folder / "a.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / "pictures", "pictures")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 50_000))
    monkeypatch.setattr(archives, "_write", None)  # nothing may be written
    with pytest.raises(ValueError) as found, opened(path, scratch):
        pass
    assert str(found.value) == (
        f"'a.tar' takes 0.000164 GB unpacked, and '{scratch}', the folder for "
        "temporary files, has room for 5e-05 GB. Name a larger one with TMPDIR, or "
        "unpack it yourself and give the folder."
    )


def test_a_disk_that_gets_full_names_the_folder(places, monkeypatch):
    folder, scratch, _ = places
    path = zip_of(folder / "a.zip", ("1.png", IMAGE))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives, "_write", full)
    with pytest.raises(ValueError, match="Name a larger one with TMPDIR"):
        with opened(path, scratch):
            pass
    assert list(scratch.iterdir()) == []


def test_no_folder_for_temporary_files(places, monkeypatch):
    path = zip_of(places[0] / "a.zip", ("1.png", IMAGE))

    def none():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(archives, "gettempdir", none)
    with pytest.raises(ValueError, match="can be written to. Name one with TMPDIR."):
        with opened(path):
            pass


def test_an_archive_of_too_many_files_is_not_unpacked(places, monkeypatch):
    monkeypatch.setattr(archives, "MOST_FILES", 10)
    many = [(f"{i}.png", IMAGE) for i in range(11)]
    for path in (
        tar_of(places[0] / "a.tar", *many),
        zip_of(places[0] / "a.zip", *many),
    ):
        with pytest.raises(ValueError, match="more than 10 files"), opened(path):
            pass


LONG = "l" * 300
NAMES = {  # what an archive has: what is read
    "two\nlines/1.png": ("two\nlines/1.png", "two\nlines"),
    "na\u00efve/1.png": ("na\u00efve/1.png", "na\u00efve"),
    "\u732b/1.png": ("\u732b/1.png", "\u732b"),
    "cat/" + "x" * 251 + ".png": ("cat/" + "x" * 251 + ".png", "cat"),
}


@pytest.mark.parametrize("packed", ["tar", "zip"])
def test_names_in_archives_are_read(packed, tmp_path):
    """Newlines, other alphabets, 255 bytes; hidden files do not count."""
    write = tar_of if packed == "tar" else zip_of
    left_behind = [("__MACOSX/cat/._1.png", b"x"), ("cat/.DS_Store", b"x")]
    members = [(name, IMAGE) for name in NAMES]
    path = write(tmp_path / f"a.{packed}", *members, *left_behind)
    assert read(path) == dict(NAMES.values())


@pytest.mark.parametrize("packed", ["tar", "zip"])
def test_names_too_long_for_a_disk_are_cut(packed, tmp_path):
    """Two of them stay two, and a caption stays beside its image."""
    write = tar_of if packed == "tar" else zip_of
    names = [f"{LONG}{end}" for end in ("a.png", "b.png", "a.txt")]
    contents = [IMAGE, IMAGE, b"a sea"]
    path = write(tmp_path / f"a.{packed}", *zip(names, contents, strict=True))
    with opened(path) as inside:
        first, second = list(selected(find_source(inside), "all"))
    files = [first.facts["file"], second.facts["file"]]
    assert len(set(files)) == 2
    for file in files:
        assert file.startswith("l" * 200) and file.endswith(".png") and len(file) < 256
    captions = {record.facts.get("caption") for record in (first, second)}
    assert captions == {"a sea", None}


def test_names_of_old_zips(tmp_path):
    """Of DOS, UTF-8 that does not say so, and what says it is UTF-8 and is not."""
    names = {b"na\x8bve/1.png": "na\u00efve", b"m\xc3\xb6/1.png": "m\u00f6"}
    names[b"caf\xe9\xff/1.png"] = "caf\u0398\u00a0"  # as DOS would read it
    path = tmp_path / "a.zip"
    ascii_names = [bytes([97 + i]) * len(name) for i, name in enumerate(names)]
    zip_of(path, *((name.decode(), IMAGE) for name in ascii_names))
    data = path.read_bytes()
    for before, name in zip(ascii_names, names, strict=True):
        data = data.replace(before, name)
    data = bytearray(data)
    data[data.rindex(b"PK\x01\x02") + 9] |= 0x08  # says that the last one is UTF-8
    path.write_bytes(data)
    with pytest.raises(UnicodeDecodeError):  # why the list of files is mended
        zipfile.ZipFile(path)
    assert sorted(read(path).values()) == sorted(names.values())


def test_names_of_other_encodings_in_a_tar(tmp_path):
    """Letters stand for bytes that are no UTF-8; their files are read."""
    path = tmp_path / "a.tar"
    options = {"encoding": "latin-1", "format": tarfile.GNU_FORMAT}
    with tarfile.open(path, "w", **options) as archive:
        for name in ("caf\u00e9/1.png", "bird/1.png"):
            member = tarfile.TarInfo(name)
            member.size = len(IMAGE)
            archive.addfile(member, io.BytesIO(IMAGE))
    assert sorted(read(path).values()) == ["bird", "caf\\xe9"]
