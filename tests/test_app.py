"""Every page, driven as a visitor does, on a real tiny collection."""

import threading
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.explorer import open_explorer
from pages import shared

APP = Path(__file__).resolve().parent.parent / "app.py"
PATIENCE = 120  # seconds, on a busy machine


@pytest.fixture(autouse=True)
def app_runs_first(monkeypatch):
    """Make AppTest run app.py in every run, as the server does.

    AppTest forgets between runs that the app navigates by itself, and then a folder
    called `pages` makes Streamlit run the page alone.
    """

    def run(main_script_path: str) -> None:
        code = compile(Path(main_script_path).read_text(), main_script_path, "exec")
        exec(code, {"__name__": "__main__", "__file__": main_script_path})

    place = "streamlit.runtime.scriptrunner.script_runner._mpa_v1"
    monkeypatch.setattr(place, run)


def open_app(root: Path, monkeypatch, page: str = "", **link: str) -> AppTest:
    """Return the app as it looks after a link was followed."""
    monkeypatch.setenv("AFTERIMAGE_COLLECTIONS", str(root))
    app = AppTest.from_file(str(APP), default_timeout=PATIENCE)
    for key, value in link.items():
        app.query_params[key] = value
    app.run()
    return app.switch_page(page).run() if page else app


def words(app: AppTest) -> str:
    """Return all text on the page."""
    kinds = (app.markdown, app.caption, app.info, app.warning, app.title, app.subheader)
    return "\n".join(element.value for kind in kinds for element in kind)


def address(app: AppTest) -> dict[str, str]:
    """Return what the address names."""
    values = app.query_params.items()
    return {k: v[0] if isinstance(v, list) else v for k, v in values}


def wait_for(app: AppTest, text: str) -> AppTest:
    """Run the page again, as its timer does, until it shows a text."""
    end = time.monotonic() + PATIENCE
    while text not in words(app):
        assert not app.exception, app.exception
        assert time.monotonic() < end, f"never saw '{text}' in:\n{words(app)}"
        time.sleep(0.1)
        app.run()
    return app


@pytest.mark.parametrize("page", ["", "pages/collections.py"])
def test_page_opens_without_an_error(tiny_collection, monkeypatch, page):
    app = open_app(tiny_collection, monkeypatch, page)
    assert not app.exception
    assert not app.warning and not app.info


def test_gallery_picture_is_answered_at_once(tiny_collection, monkeypatch):
    """Both lens columns are there after one run, with what the numbers mean."""
    app = open_app(tiny_collection, monkeypatch)
    assert "How to read this" in words(app)
    assert "lens_ekfac" in app.session_state and "lens_clip" in app.session_state


def test_credits_stand_on_every_page_that_shows_art(tiny_collection, monkeypatch):
    credits = open_explorer("glyphs", tiny_collection).credits
    for page in ("", "pages/collections.py"):
        shown = words(open_app(tiny_collection, monkeypatch, page))
        assert all(shared.text(line) in shown for line in credits), page


def test_page_says_what_it_computes_on(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    device = open_explorer("glyphs", tiny_collection).device_name
    assert any(device in caption.value for caption in app.sidebar.caption)


def test_link_opens_the_same_view(tiny_collection, monkeypatch):
    """The address names the picture, and a visitor who follows it sees that picture."""
    explorer = open_explorer("glyphs", tiny_collection)
    sample = str(explorer.gallery.index[-1])
    app = open_app(tiny_collection, monkeypatch, sample=sample)
    expected = explorer.query_from_gallery(int(sample)).description.split(" · ")
    assert all(shared.text(part) in words(app) for part in expected)
    assert address(app) == {"collection": "glyphs", "sample": sample}


def test_training_picture_is_answered_by_the_queue(tiny_collection, monkeypatch):
    example = open_explorer("glyphs", tiny_collection).examples.table.index[3]
    app = open_app(tiny_collection, monkeypatch, example=str(example))
    wait_for(app, "How to read this")
    assert f"Training picture {example}" in words(app)


def test_generated_picture_is_answered_by_the_queue(tiny_collection, monkeypatch):
    link = {"seed": "7", "label": "0", "sampler": "ddpm", "steps": "5", "guidance": "2"}
    app = wait_for(open_app(tiny_collection, monkeypatch, **link), "How to read this")
    assert "seed 7" in words(app) and "DDPM" in words(app)
    # The form starts from the link, so that one setting can be changed at a time.
    assert [number.value for number in app.number_input] == [7, 5]


def test_generate_form_writes_the_link(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    app.segmented_control(key="origin").set_value("seed").run()
    app.number_input[0].set_value(11)
    app.number_input[1].set_value(5)
    next(b for b in app.button if b.label == "Generate and ask").click().run()
    asked = {"seed": "11", "steps": "5", "sampler": "ddim"}
    assert asked.items() <= address(app).items()
    wait_for(app, "How to read this")
    assert asked.items() <= address(app).items()


def test_search_by_number_finds_the_training_picture(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    app.segmented_control(key="origin").set_value("example").run()
    app.text_input(key="search").set_value("999999").run()
    assert "Nothing found" in words(app)
    example = open_explorer("glyphs", tiny_collection).examples.table.index[0]
    app.text_input(key="search").set_value(str(example)).run()
    assert "Nothing found" not in words(app) and not app.exception


def test_waiting_visitor_sees_the_place_in_line_and_can_cancel(
    tiny_collection, monkeypatch
):
    """While another question is being computed, ours waits; a cancel takes it out."""
    gate, queue = threading.Event(), shared.job_queue()

    def hold(progress):
        gate.wait(PATIENCE)

    other = queue.ask("held", "somebody", hold)
    try:
        example = open_explorer("glyphs", tiny_collection).examples.table.index[5]
        app = open_app(tiny_collection, monkeypatch, example=str(example))
        cancel = next(button for button in app.button if button.label == "Cancel")
        assert queue.report(app.session_state.jobs["answers"]).ahead == 1
        cancel.click().run()
        assert "Stopped." in words(app)
        again = next(button for button in app.button if button.label == "Start again")
    finally:
        gate.set()
    assert other.finished.wait(PATIENCE)
    again.click().run()
    wait_for(app, "How to read this")


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"sample": "abc"}, "not a whole number"),
        ({"sample": "9999"}, "9999"),
        ({"example": "-1"}, "no training picture"),
        ({"seed": "1", "steps": "100000"}, "100000 steps"),
        ({"seed": "1", "guidance": "nan"}, "guidance nan"),
        ({"seed": "-5"}, "seed"),
        ({"seed": "1", "label": "777"}, "777"),
        ({"seed": "1", "sampler": "magic"}, "magic"),
        ({"collection": "nothing"}, "nothing"),
    ],
)
def test_bad_link_is_answered_with_one_sentence(
    tiny_collection, monkeypatch, link, said
):
    app = open_app(tiny_collection, monkeypatch, **link)
    assert not app.exception
    assert len(app.info) == 1
    assert said in app.info[0].value.replace("\\", "")


@pytest.mark.parametrize("page", ["", "pages/collections.py"])
def test_empty_folder_says_how_to_make_a_collection(tmp_path, monkeypatch, page):
    app = open_app(tmp_path, monkeypatch, page)
    assert not app.exception
    assert "python -m precompute build" in app.info[0].value


def test_text_from_data_cannot_become_markdown():
    """No character with a meaning is left unescaped; shortcodes are broken up."""
    hostile = "[x](http://evil) ![i](a) **b** `c` <b> $x$ :red[no] :smile: # | ~"
    escaped = shared.text(hostile)
    for mark in "[]()!*`<>$#|~_":
        assert all(
            escaped[place - 1] == "\\"
            for place, letter in enumerate(escaped)
            if letter == mark
        ), mark
    assert ":red" not in escaped and ":smile" not in escaped


def test_quoted_commands_in_errors_stay_code():
    said = shared.sentence(LookupError("No [x]. Run `python -m precompute build`."))
    assert said == "No \\[x\\]\\. Run `python -m precompute build`\\."
