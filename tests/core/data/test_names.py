"""Folders as disks have them: links, pipes, strange names, many other files."""

import errno
import io
import json
import os
import pickle
import sys
import tarfile
import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.config import DataConfig
from core.data.datasets import load_dataset
from core.data.sets import Summary, readable, write_set
from core.data.sources import find_source, opened, selected
from core.data.sources.below import below
from core.data.sources.names import LONGEST, plain_text, storable
from core.files.images import EXTENSIONS, KINDS, MAX_BYTES, START, begins_as_image
from core.files.texts import safe_csv
from precompute.__main__ import main
from precompute.imports.images import inspect_data
from precompute.imports.selection import Selection
from tests.helpers import layouts
from tests.helpers.picture_files import encoded, halves
from tests.kinds.folders import images

# Every kind that the README lists, by how files of it are called.
CALLED = {
    "PNG": (".png", ".apng"),
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "WEBP": (".webp",),
    "AVIF": (".avif",),
    "GIF": (".gif",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "JPEG2000": (".jp2", ".j2k", ".jpx", ".j2c"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
}
ENDINGS = [(kind, ending) for kind, endings in CALLED.items() for ending in endings]


def in_folder(path: Path, name: str, data: bytes) -> Path:
    path.mkdir()
    (path / name).write_bytes(data)
    return path


def in_table(path: Path, name: str, data: bytes) -> Path:
    cell = {"bytes": data, "path": name}
    pq.write_table(pa.table({"image": [cell]}), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def in_zip(path: Path, name: str, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
    return path


def in_tar(path: Path, name: str, data: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def look(path: Path) -> tuple[int, list[tuple[str, str]]]:
    """Return how many images are read at a path, and what is skipped."""
    summary = Summary()
    with opened(path) as inside:
        for _ in readable(selected(find_source(inside)), summary):
            pass
    return summary.count, summary.skipped


@pytest.mark.parametrize("carrier", [in_folder, in_table, in_zip, in_tar])
@pytest.mark.parametrize("kind, ending", ENDINGS, ids=[e for _, e in ENDINGS])
def test_every_kind_is_found_in_every_carrier(kind, ending, carrier, tmp_path):
    """Each alone, in capitals, so that nothing else tells where the images are."""
    mode = {".pgm": "L", ".pbm": "1"}.get(ending, "RGB")
    data = encoded(halves(mode, 24), kind)
    assert look(carrier(tmp_path / "set", f"a{ending.upper()}", data)) == (1, [])


def test_kinds_and_names_are_listed_in_one_place():
    """The names above are those of the list; every kind is told by its first bytes."""
    assert CALLED.keys() == KINDS.keys()
    assert {ending for _, ending in ENDINGS} <= EXTENSIONS
    for kind in KINDS:
        assert begins_as_image(encoded(halves(size=24), kind)[:START])
    for start in (b"", b"PK\x03\x04", b"%PDF-1.7", b"#!/bin/sh", b"\x00" * 16):
        assert not begins_as_image(start)


def test_ten_thousand_other_files_do_not_hide_an_image(tmp_path):
    """Neither by their number nor by their names; they are counted as skipped."""
    for number in range(10_000):
        (tmp_path / f"a{number:05d}.npy").write_bytes(b"x")
    images(tmp_path, "z.png")
    found = list(find_source(tmp_path).read())
    assert len(found) == 10_001 and found[-1].location == "z.png"


def test_an_image_without_a_name_for_it_is_found(tmp_path):
    """What a file is called comes second to what it is."""
    for number in range(100):
        (tmp_path / f"a{number:05d}.jpg").write_bytes(b"not an image")
    (tmp_path / "z").write_bytes(layouts.png(layouts.pixels(1, 0)[0]))
    count, skipped = look(tmp_path)
    assert count == 1 and len(skipped) == 100


# --- links ---------------------------------------------------------------------------


def test_linked_folders_are_followed_once(tmp_path):
    """Images are read through links; loops and what was read already are named."""
    shared = images(tmp_path / "shared", "deep/1.png", "2.png")
    root = images(tmp_path / "set", "cat/3.png")
    (root / "dog").symlink_to(shared)
    (root / "again").symlink_to("cat")
    (root / "bird").symlink_to(shared / "deep")
    (root / "cat" / "loop").symlink_to("..")
    (root / "around").symlink_to("/")
    (root / "self").symlink_to("self")
    (root / "gone").symlink_to("nothing")
    (root / "file.png").symlink_to(root / "cat" / "3.png")
    found = {r.facts["file"] for r in find_source(root).read()}
    assert found == {"bird/1.png", "cat/3.png", "dog/2.png", "file.png"}
    notes = "\n".join(find_source(root).notes)
    assert "Left out: 'again' (it is 'cat' again)." in notes
    assert "Left out: 'dog/deep' (it is 'bird' again)." in notes
    assert "Left out: 'cat/loop' (it is '.' again)." in notes
    assert "Left out: 'around' (it links to a folder around this one)." in notes
    assert "'gone' and 'self' (it links to nothing that can be read)." in notes


def test_many_links_to_one_another_end(tmp_path):
    """Twenty folders that all link to all others: each is visited once."""
    for one in range(20):
        images(tmp_path, f"{one}/{one}.png")
        for other in range(20):
            (tmp_path / f"{one}" / f"to{other}").symlink_to(f"../{other}")
    assert len(below(tmp_path).files) == 20


def test_a_set_behind_a_link_is_one(tmp_path):
    """CIFAR beside a link to it is not two data sets."""
    batches = layouts.cifar_python(tmp_path / "in")
    (tmp_path / "in" / "also").symlink_to(batches)
    assert len(list(find_source(tmp_path / "in").read())) == 24


def test_pipes_and_closed_folders_are_named(tmp_path, monkeypatch):
    """A pipe would be waited for, and a closed folder was left out in silence."""
    images(tmp_path, "cat/1.png", "closed/2.png")
    os.mkfifo(tmp_path / "pipe.png")
    scandir = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    source = find_source(tmp_path)
    assert [record.location for record in source.read()] == ["cat/1.png"]
    assert "Left out: 'pipe.png' (it is neither a file nor a folder)." in source.notes
    assert "Left out: 'closed' (Permission denied)." in source.notes


def test_a_file_that_cannot_be_opened_is_skipped(tmp_path, monkeypatch):
    images(tmp_path, "1.png", "2.png")
    opener = Path.open

    def closed(path, *args):
        if path.name == "2.png":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opener(path, *args)

    monkeypatch.setattr(Path, "open", closed)
    said = "The file could not be read: Permission denied."
    assert look(tmp_path) == (1, [("2.png", said)])


def test_a_large_file_is_judged_by_its_beginning(tmp_path, monkeypatch):
    """A film of gigabytes is not read into memory, and an image of 30 MB is named."""
    images(tmp_path, "1.png")
    for name, start in (("film.mp4", b"\x00\x00\x00\x20ftypisom"), ("2.bmp", b"BM")):
        with (tmp_path / name).open("wb") as file:
            file.write(start)
            file.truncate(50 * 10**9 if name == "film.mp4" else MAX_BYTES + 10**7)
    count, skipped = look(tmp_path)
    assert count == 1 and dict(skipped)["2.bmp"].startswith("The file has 30 MB; at")
    assert "of another kind" in dict(skipped)["film.mp4"]


# --- names ---------------------------------------------------------------------------

STRANGE = {  # as bytes on a disk: as text everywhere else
    b"caf\xe9/1.png": "caf\\xe9",
    b"two\nlines/2.png": "two\nlines",
    b"l" * 255 + b"/" + b"m" * 251 + b".png": "l" * 255,
    b"\xff\xfe/4.png": "\\xff\\xfe",
    "\u732b \U0001f431/5.png".encode(): "\u732b \U0001f431",
    b"tab\t\x1b[31m\x7f/6.png": "tab\t\x1b[31m\x7f",
    b" '\"; DROP/7.png": " '\"; DROP",
}


@pytest.fixture
def strange(tmp_path):
    """Return a folder of images whose names no program expects."""
    root = os.fsencode(tmp_path / "set")
    for number, name in enumerate(STRANGE):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(layouts.png(layouts.pixels(1, number)[0]))
    return tmp_path / "set"


def test_strange_names_are_read_all_the_way(strange, tmp_path, monkeypatch):
    """Through parquet, the data set, DuckDB, JSON and CSV, and back the same."""
    with opened(strange) as inside:
        records = list(selected(find_source(inside)))
    path, summary = write_set(records, tmp_path / "sets", "x", 32)
    wanted = sorted(STRANGE.values())
    assert sorted(summary.classes()) == wanted and not summary.skipped
    assert sorted(pq.read_table(path)["label"].to_pylist()) == wanted
    monkeypatch.setenv("AFTERIMAGE_SETS", str(path.parent))
    config = DataConfig(path=path.name, image_size=32, label_columns=("label",))
    dataset = load_dataset(config)
    assert [name for (name,) in dataset.class_names] == wanted
    table = dataset.metadata
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE kept AS SELECT * FROM given")
        kept = connection.execute("SELECT label FROM kept").fetchall()
    assert sorted(name for (name,) in kept) == wanted
    assert sorted(json.loads(json.dumps(list(table["label"])))) == wanted
    assert safe_csv(table).encode().decode().count(".png") == len(STRANGE)


def test_strange_names_are_printed_a_line_each(strange, capsys):
    """No name breaks a line, moves the cursor, or cannot be printed at all."""
    (strange / "broken\n\udcff.png").write_bytes(b"\x89PNG")
    said = inspect_data(strange, Selection())
    print(said)
    assert said == said.encode("utf-8").decode()
    assert not {"\x1b", "\x7f", "\t"} & set(said)
    assert "images: 7" in said and "caf\\xe9 1" in said and "two lines 1" in said
    assert "  broken \\xff.png: The file could not be read as an image" in said


def test_a_class_of_any_name_can_be_kept(strange):
    """`--keep` takes the letters that are shown, and those of a terminal."""
    from precompute.imports.selection import parse_keep

    for text in ("label=caf\\xe9", "label=caf\udce9"):
        with opened(strange) as inside:
            found = Selection(keep=parse_keep([text])).records(find_source(inside))
            assert [record.facts["file"] for record in found] == ["caf\\xe9/1.png"]


@pytest.mark.parametrize("suffix", [".png", ".caption.png", "", "." + "s" * 300])
@pytest.mark.parametrize("stem", ["a" * 300, "\u732b" * 100, "\udcff" * 300])
def test_a_cut_name_fits_and_stays_one_of_its_own(stem, suffix):
    cut = storable(stem + suffix)
    assert len(os.fsencode(cut)) <= LONGEST and cut != storable(stem + "b" + suffix)
    assert cut == storable(stem + suffix) and storable(cut) == cut
    if suffix == ".png":
        assert storable(stem + ".txt") == cut.removesuffix(".png") + ".txt"


def test_plain_text_is_whole_unicode():
    assert plain_text("caf\u00e9 \U0001f431") == "caf\u00e9 \U0001f431"
    assert plain_text("caf\udce9") == "caf\\xe9"
    assert plain_text("\ud83d") == "\\xed\\xa0\\xbd"  # half of a pair, from JSON


def test_a_cell_that_names_what_no_disk_can_hold_is_skipped(tmp_path):
    """Of one row: the others are read."""
    images(tmp_path, "1.png")
    cells = ["1.png", "x" * 5000, "nul\0.png", "/".join("ab" * 3000)]
    pq.write_table(pa.table({"image": cells}), tmp_path / "a.parquet")
    count, skipped = look(tmp_path / "a.parquet")
    assert count == 1 and len(skipped) == 3


# --- splits on their own -------------------------------------------------------------


def alone_batch(folder: Path) -> Path:
    return layouts.cifar_python(folder) / "test_batch"


def alone_binary(folder: Path) -> Path:
    return layouts.cifar_binary(folder) / "test_batch.bin"


def alone_idx(folder: Path) -> Path:
    return layouts.idx(folder, packed=True) / "t10k-images-idx3-ubyte.gz"


def alone_training_batch(folder: Path) -> Path:
    return layouts.cifar_python(folder) / "data_batch_2"


def alone_parquet(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(layouts.table().slice(0, 4), folder / "test-00000-of-00001.parquet")
    return folder / "test-00000-of-00001.parquet"


def alone_parquet_folder(folder: Path) -> Path:
    return alone_parquet_in(folder / "val")


def alone_parquet_in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    pq.write_table(layouts.table().slice(0, 4), folder / "0000.parquet")
    return folder


def alone_images(folder: Path) -> Path:
    return images(folder, *(f"val/cat/{i}.png" for i in range(4))) / "val"


def alone_saved(folder: Path) -> Path:
    path = layouts.saved_splits(folder) / "test"
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"_split": "test"}))
    return path


def alone_archive(folder: Path) -> Path:
    images(folder, *(f"test/cat/{i}.png" for i in range(4)))
    with zipfile.ZipFile(folder / "test.zip", "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder))
    return folder / "test.zip"


ALONE = {
    alone_batch: 4,
    alone_training_batch: 4,
    alone_binary: 4,
    alone_idx: 4,
    alone_parquet: 4,
    alone_parquet_folder: 4,
    alone_images: 4,
    alone_saved: 20,
    alone_archive: 4,
}


@pytest.mark.parametrize("make, count", ALONE.items(), ids=[f.__name__ for f in ALONE])
def test_a_split_that_is_given_on_its_own_is_read(make, count, tmp_path):
    path = make(tmp_path / "in")
    assert look(path) == (count, [])
    assert f"images: {count}" in inspect_data(path, Selection())


def test_a_folder_called_test_with_all_splits_means_its_training_images(tmp_path):
    """People try things in a folder of that name."""
    root = images(tmp_path / "test", "train/a/1.png", "test/a/2.png", "test/b/3.png")
    assert look(root) == (1, [])
    assert look(root / "test") == (2, [])


def test_a_split_that_was_asked_for_is_not_replaced(tmp_path):
    path = alone_batch(tmp_path / "in")
    with pytest.raises(ValueError, match="No image is in split 'train'"):
        inspect_data(path, Selection("train"))


def test_a_batch_on_its_own_has_its_class_names(tmp_path):
    path = alone_batch(tmp_path / "in")
    records = list(selected(find_source(path)))
    _, numbers = layouts.batches(layouts.CLASSES)["test_batch"]
    assert [r.facts["label"] for r in records] == [layouts.CLASSES[n] for n in numbers]
    assert {record.facts["split"] for record in records} == {"test"}


def test_a_file_that_is_no_batch_is_refused(tmp_path):
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(ValueError, match="is a pickle of something else"):
        list(find_source(path).read())
    path.write_text("no batch")
    with pytest.raises(ValueError, match="is a file of another kind than expected"):
        find_source(path)


def test_a_terminal_without_these_letters_shows_what_it_can(strange, monkeypatch):
    """A name that the terminal cannot print stopped the command with one word."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "argv", ["precompute", "inspect-data", str(strange)])
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main() == 0
    terminal.flush()
    said = terminal.buffer.getvalue()
    assert b"images: 7" in said and b"\\u732b \\U0001f431 1" in said
