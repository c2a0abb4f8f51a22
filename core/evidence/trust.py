"""How far one lens's scores were tested by retraining, in one figure and in words.

What stands beside every score in the app. Knows the evidence; no page and no model.
"""

from dataclasses import dataclass

import numpy as np

from core.evidence.evaluation import FEWEST_HALVES, size_of_changes
from core.evidence.stored import (
    OWN,
    PREDICTED_BY,
    Evidence,
    ceiling,
    default_lens,
    figures,
    reachable_figures,
)
from core.files.texts import minus
from core.lenses import Lens
from core.methods import METHODS
from core.numbers import number, plus_minus

ORDER = "Trust the order more than the size."
UNTESTED = "Untested"
SAME_DAMPING = 1e-3  # relative difference below which two dampings are one


@dataclass(frozen=True)
class Trust:
    """How well a lens ranked random subsets of this collection.

    Attributes:
        lds: Mean over samples of the rank correlation between predicted and measured
            cost (Eq. 13), in [-1, 1]; 0 is chance.
        standard_error: Of that mean, over samples.
        subset_error: The error that comes from having few subsets (jackknife).
        most: The most that any predictor can reach; NaN where that was not measured.
        ceiling: The LDS of one more retraining, another seed; NaN where that was not
            measured.
        ceiling_error: Its standard error over samples.
        ceiling_subsets: Retrained models that it rests on.
        size: How many times a predicted change was measured (the slope, see
            `core.evidence.evaluation.size_of_changes`); NaN for scores that predict no
            size.
        num_samples: Samples it rests on.
        num_subsets: Retrained models it rests on.
        note: What was tested in place of these scores, a sentence; often "".
    """

    lds: float
    standard_error: float
    subset_error: float
    ceiling: float
    num_samples: int
    num_subsets: int
    note: str = ""
    ceiling_error: float = float("nan")
    ceiling_subsets: int = 0
    size: float = float("nan")
    most: float = float("nan")

    @property
    def words(self) -> str:
        """The figure as it stands beside a score."""
        text = f"LDS {plus_minus(self.lds, self.standard_error)}"
        if np.isfinite(self.most):
            text += f" (at most {number(self.most)})"
        if np.isfinite(self.size):
            text += f"; actual changes are {minus(f'{self.size:.2g}')} of predicted"
        return text

    @property
    def meaning(self) -> str:
        """What the figure is and rests on, in sentences."""
        text = (
            f"The model was trained again on {self.num_subsets} random halves of the "
            "images. LDS is the rank correlation between the change that the scores "
            f"predict and the change measured, over {self.num_samples} samples: 1 is "
            "the same order, 0 is chance."
        )
        if np.isfinite(self.subset_error):
            text += (
                " ± is the standard error over samples; having only "
                f"{self.num_subsets} halves adds {number(self.subset_error)}."
            )
        if np.isfinite(self.ceiling):
            text += (
                " One more retraining, with another seed, reaches "
                f"{plus_minus(self.ceiling, self.ceiling_error)} over "
                f"{self.ceiling_subsets} of the halves; the most that any predictor "
                f"can reach is {number(self.most)}."
            )
        if np.isfinite(self.size):
            text += (
                f" Actual changes are {minus(f'{self.size:.2g}')} of predicted: trust "
                "the order more than the size."
            )
        return f"{text} {self.note}".strip() + " More on the page Evidence."


def reliability(quality: dict, lens: Lens, source: str) -> str:
    """Return how reliable a lens's rankings were when the collection was built.

    Args:
        quality: What was measured then.
        lens: How the scores were asked.
        source: Where they come from, as in an answer.

    Returns:
        A sentence; "" for a lens that was not tested then.
    """
    if lens.canonical() != Lens(num_draws=lens.num_draws):
        return ""  # only the standard lens was tested when the collection was built
    again = "sketch_again" if source == "sketch" else "exact_again"
    agreements = {again: "a second run with fresh noise gives"}
    if quality.get(again) is None:
        agreements = {"reliability": "fresh training gradients give"}
    if source == "sketch":
        agreements["sketch_agreement"] = "exact scores give"
    tests = [
        f"{what} {_order(quality[name])}"
        for name, what in agreements.items()
        if quality.get(name) is not None
    ]
    return f"Repeatable: {'; '.join(tests)}." if tests else ""


def _order(agreement: float) -> str:
    """Return how much of an order a rank correlation leaves, in words."""
    kept = "nearly the same" if agreement >= 0.8 else "a similar"
    kept = kept if agreement >= 0.5 else "another"
    return f"{kept} order ({number(agreement)})"


def size_note(lens: Lens, tested: Trust | None, groups: bool = False) -> str:
    """Return what a predicted change is worth as a size, "" where none is predicted.

    Args:
        lens: How the scores were asked.
        tested: How far random halves tested it, None where they did not.
        groups: Whether models were retrained without whole groups.
    """
    if lens.kind != "influence":
        return ""
    if tested is not None and np.isfinite(tested.size):
        times = minus(f"{tested.size:.2g}")
        return (
            "Trust the order more than the size: actual changes are "
            f"{times} of predicted."
        )
    if groups or tested is not None:
        so_far = "has tested whole groups only" if groups else "has tested the order"
    else:
        so_far = "has not tested this collection yet"
    return f"Retraining {so_far}: trust the order more than the size."


def lens_trust(
    evidence: Evidence,
    method: str,
    measurement: str,
    timesteps: tuple[int, int] | None = None,
    damping: float | None = None,
    source: str = "",
) -> Trust | None:
    """Return how well a lens ranked subsets, or None where it was not tested.

    Args:
        evidence: Of the collection.
        method: How the training images were scored.
        measurement: What the scores are about, and what was measured.
        timesteps: Half-open range that both are about; None for all.
        damping: Of the scores; None for the method's own.
        source: Where the scores come from, as in an answer. "sketch" is tested as such
            where it was, else by what the collection keeps.
    """
    low, high = timesteps or (-1, -1)
    try:
        target = evidence.target(measurement, low, high)
        varied = {
            "low": low,
            "high": high,
            "damping": _stored_damping(evidence, method, damping),
        }
        tested = _tested(evidence, method, measurement, target, varied, source)
    except (LookupError, ValueError):  # not measured, or scores that rank nothing
        return None
    if tested is None or not np.isfinite(tested["lds"]):
        return None
    best = ceiling(evidence, measurement) if timesteps is None else None
    if best is None:
        return Trust(**tested, ceiling=float("nan"))
    return Trust(
        **tested,
        ceiling=best["lds"],
        ceiling_error=best["standard_error"],
        ceiling_subsets=best["num_subsets"],
        most=reachable_figures(evidence, measurement)["lds"],
    )


def _tested(evidence, method, measurement, target, varied, source) -> dict | None:
    """Return the LDS and what it rests on, of the first such lens that was scored."""
    for form in dict.fromkeys((source, "")):
        for scored in (PREDICTED_BY.get(measurement, measurement), OWN):
            lens = default_lens(evidence, method, scored) | varied
            predicted = evidence.predicted(lens | {"variant": form}, target)
            if predicted is not None and target.shape[1] >= FEWEST_HALVES:
                kept = evidence.recipe.get("form", source)
                other = source == "sketch" and form == "" and kept != "sketch"
                note = "Tested with the full index." if other else ""
                row = figures(predicted, target.to_numpy()) | {"note": note}
                if method in METHODS and METHODS[method].kind == "influence":
                    row["size"] = size_of_changes(predicted, target.to_numpy())
                return row
    return None


def _stored_damping(evidence: Evidence, method: str, damping: float | None) -> float:
    """Return how a damping is stored: NaN is the method's own.

    One that was not swept is returned as it is, and no scores will be found.
    """
    own = evidence.recipe["dampings"].get(method, {}).get("own")
    if damping is None or (own and np.isclose(damping, own, SAME_DAMPING, 0)):
        return float("nan")
    rows = evidence.scores["method"] == method
    swept = evidence.scores.loc[rows, "damping"].dropna().unique()
    near = swept[np.isclose(swept, damping, SAME_DAMPING, 0)]
    return float(near[0]) if len(near) else damping
