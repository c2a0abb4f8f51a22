"""Does a method know more of groups than the sample's label? A baseline that reads it.

A model that is told a house draws in that house's style, so naming the sample's own
group is right without any score. What a method adds shows among the *other* groups.
Errors are over groups: all samples of one group share its retrained models, and so do
not count as many. Knows numpy and pandas; no model.
"""

import numpy as np
import pandas as pd

from core.evidence.evaluation import lds, mean_and_error
from core.evidence.groups import LARGEST, by_sample, group_table
from core.evidence.names import method_name
from core.evidence.stored import Evidence
from core.numbers import plus_minus

LABEL = "label"  # in place of a method: the group of the sample's own label
FEWEST_OTHERS = 3  # groups that can be ranked
COLUMNS = ("method", "first", "first_error", "order", "order_error", "others")
COLUMNS += ("others_error", "num_samples", "num_groups")


def own_group_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method and one for the label, of models without a whole group.

    `first` is the share of samples for which the group that is predicted to matter most
    did; `order` the mean Spearman correlation over the groups; `others` the same
    without the sample's own group, NaN for fewer than three others and for the label,
    which tells nothing of them. Each error is over groups: the mean of the samples of
    one group is one value. Samples of no group's class are left out.
    """
    table = group_table(evidence, measurement)
    table = table[table["share"].notna()]
    rows = []
    for method, part in table.groupby("method", sort=False):
        predicted, measured, share = by_sample(part)
        known = share.max(1) > LARGEST
        if known.any():
            values = predicted[known], measured[known], share[known]
            rows.append({"method": method} | compared(*values))
    if rows:
        values = measured[known], share[known]
        label = compared(values[1], *values) | {"others": np.nan}
        rows.append({"method": LABEL} | label | {"others_error": np.nan})
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    return found.sort_values("first", ascending=False, ignore_index=True)


def compared(predicted: np.ndarray, measured: np.ndarray, share: np.ndarray) -> dict:
    """Return how predictions of Q samples about G groups hold, all arrays (Q, G).

    Args:
        predicted: Change without the group.
        measured: The same, by retraining.
        share: How much of a sample's class is in the group.
    """
    own = share.argmax(1)
    hit = predicted.argmax(1) == measured.argmax(1)
    figures = {"first": hit.astype(float), "order": lds(predicted, measured)}
    if measured.shape[1] > FEWEST_OTHERS:
        others = np.arange(measured.shape[1]) != own[:, None]
        shape = (len(own), -1)
        pair = predicted[others].reshape(shape), measured[others].reshape(shape)
        figures["others"] = lds(*pair)
    found = {"num_samples": len(own), "num_groups": len(np.unique(own))}
    for name in ("first", "order", "others"):
        values = figures.get(name, np.full(len(own), np.nan))
        mean, error = over_groups(values, own)
        found |= {name: mean, f"{name}_error": error}
    return found


def over_groups(values: np.ndarray, group: np.ndarray) -> tuple[float, float]:
    """Return the mean over groups of their samples' mean, and its error over groups."""
    known = np.isfinite(values)
    if not known.any():
        return float("nan"), float("nan")
    means = pd.Series(values[known]).groupby(group[known]).mean().to_numpy()
    return mean_and_error(means)


def own_group_finding(table: pd.DataFrame) -> str:
    """Return what a method knows that the label does not, whichever way it is."""
    rows = table.set_index("method")
    if LABEL not in rows.index or len(rows) < 2:
        return ""
    label, best = rows.loc[LABEL], table[table["method"] != LABEL].iloc[0]
    text = (
        f"The sample's own group mattered most for {label['first']:.0%}; "
        f"{method_name(best['method'])} names the group that did for "
        f"{best['first']:.0%}. "
    )
    text += (
        "A label alone says that much. "
        if label["first"] >= best["first"]
        else "That is more than a label says. "
    )
    others = table[table["others"].notna()].sort_values("others", ascending=False)
    if len(others):
        row = others.iloc[0]
        found = f"{method_name(row['method'])} orders the other groups with "
        found += plus_minus(row["others"], row["others_error"])
        clear = row["others"] > 2 * row["others_error"]
        text += f"{found} (Spearman), " + (
            "beyond chance." if clear else "within two standard errors of chance."
        )
    return text.strip()
