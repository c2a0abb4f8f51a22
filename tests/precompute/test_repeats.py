"""Repeats renew draws and nothing else, and errors are held against them."""

import numpy as np
import pytest

from core.explorer.explorer import Lens, open_explorer
from core.presets import collection_config
from core.scores.errors import stood
from precompute.stages.errors import HELD_OUT
from precompute.stages.repeats import (
    Repeats,
    Trial,
    affordable,
    kind_of,
    measure_coverage,
)
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
    assert repeats.agreement(1, [0, 1]) == {}  # one has nothing to agree with

    monkeypatch.setattr(type(explorer.engine), "question", None)
    again = Repeats(explorer, tmp_path, [question], everyone)
    np.testing.assert_array_equal(again.products(0), repeats.products(0))


def test_what_was_found_is_kept_beside_the_collection(tiny_collection, tmp_path):
    """Of the ten that are shown and of random images, as the page Collections says."""
    (tmp_path / "copy").mkdir()
    root = linked_copy(tiny_collection, tmp_path / "copy")
    trial = Trial(queries=2, repeats=2)
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
