"""How an answer is read: strips of images, printed scores, shares, agreement.

Plain values in, plain values out; knows neither Streamlit nor plotly. A printed
influence is the predicted change of the loss if that one image had not been in the
training set (score / N, Eq. 6), in a power of ten that is chosen once for an answer and
said beside it. Similarities are printed as they are and never called a change.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.columns import beside
from core.explorer.explorer import Answer
from core.explorer.filters import Matches
from core.files.texts import minus
from core.lenses import QUERY_DRAWS, Lens, in_sentence, uses_steps
from core.measurements import MEASUREMENTS
from core.methods import KINDS, METHODS, measures
from core.numbers import Scale, plain, signed_scale

SHORT_KINDS = {  # what the strips of each kind of method show
    "influence": "Predicted change if removed",
    "attribution": "Attribution, order only",
    "similarity": "Similar, not cause",
}
KIND_COLUMNS = {"attribution": "score", "similarity": "similarity"}
SOURCES = {  # where the numbers come from, in words
    "exact": "exact",
    "full index": "from the full index",
    "sketch": "estimated from the sketch",
}
SURE = 2  # standard errors that tell a score from nothing


@dataclass(frozen=True)
class Strip:
    """A row of training images.

    Attributes:
        title: What the row means, in words.
        tone: "for", "neutral" or "against".
        positions: Places in the answer's arrays, the strongest first.
        empty: The sentence to show when there is no image.
    """

    title: str
    tone: str
    positions: np.ndarray
    empty: str


def is_similarity(lens: Lens) -> bool:
    """Return whether a lens says what is alike, not what caused the image."""
    return lens.kind == "similarity"


def strips(answer: Answer, count: int, among: Matches | None = None) -> list[Strip]:
    """Return the three rows of a lens column, at most `count` images each.

    An influence row holds only images whose score has the row's sign: an image that
    helped never stands under "worked against" to fill the row.

    Args:
        answer: The answer.
        count: Images in a row.
        among: What a search leaves to be shown, None for all images.
    """

    def first(positions: np.ndarray) -> np.ndarray:
        left = positions if among is None else positions[among.members[positions]]
        return left[:count]

    everything = len(answer.scores)
    top, opposing = first(answer.order()), first(answer.opposing(everything))
    neutral = first(answer.neutral(everything))
    nothing, whose = "", "training image"
    if among is not None:
        nothing, whose = ("" if among.size else among.empty), "image that you search"
    if is_similarity(answer.lens):
        nothing = nothing or "This collection has no images to compare."
        return [
            Strip("Most similar", "for", top, nothing),
            Strip("In between", "neutral", neutral, nothing),
            Strip("Least similar", "against", opposing, nothing),
        ]
    return [
        Strip(
            "Helped",
            "for",
            top[answer.scores[top] > 0],
            nothing or f"No {whose} helped.",
        ),
        Strip(
            "No effect",
            "neutral",
            neutral,
            nothing or f"No {whose} had no effect.",
        ),
        Strip(
            "Worked against",
            "against",
            opposing[answer.scores[opposing] < 0],
            nothing or f"No {whose} worked against it.",
        ),
    ]


def scale(answer: Answer) -> Scale:
    """Return the scale on which the largest number of an answer has three digits.

    Similarities keep their unit and get the digits that tell the first from the last.
    Only an influence is divided by N: an attribution is not a predicted change.
    """
    if is_similarity(answer.lens):
        spread = float(np.ptp(answer.scores)) if len(answer.scores) else 0.0
        digits = 1 - math.floor(math.log10(spread)) if spread > 0 else 2
        return Scale(1.0, exponent=0, decimals=min(max(digits, 2), 4), signed=False)
    size = max(len(answer.scores), 1) if answer.lens.kind == "influence" else 1
    return signed_scale(np.abs(answer.scores).max(initial=0.0), size)


def is_sure(answer: Answer, position: int) -> bool:
    """Return whether a score is further from zero than two standard errors.

    True where the method has no error: there is nothing to doubt it with.
    """
    error = answer.standard_errors[position]
    return not abs(answer.scores[position]) < SURE * error


def marks(answer: Answer, count: int, among: Matches | None = None) -> dict[int, str]:
    """Return the rank of every image that stands in an answer's strips.

    Keys are example ids. "3" is third from the top, "−2" second from the bottom.
    The arguments are those of `strips`.
    """
    ranks = answer.ranks()
    shown = {}
    for strip in strips(answer, count, among):
        for position in strip.positions:
            text = rank_words(int(ranks[position]), len(ranks), strip.tone)
            shown.setdefault(int(answer.example_ids[position]), text)
    return shown


def rank_words(rank: int, size: int, tone: str) -> str:
    """Return a rank of 1 to `size` as a tile shows it, e.g. "3", "1,034" or "−1".

    Images of the strip "against" are counted from the last one, which is "−1".
    """
    return minus(f"{rank - size - 1:,}") if tone == "against" else f"{rank:,}"


def strengths(answer: Answer) -> np.ndarray:
    """Return every score as a share of the strongest of its answer, shape (N,).

    In [0, 1]. Of an influence the size counts, whatever its sign; what is less alike
    than nothing (a cosine below zero) is not alike at all.
    """
    sizes = np.abs(answer.scores)
    if is_similarity(answer.lens):
        sizes = np.maximum(answer.scores, 0)
    most = sizes.max(initial=0.0)
    return sizes / most if most > 0 else np.zeros(len(sizes))


def short_note(answer: Answer, in_region: bool = False) -> str:
    """Return what an answer's strips show in a few words: one line above them.

    Args:
        answer: The answer.
        in_region: Whether a region is asked about, which a similarity ignores.
    """
    lens = answer.lens
    parts = [SHORT_KINDS[lens.kind]]
    if lens.kind != "similarity":
        parts.append(answer.source)
    elif in_region:
        parts.append("compares the whole image")
    if lens.region is not None:
        parts.append("region")
    if answer.lens.num_draws < QUERY_DRAWS and answer.note.startswith("first "):
        parts.append(answer.note)
    return " · ".join(parts)


def answer_note(answer: Answer, with_value: bool = True) -> str:
    """Return what the numbers of an answer are, in words."""
    lens, printed = answer.lens, scale(answer)
    parts = [KINDS[lens.kind]]
    if lens.kind == "similarity":
        parts.append("1 is alike")
    elif printed.unit:
        parts.append(f"in {printed.unit.removeprefix('×')}")
    if with_value and np.isfinite(answer.value):
        parts.append(f"now {plain(answer.value)}")
    if lens.kind != "similarity":
        parts.append(answer.source)
    if lens.region is not None:
        parts.append("region")
    return " · ".join(part for part in (*parts, answer.note) if part)


def standing(answer: Answer, example: int) -> str:
    """Return the score and the rank of a training image under a lens, in words."""
    position = int(np.flatnonzero(answer.example_ids == example)[0])
    rank = f"rank {answer.ranks()[position]:,} of {len(answer.scores):,}"
    parts = [printed_score(answer, position), rank]
    if not is_similarity(answer.lens):
        parts.append(answer.source)
    return " · ".join(parts)


def printed_score(answer: Answer, position: int) -> str:
    """Return one score with its error and its power of ten, as they are printed."""
    printed = scale(answer)
    parts = (
        printed.number(answer.scores[position]),
        printed.error(answer.standard_errors[position]),
        printed.unit,
    )
    return " ".join(part for part in parts if part)


def error_note(answer: Answer) -> str:
    """Return what ± beside an answer's scores covers and what not, in sentences."""
    method = METHODS[answer.lens.method]
    if not np.isfinite(answer.standard_errors).any():
        return f"{method.title} gives no standard error."
    covered = ["the draws of the training gradients"]
    if not uses_steps(answer.lens):
        covered.append("the draws of this image's question")
    if answer.source in ("sketch", "projection"):
        covered.append(f"the {answer.source}")
    *first, last = covered
    covers = f"{', '.join(first)} and {last}" if first else last
    return f"± covers {covers}. It does not cover training the model again."


def coverage_table(coverage: dict) -> pd.DataFrame:
    """Return how many intervals held, and how large errors were, by kind of answer."""
    return pd.DataFrame([
        {
            "answer": kind,
            "ten shown": parts["top"]["coverage"],
            "all images": parts["all"]["coverage"],
            "error of the ten, real ÷ printed": round(parts["top"]["ratio"], 2),
            "scores tried": parts["top"]["count"],
        }
        for kind, parts in coverage.items()
    ])


def sentence(answer: Answer, name: str, title: str = "", helped: str = "helped") -> str:
    """Return what an answer says first, in plain words and without a number.

    Args:
        answer: The answer whose most influential image is meant.
        name: What to call that image.
        title: What to call the method, if not by its own title.
        helped: The verb for what a training image did.
    """
    position = int(answer.top(1)[0])
    lens, title = answer.lens, title or METHODS[answer.lens.method].title
    if is_similarity(lens):
        return f"By {title}, {name} looks most like this image."
    asked = _asked(lens)
    if answer.scores[position] <= 0:
        return f"No single training image {helped}{asked}."
    by = f"By {title}, " if lens.kind == "attribution" else ""
    noise = "" if is_sure(answer, position) else ", but within noise"
    return f"{by}{name} {helped} most{asked}{noise}."


def _asked(lens: Lens) -> str:
    """Return what of the image a lens asks about, and by what, to end a sentence."""
    words = "" if lens.region is None else " in the region"
    if lens.timesteps is not None:
        words += " at noise levels {} to {}".format(*lens.timesteps)
    if measures(lens.method) and lens.measurement != Lens.measurement:
        words += f" by {in_sentence(MEASUREMENTS[lens.measurement].title)}"
    return words


def shares(answer: Answer, groups: pd.Series, most: int = 8) -> pd.DataFrame:
    """Return how the positive influence divides over the groups of the examples.

    Args:
        answer: An influence answer.
        groups: The group of every example, in the answer's order.
        most: Groups named; where there are more, the rest are one last row.

    Returns:
        One row per group, largest share first: `group`, `share` of the sum of positive
        scores, its standard `error` (errors of examples taken as independent; NaN where
        the answer has none), and the group's part of all `images`.
    """
    frame = _shares_of_all(answer, groups)
    if len(frame) <= most + 1:
        return frame
    rest = f"{len(frame) - most} others"
    named = groups.astype(str).isin(frame["group"][:most])
    frame = _shares_of_all(answer, groups.astype(str).where(named, rest))
    is_rest = frame["group"] == rest
    return pd.concat([frame[~is_rest], frame[is_rest]], ignore_index=True)


def _shares_of_all(answer: Answer, groups: pd.Series) -> pd.DataFrame:
    positive = answer.scores > 0
    frame = pd.DataFrame({
        "group": groups.astype(str).to_numpy(),
        "score": np.where(positive, answer.scores, 0.0),
        "variance": np.where(positive, answer.standard_errors**2, 0.0),
        "images": 1 / len(answer.scores),
    })
    sums = frame.groupby("group").sum()
    total, variance = sums["score"].sum(), sums["variance"].sum()
    if total <= 0:
        return pd.DataFrame(columns=["group", "share", "error", "images"])
    share = sums["score"] / total
    # Delta method for s / (s + r), where r sums the other groups.
    spread = (1 - share) ** 2 * sums["variance"]
    spread += share**2 * (variance - sums["variance"])
    return (
        pd
        .DataFrame({
            "share": share,
            "error": np.sqrt(spread) / total,
            "images": sums["images"],
        })
        .sort_values("share", ascending=False, kind="stable")
        .reset_index()
    )


def overlap(first: Answer, second: Answer, count: int) -> int:
    """Return how many images stand among the first `count` of both answers."""
    ids = (set(answer.example_ids[answer.top(count)]) for answer in (first, second))
    return len(set.intersection(*ids))


def rank_correlation(first: Answer, second: Answer) -> float:
    """Return Spearman's correlation of two answers over the same examples, in [-1, 1].

    Raises:
        ValueError: If the answers are about different examples.
    """
    if not np.array_equal(first.example_ids, second.example_ids):
        raise ValueError(
            "The two answers list different training images; ask one collection."
        )
    ranks = (pd.Series(answer.scores).rank() for answer in (first, second))
    return float(np.corrcoef(*ranks)[0, 1])


def _column(lens: Lens) -> str:
    """Return how a lens is called in a table: what sets it apart from the default."""
    lens = lens.canonical()
    parts = [lens.method]
    if lens.measurement != Lens.measurement:
        parts.append(lens.measurement)
    for name in ("timesteps", "region"):
        if getattr(lens, name) is not None:
            parts += [name, *map(str, getattr(lens, name))]
    return "_".join(parts)


def score_table(answers: list[Answer], examples: pd.DataFrame) -> pd.DataFrame:
    """Return all scores beside the metadata, the most influential first.

    Args:
        answers: Answers over the same examples, the one that sorts first.
        examples: Metadata, indexed by example id.

    Returns:
        The column `example`, then those of the answers, then the metadata.
    """
    table = pd.DataFrame(index=pd.Index(answers[0].example_ids, name="example"))
    for answer in answers:
        name = _column(answer.lens)
        table[f"{name}_rank"] = answer.ranks()
        if answer.lens.kind != "influence":
            table[f"{name}_{KIND_COLUMNS[answer.lens.kind]}"] = answer.scores
            continue
        table[f"{name}_change_if_removed"] = answer.scores / len(answer.scores)
        table[f"{name}_standard_error"] = answer.standard_errors / len(answer.scores)
    return beside(table.iloc[answers[0].order()], examples)
