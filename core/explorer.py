"""All that a page or the headless command may ask of a collection.

`Explorer` answers in dataclasses of numpy and pandas values; it hides torch and DuckDB
from its callers. Every answer to "what made this picture" goes through
`Explorer.answer`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd


class Cancelled(Exception):
    """Raised inside a long computation after its caller asked it to stop."""


# Called with (steps done, steps in all, what is being done); may raise Cancelled.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Query:
    """One picture to explain.

    Attributes:
        kind: "gallery", "generated", "example" (a training picture) or "upload".
        key: Short text that identifies the picture: equal keys, equal pictures.
        pixels: The picture as the model saw or made it, uint8, shape (C, H, W).
        x_0: The clean example (latents for a latent model), float32, shape
            (C', H', W').
        label: Class index the measurement is conditioned on; None means no label.
        description: What it is, in words, e.g. "Generated, seed 1184, DDIM, 50 steps".
        facts: Settings worth showing: seed, sampler, steps, house, group, example id.
    """

    kind: str
    key: str
    pixels: np.ndarray = field(repr=False)
    x_0: np.ndarray = field(repr=False)
    label: int | None
    description: str
    facts: dict


@dataclass(frozen=True)
class Lens:
    """How a question is asked: what one column of the explorer shows.

    Attributes:
        method: "ekfac" (predicted change on removal) or "clip" (similarity only).
        measurement: What the change is of: "loss". Ignored by similarity methods.
        num_draws: Monte Carlo draws of the query gradient.
        damping: Added to the GGN; None means the collection's own.
    """

    method: str = "ekfac"
    measurement: str = "loss"
    num_draws: int = 64
    damping: float | None = None


@dataclass(frozen=True)
class Answer:
    """The scores of all training examples for one query under one lens.

    Attributes:
        lens: The lens that was asked.
        example_ids: Shape (N,), int64, in the collection's order.
        scores: Shape (N,), float64. For influence: the predicted change of the
            measurement if the example is removed, times N. For similarity: a cosine in
            [-1, 1].
        standard_errors: Shape (N,), float64; NaN where the method has none.
        source: Where the numbers come from, in words: "exact", "full index", "sketch".
        value: The measured value for the query (e.g. its loss), NaN for similarity.
    """

    lens: Lens
    example_ids: np.ndarray
    scores: np.ndarray
    standard_errors: np.ndarray
    source: str
    value: float

    def order(self) -> np.ndarray:
        """Return positions from most to least influential, ties by example id."""
        return np.lexsort((self.example_ids, -self.scores))

    def top(self, count: int) -> np.ndarray:
        """Return the positions of the largest scores, largest first."""
        return self.order()[:count]

    def opposing(self, count: int) -> np.ndarray:
        """Return the positions of the smallest scores, smallest first."""
        return self.order()[::-1][:count]

    def neutral(self, count: int) -> np.ndarray:
        """Return the positions that matter least, most neutral first.

        For influence these have scores nearest zero; for similarity, nearest the
        median.
        """
        centre = 0.0 if self.lens.method != "clip" else float(np.median(self.scores))
        distance = np.abs(self.scores - centre)
        return np.lexsort((self.example_ids, distance))[:count]

    def ranks(self) -> np.ndarray:
        """Return the rank of every example, 1 for the most influential, shape (N,)."""
        ranks = np.empty(len(self.scores), dtype=np.int64)
        ranks[self.order()] = np.arange(1, len(self.scores) + 1)
        return ranks


@dataclass(frozen=True)
class Examples:
    """The training pictures of a collection.

    Attributes:
        table: Metadata, one row per example, indexed by example id.
        caption_columns: The columns to show under a tile, most telling first.
    """

    table: pd.DataFrame
    caption_columns: tuple[str, ...]
