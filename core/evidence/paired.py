"""Does one method rank subsets better than another? Paired tests.

Two methods are compared on the same samples and the same retrained models, so what both
share cancels. Samples *and* subsets are drawn again together (a crossed bootstrap): an
error over the samples alone takes the models as given, though all samples share them.
Knows numpy and pandas; no model.
"""

from itertools import combinations

import numpy as np
import pandas as pd

from core.evidence.evaluation import centred_ranks, lds, rank_correlation
from core.evidence.names import method_name
from core.evidence.stored import FEWEST, RANDOM, Evidence, default_rows
from core.numbers import plus_minus
from core.seeds import keyed_seed

RESAMPLES = 4000  # of samples and subsets together
LEVEL = 0.05  # of a verdict, after Holm's correction
COLUMNS = ("method", "other", "difference", "standard_error", "p", "holm", "verdict")
NEAREST = 3  # rivals that a sentence names
CHUNK = 100  # resamples at a time: 25 MB at 20 samples and 32 subsets


def bootstrap_lds(
    predicted: dict[str, np.ndarray], measured: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Return each method's mean LDS on the same resamples, (RESAMPLES,) each.

    Samples and subsets are drawn with replacement, independently of each other. All
    methods see the same draws, so that differences are paired.

    Args:
        predicted: Predicted changes by method, (Q, M) each.
        measured: Shape (Q, M).
        seed: Of the draws.
    """
    generator = np.random.default_rng(keyed_seed(seed, "paired tests"))
    num_samples, num_subsets = measured.shape
    found = {method: [] for method in predicted}
    for _ in range(RESAMPLES // CHUNK):
        samples = generator.integers(num_samples, size=(CHUNK, num_samples, 1))
        subsets = generator.integers(num_subsets, size=(CHUNK, 1, num_subsets))
        target = centred_ranks(measured[samples, subsets].reshape(-1, num_subsets))
        for method, values in predicted.items():
            again = values[samples, subsets].reshape(-1, num_subsets)
            each = rank_correlation(centred_ranks(again), target)
            each = each.reshape(CHUNK, num_samples)
            found[method].append(np.nanmean(each, axis=1))
    return {method: np.concatenate(parts) for method, parts in found.items()}


def holm(p: np.ndarray) -> np.ndarray:
    """Return p-values (K,) corrected for K tests by Holm's step-down method."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(steps)
    corrected[order] = np.minimum(steps, 1)
    return corrected


def paired_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per pair of methods: is the first one's LDS larger than the other's?

    `difference` is that of the mean LDS, the better method first; `standard_error` and
    `p` (two-sided) come from `bootstrap_lds`; `holm` is p corrected for all methods
    that the first one is compared with; `verdict` says "better" below `LEVEL`, "cannot
    tell" otherwise.
    """
    target = evidence.target(measurement)
    predicted = {
        method: found
        for method, lens in default_rows(evidence, measurement)
        if (found := evidence.predicted(lens, target)) is not None
    }
    measured = target.to_numpy()
    if measured.shape[1] < FEWEST or len(predicted) < 2:
        return pd.DataFrame(columns=list(COLUMNS))
    means = {name: lds(found, measured).mean() for name, found in predicted.items()}
    ranked = sorted(
        (name for name in means if np.isfinite(means[name])),
        key=lambda name: (-means[name], name),
    )
    predicted = {name: predicted[name] for name in ranked}  # without constant ones
    again = bootstrap_lds(predicted, measured, evidence.recipe.get("seed", 0))
    rows = []
    for first, other in combinations(ranked, 2):
        apart = again[first] - again[other]
        apart = apart[np.isfinite(apart)]
        # One more on each side: a test by resampling never has p = 0.
        tail = 1 + min((apart <= 0).sum(), (apart >= 0).sum())
        rows.append({
            "method": first,
            "other": other,
            "difference": means[first] - means[other],
            "standard_error": apart.std(ddof=1),
            "p": min(1.0, 2 * tail / (len(apart) + 1)),
        })
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    family = table.groupby("method")["p"]
    table["holm"] = family.transform(lambda p: holm(p.to_numpy(dtype=float)))
    table["verdict"] = np.where(table["holm"] < LEVEL, "better", "cannot tell")
    return table


def paired_finding(table: pd.DataFrame) -> str:
    """Return which methods the best one beats beyond doubt, and which not."""
    table = table[~table[["method", "other"]].isin([RANDOM]).any(axis=1)]
    if table.empty:
        return "There are too few methods or retrained models to compare."
    best = table["method"].iloc[0]
    rows = table[table["method"] == best]
    beaten = [method_name(name) for name in rows["other"][rows["verdict"] == "better"]]
    name = method_name(best)
    text = f"{name} has the highest LDS, but no paired test sets it apart."
    if beaten:
        text = f"{name} ranks better than {', '.join(beaten)} (paired, p < {LEVEL})."
    near = rows[rows["verdict"] != "better"]
    if len(near):
        differences = ", ".join(
            f"{method_name(row.other)} "
            f"({plus_minus(row.difference, row.standard_error)})"
            for row in near.head(NEAREST).itertuples()
        )
        more = len(near) - NEAREST
        text += f" The test cannot tell it from {differences}"
        text += f" and {more} more." if more > 0 else "."
    return text
