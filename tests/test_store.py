"""Laws of the collection file."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch

from core.store import (
    SCHEMA_STEPS,
    Collection,
    CollectionWriter,
    Sample,
    Shard,
    StoredAnswer,
    find_collection,
    list_collections,
    prune_collections,
)

ROOT = Path(__file__).parent.parent
HOSTILE = 'O\'Hara "q" -- ; ünïcödé 猫 \n\t\\ <script>alert(1)</script> \x00 𝄞'
SAMPLE = Sample(3, None, 2**62, "ddim", 50, 2.0, {"note": HOSTILE})
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # sha256
LENS = {"method": "ekfac", "damping": 1e-8}
SETTINGS = {"data": {"limit": 32, "keep": (("group", ("a",)),)}, "seed": 0}


def write_examples(writer, ids=(0, 1, 2)):
    writer.put_examples(
        ids,
        [i % 2 for i in ids],
        [f"picture {i}".encode() for i in ids],
        [{"name": f"name {i}"} for i in ids],
    )


def write_everything(writer):
    """Fill every table."""
    write_examples(writer)
    writer.put_meta("settings", SETTINGS)
    writer.put_classes([("noto", "Food & Drink"), ("fluent", HOSTILE)])
    writer.put_array("curvature/0", np.arange(6.0).reshape(2, 3))
    writer.put_bytes("denoiser", os.urandom(200_000))
    x_0 = np.ones((1, 2, 2), np.float32)
    writer.put_sample(SAMPLE, b"png", x_0, np.zeros((2, 1, 2, 2), np.uint8))
    answer = StoredAnswer(np.array([0.1, -2, 3]), np.full(3, np.nan), 0.5, "sketch")
    writer.put_answer(3, LENS, answer)
    writer.put_evaluation("lds", "ekfac", {"mean": 0.25, "masks": [1, 2]})
    (writer.root / "shards").mkdir(exist_ok=True)
    (writer.root / "shards" / "0.bin").write_bytes(b"abc")
    writer.put_shard(Shard("shards/0.bin", 0, 3, {"bits": 8}, "|i1", 3, ABC))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return publish(tmp_path_factory.mktemp("published"))


@pytest.fixture
def path(published, tmp_path):
    """Return a copy, with its shard, that a test may spoil."""
    return Path(shutil.copytree(published.parent, tmp_path / "copy")) / published.name


@pytest.fixture
def collection(path):
    with Collection(path) as result:
        yield result


def publish(root, name="glyphs", fill=write_everything):
    with CollectionWriter(root, name) as writer:
        fill(writer)
        return writer.publish()


def everything(collection):
    """Return all that can be read, as one comparable text."""
    ids = collection.examples().index
    samples = collection.samples()
    return repr((
        collection.meta("settings"),
        collection.classes(),
        collection.examples().to_dict("index"),
        collection.labels(),
        collection.images(ids),
        [
            (collection.blob if n == "denoiser" else collection.array)(n)
            for n in collection.arrays()
        ],
        samples,
        [collection.sample_image(s.sample_id) for s in samples],
        [collection.answer(s.sample_id, LENS) for s in samples],
        collection.evaluations(),
        collection.shards(),
    ))


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "u1", "i1", "i4", "i8", "?", ">f4", ">i8"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7, 11), (3, 50_000)])
def test_arrays_come_back_as_numpy_would_write_them(array_collection, dtype, shape):
    expected = array_of(dtype, shape)
    read = array_collection.array(f"{dtype} {shape}")
    assert read.tobytes() == expected.astype(expected.dtype.newbyteorder("<")).tobytes()
    assert read.shape == shape
    assert read.dtype == np.dtype(dtype).newbyteorder("<")
    assert read.flags.writeable


def array_of(dtype, shape):
    values = np.random.default_rng(0).integers(0, 100, shape)
    return np.asarray(values, dtype)


@pytest.fixture(scope="module")
def array_collection(tmp_path_factory):
    def fill(writer):
        for dtype in ["f2", "f4", "f8", "u1", "i1", "i4", "i8", "?", ">f4", ">i8"]:
            for shape in [(), (0,), (3, 0, 2), (7, 11), (3, 50_000)]:
                writer.put_array(f"{dtype} {shape}", array_of(dtype, shape))
        strided = torch.arange(12, dtype=torch.float16).reshape(3, 4).T
        writer.put_array("transposed", strided.requires_grad_())
        writer.put_bytes("empty file", b"")

    with Collection(publish(tmp_path_factory.mktemp("arrays"), fill=fill)) as result:
        yield result


def test_a_torch_view_comes_back_as_its_values(array_collection):
    expected = torch.arange(12).reshape(3, 4).T.numpy()
    np.testing.assert_array_equal(array_collection.array("transposed"), expected)


def test_an_empty_file_is_a_file(array_collection):
    assert array_collection.blob("empty file") == b""


def test_objects_are_refused(tmp_path):
    with CollectionWriter(tmp_path, "glyphs") as writer:
        with pytest.raises(ValueError, match="'x' has dtype object; only numbers"):
            writer.put_array("x", np.array([{}]))


def test_an_array_is_no_file_and_a_file_no_array(collection):
    with pytest.raises(ValueError, match="'denoiser' is a file.*read it with `bl"):
        collection.array("denoiser")
    with pytest.raises(ValueError, match="'curvature/0' is an array.*with `array"):
        collection.blob("curvature/0")
    with pytest.raises(LookupError, match="no array 'x'; it has 'curvature/0', 'd"):
        collection.array("x")


def test_all_that_is_put_comes_back(collection):
    assert collection.meta("settings") == {
        "data": {"limit": 32, "keep": [["group", ["a"]]]},
        "seed": 0,
    }
    assert collection.classes() == (("noto", "Food & Drink"), ("fluent", HOSTILE))
    assert collection.samples() == [SAMPLE]
    assert collection.sample_image(3) == b"png"
    assert collection.sample_x_0(3).sum() == 4
    assert collection.sample_trajectory(3).shape == (2, 1, 2, 2)
    assert collection.lenses(3) == [LENS]
    answer = collection.answer(3, dict(reversed(LENS.items())))
    assert answer.scores.tolist() == [0.1, -2, 3]
    assert np.isnan(answer.standard_errors).all()
    assert (answer.value, answer.source) == (0.5, "sketch")
    assert collection.answer(3, LENS | {"damping": 1.0}) is None
    assert collection.evaluations() == {
        "lds": {"ekfac": {"mean": 0.25, "masks": [1, 2]}}
    }
    (shard,) = collection.shards()
    assert collection.shard_path(shard).read_bytes() == b"abc"


def test_examples_come_back_in_order_of_id_whatever_order_they_were_put(tmp_path):
    def fill(writer):
        write_examples(writer, [9, 2])
        write_examples(writer, [4, 1_000_000_000_000])

    with Collection(publish(tmp_path, fill=fill)) as collection:
        assert collection.examples().index.tolist() == [2, 4, 9, 1_000_000_000_000]
        assert collection.examples().name.tolist()[2] == "name 9"
        assert collection.labels().tolist() == [0, 0, 1, 0]
        assert collection.images([9, 2, 9]) == [b"picture 9", b"picture 2"] + [
            b"picture 9"
        ]
        with pytest.raises(LookupError, match="'glyphs' has no example 3; see"):
            collection.image(3)


def test_no_text_is_changed_or_run_as_sql(tmp_path):
    def fill(writer):
        writer.put_examples([0], [0], [b"x"], [{HOSTILE: HOSTILE}])
        writer.put_meta("it's", HOSTILE)

    root = tmp_path / 'it\'s a "folder"'
    with Collection(publish(root, fill=fill)) as collection:
        assert collection.examples().to_dict("records") == [{HOSTILE: HOSTILE}]
        assert collection.meta("it's") == HOSTILE


def test_what_is_no_json_is_refused(tmp_path):
    with CollectionWriter(tmp_path, "glyphs") as writer:
        writer.put_meta("numpy", [np.float32(0.5), np.int64(3), np.arange(2)])
        with pytest.raises(
            ValueError, match="'cost' cannot be stored as JSON .* finit"
        ):
            writer.put_meta("cost", float("nan"))
        with pytest.raises(ValueError, match="example 7 cannot be stored as JSON"):
            writer.put_examples([7], [0], [b"x"], [{"path": object()}])


def test_a_thing_put_twice_is_refused_and_the_first_stays(tmp_path):
    def fill(writer):
        writer.put_meta("colour", "red")
        with pytest.raises(ValueError, match="'meta' have the same key.*near 'colour'"):
            writer.put_meta("colour", "blue")

    with Collection(publish(tmp_path, fill=fill)) as collection:
        assert collection.meta("colour") == "red"


def test_one_flipped_byte_never_changes_an_answer(path, tmp_path):
    """Either verification refuses the file, or nothing reads otherwise."""
    whole = path.read_bytes()
    with Collection(path) as collection:
        expected = everything(collection)
    rng = np.random.default_rng(0)
    inside = whole.index(b"picture 1")
    refused = 0
    positions = [inside, 0, 9, 4096, 8192, *rng.integers(0, len(whole), 40)]
    for i, position in enumerate(positions):
        damaged = tmp_path / f"damaged-{i}.duckdb"
        flipped = bytearray(whole)
        flipped[position] ^= 1 << (i % 8)
        damaged.write_bytes(flipped)
        try:
            with Collection(damaged) as collection:
                collection.verify()
                assert everything(collection) == expected, position
        except ValueError as error:
            refused += 1
            assert "is damaged or is not a collection" in str(error)
        if position == inside:
            assert refused == 1
        damaged.unlink()
    assert refused > 15


@pytest.mark.parametrize(
    "change",
    [
        "delete from examples where example_id = 1",
        "update examples set label = 1 where example_id = 2",
        "update examples set image = 'x'::blob where example_id = 2",
        "update samples set seed = 1",
        "update samples set image = 'x'::blob",
        "update answers set scores = standard_errors",
        "update answers set value = 1",
        "delete from chunks where start > 0",
        "update arrays set shape = '[3, 2]' where name = 'curvature/0'",
        "update evaluations set value = '1'",
        "delete from shards",
        "insert into meta values ('new', '1')",
    ],
)
def test_verify_finds_every_changed_row(path, change):
    with duckdb.connect(path) as connection:
        connection.execute(change)
    with Collection(path) as collection:
        with pytest.raises(ValueError, match=f"'{path.name}' is damaged"):
            collection.verify()


def test_verify_reads_the_shards_that_came_along(path):
    shard = path.parent / "shards" / "0.bin"
    with Collection(path) as collection:
        shard.write_bytes(b"abd")
        with pytest.raises(ValueError, match="'0.bin' is damaged"):
            collection.verify()
        shard.unlink()
        collection.verify()


def test_a_shard_must_be_whole_and_inside_the_folder(tmp_path):
    with pytest.raises(ValueError, match="'../x' lies outside"):
        Shard("../x", 0, 1, {}, "|i1", 1, "")
    with CollectionWriter(tmp_path, "glyphs") as writer:
        with pytest.raises(ValueError, match="'x' has 0 bytes, not 5"):
            writer.put_shard(Shard("x", 0, 1, {}, "|i1", 5, ""))


@pytest.mark.parametrize(
    "content",
    [b"", b"hello" * 10_000, b"\x00" * 300_000],
    ids=["empty", "text", "zero"],
)
def test_what_is_no_database_is_refused_in_one_sentence(tmp_path, content):
    path = tmp_path / "glyphs.duckdb"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="'glyphs.duckdb' is damaged or is not a coll"):
        Collection(path)


def test_another_database_is_refused(tmp_path):
    path = tmp_path / "other.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("create table t (x integer)")
    with pytest.raises(ValueError, match="'other.duckdb' is damaged or is not a coll"):
        Collection(path)


def test_another_schema_version_is_refused(path):
    with duckdb.connect(path) as connection:
        connection.execute("update meta set value = '99' where key = 'schema_version'")
    expected = f"has schema version 99; this program reads version {len(SCHEMA_STEPS)}"
    with pytest.raises(ValueError, match=expected):
        Collection(path)


def test_a_collection_cannot_read_other_files(path, tmp_path):
    """A view in someone else's file must not fetch what lies on this machine."""
    (tmp_path / "secret").write_text("secret")
    with duckdb.connect(path) as connection:
        connection.execute("drop table classes")
        secret = tmp_path / "secret"
        connection.execute(
            "create view classes as select 0 as label, content as names "
            f"from read_text('{secret}')"
        )
    with Collection(path) as collection:
        with pytest.raises(ValueError, match="is damaged"):
            collection.classes()


def test_other_settings_are_an_error_that_prints_both(collection):
    collection.require_settings(SETTINGS)
    collection.require_settings({"seed": 0})
    with pytest.raises(ValueError) as error:
        collection.require_settings({"data": {"limit": None}, "colour": "red"})

    assert str(error.value) == (
        "Collection 'glyphs' was made with other settings: data.limit is 32 there and "
        "None here; colour is 'not recorded' there and 'red' here. Use its settings, "
        "or build it again with yours."
    )


def test_a_missing_collection_is_an_error_that_names_those_there_are(tmp_path):
    with pytest.raises(LookupError, match="no collection 'glyphs'; there is none. B"):
        find_collection(tmp_path, "glyphs")
    publish(tmp_path, "glyphs")
    publish(tmp_path, "fashion2")
    assert list_collections(tmp_path) == ["fashion2", "glyphs"]
    with pytest.raises(LookupError) as error:
        find_collection(tmp_path, "../etc")
    assert str(error.value) == (
        "There is no collection '../etc'; there is 'fashion2', 'glyphs'. Build it with "
        "`python -m precompute build --collection glyphs`."
    )
    find_collection(tmp_path, "glyphs").unlink()
    with pytest.raises(LookupError, match="'glyphs.current' names is not in its fold"):
        find_collection(tmp_path, "glyphs")
    with pytest.raises(LookupError, match="There is no collection file 'x.duckdb'"):
        Collection(tmp_path / "x.duckdb")


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", ".x", "x.y"])
def test_a_name_must_be_a_plain_word(tmp_path, name):
    with pytest.raises(ValueError, match="cannot name a collection"):
        CollectionWriter(tmp_path, name)


def test_nothing_is_visible_before_publish(tmp_path):
    with CollectionWriter(tmp_path, "glyphs") as writer:
        write_examples(writer)
        assert list_collections(tmp_path) == []
    assert [p.name for p in tmp_path.iterdir()] == [".glyphs.lock"]


BUILD_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from core.store import CollectionWriter

with CollectionWriter(Path(sys.argv[1]), "glyphs") as writer:
    writer.put_meta("colour", "red")
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_kill_before_publish_leaves_the_old_collection_current(tmp_path):
    path = publish(tmp_path)
    command = [sys.executable, "-c", BUILD_UNTIL_KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(ValueError, match="'glyphs' is being built by another pro"):
            CollectionWriter(tmp_path, "glyphs")
        process.kill()

    assert list(tmp_path.glob(".glyphs.building*"))  # the leftovers
    (tmp_path / ".glyphs.building.duckdb.tmp").mkdir()  # as of a build short of memory
    assert find_collection(tmp_path, "glyphs") == path
    with Collection(path) as collection:
        assert len(collection.examples()) == 3
    publish(tmp_path, fill=write_examples)
    assert not list(tmp_path.glob(".glyphs.building*"))


def test_a_new_version_leaves_open_readers_alone(tmp_path):
    old = publish(tmp_path)
    with Collection(old) as reader:
        expected = everything(reader)
        new = publish(tmp_path, fill=write_examples)
        assert new != old
        assert find_collection(tmp_path, "glyphs") == new
        assert everything(reader) == expected


def test_equal_content_gets_an_equal_name_and_the_file_stays(tmp_path):
    path = publish(tmp_path, fill=write_examples)
    before = path.stat()
    assert publish(tmp_path, fill=write_examples) == path
    assert path.stat().st_ino == before.st_ino
    path.write_bytes(b"damaged")
    assert publish(tmp_path, fill=write_examples) == path
    Collection(path).verify()


def test_answers_must_fit_the_examples(tmp_path):
    two = StoredAnswer(np.zeros(2), np.zeros(2), 0.0, "exact")
    with CollectionWriter(tmp_path, "glyphs") as writer:
        write_everything(writer)
        writer.put_answer(3, {}, two)
        with pytest.raises(ValueError, match="2 scores and 2 .* for 3 examples"):
            writer.publish()
    with CollectionWriter(tmp_path, "glyphs") as writer:
        writer.put_answer(8, {}, StoredAnswer(np.zeros(0), np.zeros(0), 0.0, "exact"))
        with pytest.raises(
            ValueError, match="for sample 8, which is not in the gallery"
        ):
            writer.publish()
    with CollectionWriter(tmp_path, "glyphs") as writer:
        write_everything(writer)
        write_examples(writer, [3])
        with pytest.raises(ValueError, match="3 scores and 3 .* for 4 examples"):
            writer.publish()
    assert list_collections(tmp_path) == []


def test_files_of_one_layout_cover_the_examples_each_on_its_own(tmp_path):
    def fill(writer):
        write_examples(writer)
        for kind, first, count in [
            ("rms", 0, 0),
            ("codes", 2, 1),
            ("scales", 0, 3),
            ("codes", 0, 2),
        ]:
            file = f"{kind}-{first}"
            (tmp_path / file).write_bytes(b"abc")
            writer.put_shard(Shard(file, first, count, {"kind": kind}, "|i1", 3, ABC))

    with Collection(publish(tmp_path, fill=fill)) as collection:
        assert len(collection.shards()) == 4


def test_shards_must_cover_the_examples(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    for first, count, message in [
        (1, 2, "begins at position 1, not at 0"),
        (0, 2, "with layout {} hold 2 of 3 examples"),
    ]:
        with CollectionWriter(tmp_path, "glyphs") as writer:
            write_examples(writer)
            writer.put_shard(Shard("x", first, count, {}, "|i1", 3, ""))
            with pytest.raises(ValueError, match=message):
                writer.publish()


def test_pruning_keeps_the_current_version_and_other_names(tmp_path):
    old = publish(tmp_path)
    other = publish(tmp_path, "glyphs-2")
    new = publish(tmp_path, fill=write_examples)
    assert prune_collections(tmp_path, "glyphs") == [old]
    assert not old.exists() and new.exists() and other.exists()


def test_threads_get_their_own_rows(tmp_path):
    def fill(writer):
        write_examples(writer, range(200))
        for i in range(8):
            writer.put_array(str(i), np.full(40_000, i))

    with Collection(publish(tmp_path, fill=fill)) as collection:

        def read(thread):
            for i in range(thread, 200, 8):
                assert collection.image(i) == f"picture {i}".encode()
                if i < 40:
                    assert (collection.array(str(thread)) == thread).all()
            return thread

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(read, range(8))) == list(range(8))


def test_a_file_is_hardly_larger_than_its_data(tmp_path):
    """Without packing it would be 1.9 times the data."""
    data = np.random.default_rng(0).integers(0, 256, 16_000_000, np.uint8)

    def fill(writer):
        for i in range(4):
            writer.put_array(str(i), data[i::4])

    assert publish(tmp_path, fill=fill).stat().st_size < 1.1 * data.nbytes
