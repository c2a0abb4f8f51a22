"""The two-minute story: a line that leads through the app, and steps out of the way."""

import pytest

from core.explorer.explorer import open_explorer
from tests.pages.test_app import address, app_runs_first, open_app, words  # noqa: F401  (a fixture among them)

TOLD = [  # page, the line's beginning, what the address then says
    ("explore", "Choose an image", {"lenses": "ekfac.loss"}),
    ("explore", "See what helped", {"lenses": "ekfac.loss"}),
    ("explore", "Compare with similarity", {}),
    ("explore", "Ask about a region", {"region": "16,16,48,48"}),
    ("groups", "Remove one design house", {}),
    ("evidence", "See how far to trust it", None),
    ("explore", "Take it with you", {}),
]


def test_story_goes_through_the_app_and_back(tested_collection, monkeypatch):
    """Each step says where it is, sets what is asked, and shows its page."""
    app = open_app(tested_collection, monkeypatch)
    assert "New here?" in words(app)
    sample = address(app)["sample"]
    for number, (page, title, asked) in enumerate(TOLD):
        app = app.button(key="story_next").click().run()
        assert not app.exception
        assert f"{number + 1} of 7" in words(app) and title in words(app)
        assert app.session_state.page == page
        if asked is not None:
            wanted = {"collection": "glyphs", "sample": sample, **asked}
            assert address(app) == wanted, title
    assert app.button(key="story_next").disabled
    explorer = open_explorer("glyphs", tested_collection)
    assert explorer.first_image.sample == int(sample)
    app = app.button(key="story_back").click().run()
    assert "6 of 7" in words(app) and app.session_state.page == "evidence"


def test_story_can_be_put_away_and_begun_again(tiny_collection, monkeypatch):
    """It stays away on other pages; the sidebar starts it at the first step."""
    app = open_app(tiny_collection, monkeypatch)
    app = app.button(key="story_end").click().run()
    assert "New here?" not in words(app)
    app = app.switch_page("pages/collections.py").run()
    assert "New here?" not in words(app)
    again = next(b for b in app.sidebar.button if b.label == "Two-minute story")
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
