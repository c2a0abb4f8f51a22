"""What leaving out a group of training images would change, in sentences.

The same on a page and in a report. Scores are centred, so that what they predict of a
group is always relative to random removals of the same size.
"""

from dataclasses import dataclass

import numpy as np

from core.answers import Answer
from core.explorer.groups import Calibrated
from core.measurements import MEASUREMENTS
from core.methods import METHODS
from core.numbers import plain, signed_scale
from core.report.reading import SURE


@dataclass(frozen=True)
class LeftOut:
    """A group of training images, and what leaving it out would change.

    Attributes:
        name: Of the group.
        size: How many images it has.
        change: What would change, in sentences.
        against: How that stands among random groups, a sentence.
    """

    name: str
    size: int
    change: str
    against: str


def pictures_of(size: int) -> str:
    """Return what to call a group of a size."""
    return "this image" if size == 1 else f"these {size:,} images"


def change_words(
    answer: Answer,
    size: int,
    change: float,
    error: float,
    sized: Calibrated | None = None,
) -> str:
    """Return what leaving a group out would change, in sentences.

    Args:
        answer: The scores.
        size: Images in the group.
        change: The change that they predict, their sum over N.
        error: Its standard error; NaN where there is none.
        sized: What retrained models make of it, None where that is not known.
    """
    lens = answer.lens
    if lens.kind != "influence":
        scale = signed_scale(abs(change))
        text = f"{scale.number(change)} {scale.unit}".strip()
        title = METHODS[lens.method].title
        return f"{title} gives {pictures_of(size)} a score of {text} together."
    value = change if sized is None else sized.value
    part = "the marked part of it" if lens.region else "it"
    way = "less" if value > 0 else "more"
    text = (
        f"Without {pictures_of(size)} the model would find {part} {way} likely than "
        f"after a random removal as large: {MEASUREMENTS[lens.measurement].cost} "
    )
    if sized is None:
        scale = signed_scale(abs(change))
        number = (scale.number(change), scale.error(error), scale.unit)
        text += " ".join(filter(None, number))
        if np.isfinite(error) and abs(change) < SURE * error:
            text += ", but that is within two standard errors of zero"
        return f"{text}.{against_now(answer.value, change)}"
    number, ends = printed(sized)
    if not sized.tested:  # such a group was found to matter far more than its bound
        return (
            f"{text}{number} or further: no half of the images that was tested had a "
            f"change as large as this one predicted.{against_now(answer.value, value)}"
        )
    text += f"{number}, in 90% of cases from {ends}"
    if sized.low < 0 < sized.high:
        text += ", so that even the direction is not certain"
    return f"{text}.{against_now(answer.value, value)}"


def printed(sized: Calibrated) -> tuple[str, str]:
    """Return a calibrated change and its interval as they are printed."""
    scale = signed_scale(max(abs(sized.low), abs(sized.high)))
    number = f"{scale.number(sized.value)} {scale.unit}".strip()
    ends = f"{scale.number(sized.low)} to {scale.number(sized.high)} {scale.unit}"
    return number, ends.strip()


def against_now(value: float, change: float) -> str:
    """Return how large a change is against the value now, "" where that says nothing.

    Influence is linear: it can predict that more than all of a loss goes.
    """
    if not (np.isfinite(value) and value > 0):
        return ""
    share, now = abs(change) / value, plain(value)
    if share >= 1:
        return (
            f" It is {now} now: a change as large as that cannot be read as a size, "
            "only compared with others."
        )
    text = "less than 0.1%" if share < 0.001 else f"{100 * share:.2g}%"
    return f" It is {now} now, so that is {text} of it."


def against_words(below: float, count: int, size: int) -> str:
    """Return how a change stands among random groups of the size.

    Args:
        below: Share of the random groups that change less.
        count: How many there are.
        size: Images in each.
    """
    of = "one image" if size == 1 else f"{size:,} images"
    return f"That is more than for {below:.0%} of {count} random groups of {of}."
