"""LDS and calibration: against scipy, on cases with a known answer, end to end."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.isotonic import IsotonicRegression

from core.evidence.evaluation import (
    CALIBRATION_FOLDS,
    CALIBRATION_SPLITS,
    calibrate,
    lds,
    mean_and_error,
    monotone_fit,
    predicted_changes,
    subset_error,
    without_top,
)
from core.measure.draws import keyed_generator, subset_mask, subset_masks
from core.scores.influence import centred
from core.seeds import keyed_seed
from tests.core.scores.test_influence import Ridge


@pytest.fixture
def rng():
    """Return seeded random numbers."""
    return np.random.default_rng(0)


def test_subsets_are_keyed_halves():
    """Each holds half; a subset depends on its number and the seed alone."""
    masks = subset_masks(101, 40, seed=3)
    assert (masks.sum(1) == 50).all()
    assert len(np.unique(masks, axis=0)) == 40
    np.testing.assert_array_equal(masks[7], subset_mask(101, 7, seed=3))
    assert (masks[7] != subset_mask(101, 7, seed=4)).any()
    # Every example is in about half of them: 5 standard deviations of a binomial.
    assert np.abs(masks.mean(0) - 0.5).max() < 5 * 0.5 / 40**0.5


def test_lds_is_spearman(rng):
    """Against scipy, with ties."""
    predicted = rng.integers(0, 6, (5, 30)).astype(float)
    measured = predicted + rng.normal(size=(5, 30)).round()
    expected = [
        spearmanr(a, b).statistic for a, b in zip(predicted, measured, strict=True)
    ]
    np.testing.assert_allclose(lds(predicted, measured), expected, rtol=1e-12)


def test_lds_of_true_changes_with_themselves_is_one(rng):
    """Also after any increasing map, which changes no order."""
    measured = rng.normal(size=(20, 32))
    np.testing.assert_allclose(lds(measured, measured), 1)
    np.testing.assert_allclose(lds(np.exp(3 * measured), measured), 1)


def test_lds_of_random_scores_is_zero_within_its_error(rng):
    """Scores that know nothing: the jackknife error covers the distance to zero."""
    masks = subset_masks(200, 32, seed=0)
    distances = []
    for _ in range(25):
        measured = predicted_changes(rng.normal(size=(20, 200)), masks)
        predicted = predicted_changes(rng.normal(size=(20, 200)), masks)
        mean, _ = mean_and_error(lds(predicted, measured))
        distances.append(mean / subset_error(predicted, measured))
    assert 0.7 < np.std(distances) < 1.4  # so the error is neither small nor large
    assert np.abs(np.mean(distances)) < 3 / 25**0.5


def test_the_subset_error_is_the_jackknife(rng):
    """Subset by subset; the order of subsets and of samples changes nothing."""
    predicted, measured = rng.normal(size=(2, 5, 12)).round(1)
    without = [
        np.mean([
            spearmanr(np.delete(a, m), np.delete(b, m)).statistic
            for a, b in zip(predicted, measured, strict=True)
        ])
        for m in range(12)
    ]
    deviations = np.array(without) - np.mean(without)
    expected = np.sqrt(11 / 12 * (deviations**2).sum())
    assert subset_error(predicted, measured) == pytest.approx(expected)
    columns, rows = rng.permutation(12), rng.permutation(5)
    mixed = (values[rows][:, columns] for values in (predicted, measured))
    assert subset_error(*mixed) == pytest.approx(expected)


def test_exact_linear_datamodels_are_predicted(rng):
    """Where the cost is a sum over the images kept, its terms predict it exactly."""
    masks, scores = subset_masks(50, 16, seed=1), rng.normal(size=(3, 50))
    cost = 7 - np.stack([scores[:, mask].sum(1) for mask in masks], 1) / 50
    predicted = predicted_changes(scores, masks)
    np.testing.assert_allclose(
        predicted - predicted.mean(1, keepdims=True),
        cost - cost.mean(1, keepdims=True),
    )


def test_scores_that_cannot_be_ranked_are_refused():
    """NaN, and scores of another number of images."""
    masks = subset_masks(10, 4, seed=0)
    with pytest.raises(ValueError, match="1 scores are not finite"):
        predicted_changes(np.array([[np.nan] + [0.0] * 9]), masks)
    with pytest.raises(ValueError, match="scores of 9 images, but the subsets are"):
        predicted_changes(np.zeros((1, 9)), masks)


def test_the_most_influential_are_left_out():
    """A tenth of ten is the one with the largest score."""
    kept = without_top(np.array([0.0, 3, -5, 1, 2, 0, 0, 0, 0, 0]), 0.1)
    assert kept.tolist() == [True, False] + [True] * 8


def test_a_monotone_fit_is_the_best_increasing_function(rng):
    """It is increasing, and no other step function on a grid has a smaller error."""
    x = np.sort(rng.normal(size=9))
    y = x + rng.normal(size=9)
    knots, values = monotone_fit(x, y)
    assert (np.diff(knots) > 0).all() and (np.diff(values) >= -1e-12).all()
    error = np.square(y - np.interp(x, knots, values)).sum()
    for _ in range(300):
        other = np.sort(rng.choice(y, 9))
        assert error <= np.square(y - other).sum() + 1e-12


def test_equal_predictions_get_their_mean():
    """So that the fit is a function, whatever the order of the points."""
    knots, values = monotone_fit(np.array([1.0, 0, 1]), np.array([4.0, 1, 2]))
    assert knots.tolist() == [0, 1] and values.tolist() == [1, 3]


def test_calibration_recovers_an_increasing_map(rng):
    """The map and the size of the noise around it are found, on unseen subsets."""
    predicted = rng.normal(size=(20, 200))
    measured = 5 + np.tanh(predicted) + 0.1 * rng.normal(size=predicted.shape)
    measured += rng.normal(size=(20, 1))  # a sample's own cost counts for nothing
    found = calibrate(predicted, measured)
    points = np.linspace(-1.5, 1.5, 7)
    np.testing.assert_allclose(found(points), np.tanh(points), atol=0.08)
    assert found.error == pytest.approx(0.1, rel=0.1)
    assert found.half_width == pytest.approx(1.645 * 0.1, rel=0.1)
    assert found.explained > 0.9


def test_calibration_of_noise_explains_nothing(rng):
    """Held-out error shows that a map of unrelated numbers is worth nothing."""
    found = calibrate(rng.normal(size=(20, 32)), rng.normal(size=(20, 32)))
    assert found.explained < 0.02


def test_explained_is_that_of_a_loop_over_splits_and_its_error_that_of_repeats(rng):
    """scikit-learn fits each split's map; sixty data sets tell what the error is."""
    shape = (6, 16)
    explained, errors = [], []
    for _ in range(60):
        predicted = rng.normal(size=shape)
        measured = 0.7 * predicted + rng.normal(size=shape)
        found = calibrate(predicted, measured)
        explained.append(found.explained)
        errors.append(found.explained_error)
    assert np.std(explained) == pytest.approx(np.mean(errors), rel=0.35)

    left = whole = 0
    for number in range(CALIBRATION_SPLITS):
        seed = keyed_seed(0, "calibration split", number)
        part = np.random.default_rng(seed).permutation(16) % CALIBRATION_FOLDS
        for fold in range(CALIBRATION_FOLDS):
            seen = part != fold
            x_mean = predicted[:, seen].mean(1, keepdims=True)
            y_mean = measured[:, seen].mean(1, keepdims=True)
            model = IsotonicRegression(out_of_bounds="clip")
            model.fit(
                (predicted[:, seen] - x_mean).ravel(),
                (measured[:, seen] - y_mean).ravel(),
            )
            change = measured[:, ~seen] - y_mean
            hit = model.predict((predicted[:, ~seen] - x_mean).ravel())
            left += np.square(change.ravel() - hit).sum()
            whole += np.square(change).sum()
    assert found.explained == pytest.approx(1 - left / whole, abs=0.01)


def test_calibration_needs_subsets_to_hold_out():
    """Seven are too few."""
    with pytest.raises(ValueError, match="7 retrained subsets are too few"):
        calibrate(np.zeros((2, 7)), np.zeros((2, 7)))


def test_ekfac_predicts_retraining_where_influence_is_exact():
    """A convex toy, end to end: halves retrained by a linear solve, LDS above 0.95."""
    ridge = Ridge(100)
    masks = subset_masks(100, 32, seed=0)
    full = ridge.optimum(torch.ones(100).double())
    halves = [ridge.optimum(torch.from_numpy(2.0 * mask)) for mask in masks]
    scores, measured = [], []
    for number in range(2):
        generator = keyed_generator(0, "toy query", number)
        ridge.query = torch.randn(1, 2, 2, generator=generator).double()
        ridge.set_weights(full)
        scores.append(centred(ridge.scores().numpy()))
        measured.append([ridge.measured(half) for half in halves])
    found = lds(predicted_changes(np.stack(scores), masks), np.array(measured))
    assert found.min() > 0.95
