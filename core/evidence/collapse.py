"""Do models that share no image grow alike? The paper's third observation."""

import numpy as np
import pandas as pd

from core.evidence.evaluation import mean_and_error
from core.evidence.lds import ERRORS
from core.evidence.names import cost_name, unit_of
from core.evidence.stored import Evidence
from core.files.texts import minus
from core.numbers import change_of, number


def collapse_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how alike two models are that share no image, by their size (Obs. 3).

    `correlation` is Pearson's over the samples, between the two models' costs;
    `difference` the mean absolute one, with the standard error of that over the samples
    (there is one pair of each size), `spread` the costs' standard deviation over the
    samples, against which it is small or large. `drawn` is the root mean square
    difference between the images that both drew from the same seeds, over that
    between images of different seeds: 0 is the same image, 1 another one.
    """
    rows = []
    measured = evidence.measured.query(
        "kind == 'disjoint' and measurement == @measurement and low == -1"
    )
    for fraction, part in measured.groupby("fraction"):
        table = part.pivot_table("value", "sample_id", "subset")
        if table.shape[1] < 2:
            continue
        first, second = table.to_numpy().T
        difference, error = mean_and_error(np.abs(first - second))
        rows.append({
            "num_pictures": int(fraction * evidence.recipe["num_examples"]),
            "correlation": float(np.corrcoef(first, second)[0, 1]),
            "difference": difference,
            "standard_error": error,
            "spread": float(np.concatenate([first, second]).std()),
            "drawn": drawn_apart(evidence, fraction),
            "num_samples": len(table),
        })
    columns = ["num_pictures", "correlation", "difference", "standard_error", "spread"]
    return pd.DataFrame(rows, columns=[*columns, "drawn", "num_samples"])


def drawn_apart(evidence: Evidence, fraction: float) -> float:
    """Return how far apart the images of two disjoint models are, as in the table."""
    pictures = evidence.pictures.query("kind == 'disjoint' and fraction == @fraction")
    sides = [
        np.stack([np.frombuffer(pixels, np.uint8) for pixels in side["pixels"]])
        for _, side in pictures.sort_values("sample_id").groupby("subset")
    ]
    if len(sides) < 2:
        return float("nan")
    first, second = (side.astype(np.float64) for side in sides)
    squares = np.square(first[:, None] - second[None]).mean(2)
    others = ~np.eye(len(first), dtype=bool)
    return float(np.sqrt(np.diag(squares).mean() / squares[others].mean()))


ALIKE = 0.95  # correlation of two models' costs above which they rank samples alike


def collapse_finding(table: pd.DataFrame, measurement: str) -> str:
    """Return whether models that share no image become one as they see more."""
    if table.empty:
        return "No two models were trained on images that they do not share."
    small, large = table.iloc[0], table.iloc[-1]
    name, unit = cost_name(measurement), unit_of(measurement)
    spread = minus(f"{large['spread']:.3g}")
    text = (
        f"From {small['num_pictures']:,.0f} to {large['num_pictures']:,.0f} images "
        f"each, the {name} of a sample differs between the two models by "
        f"{_difference_of(small)}, then {_difference_of(large)}"
        f"{unit and f' {unit}'}, while samples differ among each other by "
        f"{spread}; the correlation over samples goes from "
        f"{number(small['correlation'])} to {number(large['correlation'])}."
    )
    if np.isfinite(large["drawn"]):
        text += (
            f" Images that both draw from one seed are {small['drawn']:.0%}, then "
            f"{large['drawn']:.0%} as far apart as images of different seeds."
        )
    fell = small["difference"] - large["difference"]
    errors = np.hypot(small["standard_error"], large["standard_error"])
    if fell > ERRORS * errors and large["correlation"] > ALIKE:
        return text + " So they become one, as the paper observed."
    return text + " That is not the agreement that the paper observed."


def _difference_of(row) -> str:
    """Return how far two models' costs are apart, with its error over samples."""
    return change_of(row["difference"], row["standard_error"]).lstrip("+")
