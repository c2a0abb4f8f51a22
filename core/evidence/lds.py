"""How well do scores order random halves? The LDS of every method (Eq. 13)."""

import numpy as np
import pandas as pd

from core.evidence.evaluation import (
    FEWEST_HALVES,
    lds,
    size_of_changes,
    slope_error,
)
from core.evidence.names import method_name
from core.evidence.stored import (
    CEILING,
    FIGURES,
    RANDOM,
    REACHABLE,
    Evidence,
    ceiling,
    default_rows,
    figures,
    reachable_figures,
)
from core.evidence.strength import best_of_sweep
from core.numbers import number, plus_minus

MORE = ("reached", "slope", "slope_error", "best_lds", "best_damping")


def lds_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method: how well it ranks subsets by a measured cost (Eq. 13).

    `standard_error` is that of the mean over samples, as in the paper; `subset_error`
    is that of having few subsets; `scored` is the measurement that was scored, "own"
    for a method that knows only one. Two rows are not methods: "retraining" is one more
    training of each subset as the prediction, and "reachable" the most that any
    predictor can reach, which is more, as one training is half noise. `reached` is the
    share of that. `slope` is how many times a predicted change was measured, of use
    where scores have a unit. `best_lds` is the largest of the sweep over dampings, at
    `best_damping` times the mean eigenvalue; choosing it on these halves flatters it.
    """
    target = evidence.target(measurement)
    rows = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            scored = {"scored": lens["measurement"] or "own"}
            measured = target.to_numpy()
            row = figures(predicted, measured) | scored
            row["slope"] = size_of_changes(predicted, measured)
            row["slope_error"] = slope_error(predicted, measured)
            best = best_of_sweep(evidence, method, measurement)
            rows.append({"method": method} | row | best)
    rows.sort(key=lambda row: -row["lds"])
    held_out = ceiling(evidence, measurement)
    if held_out is not None:
        most = reachable_figures(evidence, measurement)
        for row in rows:
            row["reached"] = row["lds"] / most["lds"]
        rows.append({"method": CEILING, "scored": measurement} | held_out)
        rows.append({"method": REACHABLE, "scored": measurement} | most)
    return pd.DataFrame(rows, columns=["method", *FIGURES, "scored", *MORE])


def sample_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return the LDS of each sample under each method, as `lds_table` averages it."""
    target = evidence.target(measurement)
    parts = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            row = {"lds": lds(predicted, target.to_numpy())}
            table = pd.DataFrame(row, index=target.index).reset_index()
            parts.append(table.assign(method=method))
    columns = ["method", "sample_id", "lds"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


ERRORS = 2  # standard errors that tell two figures apart


TOO_FEW = "There are too few retrained models to rank anything by; train more."


def lds_of(row) -> str:
    """Return the LDS of a row with its error over samples."""
    return plus_minus(row["lds"], row["standard_error"])


def error_of(*rows) -> float:
    """Return the largest error of LDS rows, over samples or over subsets."""
    errors = [row[name] for row in rows for name in ("standard_error", "subset_error")]
    return float(np.nanmax(errors)) if np.isfinite(errors).any() else float("inf")


def are_apart(first, second) -> bool:
    """Return whether two LDS rows can be told apart."""
    return abs(first["lds"] - second["lds"]) > ERRORS * error_of(first, second)


def lds_finding(table: pd.DataFrame) -> str:
    """Return which method ranks subsets best, beside the ceiling and chance."""
    ranked = table[table["lds"].notna()]
    ceiling = ranked[ranked["method"] == CEILING]
    most = ranked[ranked["method"] == REACHABLE]
    methods = ranked[~ranked["method"].isin([CEILING, REACHABLE, RANDOM])]
    if methods.empty or methods["num_subsets"].max() < FEWEST_HALVES:
        return TOO_FEW
    best = methods.loc[methods["lds"].idxmax()]
    text = f"{method_name(best['method'])} ranks subsets with LDS {lds_of(best)}"
    others = methods[methods["method"].isin(["ekfac", "clip"])]
    others = others[others["method"] != best["method"]]
    for _, row in others.iterrows():
        near = "" if are_apart(best, row) else " (too near to tell apart)"
        text += f", {method_name(row['method'])} with {number(row['lds'])}{near}"
    if len(ceiling):
        text += f"; one more retraining reaches {lds_of(ceiling.iloc[0])}"
    if len(most):
        text += f", the most a predictor can reach is {lds_of(most.iloc[0])}"
    text += "; chance is 0."
    if abs(best["lds"]) <= ERRORS * error_of(best):
        text += " Even the best is within two standard errors of chance."
    if not len(ceiling):
        text += (
            " How much is possible was not measured: that takes halves that were "
            "trained with two seeds."
        )
    return text


def error_note(table: pd.DataFrame) -> str:
    """Return what the error bars of an LDS table are, and what they leave out."""
    rows = table[~table["method"].isin([CEILING, REACHABLE])]
    if rows.empty:
        return ""
    text = f"± is one standard error over {rows['num_samples'].max()} samples."
    if rows["subset_error"].notna().any():
        text += (
            f" All rows share the same {rows['num_subsets'].max()} retrained models, "
            f"which adds up to {number(rows['subset_error'].max())} (jackknife)."
        )
    few = table[table["method"] == CEILING]
    if len(few) and few["num_subsets"].iloc[0] < rows["num_subsets"].max():
        text += (
            f" Both ceilings rest on {few['num_subsets'].iloc[0]} of them, which adds "
            f"{number(few['subset_error'].iloc[0])} to one more retraining."
        )
    return text


def _difference(first, second) -> str:
    """Return whether two rows can be told apart, in words."""
    if are_apart(first, second):
        return f"a clear difference of {number(abs(second['lds'] - first['lds']))}"
    return "too near to tell apart"
