"""Where training gradients are read from: the full index, the sketch, or features.

Each gives inner products of preconditioned queries with all training gradients, and
the variance that its compression adds; `Noise` holds what their draws leave.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from core.index.full import GradientIndex, balance
from core.index.gpu import DeviceIndex
from core.index.sketch import Sketch, packed_products
from core.lenses import Lens
from core.scores.errors import Asked, ErrorModel, Law, answer_kind
from core.scores.method_files import MethodFile

# Packing to one bit multiplies the variance of a sketched product by pi / 2.
ONE_BIT_VARIANCE = np.pi / 2


PARTS = 16  # of a short form; how far they disagree is what it leaves of error


def part_bounds(length: int) -> list[tuple[int, int]]:
    """Return the bounds of `PARTS` parts of a length, fewer where it is short."""
    bounds = np.linspace(0, length, min(PARTS, length) + 1).astype(int)
    return list(pairwise(bounds.tolist()))


class FromIndex:
    """Training gradients in the full index.

    Attributes:
        source: What an answer calls it.
    """

    source = "full index"

    def __init__(self, index: GradientIndex, device: torch.device):
        """Read the index's divisors.

        Args:
            index: On disk.
            device: Where to multiply.
        """
        self.index = index
        self._reader = DeviceIndex(index, device) if device.type == "cuda" else index
        self.divisors = balance(index.rms())

    def products(
        self, vectors: Tensor, on_rows: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Return inner products (Q, N) of vectors (Q, P) with all training gradients.

        Args:
            vectors: In the eigenbasis, shape (Q, P), float32.
            on_rows: Called with (examples done, examples in all); may raise to stop.
        """
        return self._reader.scores(vectors * self.divisors, on_rows)

    def variance(self, vector: Tensor, scores: np.ndarray) -> np.ndarray:
        """Return the variance that compression leaves in the products of a vector."""
        return np.zeros(self.index.num_examples)

    def estimates(self, vector: Tensor) -> np.ndarray:
        """Return no separate estimates, shape (0, N): compression leaves no error."""
        return np.empty((0, self.index.num_examples))


@dataclass(frozen=True)
class FromSketch:
    """Training gradients in the packed sketch, whitened at the collection's damping.

    Attributes:
        sketch: What was applied.
        bits: Signs, shape (N, k / 8).
        scales: Shape (N,).
        unwhitening: (eigenvalue + damping)^1/2, shape (P,).
        norms: Lengths of the whitened training gradients, shape (N,).
        size: What a product is of the exact one, on average. One bit keeps the sign of
            a coordinate, not its size; where query and image are large together, their
            product comes out too small, by some percent.
        law: How the error of a product grows.
    """

    sketch: Sketch
    bits: np.ndarray
    scales: np.ndarray
    unwhitening: Tensor
    norms: np.ndarray
    size: float = 1.0
    law: Law = Law(1.0)

    source = "sketch"

    def products(
        self, vectors: Tensor, on_rows: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Return estimates (Q, N) of inner products with vectors (Q, P).

        Of the right size on average over queries like the gallery's; for one query they
        are too large or too small together by what `law` says.
        """
        sketched = self.sketch.apply(vectors * self.unwhitening)
        return packed_products(sketched, self.bits, self.scales) / self.size

    def variance(self, vector: Tensor, scores: np.ndarray) -> np.ndarray:
        """Return the variance that sketching leaves in the products of a vector."""
        return self.law.variance(self.base(vector), scores)

    def base(self, vector: Tensor) -> np.ndarray:
        """Return the variance of products of a vector with images unlike it, (N,)."""
        size = float((vector * self.unwhitening).square().sum())
        return ONE_BIT_VARIANCE * size * self.norms**2 / self.sketch.order.shape[0]

    def estimates(self, vector: Tensor) -> np.ndarray:
        """Return products of a vector by each part of the sketch alone, (K, N).

        Parts share no coordinate, so they are independent; their mean is the product.
        """
        sketched = self.sketch.apply((vector * self.unwhitening)[None])
        rows = []
        for first, last in part_bounds(self.bits.shape[1]):
            bits = np.ascontiguousarray(self.bits[:, first:last])
            part = sketched[:, 8 * first : 8 * last].contiguous()
            share = (last - first) / self.bits.shape[1]
            product = packed_products(part, bits, self.scales)[0]
            rows.append(product / (share * self.size))
        return np.stack(rows)


@dataclass(frozen=True)
class FromFeatures:
    """Training gradients in the random projections that TRAK is made of.

    Attributes:
        file: With features and lengths of the gradients.
    """

    file: MethodFile

    source = "projection"

    def products(
        self, vectors: Tensor, on_rows: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Return unbiased estimates (Q, N) of inner products with vectors (Q, P)."""
        return (self.file.projection.apply(vectors) @ self.file.features.T).numpy()

    def variance(self, vector: Tensor, scores: np.ndarray) -> np.ndarray:
        """Return the variance that projecting leaves in the products of a vector."""
        size = float(vector.square().sum())
        return size * self.norms**2 / self.file.features.shape[1]

    def estimates(self, vector: Tensor) -> np.ndarray:
        """Return products of a vector by each part of the features alone, (K, N)."""
        features, own = self.file.features, self.file.projection.apply(vector[None])[0]
        return np.stack([
            (features[:, first:last] @ own[first:last]).double().numpy()
            * (len(own) / (last - first))
            for first, last in part_bounds(len(own))
        ])

    @cached_property
    def norms(self) -> np.ndarray:
        """Lengths of the training gradients, shape (N,)."""
        return self.file.tensors["norm"].numpy().astype(np.float64)


TrainingGradients = FromIndex | FromSketch | FromFeatures


@dataclass(frozen=True)
class Noise:
    """What draws leave of noise in scores, those of the training and of the query.

    Attributes:
        deviation: Of each coordinate of the training gradients, shape (P,), float32.
        whitening: What whitens the training gradients, divided by, shape (P,).
        level: Of each example's noise relative to the average, shape (N,).
        lengths: Of the whitened training gradients, shape (N,).
        model: How errors grow with the scores.
        kind: Of the question, see `core.scores.errors.question_kind`.
    """

    deviation: Tensor
    whitening: Tensor
    level: np.ndarray
    lengths: np.ndarray
    model: ErrorModel
    kind: str = Lens.measurement

    def asked(self, folds: Tensor) -> Asked:
        """Return what of a question decides its errors.

        Args:
            folds: Preconditioned gradients, shape (F, P); a single one has no draws.
        """
        mean, count = folds.mean(0), len(folds)
        spread = float((mean * self.deviation).double().square().sum())
        if count < 2:
            return Asked(spread)
        apart = (folds - mean) * self.whitening
        noise = float(apart.double().square().sum()) / (count * (count - 1))
        length = float((mean * self.whitening).double().square().sum())
        # The noise is part of the length; a query that is nothing else is told as such.
        relative = noise / max(length - noise, noise) if noise else 0.0
        return Asked(spread, noise / folds.shape[1], relative)

    def variance(self, folds: Tensor, scores: np.ndarray) -> np.ndarray:
        """Return the variance that both kinds of draws leave, by the laws, (N,)."""
        asked = self.asked(folds)
        return self.model.variance(scores, asked, self.level, self.lengths)

    def repeated(self, variance: np.ndarray, scores: np.ndarray, source: str):
        """Return what repeats make of a variance by the laws, both (N,).

        Args:
            variance: By the laws, that of a short form included.
            scores: As shown.
            source: Where they come from.
        """
        kind = answer_kind(self.kind, source)
        return self.model.repeated(variance, scores, kind)
