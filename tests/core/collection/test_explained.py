"""A collection's file explains itself to anyone with DuckDB."""

import re
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch

from core.collection import publish as publishing
from core.collection.explained import PIECE, VIEWS
from core.collection.schema import SCHEMA_STEPS, StoredAnswer
from core.collection.store import Collection, find_collection
from core.index.full import GradientIndex
from core.lenses import Lens, stored_key
from tests.helpers.toy_collection import HOSTILE, SAMPLE, everything, publish

README = (Path(__file__).resolve().parents[3] / "data" / "README.md").read_text()
(SQL,) = re.findall(r"^```sql\n(.*?)^```", README, re.S | re.M)
(READER,) = re.findall(r"^```python\n(.*?)^```", README, re.S | re.M)
IDS = 3 * np.arange(2 * PIECE + 5)[::-1]  # three pieces, the last one short


def selected(path: Path, query: str) -> list[tuple]:
    """Return the rows that DuckDB alone finds in a file."""
    with duckdb.connect(path, read_only=True) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """Return a collection of more images than a piece holds, answered two ways."""
    scores = np.random.default_rng(0).normal(0, 1e3, (2, len(IDS))).astype("f4")

    def fill(writer):
        writer.put_classes([("noto", HOSTILE)])
        images, facts = [b"an image"] * len(IDS), [{"name": HOSTILE}] * len(IDS)
        writer.put_examples(IDS, [0] * len(IDS), images, facts)
        writer.put_sample(SAMPLE, b"png", np.ones((1, 2, 2), np.float32))
        none = np.full(len(IDS), np.nan)
        influence = StoredAnswer(scores[0], abs(scores[1]), 0.5, "exact")
        writer.put_answer(3, stored_key(Lens()), influence)
        alike = StoredAnswer(scores[1], none, np.nan, "exact")
        writer.put_answer(3, stored_key(Lens("clip")), alike)

    return publish(tmp_path_factory.mktemp("explained"), fill=fill)


@pytest.fixture(scope="module")
def copied(tiny_collection, tmp_path_factory) -> Path:
    """Return a copy of the tiny collection's file.

    Other tests have the file itself open, and DuckDB opens no file twice with other
    settings in one process.
    """
    path = find_collection(tiny_collection, "glyphs")
    copy = tmp_path_factory.mktemp("copied") / path.name
    copy.write_bytes(path.read_bytes())
    return copy


def test_every_table_view_and_column_has_a_comment(path):
    """And no comment is left of one that is gone."""
    found = selected(
        path,
        "select table_name, comment from duckdb_tables() where not internal union all "
        "select view_name, comment from duckdb_views() where not internal union all "
        "select table_name || '.' || column_name, comment from duckdb_columns() "
        "where not internal",
    )
    assert len(found) > 50
    assert [name for name, comment in found if not comment] == []
    views = "select view_name from duckdb_views() where not internal order by 1"
    assert [name for (name,) in selected(path, views)] == sorted(VIEWS)


def test_scores_are_those_that_this_program_reads(path):
    """To the last bit, in order of id, whatever piece of the blob they lie in."""
    with Collection(path) as collection:
        answers = {
            method: collection.answer(3, stored_key(Lens(method)))
            for method in ("ekfac", "clip")
        }
        ids = collection.examples().index
    for method, answer in answers.items():
        rows = selected(
            path,
            "select example_id, score, standard_error, value, query_id, measurement "
            f"from scores where method = '{method}' order by example_id",
        )
        assert [row[0] for row in rows] == ids.tolist()
        assert [row[1] for row in rows] == answer.scores.tolist()
        errors = [np.nan if row[2] is None else row[2] for row in rows]
        np.testing.assert_array_equal(errors, answer.standard_errors)
        np.testing.assert_array_equal([row[3] for row in rows], answer.value)
        assert {row[4] for row in rows} == {3}
        assert {row[5] for row in rows} == {"loss" if method == "ekfac" else None}


def test_images_and_queries_come_with_their_classes(path):
    """A generated image that was made for no class has none."""
    query = "select class, image, metadata ->> 'name' from training_images"
    rows = selected(path, f"{query} where example_id = 6")
    with Collection(path) as collection:
        expected = collection.image(6), collection.examples().loc[6, "name"]
    assert "noto" in rows[0][0] and rows[0][1:] == expected
    query = "select query_id, class, sampler, image from queries"
    assert selected(path, query) == [(3, None, "ddim", b"png")]


def test_a_file_from_before_is_read_as_it_is(tmp_path, monkeypatch):
    """And a copy of it explains itself."""
    monkeypatch.setattr(publishing, "SCHEMA_STEPS", SCHEMA_STEPS[:-1])
    old = publish(tmp_path)
    assert selected(old, "from duckdb_views() where not internal") == []
    monkeypatch.undo()
    with Collection(old) as collection:
        collection.verify()
        assert collection.meta("schema_version") == len(SCHEMA_STEPS) - 1
        expected = everything(collection)
    again = publish(tmp_path, "other", lambda writer: writer.put_all_of(old))
    with Collection(again) as collection:
        assert everything(collection) == expected
    assert selected(again, "select count(*) from scores") == [(3,)]


@pytest.mark.parametrize("query", SQL.split("\n\n"), ids=lambda q: q.splitlines()[0])
def test_queries_of_the_readme_run(copied, query):
    """In a file that was built; those that list anything find rows."""
    rows = selected(copied, query)
    assert rows or "Look-alikes" in query


def test_the_ten_of_the_readme_are_those_of_the_program(copied):
    """Its second query, beside what the reader of collections returns."""
    path = copied
    (query,) = (part for part in SQL.split("\n\n") if "-- The ten" in part)
    with Collection(path) as collection:
        answer = collection.answer(0, stored_key(Lens()))
        ids = collection.examples().index.to_numpy()
    best = np.argsort(-answer.scores, kind="stable")[:10]
    rows = selected(path, query)
    assert [row[0] for row in rows] == ids[best].tolist()
    assert [row[2] for row in rows] == answer.scores[best].tolist()


@pytest.mark.parametrize("bits", [8, 4, 1])
@pytest.mark.parametrize("num_params", [4096, 9001])
def test_the_reader_of_the_readme_reads_the_index(tmp_path, bits, num_params):
    """Twenty-odd lines of numpy, over two shards and a block that is not whole."""
    index = GradientIndex(tmp_path, 300, num_params, bits)
    index.create()
    index.write(0, torch.randn(300, num_params, generator=torch.manual_seed(0)))
    found = {}
    exec(READER, found)
    values = found["read_index"](tmp_path, 300, num_params, bits)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, index.columns(0, num_params).numpy())
