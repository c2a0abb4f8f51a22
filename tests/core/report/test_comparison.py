"""How several answers are laid side by side."""

import numpy as np
import pytest

from core.explorer.explorer import Answer, Lens
from core.report import comparison


def answer(scores):
    scores = np.asarray(scores, float)
    return Answer(
        Lens(), np.arange(len(scores)), scores, np.full(len(scores), np.nan), "", 0.0
    )


def test_agreement_compares_every_pair_once_and_is_symmetric():
    """Equal, reversed and half-equal orders, checked by hand."""
    answers = [answer([4, 3, 2, 1]), answer([1, 2, 3, 4]), answer([4, 1, 2, 3])]
    first_two = comparison.agreement(answers, comparison.shared_among_first(2))
    np.testing.assert_array_equal(first_two, [[2, 0, 1], [0, 2, 1], [1, 1, 2]])
    order = comparison.agreement(answers, comparison.COMPARISONS["Whole order"])
    np.testing.assert_allclose(order, order.T)
    np.testing.assert_allclose(np.diag(order), 1)
    assert order[0, 1] == pytest.approx(-1)


def test_distribution_counts_every_picture_once_and_ignores_units():
    """Each lens's images add up to N; a factor and a shift change nothing."""
    scores = np.random.default_rng(0).normal(size=500)
    frame = comparison.distribution({"a": scores, "b": 1000 * scores + 7})
    assert (frame.groupby("lens")["images"].sum() == 500).all()
    a, b = (frame[frame["lens"] == name]["images"].to_numpy() for name in "ab")
    assert np.abs(a - b).sum() <= 4  # float error may move a score over an edge


def test_equal_scores_have_a_distribution():
    frame = comparison.distribution({"a": np.zeros(5)})
    assert frame["images"].sum() == 5


@pytest.mark.parametrize("size", [10, 4000])
def test_scatter_keeps_the_extremes_of_both_lenses(size):
    x, y = np.random.default_rng(1).normal(size=(2, size))
    places = comparison.scatter_positions(x, y, most=400)
    assert len(places) == min(size, 400)
    assert len(np.unique(places)) == len(places)
    assert {x.argmax(), x.argmin(), y.argmax(), y.argmin()} <= set(places)


def test_strongest_over_bands_are_those_of_the_whole():
    """Bands add up: the order is that of their sum."""
    scores = np.random.default_rng(2).normal(size=(4, 30))
    places = comparison.strongest_over_bands(scores, 5)
    whole = scores.sum(0)
    assert whole[places[0]] == whole.max()
    assert (np.diff(whole[places]) <= 0).all()


def test_each_band_has_its_own_top():
    tops = comparison.band_tops(np.array([[1.0, 3, 2], [9, 0, 5]]), 2)
    np.testing.assert_array_equal(tops, [[1, 2], [0, 2]])
    assert comparison.band_names([0, 10, 30]) == ["0–10", "10–30"]
    frame = comparison.band_curve([0, 10, 30], np.array([1, 2]), np.array([3, 4]))
    assert frame.to_numpy().tolist() == [[0, 10, 1, 3], [10, 30, 2, 4]]
