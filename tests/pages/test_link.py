"""The address holds all that is asked, and nothing in it can break a page."""

from types import SimpleNamespace

import pytest

from core.explorer.explorer import open_explorer
from pages.parts import link
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    address,
    app_runs_first,
    open_app,
    wait_for_jobs,
    words,
)

# What no key of a link can mean. Each is harmless text to whoever reads the page.
HOSTILE = (
    "",
    "-1",
    "9" * 400,
    "1e999",
    "²",
    "\x00",
    "../../etc/passwd",
    "'; drop table examples; --",
    "[x](http://evil) <script>alert(1)</script> **b** `c` :smile:",
    "~:.,-|&=%",
    "ids:,:0-99999999999999",
    "😀" * 3000,
)
PAGE_OF = {  # the page where a key is read; the others are read on Explore
    "picked": "map",
    "group": "groups",
    "shares": "groups",
    "method": "methods",
    "damping": "methods",
    "measured": "timesteps",
    "exact": "measurements",
    "tested": "evidence",
    "compared": "evidence",
    "section": "collections",
}


def follow(app, address: dict[str, str]):
    """Come with an address as a new visitor does, in an app that runs already."""
    for name in ("address", "view", "choices", "group", "detail"):
        if name in app.session_state:
            del app.session_state[name]
    app.query_params.clear()
    app.query_params.update(address)
    return app.run()


def check_harmless(app, value: str) -> None:
    """Check that a page said at most one plain sentence, with no markup in it."""
    assert not app.exception, (value, app.exception)
    said = [*app.info, *app.warning]
    assert len(said) <= 1, (value, [one.value for one in said])
    for one in said:
        assert len(one.value) < 1500, value
        assert "<script" not in one.value.replace("\\<", ""), value
        assert "[x](" not in one.value and "**b**" not in one.value, value


@pytest.mark.parametrize("origin", link.ORIGINS)
def test_nothing_in_an_address_breaks_the_app(tiny_collection, monkeypatch, origin):
    """Each hostile value as an image is one plain sentence, or is ignored."""
    app = open_app(tiny_collection, monkeypatch, sample="0")
    for value in HOSTILE:
        check_harmless(follow(app, {origin: value}), value)


@pytest.mark.long
@pytest.mark.parametrize("key", link.LINK_KEYS)
def test_nothing_in_any_key_breaks_a_page(tested_collection, monkeypatch, key):
    """Nor does it in any other key, on the page that reads it."""
    page = f"pages/{PAGE_OF.get(key, 'explore')}.py"
    app = open_app(tested_collection, monkeypatch, page)
    drawn = dict.fromkeys(("label", "sampler", "steps", "guidance"), {"seed": "1"})
    rest = drawn | {"inverted": {"example": "0"}}
    for value in HOSTILE:
        address = rest.get(key, {"sample": "0"}) | {key: value}
        check_harmless(follow(app, address), value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sample": "9" * 400}, "200"),
        ({"detail": "99999"}, "opens the training image “99999”"),
        ({"upload": "ab12"}, "Upload it here again"),
        ({"example": "0", "region": "x" * 300}, "“region” is 300 letters long"),
        ({"seed": "1", "label": "x"}, "label=x, which is not a whole number"),
        ({"agreement": "magic"}, "agreement=magic, which is not one of 10, 50, order"),
    ],
)
def test_what_is_ignored_is_said(tiny_collection, monkeypatch, given, said):
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, **given))
    assert not app.exception
    assert len(app.info) == 1
    assert said in app.info[0].value.replace("\\", "")


@pytest.mark.parametrize(
    ("page", "key", "value"),
    [
        ("timesteps", "measured", "elbo"),
        ("methods", "method", "clip"),
        ("methods", "damping", "10000"),
        ("methods", "agreement", "order"),
        ("measurements", "exact", "1"),
        ("evidence", "tested", "elbo"),
        ("evidence", "compared", "clip"),
        ("collections", "section", "versions"),
    ],
)
def test_what_a_page_lets_one_choose_is_in_the_link(
    tested_collection, monkeypatch, page, key, value
):
    """Opened by a new visitor it is chosen, and it stays in the address everywhere."""
    link = {"sample": "0", key: value}
    app = open_app(tested_collection, monkeypatch, f"pages/{page}.py", **link)
    assert not app.exception
    assert not any("link" in info.value for info in app.info)  # it was understood
    assert address(app) == {"collection": "glyphs", **link}
    if f"{key}_choice" in app.session_state:
        usual = {"measured": "loss", "tested": "loss", "compared": "ekfac"}
        assert str(app.session_state[f"{key}_choice"]) != usual.get(key)
    app.switch_page("pages/collections.py").run()
    assert address(app) == {"collection": "glyphs", **link}


def test_a_choice_writes_the_link_and_the_usual_takes_it_out(
    tiny_collection, monkeypatch
):
    app = open_app(tiny_collection, monkeypatch, "pages/timesteps.py", sample="0")
    app.segmented_control(key="measured_choice").set_value("elbo").run()
    assert address(app)["measured"] == "elbo"
    app.segmented_control(key="measured_choice").set_value("loss").run()
    assert "measured" not in address(app)


def test_back_follows_the_address_and_a_late_address_does_not(
    tiny_collection, monkeypatch
):
    """Only the browser's back and forward bring an address into a session.

    A click that comes before the browser heard of the last change brings the address
    before it, and must not undo the change.
    """
    app = open_app(tiny_collection, monkeypatch, sample="1", lenses="pixel")
    app.query_params.clear()
    app.query_params["sample"] = "0"
    app.run()
    assert address(app) == {"collection": "glyphs", "sample": "1", "lenses": "pixel"}
    back = SimpleNamespace(is_history_navigation=True)
    monkeypatch.setattr(link, "get_script_run_ctx", lambda: back)
    app.query_params.clear()
    app.query_params.update({"collection": "glyphs", "sample": "0"})
    app.run()
    assert address(app) == {"collection": "glyphs", "sample": "0"}


def test_asked_before_are_the_newest_first_once_each_and_bounded(
    tiny_collection, monkeypatch
):
    """An image asked again comes to the front, whatever part of it was asked."""
    monkeypatch.setattr(link, "MOST_ASKED", 4)
    explorer = open_explorer("glyphs", tiny_collection)
    first, *_, last = examples = [str(i) for i in explorer.examples.table.index[:5]]
    app = open_app(tiny_collection, monkeypatch, sample="0")
    for example in [*examples, examples[2]]:
        app.session_state.next_view = {"example": example, "region": "1,1,4,4"}
        app.run()
    asked = [one["view"]["example"] for one in app.session_state.asked]
    assert asked == [examples[2], last, examples[3], examples[1]]
    assert first not in asked
    assert all(list(one["view"]) == ["example"] for one in app.session_state.asked)
    assert all(one["src"].startswith("data:") for one in app.session_state.asked)


def test_the_link_to_copy_is_the_address(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch, sample="0", region="2,2,10,12")
    shown = app.code[0].value
    assert shown.endswith("?collection=glyphs&sample=0&region=2%2C2%2C10%2C12")
