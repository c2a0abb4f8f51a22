"""What goes into an explorer and what comes out: queries, answers, values."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from core.drawing import Drawing
from core.files.texts import one_line
from core.lenses import Lens


class Cancelled(Exception):
    """Raised inside a long computation after its caller asked it to stop."""


# Called with (steps done, steps in all, what is being done); may raise Cancelled.
Progress = Callable[[int, int, str], None]


def steps(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    """Return a two-number callback that names what is being done."""
    if progress is None:
        return None
    return lambda done, total: progress(done, total, what)


@dataclass(frozen=True)
class Query:
    """One image to explain.

    Attributes:
        kind: "gallery", "generated", "example" (a training image) or "upload".
        key: Short text that identifies the image: equal keys, equal images.
        pixels: The image as the model saw or made it, uint8, shape (C, H, W).
        x_0: The clean example (latents for a latent model), float32, shape
            (C', H', W'); None where it is looked up when the model is asked: stored for
            a gallery sample, the encoding of `pixels` for others.
        label: Class index the measurement is conditioned on; None means no label.
        description: What it is, in words, e.g. "Generated, seed 1184, DDIM, 50 steps".
        facts: What names it: sample id, example id or checksum, under our names; no
            column of a user is among them.
        drawing: How the model drew it; None for an image that it did not draw.
        inverted: Whether an image that the model did not draw is given the trajectory
            that DDIM inversion finds, which is approximate.
    """

    kind: str
    key: str
    pixels: np.ndarray = field(repr=False)
    x_0: np.ndarray | None = field(repr=False)
    label: int | None
    description: str
    facts: dict
    drawing: Drawing | None = None
    inverted: bool = False

    @property
    def drawn(self) -> bool:
        """Whether the model drew it, so that it can be drawn again from its seed."""
        return self.drawing is not None


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
        value_error: Its standard error, NaN where there is none.
        note: What else a reader should know of how it was asked, in words; often "".
    """

    lens: Lens
    example_ids: np.ndarray
    scores: np.ndarray
    standard_errors: np.ndarray
    source: str
    value: float
    value_error: float = float("nan")
    note: str = ""

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
        centre = (
            0.0 if self.lens.kind != "similarity" else float(np.median(self.scores))
        )
        distance = np.abs(self.scores - centre)
        return np.lexsort((self.example_ids, distance))[:count]

    def ranks(self) -> np.ndarray:
        """Return the rank of every example, 1 for the most influential, shape (N,)."""
        ranks = np.empty(len(self.scores), dtype=np.int64)
        ranks[self.order()] = np.arange(1, len(self.scores) + 1)
        return ranks


@dataclass(frozen=True)
class Measured:
    """What a measurement says of one image.

    Attributes:
        value: The cost.
        standard_error: Of the Monte Carlo draws; NaN where there are none.
        unit: Of both, in words.
        note: What else a reader should know, in words; often "".
    """

    value: float
    standard_error: float
    unit: str
    note: str


@dataclass(frozen=True)
class Redrawn:
    """What a twin of the model makes of an image (`core.evidence.twins`).

    Attributes:
        pixels: As the twin draws it from its seed, uint8, shape (C, H, W); None for an
            image that no model drew.
        value: The cost, by the draws that all models share.
    """

    pixels: np.ndarray | None = field(repr=False)
    value: float


@dataclass(frozen=True)
class BandAnswers:
    """The scores of all training examples, divided over bands of timesteps.

    The rows add up to the scores of the whole range.

    Attributes:
        edges: Bounds of the B bands, B + 1 ascending timesteps.
        example_ids: Shape (N,), in the collection's order. A stored answer has a part
            of the images alone, those that pages show first.
        scores: Shape (B, N), float64.
        standard_errors: Shape (B, N), float64; NaN where there are none.
        values: What each band contributes to the measured value, shape (B,).
        source: Where the numbers come from, in words.
        note: What else a reader should know, in words; often "".
    """

    edges: tuple[int, ...]
    example_ids: np.ndarray
    scores: np.ndarray
    standard_errors: np.ndarray
    values: np.ndarray
    source: str
    note: str = ""


@dataclass(frozen=True)
class Forming:
    """An image at L noise levels, from the most noise to the least.

    Attributes:
        timesteps: Of the levels, descending, shape (L,).
        noise: Share of the noise in the variance of each, in [0, 1], shape (L,).
        noisy: The image with that noise, uint8, shape (L, C, H, W).
        expected: The clean image that the model expects behind each, same shape.
    """

    timesteps: np.ndarray
    noise: np.ndarray
    noisy: np.ndarray = field(repr=False)
    expected: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Uncertainty:
    """What can be wrong with the scores of all examples, and with sums of them.

    The error of a sum is not the root of the sum of squares: all examples share their
    draws, so the errors of examples that are alike go the same way.

    Attributes:
        rows: Independent causes of error, shape (R, N): the variance of the sum of some
            scores is the sum over rows of the squared sum of their entries.
        unshared: Variance of each score that no other shares, shape (N,).
        note: What else a reader should know of it, in a sentence; often "".
    """

    rows: np.ndarray = field(repr=False)
    unshared: np.ndarray = field(repr=False)
    note: str = ""

    def of_groups(self, members: np.ndarray) -> np.ndarray:
        """Return the standard errors of predicted changes, shape (G,).

        Args:
            members: Who is left out, bool, shape (G, N).

        Returns:
            In units of the measurement; NaN where nothing is known of any error.
        """
        if not len(self.rows) and not self.unshared.any():
            return np.full(len(members), np.nan)
        sums = members.astype(np.float64) @ self.rows.T  # (G, R)
        variance = np.square(sums).sum(1) + members @ self.unshared
        return np.sqrt(variance) / members.shape[1]


@dataclass(frozen=True)
class Examples:
    """The training images of a collection.

    Attributes:
        table: Metadata, one row per example, indexed by example id.
        caption_columns: The columns to show under a tile, most telling first; none
            where nothing is known of the images.
    """

    table: pd.DataFrame
    caption_columns: tuple[str, ...]

    def caption(self, example_id: int) -> list[str]:
        """Return what stands under a training image, one line per column."""
        lines = [
            one_line(self.table.at[example_id, column])
            for column in self.caption_columns
        ]
        return lines or [f"Training image {example_id}"]

    def names(self) -> list[str]:
        """Return what each training image is called in a word, in order."""
        if not self.caption_columns:
            return [f"Training image {example_id}" for example_id in self.table.index]
        return self.table[self.caption_columns[0]].astype(str).tolist()
