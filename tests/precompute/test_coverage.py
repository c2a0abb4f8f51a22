"""Repeats renew draws and nothing else, and errors are held against them."""

from dataclasses import replace

import numpy as np
import pytest

from core.explorer.explorer import Lens, open_explorer
from core.presets import collection_config
from core.scores.error_files import errors_path, read_model
from core.scores.errors import Asked, ErrorModel, Law, fit_unseen, stood
from precompute.stages.coverage import (
    FITTED,
    TESTED,
    Deviation,
    Trial,
    affordable,
    answers_shown,
    excess,
    kind_of,
    measure_coverage,
)
from precompute.stages.errors import HELD_OUT
from precompute.stages.repeats import Repeats
from tests.conftest import linked_copy


@pytest.fixture
def explorer(tiny_collection):
    """Return the tiny collection, opened for one test."""
    explorer = open_explorer("glyphs", tiny_collection)
    yield explorer
    explorer.close()


def test_repeat_with_the_draws_of_the_build_is_the_stored_answer(
    explorer, tmp_path, monkeypatch
):
    """Same draws, same scores: nothing but draws is renewed. A second call reads them.

    The eigenvectors of a collection are kept in half precision, the build had all.
    """
    monkeypatch.setattr(Repeats, "seed", lambda self, number: self.config.seed)
    draws = explorer.config.samples.num_draws
    everyone = np.arange(explorer.num_examples)
    question = (0, Lens(num_draws=draws))
    repeats = Repeats(explorer, tmp_path, [question], everyone)
    (found,) = repeats.products(0)
    stored = explorer.answer(explorer.query_from_gallery(0), Lens())
    off = found - found.mean() - stored.scores
    assert np.abs(off).max() < 5e-3 * np.abs(stored.scores).max()
    assert repeats.agreement(range(1), [0, 1]) == {}  # one has nothing to agree with

    monkeypatch.setattr(type(explorer.engine), "question", None)
    again = Repeats(explorer, tmp_path, [question], everyone)
    np.testing.assert_array_equal(again.products(0), repeats.products(0))


def test_what_was_found_is_kept_beside_the_collection(tiny_collection, tmp_path):
    """Of the ten that are shown and of random images, as the page Collections says."""
    (tmp_path / "copy").mkdir()
    root = linked_copy(tiny_collection, tmp_path / "copy")
    trial = Trial(queries=4, repeats=2)
    before = read_model(errors_path(root, collection_config("glyphs", "tiny")))
    found = measure_coverage(root, "glyphs", tmp_path / "work", trial)
    assert set(found["kinds"]) == {"loss, exact", "loss, sketch"}
    for parts in found["kinds"].values():
        assert parts["top"]["count"] == 2 * 10 and parts["all"]["count"] == 2 * 24
        assert 0 <= parts["top"]["coverage"] <= 1 and parts["top"]["ratio"] > 0
    explorer = open_explorer("glyphs", root)
    assert set(explorer.coverage) == {HELD_OUT, "loss, exact", "loss, sketch"}
    for form in ("exact", "sketch"):
        again = explorer.provenance["quality"][f"{form}_again"]
        assert again == pytest.approx(found["agreement"][form], abs=1e-5)
    explorer.close()

    # What was fitted on some samples was told of the others; a second run is the same.
    after = read_model(errors_path(root, collection_config("glyphs", "tiny")))
    assert before.unseen == {} and after.unseen["loss"] > 0
    second = measure_coverage(root, "glyphs", tmp_path / "work", trial)
    assert second["kinds"]["loss, exact"]["top"] == pytest.approx(
        found["kinds"]["loss, exact"]["top"], rel=1e-3
    )
    again = read_model(errors_path(root, collection_config("glyphs", "tiny")))
    assert again.unseen == pytest.approx(after.unseen, rel=1e-3)


def test_samples_that_are_fitted_on_are_not_tested_on(explorer):
    """Two halves of the gallery, and all of it where no half is named."""
    halves = [
        {one.sample for one in answers_shown(explorer, Trial(queries=4, half=half))}
        for half in (TESTED, FITTED)
    ]
    assert not halves[0] & halves[1] and len(halves[0]) == len(halves[1]) == 2
    assert len({one.sample for one in answers_shown(explorer, Trial(queries=4))}) == 4


def test_what_folds_do_not_show_is_found_again():
    """Scores off by 15% where a tenth is printed, forty questions: that much is added.

    Sketched answers say nothing of it: there the sketch adds an error of its own.
    """
    rng, top = np.random.default_rng(0), []
    for _ in range(400):
        scores = rng.uniform(5, 10, 10)
        off = 0.15 * scores * rng.normal(size=10) * (1 + 1 / 4) ** 0.5
        top.append(Deviation(off, 0.1 * scores, scores, 4))
    none = Deviation(np.zeros(10), np.ones(10), np.ones(10), 4)
    found = {"loss, exact": {"top": top}, "loss, sketch": {"top": [none]}}
    model = ErrorModel(Law(1.0), Law(1.0))
    (missing,) = excess(found, model).values()
    assert len(missing) == 400
    assert np.mean(missing) == pytest.approx(0.15**2 - 0.1**2, rel=0.1)
    typical = (4 * 0.1**2 + sum(missing)) / 404
    assert fit_unseen({"loss": missing}) == pytest.approx({"loss": typical})
    known = excess(found, replace(model, unseen={"loss": 0.02}))
    assert known["loss"] == pytest.approx([0.02 + x for x in missing])
    assert fit_unseen({"elbo": [-1.0]}) == {"elbo": 0.0}


def test_a_kind_that_was_not_repeated_is_taken_for_an_average_one():
    model = ErrorModel(Law(1.0), Law(1.0), unseen={"loss": 0.01, "elbo": 0.03})
    assert model.unseen_of("elbo") == 0.03
    assert model.unseen_of("loss region") == pytest.approx(0.02)
    scores, none = np.array([0.0, -10.0]), np.zeros(2)
    found = model.variance(scores, Asked(0.0), none, none, "elbo")
    np.testing.assert_allclose(found, [0, 3])


def test_a_build_tests_its_errors_where_that_costs_little(tiny_explorer):
    """An eighth of the training gradients: seven queries of Glyphs, none of a toy."""
    config = collection_config("glyphs")
    assert affordable(config, 2181).queries == 7
    assert affordable(config, 10**6) == Trial()
    assert affordable(tiny_explorer.config, tiny_explorer.num_examples) is None
    assert set(tiny_explorer.coverage) == {HELD_OUT}  # of the folds, it costs nothing


def test_deviates_of_a_normal_distribution_are_covered_in_ninety_of_a_hundred():
    z = np.random.default_rng(0).normal(size=20_000)
    found = stood(z)
    assert found["coverage"] == pytest.approx(0.9, abs=0.01)
    assert stood(2 * z)["ratio"] == pytest.approx(2, rel=0.02)
    assert found["count"] == len(z)


def test_kinds_of_answers_are_told_apart_in_words(explorer):
    query = explorer.query_from_gallery(0)
    lens = Lens("kfac", timesteps=(0, 250), region=(0, 0, 32, 64), num_draws=8)
    assert kind_of(explorer.answer(query, lens)) == "kfac loss region band, sketch"
