"""What is left of a method's LDS when it is not told which class was removed?

Scores can order halves by counting the images of the sample's class among those left
out. Centred within each class they cannot: what then is left, they know of images. The
other way round, class means know nothing of an image. Knows numpy and pandas; no model.
"""

import numpy as np
import pandas as pd

from core.evidence.evaluation import predicted_changes
from core.evidence.lds import ERRORS
from core.evidence.names import method_name
from core.evidence.stored import Evidence, default_rows, figures
from core.numbers import plus_minus

COLUMNS = ("method", "lds", "standard_error", "within", "within_error")
COLUMNS += ("within_subset_error", "between", "between_error")


def within_class_table(
    evidence: Evidence, measurement: str, classes: pd.Series
) -> pd.DataFrame:
    """Return a row per method: its LDS, that within classes, and that of class means.

    Args:
        evidence: With scores of all images.
        measurement: What was measured.
        classes: The class of every training image, shape (N,), in their order.

    Raises:
        ValueError: If there is one class only, or not one for each image.
    """
    names = classes.astype(str).to_numpy()
    count = evidence.masks.shape[1]
    if len(names) != count or len(np.unique(names)) < 2:
        raise ValueError(
            f"There are {len(np.unique(names))} classes of {len(names)} images, and "
            f"the evidence is about {count} images. Choose a column with two classes "
            "or more."
        )
    target, rows = evidence.target(measurement), []
    for method, _ in default_rows(evidence, measurement):
        scores = evidence.default_scores(method, measurement)
        if scores is None or scores.loc[target.index].isna().any():
            continue
        scores = np.stack(list(scores.loc[target.index])).astype(float)
        means = class_means(scores, names)
        parts = {"": scores, "within": scores - means, "between": means}
        row = {"method": method}
        for name, values in parts.items():
            changes = predicted_changes(values, evidence.masks[target.columns])
            found = figures(changes, target.to_numpy())
            row |= {
                name or "lds": found["lds"],
                f"{name}_error" if name else "standard_error": found["standard_error"],
            }
            if name == "within":
                row["within_subset_error"] = found["subset_error"]
        rows.append(row)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.sort_values("within", ascending=False, ignore_index=True)


def class_means(scores: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return each score's mean over its class, shape (Q, N)."""
    _, owner = np.unique(names, return_inverse=True)
    members = np.eye(owner.max() + 1)[owner]  # (N, classes)
    return (scores @ members / members.sum(0)) @ members.T


def within_class_finding(table: pd.DataFrame, method: str = "ekfac") -> str:
    """Return what a method knows beyond the classes, in a sentence or two."""
    rows = table[table["method"] == method]
    if rows.empty:
        return ""
    row = rows.iloc[0]
    text = (
        f"Told nothing of classes, {method_name(method)} still ranks halves with LDS "
        f"{plus_minus(row['within'], row['within_error'])} "
        f"(all of it: {plus_minus(row['lds'], row['standard_error'])}). "
    )
    if row["between"] > ERRORS * row["between_error"]:
        return f"{text}Class means alone reach {row['between']:.2f}."
    return f"{text}Class means alone tell no more than chance."
