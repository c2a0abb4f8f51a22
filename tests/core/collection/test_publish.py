"""Laws of writing a collection and publishing it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from core.collection.publish import CollectionWriter
from core.collection.schema import Shard, StoredAnswer
from core.collection.store import Collection, find_collection, list_collections
from tests.helpers.toy_collection import (
    ABC,
    everything,
    publish,
    write_everything,
    write_examples,
)

ROOT = Path(__file__).resolve().parents[3]


def test_objects_are_refused(tmp_path):
    with CollectionWriter(tmp_path, "glyphs") as writer:
        with pytest.raises(ValueError, match="'x' has dtype object; only numbers"):
            writer.put_array("x", np.array([{}]))


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


def test_a_shard_must_be_whole_and_inside_the_folder(tmp_path):
    with pytest.raises(ValueError, match="'../x' lies outside"):
        Shard("../x", 0, 1, {}, "|i1", 1, "")
    with CollectionWriter(tmp_path, "glyphs") as writer:
        with pytest.raises(ValueError, match="'x' has 0 bytes, not 5"):
            writer.put_shard(Shard("x", 0, 1, {}, "|i1", 5, ""))


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", ".x", "x.y"])
def test_a_name_must_be_a_plain_word(tmp_path, name):
    with pytest.raises(ValueError, match="cannot name a collection"):
        CollectionWriter(tmp_path, name)


def test_nothing_is_visible_before_publish(tmp_path):
    with CollectionWriter(tmp_path, "glyphs") as writer:
        write_examples(writer)
        assert list_collections(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


BUILD_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from core.collection.publish import CollectionWriter

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


def test_a_file_is_hardly_larger_than_its_data(tmp_path):
    """Without packing it would be 1.9 times the data."""
    data = np.random.default_rng(0).integers(0, 256, 16_000_000, np.uint8)

    def fill(writer):
        for i in range(4):
            writer.put_array(str(i), data[i::4])

    assert publish(tmp_path, fill=fill).stat().st_size < 1.1 * data.nbytes
