"""Which training images a search leaves, and what to say where none is left.

A search is words and facets: values of metadata columns. An image has to match the
words, by its name and labels (`core.explorer.named`) or, where no image does, as one of
those that CLIP finds nearest; and to have one of the wanted values in every column
where some are wanted. Knows neither models nor pages.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pandas as pd

NAMES = "name or label"  # how words match, if not by CLIP
MOST_NEAREST = 50  # images that match some words

Facets = dict[str, tuple[str, ...]]  # metadata column -> the values that are wanted


@dataclass(frozen=True)
class Matches:
    """The training images that a search leaves.

    Attributes:
        members: Which they are, bool, shape (N,), in the collection's order.
        words: What was searched for, plain words.
        empty: The sentence that says why there is none, where there is none.
    """

    members: np.ndarray = field(repr=False)
    words: str
    empty: str

    @property
    def size(self) -> int:
        """How many images there are."""
        return int(self.members.sum())


def num_nearest(num_examples: int) -> int:
    """Return how many images match some words: a tenth, at most `MOST_NEAREST`."""
    return max(min(MOST_NEAREST, num_examples // 10), 1)


def read_facets(text: str, table: pd.DataFrame, columns: Iterable[str]) -> Facets:
    """Return the facets that a text names, as `write_facets` wrote it.

    Args:
        text: Anything at all.
        table: Metadata, one row per image.
        columns: Those that may be asked about.

    Raises:
        ValueError: If it names a column or a value that there is not.
    """
    facets, columns = {}, list(columns)
    for column, value in parse_qsl(text, keep_blank_values=True):
        known = column in columns and (table[column].astype(str) == value).any()
        if not known:
            raise ValueError(
                f"No training image has “{value[:40]}” as “{column[:40]}”, so that "
                f"was ignored. Choose among {', '.join(columns) or 'no columns'}."
            )
        facets[column] = (*facets.get(column, ()), value)
    if text and not facets:
        raise ValueError(f"“{text[:40]}” names no column and value, so it was ignored.")
    return {column: tuple(dict.fromkeys(facets[column])) for column in facets}


def write_facets(facets: Facets) -> str:
    """Return facets as one text, e.g. "style=noto&style=fluent"."""
    return urlencode([(name, value) for name in facets for value in facets[name]])


def search(
    table: pd.DataFrame,
    facets: Facets,
    words: str,
    matching: Iterable[int],
    by: str = NAMES,
) -> Matches:
    """Return the images that are left.

    Args:
        table: Metadata, indexed by example id.
        facets: What is wanted of it; empty wants nothing.
        words: What is searched for; "" for nothing.
        matching: Example ids of the images that match the words.
        by: `NAMES`, or what the CLIP that found them is called.
    """
    members = np.ones(len(table), dtype=bool)
    for column, values in facets.items():
        members &= table[column].astype(str).isin(values).to_numpy()
    named = "; ".join(" or ".join(values) for values in facets.values())
    of = f" of ‘{named}’" if named else ""
    empty = f"No image is all of ‘{named}’. Leave one of these out."
    conditions = [named] if named else []
    if words:
        match = table.index.isin(list(matching))
        members &= match
        why = f"none is among the {match.sum():,} nearest to these words by {by}"
        if by == NAMES:
            why = f"the {match.sum():,} that do by name or label are others"
        empty = (
            f"No image{of} matches “{words}”: {why}. Try other words, or fewer "
            "conditions."
        )
        nearest = f"nearest to “{words}” by {by}"
        conditions.append(f"“{words}” in {NAMES}" if by == NAMES else nearest)
    return Matches(members, ", ".join(conditions), empty)
