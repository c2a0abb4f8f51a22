"""Paired tests against loops over scipy, and ceilings against simulated seeds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence import paired
from core.evidence.evaluation import reachable
from core.evidence.paired import bootstrap_lds, holm, paired_finding, paired_table
from core.evidence.tables import make_table
from core.presets import collection_config
from core.seeds import keyed_seed
from tests.helpers.toy_evidence import full_evidence


def test_resamples_are_those_of_a_loop(monkeypatch):
    """Samples and subsets are drawn again, both at once, the same for every method."""
    monkeypatch.setattr(paired, "RESAMPLES", 6)
    monkeypatch.setattr(paired, "CHUNK", 3)
    rng = np.random.default_rng(0)
    measured = rng.normal(size=(3, 7))
    predicted = {name: rng.normal(size=(3, 7)) for name in "ab"}
    found = bootstrap_lds(predicted, measured, seed=4)

    generator = np.random.default_rng(keyed_seed(4, "paired tests"))
    for start in (0, 3):
        samples = generator.integers(3, size=(3, 3, 1))[:, :, 0]
        subsets = generator.integers(7, size=(3, 1, 7))[:, 0]
        for i in range(3):
            for name, values in predicted.items():
                each = [
                    spearmanr(values[q, subsets[i]], measured[q, subsets[i]]).statistic
                    for q in samples[i]
                ]
                assert found[name][start + i] == pytest.approx(np.mean(each))


def test_holm_is_that_of_the_book():
    """0.01 x 3; then 0.03 x 2; then 0.04 x 1, raised to what came before."""
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.9, 0.8])), [1, 1])


def test_truth_beats_chance_and_its_twin_does_not():
    """And no order of the rows of scores changes a figure."""
    settings = collection_config("glyphs", "tiny")
    evidence = full_evidence(
        settings, 60, num_subsets=24, num_samples=8, noise=0.1, removals=False
    )
    table = paired_table(evidence, "loss")
    mixed = replace(evidence, scores=evidence.scores.sample(frac=1, random_state=0))
    again = paired_table(mixed, "loss")
    assert table.to_csv() == again.to_csv()
    np.testing.assert_array_equal(make_table(evidence, "paired", "loss"), table)

    pairs = table.set_index(["method", "other"])
    assert pairs.loc[("ekfac", "random"), "verdict"] == "better"
    assert pairs.loc[("ekfac", "random"), "holm"] < 0.01
    assert (table["difference"] >= 0).all() and (table["holm"] >= table["p"]).all()

    scores = evidence.scores[evidence.scores["method"] == "ekfac"]
    twin = scores.assign(method="kfac")
    both = replace(evidence, scores=pd.concat([scores, twin]))
    (row,) = paired_table(both, "loss").itertuples()
    assert row.difference == 0 and row.p == 1 and row.verdict == "cannot tell"
    text = paired_finding(paired_table(both, "loss"))
    assert "no paired test sets it apart" in text and "K-FAC (0.00 ± 0.00)" in text


def test_of_equal_methods_few_are_called_better(monkeypatch):
    """Of two equally good methods at most one in ten is told apart by p < 0.05."""
    monkeypatch.setattr(paired, "RESAMPLES", 200)
    rng, told = np.random.default_rng(3), 0
    for trial in range(60):
        truth = rng.normal(size=(10, 16))
        predicted = {name: truth + rng.normal(size=truth.shape) for name in "ab"}
        measured = truth + rng.normal(size=truth.shape)
        again = bootstrap_lds(predicted, measured, trial)
        apart = again["a"] - again["b"]
        told += 2 * min((apart <= 0).mean(), (apart >= 0).mean()) < 0.05
    assert told <= 6


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_the_most_a_predictor_can_reach_is_what_the_truth_reaches(seeds):
    """Costs of K seeds are one truth and K noises; the truth is the best predictor."""
    rng = np.random.default_rng(1)
    truth = rng.normal(size=200_000)
    runs = truth + 1.3 * rng.normal(size=(seeds + 1, truth.size))
    single = np.corrcoef(runs[0], runs[-1])[0, 1]
    most, error = reachable(single, 0.02, seeds)
    mean = runs[:seeds].mean(0)
    assert most == pytest.approx(np.corrcoef(truth, mean)[0, 1], abs=0.01)
    step = 1e-6
    slope = (reachable(single + step, 0, seeds)[0] - most) / step
    assert error == pytest.approx(0.02 * slope, rel=1e-3)
    assert np.isnan(reachable(-0.1, 0.02)).all()
