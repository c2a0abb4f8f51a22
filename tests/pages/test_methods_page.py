"""The Methods page, driven as a visitor does, on a real tiny collection."""

import threading
import time
from types import SimpleNamespace

import pytest

from core.evidence.trust import lens_trust
from core.explorer.explorer import Explorer, Lens, open_explorer
from core.methods import METHODS
from core.numbers import plus_minus
from core.report.reading import rank_correlation
from pages.parts import lens_picker, ranking
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    PATIENCE,
    address,
    app_runs_first,
    open_app,
    wait_for_jobs,
    words,
)

PAGE = "pages/methods.py"


@pytest.fixture
def tables(monkeypatch) -> list[dict]:
    """Return what the browser is given of the table, run by run."""
    mounted, mount = [], ranking._mount

    def watched(**arguments):
        mounted.append(arguments["data"])
        return mount(**arguments)

    monkeypatch.setattr(ranking, "_mount", watched)
    return mounted


def test_every_row_is_the_answer_of_its_method(tested_collection, monkeypatch, tables):
    """First images, agreement, LDS and cost, each found here from what it rests on."""
    app = wait_for_jobs(open_app(tested_collection, monkeypatch, PAGE, sample="0"))
    assert not app.exception
    explorer = open_explorer("glyphs", tested_collection)
    evidence = explorer.evidence()
    query = explorer.query_from_gallery(0)
    facts = explorer.method_facts().set_index("method")
    rows = {row["id"]: row for row in tables[-1]["rows"]}
    assert set(rows) == set(facts.index[facts["available"]])
    assert rows["pixel"]["cells"][1] == {"text": "untested"}
    base = explorer.answer(query, Lens())
    for name in ("ekfac", "kfac", "clip"):
        answer = explorer.answer(query, Lens(name))
        first = explorer.examples.caption(int(answer.example_ids[answer.top(1)[0]]))
        assert rows[name]["images"][0]["alt"] == ", ".join(first)
        agrees, tested, seconds, _, _ = rows[name]["cells"]
        trust = lens_trust(evidence, name, "loss", source=answer.source)
        assert tested["text"] == plus_minus(trust.lds, trust.standard_error)
        assert agrees["value"] == pytest.approx(rank_correlation(base, answer))
        if facts.at[name, "seconds"] > 0:
            assert seconds["value"] == facts.at[name, "seconds"]


def test_a_row_fills_while_others_are_computed(tiny_collection, monkeypatch, tables):
    """No method waits for the last one."""
    gate, answer = threading.Event(), Explorer.answer

    def slow(self, query, lens, progress=None, early=None):
        if lens.method == "gradient":
            gate.wait(PATIENCE)
        return answer(self, query, lens, progress)

    monkeypatch.setattr(Explorer, "answer", slow)
    example = open_explorer("glyphs", tiny_collection).examples.table.index[9]
    try:
        app = open_app(tiny_collection, monkeypatch, PAGE, example=str(example))
        filled = {}
        while "kfac" not in filled:
            app.run()
            rows = tables[-1]["rows"] if tables else []
            filled = {row["id"] for row in rows if row["images"]}
        assert "gradient" not in filled
    finally:
        gate.set()
    wait_for_jobs(app)
    assert all(row["images"] for row in tables[-1]["rows"])


def test_facts_that_are_asked_anew_hold_nobody_up(tiny_collection, monkeypatch):
    """Every minute they are; the rows stay meanwhile."""
    app = wait_for_jobs(open_app(tiny_collection, monkeypatch, PAGE, sample="0"))
    gate, method_facts = threading.Event(), Explorer.method_facts

    def slow(self, progress=None):
        gate.wait(PATIENCE)
        return method_facts(self, progress)

    monkeypatch.setattr(Explorer, "method_facts", slow)
    later = time.time() + 120
    monkeypatch.setattr(lens_picker, "time", SimpleNamespace(time=lambda: later))
    try:
        app.run()
        assert not app.session_state.jobs["method facts"].finished.is_set()
        assert "Damping" in words(app) and not app.exception
        assert [one for one in app.expander if one.label.startswith("How far")]
    finally:
        gate.set()


def test_a_link_names_the_method_that_is_explained(tiny_collection, monkeypatch):
    app = open_app(tiny_collection, monkeypatch, PAGE, sample="0", method="clip")
    app = wait_for_jobs(app)
    assert METHODS["clip"].meaning in words(app).replace("\\", "")
    assert address(app)["method"] == "clip" and "method_strips" in app.session_state
