"""Every page, driven as a visitor does, on a real tiny collection."""

import json
import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.config import DATA_DIR
from core.evidence import (
    ablation,
    changes,
    damping,
    groups,
    lds,
    opening,
    own_group,
    paired,
    removal,
    timesteps,
)
from core.evidence.brought import with_method
from core.evidence.groups import group_summary
from core.evidence.stored import evidence_folder, write_evidence
from core.evidence.tables import TABLES, make_table
from core.evidence.trust import lens_trust
from core.explorer import resemblance
from core.explorer.explorer import Explorer, open_explorer
from core.explorer.resemblance import LIMIT
from core.lenses import Lens
from core.measure.region import pixels_per_cell
from core.methods import METHODS, has_timesteps
from core.report import reading
from pages.parts import lens_picker, waiting
from pages.parts.words import sentence, text
from tests.helpers.toy_evidence import full_evidence

APP = Path(__file__).resolve().parents[2] / "visit.py"
ANSWERED = "A bar is the score"  # what Explore says once there is an answer
PATIENCE = 120  # seconds, on a busy machine


@pytest.fixture(autouse=True)
def app_runs_first(monkeypatch):
    """Make AppTest run visit.py in every run, as the server does.

    AppTest forgets between runs that the app navigates by itself, and then a folder
    called `pages` makes Streamlit run the page alone.
    """

    def run(main_script_path: str) -> None:
        code = compile(Path(main_script_path).read_text(), main_script_path, "exec")
        exec(code, {"__name__": "__main__", "__file__": main_script_path})

    place = "streamlit.runtime.scriptrunner.script_runner._mpa_v1"
    monkeypatch.setattr(place, run)


def open_app(
    root: Path, monkeypatch, page: str = "", limit: float = 1.0, **link: str
) -> AppTest:
    """Return the app as it looks after a link was followed.

    The tiny model is hardly trained and would say so; none is said to be as far from
    its training images as `limit`.
    """
    monkeypatch.setattr(resemblance, "LIMIT", limit)
    monkeypatch.setenv("AFTERIMAGE_COLLECTIONS", str(root))
    app = AppTest.from_file(str(APP), default_timeout=PATIENCE)
    for key, value in link.items():
        app.query_params[key] = value
    app.run()
    return app.switch_page(page).run() if page else app


def words(app: AppTest) -> str:
    """Return all text on the page."""
    kinds = (app.markdown, app.caption, app.info, app.warning, app.title, app.header)
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


def wait_for_jobs(app: AppTest) -> AppTest:
    """Run the page again until it asks for nothing new and nothing is computed."""
    end = time.monotonic() + PATIENCE
    while True:
        before = dict(app.session_state.jobs)
        done = all(job.finished.is_set() for job in before.values())
        app.run()
        if done and dict(app.session_state.jobs) == before:
            return app
        assert time.monotonic() < end, list(app.session_state.jobs)
        time.sleep(0.1)


@pytest.mark.parametrize("limit", [LIMIT, -1.0])
def test_a_model_unlike_its_training_images_says_so_first(limit, monkeypatch):
    """Above the presets and every score, and only there."""
    root = DATA_DIR / "collections"
    app = open_app(root, monkeypatch, limit=limit, collection="fashion2")
    said = [one.value for one in app.warning if "unlike its training" in one.value]
    assert len(said) == (limit < 0) and not app.exception


def first_example(root: Path) -> int:
    """Return the number of a training image."""
    return int(open_explorer("glyphs", root).examples.table.index[3])


@pytest.mark.parametrize("page", ["", "pages/collections.py"])
def test_page_opens_without_an_error(tiny_collection, monkeypatch, page):
    app = open_app(tiny_collection, monkeypatch, page)
    assert not app.exception
    assert not app.warning and not app.info


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("measurements", ["measured_0", "measured_1"]),
        ("timesteps", ["player"]),
        ("methods", ["ranking", "method_strips", "damped_strips"]),
        ("groups", ["members"]),
    ],
)
def test_page_fills_with_pictures(tiny_collection, monkeypatch, page, shown):
    """Every page that asks about an image says how to read it and answers."""
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, f"pages/{page}.py"))
    assert not app.exception
    assert "How to read this" in words(app)
    assert all(key in app.session_state for key in shown), list(app.session_state)


@pytest.mark.parametrize(
    ("page", "at_once", "later"),
    [
        ("", ["lens_0", "lens_1"], []),
        ("pages/measurements.py", ["measured_0", "measured_1"], []),
        ("pages/timesteps.py", [], ["player"]),
        ("pages/methods.py", [], ["damped_strips"]),
        ("pages/map.py", ["picked_tiles"], ["map"]),
        ("pages/groups.py", ["members"], []),
    ],
)
def test_job_that_ends_while_the_page_is_drawn_is_shown(
    tiny_collection, monkeypatch, page, at_once, later
):
    """A page that looked just before the end draws itself anew, on its own."""
    looks, ask, result_now = [], waiting.ask, waiting.result_now
    looked = threading.Event()

    def ask_held(slot, key, work):
        return ask(slot, key, lambda job: looked.wait(PATIENCE) and work(job))

    def looked_too_early(slot):
        looks.append(result_now(slot))
        looked.set()
        assert waiting._jobs()[slot].finished.wait(PATIENCE)
        return looks[-1]

    monkeypatch.setattr(waiting, "wait_briefly", lambda jobs: None)
    monkeypatch.setattr(waiting, "ask", ask_held)
    monkeypatch.setattr(waiting, "result_now", looked_too_early)
    waiting.job_queue.clear()  # what others asked is not kept
    example = first_example(tiny_collection)
    link = {"example": str(example), "picked": str(example)}
    app = open_app(tiny_collection, monkeypatch, page, **link)
    assert not app.exception, app.exception
    assert looks[0] is None and any(look is not None for look in looks)
    assert all(key in app.session_state for key in at_once), list(app.session_state)
    wait_for_jobs(app)
    assert all(key in app.session_state for key in later), list(app.session_state)


def test_leaving_a_page_leaves_its_jobs(tiny_collection, monkeypatch):
    """What a page asked for is given up on the next page, if that does not ask too."""
    app = open_app(tiny_collection, monkeypatch, "pages/timesteps.py")
    assert "bands" in app.session_state.jobs
    app.switch_page("pages/collections.py").run()
    assert not app.session_state.jobs


def test_one_switch_puts_numbers_under_all_tiles(tiny_collection, monkeypatch):
    """They are in the link and on every page; bars and ranks are always there."""
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, sample="0"))
    assert not any(tile["score"] for tile in shown_tiles(app, "lens_0"))
    app = wait_for_jobs(app.toggle(key="numbers").set_value(True).run())
    assert address(app)["numbers"] == "1"
    answer = open_explorer("glyphs", tiny_collection)
    answer = answer.answer(answer.query_from_gallery(0), Lens())
    largest = reading.scale(answer).number(answer.scores.max())
    tiles = shown_tiles(app, "lens_0")
    assert (tiles[0]["score"], tiles[0]["rank"], tiles[0]["strength"]) == (
        largest,
        "1",
        1.0,
    )
    assert all(tile["score"] for tile in tiles)
    app = wait_for_jobs(app.switch_page("pages/measurements.py").run())
    assert all(tile["score"] for tile in shown_tiles(app, "measured_0"))


def test_gallery_begins_with_the_clearest_and_shows_all_on_demand(monkeypatch):
    """One sentence says what opens; the sentence's figures are the explorer's."""
    root = DATA_DIR / "collections"
    app = open_app(root, monkeypatch, collection="glyphs")
    explorer = open_explorer("glyphs")
    order, first = explorer.gallery_order, explorer.first_image
    assert [tile["id"] for tile in shown_tiles(app, "gallery")] == order[:24]
    assert address(app)["sample"] == str(first.sample)
    assert "match its design house and subject more often than the ten" in words(app)
    assert f"{first.influence:.0%} against {first.similarity:.0%}" in words(app)
    next(b for b in app.button if b.label == "All 64").click().run()
    assert [tile["id"] for tile in shown_tiles(app, "gallery")] == order
    app = open_app(root, monkeypatch, collection="glyphs", sample=str(order[-1]))
    assert len(shown_tiles(app, "gallery")) == 64  # a link's image is among them


def shown_tiles(app: AppTest, key: str) -> list[dict]:
    """Return the tiles of a component on the page, those of all its strips."""
    sent = [one.proto for one in app.get("bidi_component")]
    (data,) = [json.loads(one.json) for one in sent if one.id.endswith(f"-{key}")]
    return [tile for strip in data["strips"] for tile in strip["tiles"]]


def test_gallery_picture_fills_both_columns(tiny_collection, monkeypatch):
    """Both lens columns are there, with what the numbers mean."""
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch))
    assert ANSWERED in words(app)
    assert "lens_0" in app.session_state and "lens_1" in app.session_state


def test_credits_stand_on_every_page_that_shows_art(tiny_collection, monkeypatch):
    credits = open_explorer("glyphs", tiny_collection).credits
    for page in ("", "pages/measurements.py", "pages/collections.py"):
        shown = words(open_app(tiny_collection, monkeypatch, page))
        assert all(text(line) in shown for line in credits), page


def test_page_says_what_it_computes_on(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    device = open_explorer("glyphs", tiny_collection).device_name
    assert any(device in caption.value for caption in app.sidebar.caption)


def test_link_opens_the_same_view(tiny_collection, monkeypatch):
    """The address names the image, and a visitor who follows it sees that image."""
    explorer = open_explorer("glyphs", tiny_collection)
    sample = str(explorer.gallery.index[-1])
    app = open_app(tiny_collection, monkeypatch, sample=sample)
    expected = explorer.query_from_gallery(int(sample)).description.split(" · ")
    assert all(text(part) in words(app) for part in expected)
    assert address(app) == {"collection": "glyphs", "sample": sample}


def test_link_opens_the_same_lenses_region_and_details(tiny_collection, monkeypatch):
    """Three columns, a part of the image, and one training image's details."""
    link = {
        "sample": "0",
        "region": "2,2,10,12",
        "lenses": "ekfac.loss.0-500~pixel~gradient.loss",
        "detail": str(first_example(tiny_collection)),
    }
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, **link))
    assert not app.exception
    assert address(app) == {"collection": "glyphs", **link}
    assert [f"lens_{place}" in app.session_state for place in range(4)] == [
        True,
        True,
        True,
        False,
    ]
    assert "The image asked about" in words(app)
    assert "region" in words(app)


def test_every_lens_survives_the_link():
    """A code names one lens, and that lens has that code."""
    ranges = (None, (0, 500), (250, 1000))
    for method in METHODS:
        for measurement in ("loss", "elbo", "noise-loss", "trajectory"):
            for levels in ranges if has_timesteps(method) else (None,):
                lens = Lens(method, measurement, levels)
                code = lens_picker.code_of(lens)
                assert lens_picker.lens_of(code).canonical() == lens.canonical(), code
                assert lens_picker.code_of(lens_picker.lens_of(code)) == code


def tied(widgets, name: str):
    """Return the widget that is tied to a value under a name (`pages.parts.ties`)."""
    (one,) = [w for w in widgets if w.key and re.fullmatch(rf"{name}( \d+)?", w.key)]
    return one


def test_preset_sets_the_columns_and_the_link(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    app.pills(key="preset").set_value("Structure or detail").run()
    assert address(app)["lenses"] == "ekfac.loss.500-1000~ekfac.loss.0-500"
    app = wait_for_jobs(app)
    assert not app.exception and not app.warning
    # A control changes its own column only, and no preset is chosen any more.
    tied(app.selectbox, "method_1").set_value("pixel").run()
    assert address(app)["lenses"] == "ekfac.loss.500-1000~pixel"
    assert tied(app.pills, "preset").value is None
    app.button(key="close_0").click().run()
    assert address(app)["lenses"] == "pixel"


def test_sliders_choose_a_region_of_whole_cells(tiny_collection, monkeypatch):
    """The keyboard's way to draw a box, in steps of what the model's latents hold."""
    app = open_app(tiny_collection, monkeypatch, sample="0")
    explorer = open_explorer("glyphs", tiny_collection)
    cell, size = explorer.cell, explorer.image_shape[-1]
    assert cell == pixels_per_cell(explorer.engine.denoiser)
    assert app.slider(key="across").step == cell
    app.slider(key="across").set_value((cell, 2 * cell)).run()
    assert address(app)["region"] == f"{cell},0,{2 * cell},{size}"
    app.slider(key="across").set_value((0, size)).run()
    assert "region" not in address(app)


def test_a_similarity_says_that_it_compares_the_whole_image(
    tiny_collection, monkeypatch
):
    link = {"sample": "0", "region": "2,2,10,12", "lenses": "pixel"}
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, **link))
    assert "compares the whole image" in words(app)
    del link["region"]
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, **link))
    assert "compares the whole image" not in words(app)


def test_training_picture_has_no_trajectory_until_one_is_found(
    tiny_collection, monkeypatch
):
    """The column says so in one sentence; the toggle asks for an approximate one."""
    example = str(first_example(tiny_collection))
    link = {"example": example, "lenses": "ekfac.trajectory"}
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, **link))
    assert "did not draw this image" in app.warning[0].value
    app = wait_for_jobs(app.toggle(key="inverted").set_value(True).run())
    assert address(app)["inverted"] == "1"
    assert not app.warning and "approximate" in words(app)


def test_damping_re_ranks(tiny_collection, monkeypatch):
    """The own damping agrees with itself; a huge one gives another order."""
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, "pages/methods.py"))
    assert "whole order +1.00" in words(app)
    app = wait_for_jobs(app.select_slider(key="damping_choice").set_value(4).run())
    assert "agrees with the own damping" in words(app)
    assert "whole order +1.00" not in words(app)


def test_training_picture_is_answered_by_the_queue(tiny_collection, monkeypatch):
    example = open_explorer("glyphs", tiny_collection).examples.table.index[3]
    app = open_app(tiny_collection, monkeypatch, example=str(example))
    wait_for(app, ANSWERED)
    assert f"Training image {example}" in words(app)


def test_generated_picture_is_answered_by_the_queue(tiny_collection, monkeypatch):
    link = {"seed": "7", "label": "0", "sampler": "ddpm", "steps": "5", "guidance": "2"}
    app = wait_for(open_app(tiny_collection, monkeypatch, **link), ANSWERED)
    assert "seed 7" in words(app) and "DDPM" in words(app)
    # The form starts from the link, so that one setting can be changed at a time.
    assert [number.value for number in app.number_input] == [7, 5]


def test_generate_form_writes_the_link(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    app.pills(key="origin").set_value("seed").run()
    app.number_input[0].set_value(11)
    app.number_input[1].set_value(5)
    next(b for b in app.button if b.label == "Generate and ask").click().run()
    asked = {"seed": "11", "steps": "5", "sampler": "ddim"}
    assert asked.items() <= address(app).items()
    wait_for(app, ANSWERED)
    assert asked.items() <= address(app).items()


def test_words_search_names_first_and_say_so(monkeypatch):
    """All dogs for "dogs", on strips and among the training images; without a model."""
    monkeypatch.setattr(Explorer, "search", None)  # CLIP is not asked
    root = DATA_DIR / "collections"
    app = open_app(root, monkeypatch, collection="glyphs", words="dogs")
    names = open_explorer("glyphs").examples.table["name"]
    dogs = names[names.str.contains(r"\bdog\b")].index
    assert f"**{len(dogs)} of 2,181** · “dogs” in name or label" in plain(app)
    app.pills(key="origin").set_value("example").run()
    app.text_input(key="search").set_value("dog").run()
    assert f"{len(dogs)} with these words in name or label" in words(app)
    assert {tile["id"] for tile in shown_tiles(app, "found")} == set(dogs)


def test_search_by_number_finds_the_training_picture(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch)
    app.pills(key="origin").set_value("example").run()
    app.text_input(key="search").set_value("999999").run()
    assert "Nothing found" in words(app)
    example = open_explorer("glyphs", tiny_collection).examples.table.index[0]
    app.text_input(key="search").set_value(str(example)).run()
    assert "Nothing found" not in words(app) and not app.exception


def test_waiting_visitor_sees_the_place_in_line_and_can_cancel(
    tiny_collection, monkeypatch
):
    """While another question is being computed, ours waits; a cancel takes it out."""
    gate, queue = threading.Event(), waiting.job_queue()

    def hold(progress):
        gate.wait(PATIENCE)

    other = queue.ask("held", "somebody", hold)
    try:
        example = open_explorer("glyphs", tiny_collection).examples.table.index[5]
        app = open_app(tiny_collection, monkeypatch, example=str(example))
        cancel = next(button for button in app.button if button.label == "Cancel")
        assert queue.report(app.session_state.jobs["answer 0"]).ahead == 1
        cancel.click().run()
        assert "Stopped." in words(app)
        again = next(button for button in app.button if button.label == "Start again")
    finally:
        gate.set()
    assert other.finished.wait(PATIENCE)
    again.click().run()
    wait_for(app, ANSWERED)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"sample": "abc"}, "not a whole number"),
        ({"sample": "9999"}, "9999"),
        ({"example": "-1"}, "no training image"),
        ({"seed": "1", "steps": "100000"}, "100000 steps"),
        ({"seed": "1", "guidance": "nan"}, "guidance nan"),
        ({"seed": "-5"}, "seed"),
        ({"seed": "1", "label": "777"}, "777"),
        ({"seed": "1", "sampler": "magic"}, "magic"),
        ({"collection": "nothing"}, "nothing"),
        ({"sample": "0", "lenses": "magic"}, "a lens 'magic'"),
        ({"sample": "0", "lenses": "ekfac.loss.900-5"}, "is not inside"),
        ({"sample": "0", "region": "9,9,1,1"}, "9,9,1,1"),
        ({"sample": "0", "region": "a"}, "is not a region"),
    ],
)
def test_bad_link_is_answered_with_one_sentence(
    tiny_collection, monkeypatch, link, said
):
    app = open_app(tiny_collection, monkeypatch, **link)
    assert not app.exception
    assert len(app.info) == 1
    assert said in app.info[0].value.replace("\\", "")


@pytest.mark.parametrize("page", ["", "pages/methods.py", "pages/collections.py"])
def test_empty_folder_says_how_to_make_a_collection(tmp_path, monkeypatch, page):
    app = open_app(tmp_path, monkeypatch, page)
    assert not app.exception
    assert "python -m precompute build" in app.info[0].value


def test_text_from_data_cannot_become_markdown():
    """No character with a meaning is left unescaped; shortcodes are broken up."""
    hostile = "[x](http://evil) ![i](a) **b** `c` <b> $x$ :red[no] :smile: # | ~"
    escaped = text(hostile)
    for mark in "[]()!*`<>$#|~_":
        assert all(
            escaped[place - 1] == "\\"
            for place, letter in enumerate(escaped)
            if letter == mark
        ), mark
    assert ":red" not in escaped and ":smile" not in escaped


def test_quoted_commands_in_errors_stay_code():
    said = sentence(LookupError("No [x]. Run `python -m precompute build`."))
    assert said == "No \\[x\\]\\. Run `python -m precompute build`\\."


# --- what retraining says -----------------------------------------------------------


def plain(app: AppTest) -> str:
    """Return all text on the page as it is read, without its escapes."""
    return words(app).replace("\\", "").replace("\u2060", "")


def beside(root: Path, folder: Path) -> Path:
    """Link what lies in a folder of collections into another."""
    for path in root.iterdir():
        if path.is_file():
            os.link(path, folder / path.name)
    return folder


def test_evidence_says_what_was_not_measured_and_how_to(tiny_collection, monkeypatch):
    """The command names the preset; what was measured without retraining is there."""
    app = open_app(tiny_collection, monkeypatch, "pages/evidence.py")
    assert not app.exception and len(app.info) == 1
    flags = "--collection glyphs --preset tiny"
    assert f"`python -m precompute retrain {flags}`" in app.info[0].value
    assert f"`python -m precompute evidence {flags}`" in app.info[0].value
    shown = app.code[0].value.splitlines()
    assert shown[0] == f"python -m precompute retrain {flags} --without subgroup"
    assert shown[1] == f"python -m precompute evidence {flags}"
    assert "Measured when it was built" in words(app)
    scores = wait_for_jobs(open_app(tiny_collection, monkeypatch))
    assert words(scores).count("Untested: no model was retrained") == 1


@pytest.mark.parametrize("measurement", ["loss", "elbo", "log-probability"])
def test_evidence_says_beside_each_figure_what_it_shows(
    tested_collection, monkeypatch, measurement
):
    """Each sentence is made of the same table as its figure."""
    app = open_app(tested_collection, monkeypatch, "pages/evidence.py")
    chosen = app.segmented_control(key="tested_choice")
    app = chosen.set_value(measurement).run()
    assert not app.exception and not app.info and not app.warning
    evidence = open_explorer("glyphs", tested_collection).evidence()
    tables = {name: make_table(evidence, name, measurement) for name in TABLES}
    expected = [
        lds.lds_finding(tables["lds"]),
        damping.damping_finding(tables["damping"]),
        ablation.draws_finding(tables["ablation"]),
        ablation.format_finding(tables["ablation"]),
        ablation.substitution_finding(tables["ablation"], measurement),
        timesteps.timestep_finding(tables["timesteps"]),
        removal.removal_finding(tables["removal"], measurement),
        changes.rise_finding(tables["observations"], measurement),
        groups.group_finding(group_summary(tables["groups"]), measurement),
        own_group.own_group_finding(tables["own-group"]),
    ]
    shown = words(app)
    assert all(text(said) in shown for said in expected)
    first = opening.opening(evidence).finding  # whatever was chosen to be measured
    assert text(first) in shown and len(first.split()) < 60
    pairs = text(paired.paired_finding(tables["paired"]))
    assert pairs not in shown  # it takes seconds, so it waits to be asked for
    assert pairs in words(app.toggle(key="lds_paired").set_value(True).run())


def test_evidence_leads_down_to_every_row(tested_collection, monkeypatch):
    """The costs of each sample in each model, and any table, once that is asked for."""
    app = open_app(tested_collection, monkeypatch, "pages/evidence.py")
    before = len(app.dataframe)
    app = app.toggle(key="evidence_rows").set_value(True).run()
    evidence = open_explorer("glyphs", tested_collection).evidence()
    costs = evidence.measured[evidence.measured["measurement"] == "loss"]
    assert len(app.dataframe) == before + 1
    assert len(app.dataframe[-1].value) == len(costs)
    app = app.selectbox(key="rows_choice").set_value("samples").run()
    assert len(app.dataframe[-1].value) == len(make_table(evidence, "samples", "loss"))
    assert not app.exception


def test_another_method_can_be_compared_with_what_was_measured(
    tiny_collection, tmp_path, monkeypatch
):
    """A method that somebody brought among them."""
    root = beside(tiny_collection, tmp_path)
    explorer = open_explorer("glyphs", root)
    settings = explorer.provenance["settings"]
    evidence = full_evidence(settings, explorer.num_examples)
    scores = np.random.default_rng(2).normal(size=(4, explorer.num_examples))
    folder = evidence_folder(root, explorer.config)
    write_evidence(folder, with_method(evidence, "my *method*", scores))
    app = open_app(root, monkeypatch, "pages/evidence.py")
    assert "EK-FAC misses the measured change" in plain(app)
    app.selectbox(key="compared_choice").set_value("clip").run()
    assert "Small CLIP misses the measured change" in plain(app)
    assert "random" not in app.selectbox(key="compared_choice").options
    app.selectbox(key="compared_choice").set_value("my *method*").run()
    assert "my *method* misses the measured change" in plain(app)
    assert not app.exception


def test_evidence_without_removals_says_how_to_make_them(
    tiny_collection, tmp_path, monkeypatch
):
    """And eight subsets are the fewest to calibrate on; each card speaks for itself."""
    root = beside(tiny_collection, tmp_path)
    explorer = open_explorer("glyphs", root)
    settings = explorer.provenance["settings"]
    few = full_evidence(settings, explorer.num_examples, num_subsets=6, removals=False)
    write_evidence(evidence_folder(root, explorer.config), few)
    app = open_app(root, monkeypatch, "pages/evidence.py")
    assert not app.exception
    assert "No model was trained without the images that matter most" in plain(app)
    flags = "--collection glyphs --preset tiny"
    assert f"retrain {flags} --removals --missing\n" in app.code[0].value
    assert app.code[0].value.endswith(f"evidence {flags} --add")
    assert len(app.info) == 1 and "too few to calibrate on" in app.info[0].value


def test_evidence_about_groups_alone_is_shown(tiny_collection, tmp_path, monkeypatch):
    """Beside the sentence that halves are missing; the scores count as not tested."""
    root = beside(tiny_collection, tmp_path)
    explorer = open_explorer("glyphs", root)
    settings = explorer.provenance["settings"]
    every = full_evidence(settings, explorer.num_examples)
    alone = replace(
        every,
        measured=every.measured.query("kind == 'removed'"),
        scores=every.scores[:0],
    )
    write_evidence(evidence_folder(root, explorer.config), alone)
    app = open_app(root, monkeypatch, "pages/evidence.py")
    assert not app.exception and len(app.info) == 1
    assert "random halves of the images was not measured" in app.info[0].value
    summary = group_summary(make_table(alone, "groups", "loss"))
    assert text(groups.group_finding(summary, "loss")) in words(app)
    assert "3 retrained without a whole group" in words(app)
    app = wait_for_jobs(app.switch_page("pages/explore.py").run())
    first = group_summary(make_table(alone, "groups", "loss")).set_index("method")
    share = f"{first.at['ekfac', 'first']:.0%}"
    (mark,) = [one for one in app.caption if "Tested: right house in" in one.value]
    assert f"{share} of images, chance 33%" in mark.value
    assert "No model was retrained on random halves" in mark.help


def test_damaged_evidence_is_one_sentence(tiny_collection, tmp_path, monkeypatch):
    """On the page Evidence; the scores elsewhere count as not tested."""
    root = beside(tiny_collection, tmp_path)
    folder = evidence_folder(root, open_explorer("glyphs", root).config)
    folder.mkdir()
    (folder / "recipe.json").write_text("{")
    app = open_app(root, monkeypatch, "pages/evidence.py")
    assert not app.exception and len(app.info) == 1
    assert "is damaged" in app.info[0].value
    app = wait_for_jobs(app.switch_page("pages/explore.py").run())
    assert not app.exception
    assert words(app).count("Untested: no model was retrained") == 1


@pytest.mark.parametrize(
    "page", ["", "measurements", "timesteps", "methods", "groups", "map"]
)
def test_every_score_carries_its_trust(tested_collection, monkeypatch, page):
    """The LDS of the very lens, and what no retrained model measured is said so."""
    page = f"pages/{page}.py" if page else ""
    codes = "ekfac.elbo~clip~ekfac.loss.0-250~ekfac.trajectory"
    link = {"sample": "0", "lenses": codes}
    app = wait_for_jobs(open_app(tested_collection, monkeypatch, page, **link))
    assert not app.exception
    evidence = open_explorer("glyphs", tested_collection).evidence()
    lenses = {
        "": [("ekfac", "elbo"), ("clip", "loss"), ("ekfac", "loss", (0, 250))],
        "pages/measurements.py": [("ekfac", "loss"), ("ekfac", "elbo")],
        "pages/timesteps.py": [("ekfac", "loss")],
        "pages/methods.py": [("ekfac", "loss")],  # the others: test_methods_page
        "pages/groups.py": [("ekfac", "elbo")],
        "pages/map.py": [("ekfac", "elbo")],
    }
    sources = ("", "sketch")
    for lens in lenses[page]:
        marks = [lens_trust(evidence, *lens, source=source).words for source in sources]
        assert any(mark in plain(app) for mark in marks), (lens, marks)
    untested = ": Untested" in words(app)
    pages = ("timesteps", "methods", "groups", "map")
    assert untested == (page not in [f"pages/{name}.py" for name in pages])


def test_a_part_of_the_picture_was_never_tested(tested_collection, monkeypatch):
    link = {"sample": "0", "region": "2,2,10,12", "lenses": "ekfac.loss"}
    app = wait_for_jobs(open_app(tested_collection, monkeypatch, **link))
    assert "Untested: no model was retrained" in plain(app)
    assert "LDS" not in words(app)


def test_half_of_the_draws_is_shown_while_the_rest_is_measured(
    tiny_collection, monkeypatch
):
    """The column says how many draws its strips rest on; then come all."""
    gate, answer = threading.Event(), Explorer.answer

    def slow(self, query, lens, progress=None, early=None):
        def show(half):
            early(half)
            gate.wait(PATIENCE)

        return answer(self, query, lens, progress, early and show)

    monkeypatch.setattr(Explorer, "answer", slow)
    example = str(open_explorer("glyphs", tiny_collection).examples.table.index[7])
    try:
        link = {"example": example, "lenses": "ekfac.noise-loss"}
        app = open_app(tiny_collection, monkeypatch, **link)
        wait_for(app, "first 128 of 256 draws")
        assert "lens_0" in app.session_state
        assert any(button.label == "Cancel" for button in app.button)
        assert ANSWERED not in words(app)
    finally:
        gate.set()
    wait_for(app, ANSWERED)
    assert "first 128 of 256 draws" not in words(app)
