"""The Map page and the search, driven as a visitor does, on a real tiny collection."""

import io

import numpy as np
import pandas as pd
import pytest

from core.explorer import filters, groups
from core.explorer.explorer import Lens, open_explorer
from pages.parts import image_map
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    address,
    app_runs_first,
    open_app,
    wait_for_jobs,
    words,
)

PAGE = "pages/map.py"


def shown(app) -> str:
    """Return all text on the page without the marks that escape it."""
    return words(app).replace("\\", "").replace("\u2060", "")


def button(app, label: str):
    """Return the button with a label."""
    return next(one for one in app.button if one.label == label)


def test_marked_pictures_are_shown_and_become_the_group(tiny_collection, monkeypatch):
    """From the link to the strip, and from there to the page What if and back."""
    link = {"sample": "0", "picked": "2-4,9"}
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, **link))
    assert not app.exception and not app.info and not app.warning
    assert address(app) == {"collection": "glyphs", **link}
    assert "picked_tiles" in app.session_state
    button(app, "Use as group").click().run()  # goes to the page What if
    assert address(app)["group"] == "ids:2-4,9"
    assert "4 of 32 images" in shown(app)
    app = wait_for_jobs(app.switch_page(PAGE).run())
    button(app, "Clear selection").click().run()
    assert "picked" not in address(app)
    assert "Draw around some dots" in shown(app)


@pytest.mark.parametrize("picked", ["999999", "abc", "2,999999"])
def test_marks_that_are_not_there_are_said(tiny_collection, monkeypatch, picked):
    link = {"sample": "0", "picked": picked}
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, **link))
    assert not app.exception
    assert len(app.info) == 1 and "were ignored" in app.info[0].value
    assert ("picked_tiles" in app.session_state) == picked.startswith("2")


def test_search_leaves_what_matches_and_writes_the_link(tiny_collection, monkeypatch):
    """Facets and words, on Explore and, by the same link, on the map."""
    explorer = open_explorer("glyphs", tiny_collection)
    table = explorer.examples.table
    (column,) = groups.facets(table)
    value = table[column].iloc[0]
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, sample="0"))
    app.multiselect(key="filter_0").set_value([value]).run()
    assert address(app)["only"] == filters.write_facets({column: (value,)})
    count = int((table[column] == value).sum())
    assert f"{count} of 32" in shown(app) and value in shown(app)
    app.text_input(key="filter_words").set_value("a heart").run()
    app = wait_for_jobs(app)
    assert address(app)["words"] == "a heart"
    near = [example for example, _ in explorer.search("a heart", 3)]
    left = int(((table[column] == value) & table.index.isin(near)).sum())
    assert f"{left} of 32" in shown(app) and not app.exception
    app = wait_for_jobs(app.switch_page(PAGE).run())
    assert f"{left} of 32" in shown(app)
    button(app, "Show all").click().run()
    assert address(app) == {"collection": "glyphs", "sample": "0"}
    assert "of 32**" not in words(app)


def test_search_that_finds_nothing_says_why(tiny_collection, monkeypatch):
    """On the map in place of the dots; and a wrong label is ignored."""
    explorer = open_explorer("glyphs", tiny_collection)
    table = explorer.examples.table
    (column,) = groups.facets(table)
    near = [example for example, _ in explorer.search("zebra", 3)]
    far = next(v for v in table[column] if v not in set(table.loc[near, column]))
    link = {"sample": "0", "words": "zebra", "only": f"{column}={far}"}
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, **link))
    said = f"No image of ‘{far}’ matches “zebra”"
    assert not app.exception and len(app.info) == 1
    assert said in app.info[0].value.replace("\\", "")
    link = {"sample": "0", "only": "magic=1"}
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, **link))
    assert len(app.info) == 1 and "was ignored" in app.info[0].value


def test_table_of_the_marked_holds_their_scores(tiny_explorer):
    """Number for number, the best first, and no other image."""
    answer = tiny_explorer.answer(tiny_explorer.query_from_gallery(0), Lens())
    members = np.isin(answer.example_ids, [2, 3, 9])
    text = image_map.marked_csv(tiny_explorer, answer, members)
    table = pd.read_csv(io.StringIO(text), index_col="example")
    assert sorted(table.index) == [2, 3, 9]
    expected = answer.scores[members] / len(answer.scores)
    got = table.loc[[2, 3, 9], "ekfac_change_if_removed"]
    np.testing.assert_allclose(got, expected)
    assert table["ekfac_rank"].tolist() == sorted(answer.ranks()[members])
