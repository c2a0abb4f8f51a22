"""All names of our columns as a user's columns: both are there, neither is lost."""

import ast
import io
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from core.collection.schema import SCHEMA_STEPS
from core.columns import beside, free_names, joined, parted
from core.config import DataConfig
from core.data.datasets import load_dataset
from core.data.sets import write_set
from core.data.sources import Record
from core.evidence.left_out import group_members, group_name
from core.explorer.explorer import Explorer, Lens, open_explorer
from core.explorer.groups import change_table, named_table
from core.files.texts import safe_csv
from core.report import reading
from core.report.report import Part, html_report
from precompute.__main__ import main
from precompute.imports.selection import Prompts
from precompute.retraining.jobs import named_groups
from precompute.stages.publish import publish
from tests.helpers import layouts
from tests.helpers.hostile import made_already
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    app_runs_first,
    open_app,
    wait_for_jobs,
    words,
)

ROOT = Path(__file__).resolve().parents[3]
# What the classes are made of: both are columns of our table of the gallery.
CLASS_COLUMNS = ("label", "sample_id")


def our_names() -> list[str]:
    """Return every name of a column in the schema, and every key of a table in code."""
    with duckdb.connect() as connection:
        for step in SCHEMA_STEPS:
            connection.execute(step)
        query = "select distinct column_name from duckdb_columns() where not internal"
        names = {name for (name,) in connection.execute(query).fetchall()}
    for folder in ("core", "precompute", "pages"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Dict):
                    names |= texts(node.keys)
                elif isinstance(node, ast.Subscript):
                    names |= texts([node.slice])
                elif isinstance(node, ast.List | ast.Tuple):
                    names |= texts(node.elts)
    return sorted(name for name in names if name.isidentifier())


def texts(nodes) -> set[str]:
    """Return those nodes that are plain texts."""
    found = (n.value for n in nodes if isinstance(n, ast.Constant))
    return {value for value in found if isinstance(value, str)}


NAMES = our_names()


@pytest.fixture(scope="module")
def root(tiny_collection, tmp_path_factory) -> Path:
    """Return the folder of the tiny collection, its columns called like all of ours."""
    root = tmp_path_factory.mktemp("named")
    config, made = made_already(tiny_collection, root)
    old = made.model.dataset.metadata
    renamed = dict(zip(config.data.label_columns, CLASS_COLUMNS, strict=True))
    columns = {name: [f"{name} 0", f"{name} 1"] for name in NAMES if name != "id"}
    table = pd.DataFrame({
        name: [values[i % 2] for i in range(len(old))]
        for name, values in columns.items()
    })
    for before, after in renamed.items():
        table[after] = old[before]
    table["id"] = old["id"]  # as in every data set; a user's is called source_id
    data = replace(config.data, label_columns=CLASS_COLUMNS)
    dataset = replace(made.model.dataset, metadata=table, label_columns=CLASS_COLUMNS)
    publish(
        replace(config, data=data, captions=("score", "rank")),
        root,
        replace(made, model=replace(made.model, dataset=dataset)),
    )
    return root


@pytest.fixture(scope="module")
def explorer(root) -> Explorer:
    return open_explorer("glyphs", root)


def test_the_names_are_those_of_the_code():
    """The list is no empty one: what the issue of a user named is among it."""
    for name in (
        *("label", "sample_id", "example_id", "source_row", "name", "rank", "score"),
        *("seed", "value", "standard_error", "picture", "image", "method", "class"),
        *("group", "pictures", "change", "share", "example", "label"),
    ):
        assert name in NAMES, name


def test_questions_are_about_the_picture_that_was_asked_for(explorer, tiny_explorer):
    """A user's `sample_id` or `seed` does not stand in for ours."""
    assert list(explorer.gallery.columns) == list(tiny_explorer.gallery.columns)
    for sample in map(int, explorer.gallery.index):
        query = explorer.query_from_gallery(sample)
        assert query.facts == tiny_explorer.query_from_gallery(sample).facts
        answer = explorer.answer(query, Lens())
        expected = tiny_explorer.answer(query, Lens())
        np.testing.assert_array_equal(answer.scores, expected.scores)
        own = tiny_explorer.class_of(query.label)
        assert list(explorer.class_of(query.label)) == list(CLASS_COLUMNS)
        assert list(explorer.class_of(query.label).values()) == list(own.values())


def test_a_table_has_our_columns_and_all_of_the_user_s(explorer):
    """Ours keep name and values; each of the user's keeps its values."""
    answer = explorer.answer(explorer.query_from_gallery(0), Lens())
    table = reading.score_table([answer], explorer.examples.table)
    read = pd.read_csv(io.StringIO(safe_csv(table)))
    assert read.columns.is_unique
    assert read["example"].tolist() == answer.example_ids[answer.order()].tolist()
    assert read["ekfac_rank"].tolist() == list(range(1, len(read) + 1))
    users = explorer.examples.table.loc[read["example"]]
    assert len(read.columns) == 4 + len(users.columns)
    for name, column in free_names(users.columns, table.columns[:4]).items():
        assert read[column].astype(str).tolist() == users[name].tolist()


def test_the_command_writes_both(root, monkeypatch, tmp_path, capsys):
    """`attribute` writes our four columns first, then all of the user's."""
    out = tmp_path / "scores.csv"
    words = ["attribute", "--collection", "glyphs", "--sample", 0, "--root", root]
    monkeypatch.setattr(sys, "argv", ["precompute", *map(str, [*words, "--out", out])])
    assert main() == 0, capsys.readouterr().err
    read = pd.read_csv(out)
    assert list(read)[:4] == ["example_id", "score", "standard_error", "rank"]
    assert read.columns.is_unique and len(read.columns) == 4 + len(NAMES) - 1
    assert read["rank"].tolist() == list(range(1, len(read) + 1))
    assert set(read["source_score"]) == {"score 0", "score 1"}
    assert set(read["source_rank"]) == {"rank 0", "rank 1"}
    assert set(read["name"]) == {"name 0", "name 1"}


@pytest.mark.parametrize("page", ["", "groups", "map", "collections", "evidence"])
def test_every_page_opens(root, monkeypatch, page):
    """Nothing fails, and the user's words stand on the page."""
    app = open_app(root, monkeypatch, page and f"pages/{page}.py", sample="0")
    if "jobs" in app.session_state:
        app = wait_for_jobs(app)
    assert not app.exception and not app.error, app.exception
    if page == "collections":
        assert "Values of label" in {caption.value for caption in app.caption}


def test_a_new_picture_and_the_details_are_shown(root, explorer, monkeypatch):
    """A training image is asked about, another one's details are open."""
    first, second = map(str, explorer.examples.table.index[:2])
    app = open_app(root, monkeypatch, example=first, detail=second)
    assert not wait_for_jobs(app).exception
    assert "standard_error standard" in words(app).replace("\\", "")


def test_the_report_names_both(explorer):
    """Our seed and the user's class columns are told apart."""
    query = explorer.query_from_gallery(0)
    answer = explorer.answer(query, Lens())
    page = html_report(explorer, query, [Part(answer, None)])
    assert "Sample id" in page and "Class by sample_id" in page


def test_free_names_are_never_taken_twice():
    names = free_names(["rank", "source_rank", "source_source_rank", "x"], ["rank"])
    assert names["rank"] == "source_source_source_rank"
    assert len(set(names.values())) == 4 and names["source_rank"] == "source_rank"


def test_rows_follow_our_order():
    users = pd.DataFrame({"score": ["a", "b"], "id": [1, 2]}, index=[7, 8])
    ids = pd.Index([8, 7], name="id")
    table = beside(pd.DataFrame({"score": [0.5, 0.25]}, ids), users)
    assert table.to_dict("list") == {
        "id": [8, 7],
        "score": [0.5, 0.25],
        "source_score": ["b", "a"],
        "source_id": [2, 1],
    }


@pytest.mark.parametrize("column", ["images", "standard_error", "score", "group"])
def test_values_of_a_column_of_our_name_are_a_table(column):
    table = change_table(np.array([1.0, 2.0, 3.0]), pd.Series(["a", "a", "b"]))
    named = named_table(table, column, "score")
    assert named.columns.is_unique and len(named.columns) == 4
    assert named.iloc[:, 0].tolist() == table["group"].tolist()
    assert named["score"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("separator", ["=", ":"])
def test_a_column_s_name_may_hold_what_separates(separator):
    """No two columns and values make one text; what is plain stays as it is."""
    columns = ["a", f"a{separator}b", f"a%{ord(separator):02X}b", "a%25b", "%", "ä b"]
    values = ["c", f"b{separator}c", "", separator, "%3D"]
    pairs = [(column, value) for column in columns for value in values]
    made = [joined(column, separator, value) for column, value in pairs]
    assert len(set(made)) == len(made)
    assert [parted(text, separator) for text in made] == pairs
    assert joined("style", "=", "noto") == group_name("style", "noto") == "style=noto"


def test_groups_of_a_column_with_an_equals_sign_are_found():
    table = pd.DataFrame({"a": ["b=c", "x"], "a=b": ["y", "c"]})
    dataset = type("Dataset", (), {"metadata": table})
    every = named_groups(["a", "a=b"], dataset)
    assert every == ["a=b=c", "a=x", "a%3Db=c", "a%3Db=y"]
    members = [group_members(name, table).tolist() for name in every]
    assert members == [[True, False], [False, True], [False, True], [True, False]]
    with pytest.raises(LookupError, match="no column 'z'. They have a, a%3Db."):
        group_members("z=1", table)


def test_an_imported_set_keeps_columns_of_our_names(tmp_path):
    """`id` and `source_id` of a user both come through, beside our own id."""
    facts = {name: f"user's {name}" for name in [*NAMES, "id", "source_id"]}
    pictures = layouts.pixels(3, 0)
    records = [Record(one, facts, "here") for one in pictures]
    path, _ = write_set(records, tmp_path, "named", 32)
    dataset = load_dataset(DataConfig(path=str(path), image_size=32, label_columns=()))
    assert dataset.ids.tolist() == [0, 1, 2]
    kept = dataset.metadata.iloc[0].to_dict()
    assert set(facts.values()) <= set(kept.values())
    assert kept["source_id"] == "user's source_id"
    assert kept["source_source_id"] == "user's id"


def test_another_column_of_texts_loses_no_captions():
    """With `--caption words`, what the user's own `caption` says stays."""
    record = Record(b"", {"caption": "mine", "words": "a fox"}, "here")
    (found,) = Prompts("words").said_of([record])
    assert found.facts["caption"] == "a fox"
    assert found.facts["source_caption"] == "mine"


def test_pictures_of_which_nothing_is_known_have_a_name(explorer):
    examples = replace(explorer.examples, caption_columns=())
    first = int(examples.table.index[0])
    assert examples.caption(first) == [f"Training image {first}"]
    assert examples.names()[0] == f"Training image {first}"
