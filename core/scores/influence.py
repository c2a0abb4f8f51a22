"""Eq. 6: scores of all training examples on a query, and their standard errors.

A score is the inner product of Eq. 6 without the factor 1/N: positive where removing
the example raises the measured cost. The predicted change on removal is `score / N`.
Scores themselves are inner products in the Kronecker eigenbasis (`core.index.full`,
`core.index.sketch`); this file says how to read them.
"""

import numpy as np


def centred(scores: np.ndarray) -> np.ndarray:
    """Return scores (..., N) minus their mean over the training set.

    At the optimum the training gradients sum to zero, and so do the scores. Draws that
    are shared by all examples leave one common error; taking the mean away removes it,
    which matters for sums over groups (Spearman 0.89 instead of 0.55 between two sets
    of draws).
    """
    return scores - scores.mean(-1, keepdims=True)


def fold_statistics(fold_scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of scores over folds and the standard error of that mean.

    Args:
        fold_scores: Scores from F independent folds of draws, shape (F, ..., N).

    Raises:
        ValueError: If there are fewer than two folds: one estimate has no spread.
    """
    num_folds = len(fold_scores)
    if num_folds < 2:
        raise ValueError(
            "A standard error needs at least two folds of draws; there is one."
        )
    mean = fold_scores.mean(0)
    return mean, fold_scores.std(0, ddof=1) / num_folds**0.5


def split_reliability(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean over queries of the Spearman correlation of scores (Q, N)."""
    from scipy.stats import spearmanr  # slow to load, and no answer needs it

    return float(
        np.mean([spearmanr(a, b).statistic for a, b in zip(first, second, strict=True)])
    )


def top_overlap(scores: np.ndarray, exact: np.ndarray, count: int) -> float:
    """Return the mean share of the `count` largest of `exact` found in `scores` too."""
    shares = [
        len(set(np.argsort(-a)[:count]) & set(np.argsort(-b)[:count])) / count
        for a, b in zip(scores, exact, strict=True)
    ]
    return float(np.mean(shares))


def spearman_brown(reliability: float, factor: float) -> float:
    """Return the reliability expected of `factor` times as many draws."""
    return factor * reliability / (1 + (factor - 1) * reliability)


def draws_factor(reliability: float, wanted: float) -> float:
    """Return how many times as many draws give the wanted reliability.

    The inverse of `spearman_brown`; infinite where the reliability is not positive.
    """
    if reliability <= 0:
        return float("inf")
    return wanted * (1 - reliability) / (reliability * (1 - wanted))
