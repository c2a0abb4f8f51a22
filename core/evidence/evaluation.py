"""How far predicted changes can be trusted: LDS (Eq. 13) and calibration.

Plain arrays. `predicted` and `measured` are arrays (Q, M): a change of the cost, or the
cost itself, of each of Q samples in each of M models that were trained again on random
subsets. Knows no model and no file.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.seeds import keyed_seed

CALIBRATION_FOLDS = 4  # parts of the subsets; each is held out once
CALIBRATION_SPLITS = 20  # into such parts: one split alone can say 9% or 3%
FEWEST_HALVES = 2 * CALIBRATION_FOLDS  # retrained models below which nothing is said
COVERAGE = 0.9  # of the interval around a calibrated change


def predicted_changes(scores: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return the predicted change of each cost when only a subset is trained on.

    Args:
        scores: Times N, as everywhere; shape (Q, N).
        masks: The subsets trained on, bool, shape (M, N).

    Returns:
        The sum of the removed examples' scores over N, shape (Q, M).

    Raises:
        ValueError: If a score is not a number, or scores and masks differ in N.
    """
    if scores.shape[-1] != masks.shape[-1]:
        raise ValueError(
            f"There are scores of {scores.shape[-1]} images, but the subsets are of "
            f"{masks.shape[-1]}. Compute the scores again for this collection."
        )
    if not np.isfinite(scores).all():
        raise ValueError(
            f"{(~np.isfinite(scores)).sum()} scores are not finite, so nothing "
            "can be ranked. Compute them again with a larger damping."
        )
    return scores @ (~masks).T / scores.shape[-1]


def lds(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Return each sample's linear datamodelling score (Eq. 13), shape (Q,).

    The Spearman correlation over subsets of predicted and measured, both (Q, M); NaN
    where one of them is constant.
    """
    return rank_correlation(centred_ranks(predicted), centred_ranks(measured))


def centred_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks within each row less their mean, shape (Q, M)."""
    ranks = pd.DataFrame(values).rank(axis=1).to_numpy()
    return ranks - ranks.mean(-1, keepdims=True)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the correlation of each pair of rows of `centred_ranks`, shape (Q,)."""
    norms = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    with np.errstate(invalid="ignore"):
        return (first * second).sum(-1) / norms


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and its standard error, NaN for a single value."""
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    return float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)


def subset_error(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return the standard error of the mean LDS that comes from having few subsets.

    The jackknife: all samples share the subsets, so the spread over samples alone says
    too little.
    """
    return jackknife_error(lds_without_each(predicted, measured))


def lds_without_each(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Return the mean LDS over samples without each subset in turn, shape (M,)."""
    count = predicted.shape[-1]
    kept = ~np.eye(count, dtype=bool)  # all subsets but one, each in turn
    parts = (
        np.concatenate([values[:, one] for one in kept])
        for values in (predicted, measured)
    )
    return lds(*parts).reshape(count, -1).mean(1)


def jackknife_error(means: np.ndarray) -> float:
    """Return the standard error of a figure, given it without each of M parts."""
    return float(np.sqrt((len(means) - 1) * np.var(means)))


def size_of_changes(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return how many times a predicted change is measured, both (Q, M).

    The slope of measured on predicted changes, each relative to its sample's mean over
    the subsets: 1 where sizes are right, nearer to 0 where they are overestimated.
    """
    x, y = (values - values.mean(-1, keepdims=True) for values in (predicted, measured))
    total = np.square(x).sum()
    return float((x * y).sum() / total) if total > 0 else float("nan")


def slope_error(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return the standard error of `size_of_changes`, over samples and subsets.

    The jackknife over either, added in squares: all samples share the subsets, so
    neither alone says enough.
    """
    parts = []
    for axis, count in enumerate(predicted.shape):
        if count < 3:  # without one of two there is nothing to compare
            return float("nan")
        without = [
            size_of_changes(np.delete(predicted, i, axis), np.delete(measured, i, axis))
            for i in range(count)
        ]
        parts.append(jackknife_error(np.array(without)))
    return float(np.hypot(*parts))


def reachable(agreement: float, error: float, seeds: int = 1) -> tuple[float, float]:
    """Return the most that any predictor can reach, and its error.

    Measured is the mean over K seeds of cost = truth + noise. Two single seeds
    correlate by r, so the mean of K has the reliability K r / (1 + (K - 1) r)
    (Spearman and Brown), and the truth itself correlates with it by the square root.

    Args:
        agreement: r, how two single seeds correlate.
        error: Its standard error.
        seeds: K.

    Returns:
        NaN where the seeds do not agree at all.
    """
    if not agreement > 0:
        return float("nan"), float("nan")
    grown = 1 + (seeds - 1) * agreement
    most = (seeds * agreement / grown) ** 0.5
    slope = most / (2 * agreement * grown)  # d most / d r
    return most, slope * error


def without_top(scores: np.ndarray, fraction: float) -> np.ndarray:
    """Return the mask (N,) of all examples but the most influential fraction."""
    kept = np.ones(len(scores), dtype=bool)
    kept[np.argsort(-scores, kind="stable")[: round(fraction * len(scores))]] = False
    return kept


@dataclass(frozen=True)
class Calibration:
    """A monotone map from predicted to measured change, and how wrong it is.

    Both are relative to removing a random group of the same size. Everything but the
    knots was found on subsets that the map had not seen.

    Attributes:
        knots: Predicted changes, ascending, shape (K,).
        values: The change to expect at each knot, shape (K,).
        error: Root mean square of what is left of the measured change.
        spread: The same without any prediction: that of the measured change itself.
        half_width: Half of the interval that holds nine of ten measured changes.
        explained_error: Standard error of `explained`, over the subsets.
    """

    knots: np.ndarray
    values: np.ndarray
    error: float
    spread: float
    half_width: float
    explained_error: float = float("nan")

    @property
    def explained(self) -> float:
        """Share of the variance of measured changes that is explained; may be < 0."""
        return 1 - (self.error / self.spread) ** 2

    def __call__(self, predicted: np.ndarray) -> np.ndarray:
        """Return the change to expect; beyond the outer knots that of the knots."""
        return np.interp(predicted, self.knots, self.values)


def monotone_fit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the steps of the isotonic regression of y on x.

    Equal x are averaged first, so the fit is a function.
    """
    # A page that shows an LDS beside its scores need not wait for scipy.
    from scipy.optimize import isotonic_regression

    knots, owner, counts = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(owner, y) / counts
    fitted = isotonic_regression(means, weights=counts)
    steps = fitted.blocks
    ends = np.unique(np.concatenate([steps[:-1], steps[1:] - 1]))
    return knots[ends], fitted.x[ends]


def calibrate(predicted: np.ndarray, measured: np.ndarray) -> Calibration:
    """Return the monotone map from predicted to measured changes of the cost, (Q, M).

    Raises:
        ValueError: If there are too few subsets to hold some out.
    """
    count = predicted.shape[-1]
    if count < FEWEST_HALVES:
        raise ValueError(
            f"{count} retrained subsets are too few to calibrate on; it takes "
            f"{FEWEST_HALVES}. Train more: `python -m precompute retrain`."
        )
    misses, changes = [], []
    for number in range(CALIBRATION_SPLITS):
        held_out = _held_out(predicted, measured, number)
        misses.append(held_out[0])
        changes.append(held_out[1])
    miss, change = np.stack(misses), np.stack(changes)  # (splits, Q, M)
    left, whole = (np.square(values).mean((0, 1)) for values in (miss, change))
    share = left.mean() / whole.mean()
    x = predicted - predicted.mean(-1, keepdims=True)
    y = measured - measured.mean(-1, keepdims=True)
    return Calibration(
        *monotone_fit(x.ravel(), y.ravel()),
        error=float(np.sqrt(left.mean())),
        spread=float(np.sqrt(whole.mean())),
        half_width=float(np.quantile(np.abs(miss), COVERAGE)),
        explained_error=float(
            np.std(left - share * whole, ddof=1) / whole.mean() / count**0.5
        ),
    )


def _held_out(
    predicted: np.ndarray, measured: np.ndarray, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a map misses on subsets it has not seen, and their changes, (Q, M).

    Args:
        predicted: Shape (Q, M).
        measured: Shape (Q, M).
        number: Of the split into `CALIBRATION_FOLDS` parts, each held out once.
    """
    count = predicted.shape[-1]
    seed = keyed_seed(0, "calibration split", number)
    part = np.random.default_rng(seed).permutation(count) % CALIBRATION_FOLDS
    miss, changes = np.empty_like(measured, dtype=float), np.empty_like(measured)
    for fold in range(CALIBRATION_FOLDS):
        held_out = part == fold
        x, y = predicted[:, ~held_out], measured[:, ~held_out]
        x_mean, y_mean = x.mean(-1, keepdims=True), y.mean(-1, keepdims=True)
        fit = monotone_fit((x - x_mean).ravel(), (y - y_mean).ravel())
        change = measured[:, held_out] - y_mean
        changes[:, held_out] = change
        miss[:, held_out] = change - np.interp(predicted[:, held_out] - x_mean, *fit)
    return miss, changes
