"""How large are changes? Calibration, and how often a cost rises."""

import numpy as np
import pandas as pd

from core.evidence.evaluation import Calibration, calibrate, mean_and_error
from core.evidence.lds import ERRORS
from core.evidence.names import cost_name, method_name, unit_of
from core.evidence.stored import (
    NOTHING,
    PREDICTED_BY,
    Evidence,
    default_lens,
    default_rows,
)
from core.files.texts import minus


def calibration(evidence: Evidence, method: str, measurement: str) -> Calibration:
    """Return the map from a method's predicted changes to measured ones.

    Raises:
        LookupError: If there are no scores of this method for this measurement.
    """
    target = evidence.target(measurement)
    for name, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target) if name == method else None
        if predicted is not None:
            return calibrate(predicted, target.to_numpy())
    raise LookupError(
        f"There are no scores of '{method}' for '{measurement}' to calibrate. Compute "
        "them with `python -m precompute evidence`."
    )


def calibration_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how well a monotone map of each method's scores predicts the change.

    `error` is the root mean square left on subsets that were held out, `spread` that of
    the changes themselves, `half_width` half of the interval that covers nine of ten.
    `explained` is the share of the variance that is predicted, its error is over the
    subsets: all from many splits into subsets that are held out and others.
    """
    columns = ["method", "error", "spread", "explained", "explained_error"]
    columns += ["half_width", "knots"]
    rows = []
    for method, _ in default_rows(evidence, measurement):
        fit = calibration(evidence, method, measurement)
        facts = {name: getattr(fit, name) for name in columns[1:-1]}
        rows.append({"method": method} | facts | {"knots": len(fit.knots)})
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("error", ignore_index=True)


def changes_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return predicted and measured change of each sample in each retrained model.

    Measured is against the model that was trained on everything; predicted is relative
    to an average subset.
    """
    target = evidence.target(measurement)
    full = evidence.measured[
        (evidence.measured["kind"] == "full")
        & (evidence.measured["measurement"] == measurement)
        & (evidence.measured["low"] == -1)
    ].set_index("sample_id")["value"]
    measured = target.sub(full.loc[target.index], axis=0)
    parts = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            table = pd.DataFrame(predicted, target.index, target.columns)
            both = {"predicted": table.stack(), "measured": measured.stack()}
            parts.append(pd.DataFrame(both).reset_index().assign(method=method))
    columns = ["method", "sample_id", "subset", "predicted", "measured"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


# The observations that are shares of rises.
RISES, RISES_AGAIN, RISES_PREDICTED, RISES_CENTRED = (
    "share of rises",
    "share of rises, trained again",
    "share of rises, predicted",
    "share of rises, predicted by centred scores",
)


def _rises(evidence: Evidence, measurement: str, target: pd.DataFrame) -> list[tuple]:
    """Return the rows of the observations that are shares of rises."""
    costs = evidence.measured.query("measurement == @measurement and low == -1")
    changes = {}
    for name, kind, method in (
        (RISES, "full", ""),
        (RISES_AGAIN, "removed", NOTHING),
    ):
        before = costs[(costs["kind"] == kind) & (costs["method"] == method)]
        before = before.groupby("sample_id")["value"].mean().reindex(target.index)
        if before.notna().all():
            changes[name] = target.sub(before, axis=0).to_numpy()
    lens = default_lens(evidence, "ekfac", PREDICTED_BY.get(measurement, measurement))
    changes[RISES_PREDICTED] = evidence.uncentred(lens, target)
    changes[RISES_CENTRED] = evidence.predicted(lens, target)
    return [
        (name, *mean_and_error((values > 0).mean(0)), len(values[0]))
        for name, values in changes.items()
        if values is not None
    ]


def change_finding(fit: Calibration, method: str, measurement: str) -> str:
    """Return how near a method's calibrated predictions come to measured changes."""
    unit = unit_of(measurement)
    text = (
        f"Calibrated on other halves, {method_name(method)} misses the measured change "
        f"by {minus(f'{fit.error:.3g}')} {unit} (root mean square); no prediction "
        f"misses it by {minus(f'{fit.spread:.3g}')}. "
    )
    if fit.explained > 0:
        text += (
            f"That explains {fit.explained:.0%} ± {fit.explained_error:.0%} of the "
            "variance. "
        )
    else:
        text += "So it predicts the size of a change no better than nothing does. "
    width = minus(f"{fit.half_width:.3g}")
    return text + f"Nine of ten changes lie within ± {width} of the map."


def rise_finding(observations: pd.DataFrame, measurement: str) -> str:
    """Return how often leaving out half of the images made a sample harder.

    And whether that is the paper's Observation 2: far more rises than are predicted.
    """
    shares = {
        name: observations[observations["observation"] == name]
        for name in (RISES, RISES_AGAIN, RISES_PREDICTED, RISES_CENTRED)
    }
    shares = {
        name: rows.iloc[0]
        for name, rows in shares.items()
        if len(rows) and np.isfinite(rows["figure"].iloc[0])
    }
    if RISES not in shares:
        return ""
    text = (
        f"Without half of the images the {cost_name(measurement)} of a sample rose "
        f"in {_percent(shares[RISES])} of the cases"
    )
    if RISES_AGAIN in shares:
        text += (
            ", against the model that drew it; against one trained again on every "
            f"image, in {_percent(shares[RISES_AGAIN])}"
        )
    if RISES_PREDICTED not in shares:
        if RISES_CENTRED not in shares:
            return f"{text}."
        # Of centred scores half of the predictions are rises by construction.
        return (
            f"{text}. The stored scores predict how a half differs from the average "
            "half, not whether a cost rises."
        )
    measured = shares.get(RISES_AGAIN, shares[RISES])
    predicted = shares[RISES_PREDICTED]
    more = measured["figure"] - predicted["figure"]
    errors = (row["standard_error"] for row in (measured, predicted))
    holds = "holds here" if more > ERRORS * np.hypot(*errors) else "does not show here"
    return (
        f"{text}. EK-FAC predicts a rise in {_percent(predicted)}. So the paper's "
        f"observation that more costs rise than influence predicts {holds}."
    )


def _percent(row) -> str:
    """Return a share with its error, "97% ± 1%"."""
    error = row["standard_error"]
    return f"{row['figure']:.0%}" + (f" ± {error:.0%}" if np.isfinite(error) else "")
