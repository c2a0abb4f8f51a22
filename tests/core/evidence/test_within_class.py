"""What a method knows beyond the class of an image."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence.stored import Evidence
from core.evidence.within_class import (
    class_means,
    within_class_finding,
    within_class_table,
)
from core.measure.draws import subset_masks
from tests.helpers.toy_evidence import RECIPE, cost_rows, scored

N, M, Q = 60, 16, 4
CLASSES = pd.Series(np.random.default_rng(5).choice(["bag", "shoe", "hat"], N))


def evidence_of(scores, true) -> Evidence:
    """Return evidence in which costs are what true scores predict."""
    masks = subset_masks(N, M, 0)
    costs = true @ (~masks).T / N
    measured = cost_rows(costs, "half")
    return Evidence(RECIPE | {"num_examples": N}, masks, measured, scores)


@pytest.fixture(scope="module")
def parts():
    """Return what a class tells of scores and what an image tells beyond it."""
    g = np.random.default_rng(0)
    within = g.normal(size=(Q, N))
    between = class_means(g.normal(size=(Q, N)) * 20, CLASSES.to_numpy())
    return within - class_means(within, CLASSES.to_numpy()), between


def test_means_of_classes_are_those_of_pandas(parts):
    """And taking them away twice takes nothing more away."""
    scores = sum(parts)
    wanted = pd.DataFrame(scores.T).groupby(CLASSES).transform("mean").T
    np.testing.assert_allclose(class_means(scores, CLASSES.to_numpy()), wanted)
    np.testing.assert_allclose(class_means(parts[0], CLASSES.to_numpy()), 0, atol=1e-12)


def test_scores_that_know_the_class_alone_know_nothing_within(parts):
    """Against scipy; and scores that know images alone lose nothing."""
    within, between = parts
    both = pd.concat([scored("ekfac", within + between), scored("trak", within)])
    evidence = evidence_of(both, within)
    table = within_class_table(evidence, "loss", CLASSES).set_index("method")
    removed = ~evidence.masks
    each = [
        spearmanr(row @ removed.T, own @ removed.T)[0]
        for row, own in zip(within + between, within, strict=True)
    ]
    assert table.at["ekfac", "lds"] == pytest.approx(np.mean(each), abs=1e-6)
    assert table.at["ekfac", "lds"] < 0.9
    for method in ("ekfac", "trak"):
        assert table.at[method, "within"] == pytest.approx(1, abs=1e-3)
    assert "with LDS 1.00" in within_class_finding(table.reset_index())
    only = evidence_of(scored("ekfac", between), within + between)
    table = within_class_table(only, "loss", CLASSES)
    assert table["between"][0] == pytest.approx(table["lds"][0])


def test_one_class_is_refused(parts):
    """Nothing can be told apart; and classes of other images are not taken."""
    evidence = evidence_of(scored("ekfac", parts[0]), parts[0])
    for classes in (CLASSES.map(lambda name: "one"), CLASSES[:5]):
        with pytest.raises(ValueError, match="about 60 images. Choose a column"):
            within_class_table(evidence, "loss", classes)
    bands = replace(evidence, scores=evidence.scores.assign(method="random"))
    assert within_class_finding(within_class_table(bands, "loss", CLASSES)) == ""
