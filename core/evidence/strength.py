"""What is each method worth at its default and at its best, damping and features?

A method that was tried at one damping, or with few features, was not tried at full
strength. The best is chosen on the halves that it is measured on, which flatters it, so
both stand in the table. Knows numpy and pandas; no model.
"""

import numpy as np
import pandas as pd

from core.evidence.evaluation import lds, mean_and_error
from core.evidence.names import method_name
from core.evidence.stored import (
    FIGURES,
    OWN,
    PREDICTED_BY,
    RANDOM,
    Evidence,
    default_lens,
    figures,
    same_lens,
)
from core.numbers import number

ALIKE = 0.005  # difference of LDS below which two digits would print nothing
COLUMNS = ("method", "features", "draws", "halves_agree", "whole_agrees")
COLUMNS += ("relative_damping", *FIGURES, "best_damping", "best_lds", "best_error")
COLUMNS += ("falls",)


def strength_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method, and per number of its features where it has any.

    `lds` is that of its own damping, `relative_damping` (times the mean eigenvalue of
    what is inverted); `best_lds` the largest of the sweep, with its damping and its
    error over samples. `falls` says on which side of the best the LDS falls: "both",
    "above" or "below" where the best is the end of the sweep, "flat" where it changes
    by less than 0.005; "" for a method without damping. `draws` are of each training
    image; `halves_agree` is the Spearman correlation of the scores by two random halves
    of the features, the mean over samples, and `whole_agrees` what that means for two
    projections to all of them (Spearman and Brown).
    """
    target, rows = evidence.target(measurement), []
    measured = target.to_numpy()
    for method, variant in _strengths(evidence):
        swept = sweep(evidence, method, variant, measurement, target)
        own = [(damping, found) for damping, default, found in swept if default]
        if not own:
            continue
        facts = evidence.recipe.get("features", {}).get(method, {}).get(variant, {})
        agree = facts.get("halves_agree", np.nan)
        row = {
            "method": method,
            "features": facts.get("features", np.nan),
            "draws": facts.get("draws", np.nan),
            "halves_agree": agree,
            "whole_agrees": 2 * agree / (1 + agree),
            "relative_damping": own[0][0],
        }
        row |= figures(own[0][1], measured)
        if len(swept) > 1:
            row |= _best(swept, measured)
        rows.append(row)
    table = pd.DataFrame(rows, columns=list(COLUMNS)).fillna({"falls": ""})
    return table.sort_values(["lds", "method"], ascending=False, ignore_index=True)


def _strengths(evidence: Evidence) -> list[tuple[str, str]]:
    """Return (method, variant) of every way that a method was tried."""
    known = evidence.recipe.get("features", {})
    methods = evidence.scores["method"].unique()
    return [
        (name, variant)
        for name in methods
        if name != RANDOM
        for variant in known.get(name, {"": {}})
    ]


def sweep(evidence, method, variant, measurement, target) -> list[tuple]:
    """Return (relative damping, whether it is the own one, predicted), by damping."""
    wanted = (PREDICTED_BY.get(measurement, measurement), OWN)
    known = evidence.recipe["dampings"].get(method)
    known = evidence.recipe.get("features", {}).get(method, {}).get(variant, known)
    found = []
    for lens in evidence.lenses():
        plain = default_lens(evidence, method, lens["measurement"])
        plain |= {"variant": variant}
        if lens["measurement"] not in wanted or not same_lens(lens, plain, "damping"):
            continue
        predicted = evidence.predicted(lens, target)
        if predicted is None:
            continue
        default, relative = bool(np.isnan(lens["damping"])), np.nan
        if known and "mean_eigenvalue" in known:
            damping = known["own"] if default else lens["damping"]
            relative = damping / known["mean_eigenvalue"]
        found.append((relative, default, predicted))
    return sorted(found, key=lambda one: one[0])


def _best(swept: list[tuple], measured: np.ndarray) -> dict:
    """Return the best of a sweep, and on which sides of it the LDS falls."""
    rows = [mean_and_error(lds(predicted, measured)) for _, _, predicted in swept]
    values = np.array([mean for mean, _ in rows])
    if not np.isfinite(values).any():
        return {}
    place = int(np.nanargmax(values))
    below = bool((values[:place] < values[place] - ALIKE).any())
    above = bool((values[place + 1 :] < values[place] - ALIKE).any())
    sides = {(True, True): "both", (True, False): "below", (False, True): "above"}
    return {
        "best_damping": swept[place][0],
        "best_lds": values[place],
        "best_error": rows[place][1],
        "falls": sides.get((below, above), "flat"),
    }


def best_of_sweep(evidence, method: str, measurement: str) -> dict:
    """Return `best_lds` and `best_damping` of a method as the app asks it; or {}."""
    target = evidence.target(measurement)
    swept = sweep(evidence, method, "", measurement, target)
    best = _best(swept, target.to_numpy()) if len(swept) > 1 else {}
    return {name: best[name] for name in ("best_lds", "best_damping") if best}


def strength_finding(table: pd.DataFrame) -> str:
    """Return which method gains most at its best, and which one leads."""
    rows = table[table["best_lds"].notna()]
    if rows.empty:
        return "No method was tried at more than one damping."
    gain = rows.loc[(rows["best_lds"] - rows["lds"]).idxmax()]
    top, best = rows.iloc[0], rows.loc[rows["best_lds"].idxmax()]
    return (
        f"{method_name(gain['method'])} gains most from another damping: "
        f"{number(gain['lds'])} becomes {number(gain['best_lds'])}. At their best, "
        f"{method_name(best['method'])} leads with {number(best['best_lds'])}; at "
        f"their own damping, {method_name(top['method'])} with {number(top['lds'])}."
    )
