"""The tour: a line that leads through the app, says what is true, and steps aside."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from core.evidence.groups import group_changes, group_summary, group_table
from core.explorer.explorer import Explorer, Lens, open_explorer
from core.report import tour
from pages.parts.words import column_word
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    address,
    app_runs_first,
    open_app,
    plain,
    words,
)

TOLD = [  # page, the line's title, what the address then says
    ("explore", "An image", {"lenses": "ekfac.loss"}),
    ("explore", "What helped", {"lenses": "ekfac.loss"}),
    ("explore", "Look-alikes are not causes", {}),
    ("explore", "Only a region", {"region": "16,16,48,48"}),
    ("timesteps", "Structure, then detail", {}),
    ("groups", "Without this design house", {}),
    ("evidence", "How often is that right?", None),
    ("explore", "Take it with you", {}),
]
# Where each step has an element to scroll to, by page.
SPOTS = ("sample_region", "lens_0", "lens_1", "sample_region", "levels", "result")
SPOTS += ("evidence_opening", "take_along")


def line(app) -> str:
    """Return what the tour says, without its marks."""
    told = next(one.value for one in app.markdown if " of 8]" in one.value)
    return re.sub(r"\\(.)", r"\1", told)


def by_hand(explorer, sample: int, lens: Lens) -> dict[str, int]:
    """Return how many of the ten strongest share each label, counted one by one."""
    scores = explorer.stored_answer(explorer.query_from_gallery(sample), lens).scores
    label = int(explorer.gallery.loc[sample, "label"])
    table, counts = explorer.examples.table, {}
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:10]
    for column, value in explorer.classes.loc[label].items():
        counts[column] = sum(table[column].iloc[i] == value for i in order)
    return counts


def test_each_step_is_shown_and_says_what_the_numbers_say(
    tested_collection, monkeypatch
):
    """Where it is, what is asked, and every number of its sentence, counted anew."""
    app = open_app(tested_collection, monkeypatch)
    assert "New here?" in words(app)
    sample = int(address(app)["sample"])
    explorer = open_explorer("glyphs", tested_collection)
    assert explorer.first_image.sample == sample
    evidence = explorer.evidence()
    for number, (page, title, asked) in enumerate(TOLD):
        app = app.button(key="story_next").click().run()
        assert not app.exception
        said = line(app)
        assert f"{number + 1} of 8" in said and title in said
        assert app.session_state.page == page
        if asked is not None:
            wanted = {"collection": "glyphs", "sample": str(sample), **asked}
            assert address(app) == wanted, title
        if title in ("What helped", "Look-alikes are not causes"):
            lens = Lens("ekfac" if title == "What helped" else "clip")
            for column, count in by_hand(explorer, sample, lens).items():
                word = column_word("glyphs", column)
                assert re.search(
                    rf"\b{count} (is |are )?of (its own|that) {word}", said
                )
        if page == "groups":
            changes = group_changes(evidence, "loss")
            own = str(
                explorer.classes.loc[explorer.gallery.loc[sample, "label"]].iloc[0]
            )
            measured = [name for name in changes.index.unique(0) if own in name]
            assert ("Retrained without" in said) == bool(measured)
        if page == "evidence":
            summary = group_summary(group_table(evidence, "loss")).set_index("method")
            share = f"{summary.at['ekfac', 'first']:.0%}"
            chance = f"{summary.at['ekfac', 'chance']:.0%}"
            assert f"{share} of images (chance: {chance})" in said
    assert app.button(key="story_next").disabled
    app = app.button(key="story_back").click().run()
    assert "7 of 8" in line(app) and app.session_state.page == "evidence"


def test_a_collection_without_evidence_skips_that_step(tiny_collection, monkeypatch):
    """Seven steps, and none that says what was measured."""
    app = open_app(tiny_collection, monkeypatch)
    for _ in range(7):
        app = app.button(key="story_next").click().run()
    assert "7 of 7" in words(app) and "Take it with you" in words(app)
    assert app.button(key="story_next").disabled


def test_a_collection_that_computes_nothing_skips_the_region(
    tested_collection, monkeypatch
):
    monkeypatch.setattr(Explorer, "computes", False)
    app = open_app(tested_collection, monkeypatch)
    for step in range(4):
        app = app.button(key="story_next").click().run()
        assert f"{step + 1} of 7" in words(app) and "Only a region" not in words(app)


def test_sentences_count_what_is_there_and_claim_nothing_else():
    """One is singular; without stored answers or labels nothing is counted."""
    labels = pd.DataFrame({"house": ["a"] * 12, "kind": ["x", *["y"] * 11]})
    scores = np.arange(12.0)[::-1].copy()
    own = {"kind": "x", "house": "a"}
    assert tour.alike_in_top(scores, labels, own) == {"kind": 1, "house": 10}
    answer = SimpleNamespace(scores=scores)
    explorer = SimpleNamespace(
        gallery=pd.DataFrame({"label": [0, np.nan]}),
        class_of=lambda label: own,
        query_from_gallery=lambda sample: sample,
        stored_answer=lambda query, lens: answer,
        examples=SimpleNamespace(table=labels),
    )
    said = tour.helped_words(explorer, 0, lambda column: column)
    assert said == (
        "Of its ten most influential training images, 1 is of its own kind and 10 of "
        "its own house."
    )
    assert tour.drawn_words(explorer, 0) == (
        "The model drew this image, asked for “x, a”. Choose another, or stay."
    )
    for sample in (1, None):
        assert not re.search(r"\d", tour.helped_words(explorer, sample, str))
        assert not re.search(r"\d", tour.alike_words(explorer, sample, str))
        assert "asked for" not in tour.drawn_words(explorer, sample)


def test_story_can_be_put_away_and_begun_again(tiny_collection, monkeypatch):
    """It stays away on other pages; the sidebar starts it at the first step."""
    app = open_app(tiny_collection, monkeypatch)
    app = app.button(key="story_end").click().run()
    assert "New here?" not in words(app)
    app = app.switch_page("pages/collections.py").run()
    assert "New here?" not in words(app)
    again = next(b for b in app.sidebar.button if b.label == "Two-minute tour")
    app = again.click().run()
    assert "1 of 7" in words(app) and app.session_state.page == "explore"


def test_step_stays_when_a_visitor_looks_elsewhere(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    app = app.button(key="story_next").click().run()
    app = app.switch_page("pages/collections.py").run()
    assert "1 of 7" in words(app)
    app = app.button(key="story_next").click().run()
    assert "2 of 7" in words(app)
    assert app.session_state.page == "explore"


@pytest.mark.parametrize("key", ["sample", "example"])
def test_who_follows_a_link_is_not_invited(tiny_collection, monkeypatch, key):
    number = 0
    if key == "example":
        explorer = open_explorer("glyphs", tiny_collection)
        number = int(explorer.examples.table.index[3])
    app = open_app(tiny_collection, monkeypatch, **{key: str(number)})
    assert "New here?" not in words(app)


def test_an_address_for_an_audience_can_be_loaded_again(tiny_collection, monkeypatch):
    """At the step it was at, on every page; a link to copy is for everybody else."""
    app = open_app(tiny_collection, monkeypatch, present="")
    assert address(app)["present"] == ""
    for _ in range(2):
        app = app.button(key="story_next").click().run()
    assert address(app)["present"] == "2"
    assert "present" not in app.code[0].value
    again = open_app(tiny_collection, monkeypatch, **address(app))
    assert "2 of 7" in words(again) and address(again) == address(app)
    again = again.switch_page("pages/collections.py").run()
    assert address(again)["present"] == "2" and again.session_state.present
