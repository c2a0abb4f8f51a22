"""Repeats renew draws and nothing else, and errors are held against them."""

import numpy as np
import pytest

from core.explorer.explorer import Lens, open_explorer
from core.presets import collection_config
from core.scores.error_files import errors_path, read_model
from core.scores.errors import Asked, ErrorModel, Law, stood
from precompute.stages.coverage import (
    FITTED,
    TESTED,
    Deviation,
    Trial,
    affordable,
    answers_shown,
    fitted,
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
    assert before.unseen == {} and set(after.unseen) == set(after.again) == {"loss"}
    second = measure_coverage(root, "glyphs", tmp_path / "work", trial)
    assert second["kinds"]["loss, exact"]["top"] == pytest.approx(
        found["kinds"]["loss, exact"]["top"], rel=1e-3
    )
    again = read_model(errors_path(root, collection_config("glyphs", "tiny")))
    assert again.unseen == pytest.approx(after.unseen, rel=1e-3)
    assert again.again == pytest.approx(after.again, rel=1e-3)


def test_samples_that_are_fitted_on_are_not_tested_on(explorer):
    """Two halves of the gallery, and all of it where no half is named."""
    halves = [
        {one.sample for one in answers_shown(explorer, Trial(queries=4, half=half))}
        for half in (TESTED, FITTED)
    ]
    assert not halves[0] & halves[1] and len(halves[0]) == len(halves[1]) == 2
    assert len({one.sample for one in answers_shown(explorer, Trial(queries=4))}) == 4


def deviations(rng, size, spread, count, number=400):
    """Return answers whose scores are off by a share of them, printed as a tenth."""
    answers = []
    for _ in range(number):
        scores = rng.uniform(5, 10, count)
        off = spread * size * scores * rng.normal(size=count) * (1 + 1 / 4) ** 0.5
        answers.append(Deviation(off, size * scores, scores, 4))
    return answers


def test_what_folds_do_not_show_is_found_again():
    """Random images off by 0.8 of what is printed, shown ones by 1.5 of it.

    Sketched answers say nothing of it: there the sketch adds an error of its own.
    """
    rng = np.random.default_rng(0)
    found = {
        "loss, exact": {
            "top": deviations(rng, 0.1, 1.5, 10),
            "all": deviations(rng, 0.1, 0.8, 24),
        },
        "loss, sketch": {
            "top": deviations(rng, 0.1, 9.0, 10),
            "all": deviations(rng, 0.1, 9.0, 24),
        },
    }
    model = fitted(found, ErrorModel(Law(1.0), Law(1.0)))
    again = (4 * 1 + 400 * 0.8**2) / 404
    assert model.again == pytest.approx({"loss": again}, rel=0.05)
    unseen = (4 * 0.01 + 400 * (0.15**2 - again * 0.1**2)) / 404
    assert model.unseen == pytest.approx({"loss": unseen}, rel=0.05)
    scores = np.array([0.0, -10.0])
    variance = model.repeated(np.array([4.0, 1.0]), scores, "loss")
    np.testing.assert_allclose(variance, [4 * again, again + 100 * unseen], rtol=0.05)


def test_a_kind_that_was_not_repeated_is_taken_for_an_average_one():
    values = {"loss": 0.01, "elbo": 0.03}
    model = ErrorModel(Law(1.0), Law(1.0), again={"loss": 2.0}, unseen=values)
    scores, none = np.array([0.0, -10.0]), np.zeros(2)
    for kind, unseen in (("elbo", 0.03), ("loss region", 0.02)):
        found = model.variance(scores, Asked(3.0), np.ones(2), none, kind)
        np.testing.assert_allclose(found, [6, 6 + 100 * unseen])
    alone = ErrorModel(Law(1.0), Law(1.0))
    assert alone.variance(scores, Asked(3.0), np.ones(2), none) == pytest.approx([3, 3])


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
