"""What core/README.md says of adding a method or a measurement, word for word."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import core.measure
import core.scores
from core.engine.query import query_draws
from core.evidence.lds import lds_table
from core.explorer.explorer import open_explorer
from core.lenses import Lens
from core.measure.costs import noising
from core.measurements import MEASUREMENTS, Measurement
from core.methods import METHODS, Method
from precompute.__main__ import main
from precompute.retraining.asked import asked_lenses, default_form
from precompute.retraining.measure import MeasureConfig, measured_rows
from precompute.retraining.scores import sample_scores
from tests.helpers.toy_evidence import full_evidence
from tests.pages.test_app import open_app, wait_for_jobs

README = Path(__file__).resolve().parents[1] / "core" / "README.md"
LONGEST = 30  # lines of a section
DRAWS = 8
SETTINGS = MeasureConfig(num_samples=2, num_draws=DRAWS, num_bands=2)


def section(title: str) -> str:
    """Return what stands under a heading."""
    text = README.read_text().split(f"## {title}\n", 1)[1]
    return text.split("\n## ", 1)[0]


def add(title: str, folder: Path, package, names: dict, monkeypatch) -> None:
    """Do what a section says: write the file, run the entry.

    The file goes to a folder of its own, in which the package looks, too.
    """
    file, entry = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    path = file.splitlines()[0].removeprefix("# ")
    assert entry.startswith(f"# at the end of {names['__file__']}\n")
    assert not (README.parents[1] / path).exists()
    (folder / Path(path).name).write_text(file)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    exec(entry, names)


@pytest.fixture
def method(tmp_path, monkeypatch):
    """Add the method, and take it away again."""
    before = dict(METHODS)
    names = {"METHODS": METHODS, "Method": Method}
    names["__file__"] = "core/methods.py"
    add("Add a method", tmp_path, core.scores, names, monkeypatch)
    (added,) = set(METHODS) - set(before)
    yield added
    METHODS.clear()
    METHODS.update(before)


@pytest.fixture
def measurement(tmp_path, monkeypatch):
    """Add the measurement, and take it away again."""
    before = dict(MEASUREMENTS)
    names = {"MEASUREMENTS": MEASUREMENTS, "Measurement": Measurement}
    names["__file__"] = "core/measurements.py"
    add("Add a measurement", tmp_path, core.measure, names, monkeypatch)
    (added,) = set(MEASUREMENTS) - set(before)
    yield added
    MEASUREMENTS.clear()
    MEASUREMENTS.update(before)


@pytest.fixture
def explorer(tiny_collection):
    """Return an explorer that has kept nothing."""
    return open_explorer("glyphs", tiny_collection)


def command(root: Path, out: Path, *options: str) -> pd.DataFrame:
    """Return what `python -m precompute attribute` writes, by example."""
    asked = ["attribute", "--collection", "glyphs", "--root", str(root)]
    asked += ["--sample", "0", "--draws", str(DRAWS), "--index", "sketch"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["precompute", *asked, *options, "--out", str(out)])
        assert main() == 0
    return pd.read_csv(out).set_index("example_id").sort_index()


def offered(root: Path, monkeypatch, lens: str, label: str) -> list[str]:
    """Return what one choice of the app offers for a lens."""
    app = wait_for_jobs(open_app(root, monkeypatch, lenses=lens))
    (choice,) = [box for box in app.selectbox if box.label == label]
    assert choice.value == lens.split(".")[0 if label == "Method" else 1]
    return choice.options


def evidence_of(explorer, lens: Lens, measurement: str):
    """Return evidence with a lens's scores, and costs of halves by a measurement."""
    found = full_evidence(
        explorer.provenance["settings"], explorer.num_examples, num_samples=2
    )
    asked = [one for one in asked_lenses(explorer) if one.lens == lens]
    assert len(asked) == 1
    scores = [sample_scores(explorer, i, asked, SETTINGS) for i in range(2)]
    costs = found.measured[found.measured["measurement"] == "loss"]
    return replace(
        found,
        recipe=found.recipe | {"num_draws": lens.num_draws},
        measured=costs.assign(measurement=measurement),
        scores=pd.concat([found.scores, *scores], ignore_index=True),
    )


@pytest.mark.parametrize("title", ["Add a method", "Add a measurement"])
def test_a_section_is_short(title):
    assert len(section(title).strip().splitlines()) < LONGEST


def test_a_method_is_a_file_and_an_entry(
    method, explorer, tiny_collection, tmp_path, monkeypatch
):
    """The app offers it, the command answers with it, and evidence ranks it."""
    title = METHODS[method].title
    assert title in offered(tiny_collection, monkeypatch, f"{method}.loss", "Method")
    scores = command(tiny_collection, tmp_path / "own.csv", "--method", method)
    usual = command(tiny_collection, tmp_path / "usual.csv", "--method", "ekfac")
    squares = explorer.engine.scoring.whitened_norms**2
    for column in ("score", "standard_error"):
        np.testing.assert_allclose(scores[column], usual[column] / squares, rtol=1e-8)
    lens = Lens(method, form=default_form(explorer))
    table = lds_table(evidence_of(explorer, lens, "loss"), "loss")
    assert method in set(table["method"]) and table["lds"].notna().all()


def test_a_measurement_is_a_file_and_an_entry(
    measurement, explorer, tiny_collection, tmp_path, monkeypatch
):
    """The app offers it, the command scores it, and evidence measures and ranks it."""
    title = MEASUREMENTS[measurement].title
    lens = f"ekfac.{measurement}"
    assert title in offered(tiny_collection, monkeypatch, lens, "Measurement")

    query = explorer.query_from_example(5)
    measured = explorer.measure(query, measurement, num_draws=DRAWS)
    denoiser, seed = explorer.engine.denoiser, explorer.engine.seed
    draws = query_draws(denoiser, DRAWS, seed)
    x_0 = explorer.engine.subject(query, False).x_0
    clean, noise, timesteps, labels = noising(denoiser, x_0, query.label, draws)
    x_t = denoiser.add_noise(clean, noise, timesteps)
    errors = denoiser.predict(x_t, timesteps, labels).detach()
    errors -= denoiser.target(clean, noise, timesteps)
    by_hand = errors.abs().sum((1, 2, 3)).mean()
    assert measured.value == pytest.approx(float(by_hand), rel=1e-5)
    assert measured.unit == MEASUREMENTS[measurement].unit

    out = tmp_path / "scores.csv"
    scores = command(tiny_collection, out, "--measurement", measurement)["score"]
    asked = Lens("ekfac", measurement, num_draws=DRAWS, form="sketch")
    answer = explorer.answer(explorer.query_from_gallery(0), asked)
    assert scores.tolist() == [float(f"{score:.9g}") for score in answer.scores]

    settings = replace(SETTINGS, probability_draws=0)
    rows = measured_rows(denoiser, x_0, query.label, settings, seed)
    (whole,) = [row for row in rows if row[:2] == (measurement, -1)]
    assert whole[3] == pytest.approx(measured.value, rel=1e-5)

    lens = Lens("ekfac", measurement, form=default_form(explorer))
    evidence = evidence_of(explorer, lens, measurement)
    table = lds_table(evidence, measurement).set_index("method")
    assert table.loc["ekfac", "scored"] == measurement
    assert np.isfinite(table.loc["ekfac", "lds"])
