"""Which damping orders random halves best?"""

import numpy as np
import pandas as pd

from core.evidence.lds import are_apart
from core.evidence.names import method_name
from core.evidence.stored import (
    FIGURES,
    PREDICTED_BY,
    Evidence,
    default_lens,
    figures,
    same_lens,
)
from core.files.texts import minus
from core.numbers import number


def damping_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method and damping; `default` marks the method's own.

    `relative` is the damping over the mean eigenvalue of what is inverted.
    """
    target, rows = evidence.target(measurement), []
    swept = evidence.scores[evidence.scores["damping"].notna()]["method"].unique()
    for lens in evidence.lenses():
        scored = lens["measurement"] and PREDICTED_BY.get(measurement, measurement)
        plain = default_lens(evidence, lens["method"], scored)
        if lens["method"] not in swept or not same_lens(lens, plain, "damping"):
            continue
        predicted = evidence.predicted(lens, target)
        if predicted is None:
            continue
        default = bool(np.isnan(lens["damping"]))
        known = evidence.recipe["dampings"][lens["method"]]
        damping = known["own"] if default else lens["damping"]
        facts = {
            "method": lens["method"],
            "damping": damping,
            "relative": damping / known["mean_eigenvalue"],
            "default": default,
        }
        rows.append(facts | figures(predicted, target.to_numpy()))
    columns = ["method", "damping", "relative", "default", *FIGURES]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["method", "damping"], ignore_index=True)


def damping_finding(table: pd.DataFrame) -> str:
    """Return what each method would gain by another damping."""
    parts, gains = [], False
    for method, rows in table[table["lds"].notna()].groupby("method", sort=False):
        own = rows[rows["default"]]
        if own.empty:
            continue
        own, best = own.iloc[0], rows.loc[rows["lds"].idxmax()]
        name = method_name(method)
        gain = best["lds"] - own["lds"]
        if gain < 0.005:  # what two digits would print as nothing
            parts.append(f"{name} ranks best at its own damping ({number(own['lds'])})")
            continue
        gains = True
        times = minus(f"{best['relative']:.2g}")
        far = "more" if are_apart(own, best) else "no more"
        parts.append(
            f"{name} would gain {number(gain)} at {times} times the mean eigenvalue, "
            f"which is {far} than two standard errors"
        )
    if not parts:
        return "No damping was varied."
    text = "; ".join(parts) + "."
    if gains:
        text += " The best was picked on these same subsets, which flatters it."
    return text
