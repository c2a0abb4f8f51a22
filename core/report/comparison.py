"""How several answers are laid side by side: agreement, distributions, noise bands.

Arrays and data frames in, arrays and data frames out; knows neither pages nor figures.
All answers are about the same training examples in the same order.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from core.report.reading import overlap, rank_correlation


def agreement(answers: list, compare: Callable) -> np.ndarray:
    """Return a symmetric comparison of all pairs of answers, shape (A, A).

    Args:
        answers: A answers.
        compare: Called with two answers, e.g. `rank_correlation`.
    """
    table = np.empty((len(answers), len(answers)))
    for row, first in enumerate(answers):
        for column, second in enumerate(answers[: row + 1]):
            table[row, column] = table[column, row] = compare(first, second)
    return table


def shared_among_first(count: int) -> Callable:
    """Return the comparison "how many images are among the first `count` of both"."""
    return lambda first, second: overlap(first, second, count)


# How the order of two answers is compared, by the words on the page.
COMPARISONS = {
    "First 10": shared_among_first(10),
    "First 50": shared_among_first(50),
    "Whole order": rank_correlation,
}


def distribution(answers: dict[str, np.ndarray], num_bins: int = 40) -> pd.DataFrame:
    """Return how the scores of several lenses are spread, on one axis.

    Lenses have different units, so each is measured from its own median in its own
    standard deviations.

    Args:
        answers: Scores of shape (N,) by the name of their lens.
        num_bins: Bins between the smallest and the largest value of all.

    Returns:
        Columns `lens`, `place` (middle of the bin) and `images`, the number in it;
        one row per lens and bin.
    """
    scaled = {}
    for name, scores in answers.items():
        spread = float(scores.std())
        scaled[name] = (scores - np.median(scores)) / (spread if spread > 0 else 1.0)
    low = min(values.min() for values in scaled.values())
    high = max(values.max() for values in scaled.values())
    edges = np.linspace(low, high if high > low else low + 1, num_bins + 1)
    frames = [
        pd.DataFrame({
            "lens": name,
            "place": (edges[:-1] + edges[1:]) / 2,
            "images": np.histogram(values, edges)[0],
        })
        for name, values in scaled.items()
    ]
    return pd.concat(frames, ignore_index=True)


def scatter_positions(x: np.ndarray, y: np.ndarray, most: int = 1500) -> np.ndarray:
    """Return the places to draw when there are too many images for a figure.

    The extremes of either score are always among them; the rest are evenly spaced.

    Args:
        x: Scores under one lens, shape (N,).
        y: Scores under another, shape (N,).
        most: How many places to return at most; at least 8.

    Returns:
        Sorted places, shape (min(N, most),) or fewer.
    """
    if len(x) <= most:
        return np.arange(len(x))
    ends = most // 8
    orders = (np.argsort(scores, kind="stable") for scores in (x, y))
    extremes = np.unique([np.r_[order[:ends], order[-ends:]] for order in orders])
    rest = np.setdiff1d(np.arange(len(x)), extremes)
    step = np.linspace(0, len(rest) - 1, most - len(extremes)).astype(int)
    return np.union1d(extremes, rest[step])


def band_names(edges: list[int]) -> list[str]:
    """Return what to call the timestep bands between edges, e.g. "0–250"."""
    return [f"{a}–{b}" for a, b in zip(edges[:-1], edges[1:], strict=True)]


def band_curve(
    edges: list[int], scores: np.ndarray, standard_errors: np.ndarray
) -> pd.DataFrame:
    """Return one training image's influence over the timestep bands.

    Args:
        edges: B + 1 timesteps.
        scores: Shape (B,).
        standard_errors: Shape (B,).

    Returns:
        Columns `low`, `high`, `value` and `error`, one row per band.
    """
    return pd.DataFrame({
        "low": edges[:-1],
        "high": edges[1:],
        "value": scores,
        "error": standard_errors,
    })


def band_tops(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the largest scores of every band, shape (B, count)."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def strongest_over_bands(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the places that matter most over all bands together, shape (count,).

    The bands sum to the whole, so these are the most influential of the whole.

    Args:
        scores: Shape (B, N).
        count: How many places.
    """
    return np.argsort(-scores.sum(0), kind="stable")[:count]
