"""Every layout that users' images come in, and what is no such thing."""

import csv
import gzip
import json
import shutil
import struct
import tracemalloc
import zipfile
from collections import Counter
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from core.data.sets import image_of, inspect, write_set
from core.data.sources import find_source, opened, selected
from core.data.sources.records import Record, read_index
from tests.helpers import layouts

# The same twenty training images in every layout that can hold them.
SAME = {
    "Python batches": layouts.cifar_python,
    "archive": layouts.cifar_archive,
    "binary batches": layouts.cifar_binary,
    "image files": layouts.image_folder,
    "image files by split": lambda folder: layouts.image_folder(folder, "training"),
    "parquet": layouts.parquet,
    "saved to disk": layouts.saved,
    "saved splits": layouts.saved_splits,
}


def read(path, split="train", **wanted) -> list:
    """Return the wanted records at a path."""
    with opened(path) as inside:
        return list(selected(find_source(inside), split, **wanted))


@pytest.mark.parametrize("write", SAME.values(), ids=SAME.keys())
def test_every_layout_gives_the_same_pictures(write, tmp_path):
    """Pixel by pixel, with their labels, whatever order they come in."""
    found = {
        (image_of(record).tobytes(), record.facts["label"])
        for record in read(write(tmp_path / "in"))
    }
    pictures, labels = layouts.training_pictures()
    wanted = zip(pictures, labels, strict=True)
    assert found == {(picture.tobytes(), label) for picture, label in wanted}


@pytest.mark.parametrize("write", SAME.values(), ids=SAME.keys())
def test_every_layout_gives_the_same_ids_and_hashes(write, tmp_path):
    """Examples are numbered by what they show, not by where they lay."""
    path, summary = write_set(read(write(tmp_path / "in")), tmp_path / "sets", "x", 32)
    reference = SAME["Python batches"](tmp_path / "reference")
    other, _ = write_set(read(reference), tmp_path / "sets", "y", 32)
    columns = ["id", "image", "sha256", "label"]
    made, wanted = (
        pq.read_table(p, columns=columns).to_pylist() for p in (path, other)
    )
    assert made == wanted
    assert [row["id"] for row in made] == list(range(20)) and summary.count == 20
    assert summary.classes() == Counter(row["label"] for row in made)


def test_cifar_rows_are_counted_through_the_batches(tmp_path):
    """Training row i is row i % n of batch i // n + 1; the test batch starts anew."""
    records = read(layouts.cifar_python(tmp_path), "all")
    assert [int(r.facts["row"]) for r in records] == [*range(20), *range(4)]
    assert [r.facts["split"] for r in records] == ["train"] * 20 + ["test"] * 4
    pictures, _ = layouts.training_pictures()
    np.testing.assert_array_equal(records[7].image, pictures[7])


def test_the_paper_s_cifar_2(tmp_path):
    """Two classes, and positions counted among the images that pass."""
    path = layouts.cifar_binary(tmp_path)
    keep = {"label": ("automobile", "horse")}
    both = read(path, keep=keep)
    assert {r.facts["label"] for r in both} == {"automobile", "horse"}
    index = tmp_path / "idx_train.csv"
    index.write_text("1\n2\n")
    some = read(path, keep=keep, index=read_index(index))
    assert [r.facts["row"] for r in some] == [
        both[1].facts["row"],
        both[2].facts["row"],
    ]


@pytest.mark.parametrize("binary", [False, True])
def test_cifar_100_has_two_labels(binary, tmp_path):
    records = read(layouts.cifar_100(tmp_path, binary), "test")
    assert [r.facts["label"] for r in records] == ["fine99", "fine0", "fine7", "fine7"]
    assert records[0].facts["coarse_label"] == "coarse19"
    np.testing.assert_array_equal(records[2].image, layouts.pixels(4, 1)[2])


@pytest.mark.parametrize("write", [layouts.artbench_batches, layouts.artbench_files])
def test_artbench_gets_its_artists(write, tmp_path):
    """From the table that lies somewhere near, by row or by name."""
    records = read(write(tmp_path))
    by_pixels = {image_of(r).tobytes(): r.facts for r in records}
    for name, split, style, picture, row in layouts.art(tmp_path):
        if split == "train":
            facts = by_pixels[picture.tobytes()]
            assert facts["artist"] == f"jane-doe-{row % layouts.PER_BATCH}"
            assert facts["title"] == f"the sea train {row}"
            assert facts["url"].endswith(name) and facts["label"] == style
    assert len(by_pixels) == 20


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files(packed, tmp_path):
    records = read(layouts.idx(tmp_path, packed), "test")
    np.testing.assert_array_equal(
        [r.image[..., 0] for r in records], layouts.pixels(4, 1, 28)[..., 0]
    )
    assert [r.facts["label"] for r in records] == ["0", "1", "2", "3"]


def test_idx_files_among_many_others(tmp_path):
    """A hundred other files do not hide them."""
    layouts.idx(tmp_path, packed=True)
    for number in range(100):
        (tmp_path / f"a{number}.doc").write_text("no image")
    assert len(read(tmp_path, "all")) == 8


@pytest.mark.parametrize("promised", [1000, 2**32 - 1])
def test_a_compressed_file_is_read_a_piece_at_a_time(promised, tmp_path):
    """Of 78 MB in 76 kB at most a few are in memory, whatever the header promises."""
    header = struct.pack(">4I", 0x0803, promised, 280, 280)
    with gzip.open(tmp_path / "train-images-idx3-ubyte.gz", "wb", 1) as file:
        file.write(header + bytes(1000 * 280 * 280))
    found = 0
    tracemalloc.start()
    try:
        for _ in find_source(tmp_path).read():
            found += 1
    except ValueError as error:
        assert "does not hold the 4294967295x280x280 values" in str(error)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 980 < found <= 1000 and most < 10e6


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_metadata_beside_pictures(kind, tmp_path):
    """Columns join by file name, relative to the table; a label there counts."""
    root = layouts.image_folder(tmp_path)
    file = sorted(root.rglob("*.png"))[0].relative_to(root).as_posix()
    row = {"file_name": file, "artist": "Ann, B.", "label": "bird", "year": "1901"}
    if kind == "csv":
        with (root / "metadata.csv").open("w", newline="") as out:
            table = csv.DictWriter(out, row)
            table.writeheader()
            table.writerow(row)
    elif kind == "jsonl":
        (root / "metadata.jsonl").write_text(json.dumps(row | {"year": 1901}) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist([row]), root / "metadata.parquet")
    found = {r.facts["file"]: r.facts for r in read(root)}
    assert found[file]["artist"] == "Ann, B." and found[file]["year"] == "1901"
    assert found[file]["label"] == "bird"
    assert sum("artist" in facts for facts in found.values()) == 1


def test_files_that_are_no_pictures_are_listed(tmp_path):
    """A damaged file, a text that says it is one; hidden files do not count."""
    root = layouts.image_folder(tmp_path)
    broken = next(root.rglob("*.png"))
    broken.write_bytes(broken.read_bytes()[:60])
    (root / "notes.png").write_text("shopping list")
    (root / ".DS_Store").write_bytes(b"\x00")
    summary = inspect(read(root))
    assert summary.count == 19
    assert sorted(place for place, _ in summary.skipped) == sorted([
        "notes.png",
        str(broken.relative_to(root)),
    ])
    assert all("could not be read" in reason for _, reason in summary.skipped)


def test_a_class_without_pictures_in_one_split_shifts_no_other(tmp_path):
    """Class names come with the images, not from what one split happens to have."""
    root = tmp_path / "set"
    for split, label in (("train", "b"), ("train", "c"), ("test", "a"), ("test", "c")):
        path = root / split / label / "x.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8), "red").save(path)
    assert find_source(root).classes == ("a", "b", "c")
    assert [r.facts["label"] for r in read(root)] == ["b", "c"]


def test_pictures_outside_of_a_table_are_read_or_skipped(tmp_path):
    """`to_parquet` of an image folder leaves paths where the bytes would be."""
    Image.new("RGB", (8, 8), "blue").save(tmp_path / "a.png")
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [{"bytes": None, "path": str(tmp_path / "a.png")}]
    cells += [{"bytes": None, "path": "gone.png"}, None]
    table = pa.table({"image": pa.array(cells, image), "title": ["A", "B", "C"]})
    pq.write_table(table, tmp_path / "set.parquet")
    summary = inspect(read(tmp_path / "set.parquet"))
    assert summary.count == 1 and len(summary.skipped) == 2


def test_pixels_in_lists(tmp_path):
    """Nested lists of numbers are images, grey or in colour."""
    picture = layouts.pixels(1, 0, 8)[0]
    table = pa.table({"image": [picture.tolist()], "label": ["x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    (record,) = read(tmp_path / "a.parquet")
    np.testing.assert_array_equal(record.image, picture)


def test_a_zip_of_a_folder(tmp_path):
    root = layouts.image_folder(tmp_path)
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        for path in root.rglob("*.png"):
            archive.write(path, path.relative_to(tmp_path))
    assert len(read(tmp_path / "p.zip")) == 20


def damaged_batch(folder):
    path = layouts.cifar_python(folder) / "data_batch_2"
    path.write_bytes(path.read_bytes()[:100])
    return path.parent


def short_records(folder):
    path = layouts.cifar_binary(folder) / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    return path.parent


def unnamed_class(folder):
    root = layouts.cifar_binary(folder)
    (root / "batches.meta.txt").write_text("airplane\n")
    return root


def short_idx(folder):
    path = layouts.idx(folder, False) / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-5])
    return folder


def damaged_arrow(folder):
    path = layouts.saved(folder) / "data-00000-of-00002.arrow"
    path.write_bytes(b"ARROW1 no stream")
    return folder


def two_sets(folder):
    layouts.cifar_python(folder)
    layouts.cifar_binary(folder)
    return folder


def empty(folder):
    folder.mkdir(parents=True)
    return folder


def texts(folder):
    (empty(folder) / "a.doc").write_text("no image")
    return folder


def damaged_archive(folder):
    path = layouts.cifar_archive(folder)
    path.write_bytes(path.read_bytes()[:-200])
    return path


def unnamed_files(folder):
    root = layouts.image_folder(folder)
    (root / "metadata.csv").write_text("artist\nAnn\n")
    return root


def no_column(folder):
    empty(folder)
    pq.write_table(pa.table({"a": [1]}), folder / "a.parquet")
    return folder / "a.parquet"


WRONG = {
    lambda folder: folder / "nothing": "There is nothing at",
    damaged_batch: "'data_batch_2' is not a whole pickle of a batch",
    short_records: "'data_batch_2.bin' has 12,291 bytes, no whole number of records",
    unnamed_class: "only 1 classes have names",
    short_idx: "does not hold the 4x28x28 values",
    damaged_arrow: "could not be read as a table",
    two_sets: "holds several data sets: CIFAR-10, binary batches in",
    empty: "which holds nothing. Expected CIFAR",
    texts: "which holds 'a.doc'. Expected CIFAR",
    damaged_archive: "could not be unpacked",
    unnamed_files: "It needs 'file_name'",
    no_column: "'a.parquet' has the columns 'a'; none holds images",
}


@pytest.mark.parametrize("make, said", WRONG.items())
def test_what_is_no_data_set_gets_one_sentence(make, said, tmp_path):
    with pytest.raises((ValueError, FileNotFoundError)) as found:
        read(make(tmp_path / "in"))
    assert said in str(found.value) and "\n" not in str(found.value)


def test_wishes_that_nothing_meets(tmp_path):
    path = layouts.cifar_python(tmp_path)
    with pytest.raises(ValueError, match=r"split 'validation'.*found: test, train"):
        read(path, "validation")
    with pytest.raises(ValueError, match="No image has a column 'artist'"):
        read(path, keep={"artist": ("x",)})
    with pytest.raises(ValueError, match="image 20, counted from 0, of 20"):
        read(path, index=[0, 20])
    wrong = {b"1\nx\n": "Line 2", b"1\n1\n": "twice", b"": "is empty"}
    wrong[b"\xff\x00\x81"] = "^'index' is not text. An index file has one position a"
    for content, said in wrong.items():
        (tmp_path / "index").write_bytes(content)
        with pytest.raises(ValueError, match=said):
            read_index(tmp_path / "index")
    (tmp_path / "index").write_bytes("\ufeff3\r\n4\r\n".encode())
    assert read_index(tmp_path / "index") == [3, 4]


def test_a_set_appears_whole_or_not_at_all(tmp_path):
    """Nothing is left of an import that failed; one that is repeated is the same."""

    def interrupted():
        yield from read(layouts.image_folder(tmp_path / "in"))[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_set(interrupted(), tmp_path / "sets", "x", 16)
    assert list((tmp_path / "sets").iterdir()) == []
    records = read(tmp_path / "in" / "pictures")
    first, _ = write_set(records, tmp_path / "sets", "x", 16)
    again, _ = write_set(records[::-1], tmp_path / "sets", "x", 16)
    shutil.rmtree(tmp_path / "in")
    ids = [pq.read_table(p, columns=["id", "sha256"]) for p in (first, again)]
    assert ids[0] == ids[1]


def test_memory_holds_no_more_pictures_for_a_larger_set(tmp_path, monkeypatch):
    """Of 400 images of 40 kB at most a group of 16 is in memory, and the numbers."""
    monkeypatch.setattr("core.data.sets.GROUP", 16)
    generator = np.random.default_rng(0)

    def records():
        for number in range(400):
            pixels = generator.integers(0, 256, (120, 120, 3), dtype=np.uint8)
            yield Record(pixels, {"label": f"{number % 3}"}, f"{number}")

    write_set(islice(records(), 20), tmp_path, "warm", 120)  # what imports take
    tracemalloc.start()
    path, _ = write_set(records(), tmp_path, "x", 120)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 12e6 and most < 6e6
