"""Why are predicted sizes off? The slope of measured on predicted, by what was varied.

A slope of 1 is the right size, of 0.01 a hundred times too large. Order and size are
apart: a damping can mend one and not the other. Knows numpy and pandas; no model.
"""

import numpy as np
import pandas as pd

from core.evidence.evaluation import (
    jackknife_error,
    lds,
    size_of_changes,
    slope_error,
    without_top,
)
from core.evidence.groups import group_table
from core.evidence.names import method_name
from core.evidence.removal import removal_table
from core.evidence.stored import Evidence, default_lens, default_rows, same_lens
from core.evidence.strength import sweep
from core.methods import METHODS
from core.numbers import number

COLUMNS = ("varied", "setting", "method", "slope", "slope_error", "lds", "models")
HALF = "a random half"


def sizes_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how many times predicted changes were measured, a row per setting.

    `varied` is "method" (all curvatures, at their own damping), "damping" (`setting`
    times the mean eigenvalue), "draws" (of the sample's gradient) and "group" (what was
    left out: a random half, whole groups, the images that matter most). Of a half,
    changes are taken about each sample's mean over halves, so that centring scores
    changes nothing; of groups and of what matters most, they are beyond a random
    removal. Methods whose scores predict no size are left out.
    """
    target = evidence.target(measurement)
    measured, rows = target.to_numpy(), []

    def add(varied, setting, method, predicted) -> None:
        rows.append({
            "varied": varied,
            "setting": setting,
            "method": method,
            "slope": size_of_changes(predicted, measured),
            "slope_error": slope_error(predicted, measured),
            "lds": float(np.mean(lds(predicted, measured))),
            "models": measured.shape[1],
        })

    for method, lens in default_rows(evidence, measurement):
        if METHODS.get(method) is None or METHODS[method].kind != "influence":
            continue
        predicted = evidence.predicted(lens, target)
        if predicted is None:
            continue
        add("method", "own damping", method, predicted)
        for relative, _, one in sweep(evidence, method, "", measurement, target):
            if np.isfinite(relative):
                add("damping", f"{relative:.2g}", method, one)
        if method == "ekfac":
            add("group", HALF, method, predicted)
            for other in evidence.lenses():
                plain = default_lens(evidence, method, lens["measurement"])
                if same_lens(other, plain, "num_draws"):
                    one = evidence.predicted(other, target)
                    add("draws", str(other["num_draws"]), method, one)
    rows += _of_groups(evidence, measurement)
    rows += _of_removals(evidence, measurement)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def ratio(predicted: np.ndarray, measured: np.ndarray) -> tuple[float, float]:
    """Return the slope through zero of measured on predicted, and its error.

    The error is the jackknife over the entries.
    """

    def slope(x, y) -> float:
        return float((x * y).sum() / np.square(x).sum())

    whole = slope(predicted, measured)
    if len(predicted) < 3:
        return whole, float("nan")
    each = [
        slope(np.delete(predicted, i), np.delete(measured, i))
        for i in range(len(predicted))
    ]
    return whole, jackknife_error(np.array(each))


def _of_groups(evidence: Evidence, measurement: str) -> list[dict]:
    """Return rows of models without a whole group, by EK-FAC."""
    table = group_table(evidence, measurement)
    table = table[table["method"] == "ekfac"]
    if table.empty:
        return []
    slope, error = ratio(*(table[c].to_numpy() for c in ("predicted", "measured")))
    row = {"varied": "group", "setting": "a whole group", "method": "ekfac"}
    row |= {"slope": slope, "slope_error": error, "lds": np.nan}
    return [row | {"models": table["group"].nunique()}]


def _of_removals(evidence: Evidence, measurement: str) -> list[dict]:
    """Return rows of models without the images that matter most, by each influence."""
    table = removal_table(evidence, measurement)
    table, rows = table[table["sample_id"] >= 0], []
    for (method, fraction), part in table.groupby(["method", "fraction"]):
        known = METHODS.get(method)
        if known is None or known.kind != "influence":
            continue
        scores = evidence.default_scores(method, measurement)
        chosen = evidence.default_scores(method, "loss")  # by which they were removed
        if scores is None or chosen is None:
            continue
        predicted = np.array([
            scores[i][~without_top(chosen[i], fraction)].sum() / len(scores[i])
            for i in part["sample_id"]
        ])
        slope, error = ratio(predicted, part["excess"].to_numpy())
        row = {"varied": "group", "setting": f"the {fraction:.0%} that matter most"}
        row |= {"method": method, "slope": slope, "slope_error": error}
        rows.append(row | {"lds": np.nan, "models": len(part)})
    return rows


def sizes_finding(table: pd.DataFrame, method: str = "ekfac") -> str:
    """Return how far sizes are off, and what makes them nearer."""
    rows = table[table["method"] == method].set_index("varied")
    if rows.empty or "method" not in rows.index:
        return ""
    own = rows.loc[["method"]].iloc[0]
    if not own["slope"] > 0:
        return f"{method_name(method)} predicts sizes of the wrong sign."
    text = f"{method_name(method)} predicts {1 / own['slope']:.0f} times too much. "
    if "damping" in rows.index:
        swept = rows.loc[["damping"]]
        best = swept.iloc[(swept["slope"] - 1).abs().argmin()]
        text += (
            f"A damping of {best['setting']} times the mean eigenvalue makes it "
            f"{1 / best['slope']:.2g} times, with LDS {number(best['lds'])} in place "
            f"of {number(own['lds'])}. "
        )
    groups = rows.loc[["group"]] if "group" in rows.index else rows.iloc[:0]
    groups = groups[groups["setting"] != HALF]
    parts = [
        f"{1 / row.slope:.2g} times of {row.setting}" for row in groups.itertuples()
    ]
    return f"{text}It is {', '.join(parts)}." if parts else text.strip()
