"""Laws of the collection file and of reading it."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch

from core.collection.publish import CollectionWriter
from core.collection.schema import SCHEMA_STEPS
from core.collection.store import Collection, find_collection, list_collections
from tests.helpers.toy_collection import (
    HOSTILE,
    LENS,
    SAMPLE,
    SETTINGS,
    everything,
    publish,
    write_examples,
)


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
    assert collection.sample_images() == {3: b"png"}
    assert collection.sample_x_0(3).sum() == 4
    assert collection.lenses(3) == [LENS]
    answer = collection.answer(3, dict(reversed(LENS.items())))
    assert answer.scores.tolist() == [0.125, -2, 3]
    assert np.isnan(answer.standard_errors).all()
    assert (answer.value, answer.source) == (0.5, "sketch")
    assert collection.answers(LENS)[3].scores.tolist() == answer.scores.tolist()
    assert collection.answers(LENS | {"damping": 1.0}) == {}
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
        assert collection.images([9, 2, 9]) == [b"image 9", b"image 2"] + [b"image 9"]
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


def test_one_flipped_byte_never_changes_an_answer(path, tmp_path):
    """Either verification refuses the file, or nothing reads otherwise."""
    whole = path.read_bytes()
    with Collection(path) as collection:
        expected = everything(collection)
    rng = np.random.default_rng(0)
    inside = whole.index(b"image 1")
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
    expected = (
        f"has schema version 99; this program reads versions 2 and {len(SCHEMA_STEPS)}"
    )
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
    with pytest.raises(ValueError, match="'classes' is a view.*Get it again"):
        Collection(path)


ENDLESS = "select range::text, range::text from range(1000000000000000)"
WITHOUT_END = (
    "with recursive more(n) as (select 0 union all select n + 1 from more) "
    "select n::text, n::text from more"
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            ["drop table meta", f"create view meta(key, value) as {ENDLESS}"],
            "'meta' is a view, which computes its rows when it is read",
        ),
        (
            ["drop table meta", f"create view meta(key, value) as {WITHOUT_END}"],
            "'meta' is a view, which computes its rows when it is read",
        ),
        (
            ["drop table chunks", f"create view chunks(name, start) as {ENDLESS}"],
            "'chunks' is a view, which computes its rows when it is read",
        ),
        (
            [f"create view extra(a, b) as {ENDLESS}"],
            "'extra' is a view, which computes its rows when it is read",
        ),
        (
            [f"create or replace view scores(query_id, score) as {ENDLESS}"],
            "'scores' is a view, which computes its rows when it is read",
        ),
        (
            ["create schema more", f"create view more.queries(a, b) as {ENDLESS}"],
            "'queries' is a view, which computes its rows when it is read",
        ),
        (
            [f"create macro unnest(x) as (select count(*) from ({ENDLESS}))"],
            "it brings a function of its own, 'unnest'",
        ),
        (
            ["insert into chunks select 'x', 0, 'y'::blob from range(3000000)"],
            "'chunks' claims 3,000,006 rows in a file of",
        ),
    ],
)
def test_a_file_that_computes_its_rows_is_not_read(path, changes, said):
    """It may never end, or fill any memory: nothing is asked of it."""
    with duckdb.connect(path) as connection:
        for change in changes:
            connection.execute(change)
    with pytest.raises(ValueError) as error:
        Collection(path)
    assert str(error.value).startswith(f"'{path.name}' is not read: {said}")
    assert str(error.value).endswith(
        "Get it again from where it came, or build it with "
        "`python -m precompute build --collection glyphs`."
    )
    with CollectionWriter(path.parent, "other") as writer:
        with pytest.raises(ValueError, match="is not read"):
            writer.put_all_of(path)


@pytest.mark.parametrize(
    "change",
    [
        "alter table classes add column more integer",
        "drop table answers",
        "drop table shards; create table shards (file text, first_position bigint, "
        "num_examples bigint, layout text, dtype text, num_bytes bigint, "
        "sha256 text generated always as (repeat('x', 1000000000)))",
    ],
)
def test_a_file_with_other_tables_is_not_read(path, change):
    with duckdb.connect(path) as connection:
        connection.execute(change)
    with pytest.raises(ValueError, match="is damaged or is not a collection"):
        Collection(path)


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


def test_threads_get_their_own_rows(tmp_path):
    def fill(writer):
        write_examples(writer, range(200))
        for i in range(8):
            writer.put_array(str(i), np.full(40_000, i))

    with Collection(publish(tmp_path, fill=fill)) as collection:

        def read(thread):
            for i in range(thread, 200, 8):
                assert collection.image(i) == f"image {i}".encode()
                if i < 40:
                    assert (collection.array(str(thread)) == thread).all()
            return thread

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(read, range(8))) == list(range(8))
