"""The details window over every page: both ask at once, and both are answered."""

import time

import pytest

from core.explorer.explorer import open_explorer
from pages.parts import waiting
from tests.pages.test_app import (
    PATIENCE,
    app_runs_first,
    first_example,
    open_app,
    wait_for_jobs,
    words,
)

__all__ = ["app_runs_first"]  # a fixture that every test here runs in

PAGES = {  # what a page has shown once it is answered
    "": ["lens_0", "lens_1"],
    "measurements": ["measured_0", "measured_1"],
    "timesteps": ["player"],
    "methods": ["method_strips", "damped_strips"],
    "map": ["map"],
    "groups": ["members"],
}


def new_picture(page: str) -> dict[str, str]:
    """Return the link to an image that nobody asked about, another for every page."""
    seed = 100 + list(PAGES).index(page)
    return {"seed": str(seed), "label": "0", "sampler": "ddpm", "steps": "4"}


@pytest.mark.parametrize(
    ("page", "picture"),
    [*((page, new_picture(page)) for page in PAGES), ("timesteps", {"sample": "2"})],
)
def test_page_and_details_window_are_both_answered(
    tiny_collection, monkeypatch, page, picture
):
    """By link, on a new image, of which nothing is stored, and on a stored one."""
    link = picture | {"detail": str(first_example(tiny_collection))}
    place = f"pages/{page}.py" if page else ""
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, place, **link))
    assert not app.exception, app.exception
    assert "The image asked about" in words(app) and "When it matters" in words(app)
    assert all(key in app.session_state for key in PAGES[page])
    charts = [str(chart.proto) for chart in app.get("plotly_chart")]
    assert any("Predicted change over the noise levels" in said for said in charts)
    assert not [b for b in app.button if b.label in ("Cancel", "Start again")]


def run_until(app, condition) -> None:
    """Run the page again, as its timer does, until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, words(app)
        time.sleep(0.1)
        app.run()


def held(app) -> dict[str, str]:
    """Return the key of the job in every slot."""
    return {slot: job.key for slot, job in app.session_state.jobs.items()}


def test_what_both_wait_for_is_computed_once_and_stopped_in_both(
    tiny_collection, monkeypatch
):
    """One job in two slots; a cancel says so twice, and one click starts it again."""
    waiting.job_queue.clear()  # another test may have asked about the same image
    queue, counts = waiting.job_queue(), []
    explorer = open_explorer("glyphs", tiny_collection)
    band_answers = type(explorer).band_answers
    held_back = []

    def counted(self, query, lens, num_bands=8, progress=None):
        counts.append(lens)
        while held_back:
            progress(0, 1, "Waiting")
            time.sleep(0.01)  # or the page would have to fight for the interpreter
        return band_answers(self, query, lens, num_bands, progress)

    monkeypatch.setattr(type(explorer), "band_answers", counted)
    held_back.append(True)
    try:
        # The answer of a gallery image is stored, the noise levels' part is not.
        app = open_app(tiny_collection, monkeypatch, "pages/timesteps.py", sample="1")
        run_until(app, lambda: "bands" in held(app) and counts)
        app.session_state["detail"] = first_example(tiny_collection)
        app.run()
        assert not app.exception, app.exception
        assert held(app)["bands"] == held(app)["bands of details"]
        cancels = [b for b in app.button if b.label == "Cancel"]
        assert len(cancels) == 2
        cancels[0].click().run()
        run_until(app, lambda: words(app).count("Stopped.") == 2)
        assert queue.report(app.session_state.jobs["bands"]).status == "stopped"
    finally:
        held_back.clear()
    again = [b for b in app.button if b.label == "Start again"]
    app = wait_for_jobs(again[0].click().run())
    assert not app.exception and "Stopped." not in words(app)
    assert len(counts) == 2


def test_a_window_that_closes_leaves_what_the_page_waits_for(monkeypatch):
    """The job stops only when the last slot of the last visitor leaves it."""
    queue = waiting.JobQueue()
    state = {}
    monkeypatch.setattr(waiting, "_jobs", lambda: state)
    monkeypatch.setattr(waiting, "_owner", lambda: "visitor")
    monkeypatch.setattr(waiting, "job_queue", lambda: queue)

    def work(progress):
        while True:
            progress(0, 1, "Working")
            time.sleep(0.01)

    state["page"] = state["window"] = job = queue.ask("key", "visitor", work)
    waiting._drop("window")
    assert job.owners == {"visitor"} and not job.finished.wait(0.2)
    waiting._drop("page")
    assert job.finished.wait(30) and job.status == "stopped"
