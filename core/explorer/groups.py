"""What removing a whole group of training images would change.

The predicted change of a group is the sum of its members' scores over N, the number of
training images (Eq. 6); its error is `core.answers.Uncertainty`'s business. Says who
is in a group and what is to be compared with what. Knows neither models nor pages.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.answers import Uncertainty
from core.columns import free_names
from core.evidence.evaluation import Calibration, predicted_changes
from core.seeds import keyed_seed

NUM_RANDOM = 200  # random groups that a group is compared with


# --- who is in a group --------------------------------------------------------------


def facets(table: pd.DataFrame) -> list[str]:
    """Return the columns of metadata that divide the images into groups.

    Not those that say the same of every image, tell nearly all images apart, or
    divide them as another column does; of such, words are kept rather than numbers.
    """
    dividing, known = [], []
    for column in sorted(table.columns, key=lambda name: _are_numbers(table[name])):
        codes, values = pd.factorize(table[column].astype(str))
        if not 2 <= len(values) <= len(table) / 2:
            continue
        if not any(np.array_equal(codes, other) for other in known):
            dividing.append(column)
            known.append(codes)
    return [column for column in table.columns if column in dividing]


def _are_numbers(values: pd.Series) -> bool:
    """Return whether a column says nothing but numbers, such as those of classes."""
    return bool(pd.to_numeric(values, errors="coerce").notna().all())


def read_ids(text: str, known: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the ids that a text lists, those that exist and those that do not.

    Whole numbers, and ranges such as 10-20, between anything that is neither.

    Args:
        text: What somebody typed or pasted.
        known: The ids there are.
    """
    known, wanted = set(map(int, known)), {}
    for first, last in re.findall(r"(?<![\w-])(\d{1,12})(?:\s*-\s*(\d{1,12}))?", text):
        if last:  # only what exists of a range: it may be longer than memory
            low, high = sorted((int(first), int(last)))
            wanted |= dict.fromkeys(i for i in sorted(known) if low <= i <= high)
        else:
            wanted[int(first)] = None
    there = [example for example in wanted if example in known]
    return there, [example for example in wanted if example not in known]


def write_ids(ids: Iterable[int]) -> str:
    """Return ids in as short a text as `read_ids` reads, e.g. "3,7-9"."""
    ids = np.unique(np.fromiter(ids, np.int64))
    runs = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1) if len(ids) else []
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run))
        for run in runs
    )


def random_members(num_examples: int, size: int, seed: int) -> np.ndarray:
    """Return random groups of one size, bool, shape (`NUM_RANDOM`, N).

    They depend on nothing but the numbers given: each holds the first of a permutation
    by `torch.randperm` with a generator of the keyed seed. Its Mersenne twister and its
    swaps from the front are done here, because torch takes seconds to load and the page
    that compares with these groups is shown before it.
    """
    twister = np.random.RandomState(
        keyed_seed(seed, "random groups", num_examples, size) % 2**32
    )
    choices = np.arange(num_examples, 1, -1, dtype=np.uint32)  # of every swap
    drawn = twister.randint(0, 2**32, (NUM_RANDOM, len(choices)), np.uint32)
    ahead, each = (drawn % choices).T, np.arange(NUM_RANDOM)
    order = np.repeat(np.arange(num_examples)[:, None], NUM_RANDOM, 1)
    for i in range(min(size, len(choices))):
        other = i + ahead[i]
        swapped = order[other, each]
        order[other, each] = order[i]
        order[i] = swapped
    members = np.zeros((NUM_RANDOM, num_examples), dtype=bool)
    np.put_along_axis(members, order[:size].T, True, 1)
    return members


# --- what removing it changes -------------------------------------------------------


def share_below(value: float, others: np.ndarray) -> float:
    """Return the share of values that a value exceeds; equal ones count half."""
    return float(np.mean((others < value) + 0.5 * (others == value)))


def changes(scores: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return the predicted change of the cost when each group is removed, (G,).

    Args:
        scores: Of all examples, times N as everywhere, shape (N,).
        members: Who is removed, bool, shape (G, N).
    """
    return predicted_changes(scores[None], ~members)[0]


def beyond_chance(change: float, size: int, scores: np.ndarray) -> float:
    """Return a group's predicted change less that of an average group of its size."""
    return change - size * float(scores.mean()) / len(scores)


def change_table(
    scores: np.ndarray, values: pd.Series, uncertainty: Uncertainty | None = None
) -> pd.DataFrame:
    """Return the predicted change for every value of a column, the largest first.

    Args:
        scores: Of all examples, times N as everywhere, shape (N,).
        values: Of the column, in the same order.
        uncertainty: Of the scores, None while it is not known.

    Returns:
        Columns `group`, `images` (how many), `change` if all of them are removed,
        and its `standard_error` (NaN where there is none).
    """
    codes, names = pd.factorize(values.astype(str))
    members = codes == np.arange(len(names))[:, None]
    error = np.full(len(names), np.nan)
    if uncertainty is not None:
        error = uncertainty.of_groups(members)
    table = pd.DataFrame({
        "group": names,
        "images": members.sum(1),
        "change": changes(scores, members),
        "standard_error": error,
    })
    return table.sort_values(
        "change", ascending=False, kind="stable", ignore_index=True
    )


def named_table(table: pd.DataFrame, column: str, what: str) -> pd.DataFrame:
    """Return a `change_table` with the names that a reader outside understands.

    Args:
        table: Of the values of a column.
        column: Its name.
        what: What `change` is called.
    """
    ours = [what if name == "change" else name for name in table.columns]
    (named,) = free_names([column], set(ours) - {"group"}).values()
    return table.set_axis([named if n == "group" else n for n in ours], axis=1)


def most_telling(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the rows of a sorted table at its two ends, at most `most` of them."""
    if len(table) <= most:
        return table
    ends = np.argsort(-table["change"].abs().to_numpy(), kind="stable")[:most]
    return table.iloc[np.sort(ends)].reset_index(drop=True)


@dataclass(frozen=True)
class Calibrated:
    """The change to expect of removing a group instead of a random one of its size.

    Attributes:
        value: What retrained models say of such a prediction.
        low: Lower end of the interval that holds 90% of measured changes.
        high: Its upper end.
        tested: Whether predictions as large as this one were tested.
        explained: Share of the variance of measured changes that such values explain,
            where halves of the images were removed; may be negative.
    """

    value: float
    low: float
    high: float
    tested: bool
    explained: float


def calibrated(calibration: Calibration, prediction: float) -> Calibrated:
    """Return the calibrated change of a prediction relative to a random group's."""
    value = float(calibration(np.array(prediction)))
    tested = calibration.knots[0] <= prediction <= calibration.knots[-1]
    half = calibration.half_width
    return Calibrated(
        value, value - half, value + half, bool(tested), calibration.explained
    )
