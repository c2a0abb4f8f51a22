"""The Timesteps page, driven as a visitor does, on a real tiny collection."""

import numpy as np
import streamlit as st

from core.explorer.explorer import Explorer, Lens, open_explorer
from pages.parts import player, waiting, warm_up
from precompute.stages.answers import store_answers
from tests.conftest import linked_copy
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    app_runs_first,
    open_app,
    wait_for_jobs,
    words,
)

PAGE = "pages/timesteps.py"


def test_the_player_gets_every_level_once_the_noisiest_first(
    tiny_collection, monkeypatch
):
    """Frames, the strongest at each level and their bars, from the band's scores."""
    mounted, mount = [], player._mount

    def watched(**arguments):
        mounted.append(arguments["data"])
        return mount(**arguments)

    monkeypatch.setattr(player, "_mount", watched)
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, sample="0"))
    assert not app.exception
    assert "curve" not in app.session_state.jobs  # not computed before it is opened
    data = mounted[-1]
    explorer = open_explorer("glyphs", tiny_collection)
    query = explorer.query_from_gallery(0)
    bands, forming = explorer.band_answers(query, Lens()), explorer.forming(query)
    assert len(data["frames"]) == 8 and (np.diff(forming.timesteps) < 0).all()
    for frame, scores, share in zip(
        data["frames"], bands.scores[::-1], forming.noise, strict=True
    ):
        best = bands.example_ids[np.argsort(-scores, kind="stable")[:5]]
        assert [top["id"] for top in frame["tops"]] == best.tolist()
        assert frame["noise"] in (f"{share:.0%} noise", "over 99% noise")
        assert all(str(top["id"]) in data["pictures"] for top in frame["tops"])
    strongest = np.argsort(-bands.scores.sum(0), kind="stable")[:8]
    assert [row["id"] for row in data["rows"]] == bands.example_ids[strongest].tolist()
    largest = np.abs(bands.scores[:, strongest]).max()
    for row, place in zip(data["rows"], strongest, strict=True):
        heights = np.array([bar["height"] for bar in row["bars"]])
        expected = np.abs(bands.scores[::-1, place]) / largest
        np.testing.assert_allclose(heights**2, expected, atol=2e-3)
        sure = np.abs(bands.scores) >= 2 * bands.standard_errors
        assert [bar["sure"] for bar in row["bars"]] == sure[::-1, place].tolist()


def test_what_is_stored_is_shown_without_the_model(
    tiny_collection, tmp_path, monkeypatch
):
    """The same images and bars as computed, in the first run and without a job."""
    mounted, mount = [], player._mount

    def watched(**arguments):
        mounted.append(arguments["data"])
        return mount(**arguments)

    def refuse(*_):
        raise AssertionError("the model was asked for")

    monkeypatch.setattr(player, "_mount", watched)
    wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, sample="0"))
    root = linked_copy(tiny_collection, tmp_path)
    store_answers(root, "glyphs", tmp_path / "work", [])
    monkeypatch.setattr(Explorer, "engine", property(refuse))
    monkeypatch.setattr(warm_up, "wake_soon", lambda explorer: None)
    waiting.job_queue.clear()
    st.cache_data.clear()
    computed, mounted[:] = mounted[-1], []
    app = open_app(root, monkeypatch, PAGE, sample="0")
    assert not app.exception and not app.session_state.jobs
    (stored,) = mounted[-1:]
    for before, now in zip(computed["frames"], stored["frames"], strict=True):
        for name in ("stage", "words", "noise", "tops"):
            assert before[name] == now[name]
        assert now["noisy"].startswith("data:") and now["expected"].startswith("data:")
    assert stored["pictures"].keys() == computed["pictures"].keys()
    assert stored["rows"] == computed["rows"]
    # Details of an image that stands in it wait for nothing, either.
    app.session_state["detail"] = stored["rows"][0]["id"]
    app.run()
    assert not app.exception and not app.session_state.jobs
    assert len(app.get("plotly_chart")) == 1


def test_the_curve_comes_when_it_is_opened(tiny_collection, monkeypatch):
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, sample="0"))
    (hard,) = [one for one in app.expander if one.label.startswith("How hard")]
    assert not len(app.get("plotly_chart"))
    app.session_state["hard"] = True
    app = wait_for_jobs(app.run())
    assert not app.exception and len(app.get("plotly_chart")) == 1
    assert "The pale band is one standard error" in words(app).replace("\\", "")


def test_without_eigenvectors_the_image_forms_all_the_same(
    tiny_collection, tmp_path, monkeypatch
):
    """Who helped is not known, which is one sentence; the command waits behind it."""
    for path in tiny_collection.iterdir():
        if path.is_file() and "eigenvectors" not in path.name:
            (tmp_path / path.name).symlink_to(path)
    app = wait_for_jobs(open_app(tmp_path, monkeypatch, PAGE, sample="0"))
    assert not app.exception and not app.warning and "player" in app.session_state
    assert "is not known here" in words(app) and "python -m" not in words(app)
