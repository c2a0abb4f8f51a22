"""What removing a group of training images would change, and did, in sentences.

The same on a page and in a report. Scores are centred, so that what they predict of a
group is always relative to random removals of the same size.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.answers import Answer
from core.explorer.groups import Calibrated
from core.files.texts import minus
from core.measurements import MEASUREMENTS
from core.methods import METHODS
from core.numbers import signed_scale
from core.report.reading import SURE

FEW = 0.025  # share of random removals beyond which a change is unusual
HARDLY = 0.005  # share of a cost below which it hardly changed


@dataclass(frozen=True)
class LeftOut:
    """A group of training images, and what removing it would change.

    Attributes:
        name: Of the group.
        size: How many images it has.
        change: What would change, in sentences; the first is the verdict.
        against: How that stands among random removals, in sentences.
    """

    name: str
    size: int
    change: str
    against: str


def images_of(size: int, whose: str = "") -> str:
    """Return what to call a group of a size: "Noto’s 547 images", "this image"."""
    if whose:
        return f"{whose}’s {size:,} images" if size > 1 else f"{whose}’s image"
    return "this image" if size == 1 else f"these {size:,} images"


def cost_words(measurement: str) -> str:
    """Return what to call a measured cost in a sentence about a change of it."""
    if measurement == "loss":
        return "loss"
    return MEASUREMENTS[measurement].cost


# --- predicted ----------------------------------------------------------------------


def is_unusual(below: float) -> bool:
    """Return whether few random groups change as much, given the share that do less."""
    return not FEW <= below <= 1 - FEW


def verdict(answer: Answer, value: float, clear: bool) -> str:
    """Return what a group's scores predict, in a few words; "" for no prediction.

    Args:
        answer: The scores.
        value: The change to expect.
        clear: Whether it stands out, of random removals and of its own error.
    """
    if answer.lens.kind != "influence":
        return ""
    if not clear:
        return "Predicted: no clear effect."
    way = "rises" if value > 0 else "falls"
    return f"Predicted: the {_of_region(answer)} {way}."


def _of_region(answer: Answer) -> str:
    cost = cost_words(answer.lens.measurement)
    return f"{cost} of the region" if answer.lens.region is not None else cost


def change_words(
    answer: Answer,
    whose: str,
    size: int,
    raw: tuple[float, float],
    below: float,
    sized: Calibrated | None = None,
) -> str:
    """Return what removing a group would change, in sentences.

    Args:
        answer: The scores.
        whose: What the group's images have in common, "" for a group without a name.
        size: Images in the group.
        raw: The change that the scores predict, their sum over N, and its standard
            error; NaN where there is none.
        below: Share of random groups of the size that change less.
        sized: What retrained models make of it, None where that is not known.
    """
    change, error = raw
    removed = images_of(size, whose)
    if answer.lens.kind != "influence":
        scale = signed_scale(abs(change))
        text = f"{scale.number(change)} {scale.unit}".strip()
        title = METHODS[answer.lens.method].title
        return f"{title} gives {removed} a score of {text} together."
    sure = not abs(change) < SURE * error
    value = change
    if sized is not None:
        sure = not sized.tested or not sized.low < 0 < sized.high
        value = sized.value
    clear = sure and is_unusual(below)
    how = ("raises" if value > 0 else "lowers") if clear else "changes"
    text = f"Removing {removed} {how} the {_of_region(answer)} by "
    if sized is None:
        text += amount(answer.value, change, error, signed=not clear)
    else:
        text += calibrated_amount(answer.value, sized, signed=not clear)
    if not is_unusual(below):
        text += "; random removals of that size change it as much"
    elif not sure:
        text += "; that is within noise"
    text += "."
    if sized is None and _is_beyond(answer.value, change):
        text += " That is more than all of it: compare it with other groups only."
    return f"{verdict(answer, value, clear)} {text}"


def amount(value: float, change: float, error: float, signed: bool = True) -> str:
    """Return a change with its error as a share of the value, where it is a share.

    Args:
        value: What is changed; may be NaN or negative, when nothing is a share of it.
        change: Of it.
        error: Standard error of the change; NaN where there is none.
        signed: Whether a plus or minus stands before it.
    """
    shown = change if signed else abs(change)
    scale = signed_scale(abs(change))
    plus_minus = scale.error(error)
    is_share = np.isfinite(value) and value > 0 and not _is_beyond(value, change)
    parts = (scale.number(shown), "" if is_share else plus_minus, scale.unit)
    text = " ".join(filter(None, parts))
    if is_share:
        text = f"{percent(shown / value, error / value)} ({text})"
    return text if signed else text.replace("+", "")


def calibrated_amount(value: float, sized: Calibrated, signed: bool = True) -> str:
    """Return a calibrated change, with its interval where that was seen to hold.

    Args:
        value: What is changed; may be NaN or negative.
        sized: The change.
        signed: Whether a plus or minus stands before it.
    """
    ends = (sized.value, sized.low, sized.high)
    if np.isfinite(value) and value > 0:
        digits = _digits(max(map(abs, ends)) / value)
        number, low, high = (_percent(one / value, digits) for one in ends)
    else:
        number, low, high = printed(sized)
    number = number if signed else number.lstrip("+−")
    if not sized.tested:  # such a group was found to matter far more than its bound
        return f"{number} or more: no change as large was tested"
    return f"{number} (in 90% of cases {low} to {high})"


def percent(share: float, error: float = float("nan")) -> str:
    """Return a share with its sign and error, "+44% ± 27%", to digits that tell."""
    known = np.isfinite(error)
    digits = _digits(max(abs(share), error if known else 0.0))
    text = _percent(share, digits)
    return f"{text} ± {100 * error:.{digits}f}%" if known else text


def _digits(share: float) -> int:
    """Return how many digits after the point tell a share, in percent, from others."""
    return 0 if share >= 0.1 else 1 if share >= 0.01 else 2


def _percent(share: float, digits: int) -> str:
    return minus(f"{round(100 * share, digits) + 0.0:+.{digits}f}%")


def _is_beyond(value: float, change: float) -> bool:
    """Return whether a change is larger than the value, which influence can predict."""
    return bool(np.isfinite(value) and 0 < value <= abs(change))


def printed(sized: Calibrated) -> tuple[str, str, str]:
    """Return a calibrated change and the ends of its interval as they are printed."""
    scale = signed_scale(max(abs(sized.low), abs(sized.high)))
    numbers = (sized.value, sized.low, sized.high)
    return tuple(f"{scale.number(one)} {scale.unit}".strip() for one in numbers)


def against_words(below: float) -> str:
    """Return how a change stands among random removals, in two sentences.

    Args:
        below: Share of the random groups of the same size that change less.
    """
    share = f"More than {below:.0%} of random removals"
    if below < 0.5:
        share = f"Less than {1 - below:.0%} of random removals"
    if below in (0, 1):
        share = f"{'More' if below else 'Less'} than every random removal tried"
    end = "Unusual." if is_unusual(below) else "Not unusual."
    return f"{share} of the same size. {end}"


# --- measured -----------------------------------------------------------------------


def measured_words(
    measurement: str, before: float, change: float, random: float
) -> str:
    """Return what retraining without a group changed, in one sentence.

    Args:
        measurement: What was measured.
        before: Its value in the model that was trained on every image.
        change: What it is more in the model without the group.
        random: The same after random removals of the size; NaN where there were none.
    """
    scale = signed_scale(np.nanmax(np.abs([change, random])))

    def number(one: float) -> str:
        return " ".join(filter(None, (scale.number(one), scale.unit)))

    numbers = number(change)
    if np.isfinite(random):
        numbers += f", against {number(random)} for a random removal"
    return f"The {cost_words(measurement)} {growth(before, change)} ({numbers})."


def twins_words(
    measurement: str, before: float, without: dict[str, float], random: list[float]
) -> str:
    """Return which of some groups an image would miss most, as measured.

    Args:
        measurement: What was measured.
        before: The cost in the model that was trained on every image.
        without: The cost in the model without each group, by whose images they are.
        random: The costs in models without a random group as large.
    """
    most = max(without, key=lambda name: without[name] - before)
    change = without[most] - before
    cost = cost_words(measurement)
    if not random:
        return f"Without {most}, the {cost} {growth(before, change)}: the most of all."
    chance = max(random, key=lambda value: abs(value - before)) - before
    most_by_chance = growth(before, chance) + (" at most" if len(random) > 1 else "")
    if abs(change) <= abs(chance):
        return (
            f"No group is missed more than a random one: without {most} the {cost} "
            f"{growth(before, change)}; after a random removal of the size it "
            f"{most_by_chance}."
        )
    return (
        f"{most} is missed most: without it the {cost} {growth(before, change)}. After "
        f"a random removal of the size it {most_by_chance}."
    )


def stands_out(table: pd.DataFrame) -> pd.Series:
    """Return for which images a measured change is more than random removals made.

    Args:
        table: Rows that were measured, of `core.explorer.mattered.where_it_mattered`.
    """
    return table["change"] > table["chance"].fillna(0).clip(lower=0)


def mattered_words(table: pd.DataFrame, whose: str, measurement: str) -> str:
    """Return in how many generated images a group mattered, in two sentences at most.

    Args:
        table: Of `core.explorer.mattered.where_it_mattered`.
        whose: What its images have in common.
        measurement: What is measured.
    """
    count, cost = len(table), cost_words(measurement)
    clear = int((table["below"] > 1 - FEW).sum())
    predicted = (
        f"Predicted: removing {whose} raises the {cost} of {clear} of {count} "
        f"generated images more than {1 - FEW:.1%} of random removals of the size "
        "would."
    )
    known = table.dropna(subset=["change"])
    if known.empty:
        return predicted
    raised = stands_out(known)
    than = " by more than any random removal of the size did"
    if known["chance"].isna().all():
        than = ""
    return (
        f"Measured: without {whose} the {cost} of {int(raised.sum())} of {len(known)} "
        f"generated images rose{than}. {predicted}"
    )


def growth(before: float, change: float) -> str:
    """Return how a value changed, in words: "more than doubled", "fell by 12%"."""
    if not before > 0:  # nothing is a share of it
        return "rose" if change > 0 else "fell"
    share = change / before
    if share >= 2:
        return "more than tripled"
    if share >= 1:
        return "more than doubled"
    if abs(share) < HARDLY:
        return "hardly changed"
    return f"{'rose' if share > 0 else 'fell'} by {percent(abs(share)).lstrip('+')}"
