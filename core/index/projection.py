"""Random projections of long vectors to k coordinates that keep inner products.

Two kinds, both unbiased, both generated from a seed and never held as a matrix (P, k):
"sketch", a count sketch (`core.index.sketch`), reads every coordinate once, so it is
what a CPU can afford in place of a dense projection; "signs" is dense, random signs
over sqrt(k) (Achlioptas 2003), made block by block from a counter, equal on every
device. TRAK uses a dense one with k up to 32,768.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.config import MAX_DIM, PROJECTIONS
from core.index.sketch import Sketch, make_sketch
from core.measure.draws import keyed_generator

ENTRIES = 1 << 24  # of a block of a dense projection that exist at a time

# Odd constants of a 64-bit mixing function (Steele et al. 2014, SplitMix64), as signed.
_STEP = -7046029254386353131
_MIX = (-4658895280553007687, -7723592293110705685)


@dataclass(frozen=True)
class SignProjection:
    """A dense projection whose entry (i, j) is a sign from a counter, over sqrt(k).

    Attributes:
        dim: k.
        key: Of the counter.
    """

    dim: int
    key: int

    def signs(self, first: int, stop: int, device: torch.device) -> Tensor:
        """Return the signs of coordinates [first, stop), shape (stop - first, k)."""
        rows = torch.arange(first, stop, device=device)[:, None]
        x = (rows * self.dim + torch.arange(self.dim, device=device)) * _STEP + self.key
        x = (x ^ _shifted(x, 30)) * _MIX[0]
        x = (x ^ _shifted(x, 27)) * _MIX[1]
        return ((x >> 63) * 2 + 1).float()

    def apply(self, vectors: Tensor) -> Tensor:
        """Return the projections (B, k), on their device, of vectors (B, P)."""
        result = vectors.new_zeros(len(vectors), self.dim)
        step = max(1, ENTRIES // self.dim)
        for first in range(0, vectors.shape[1], step):
            part = vectors[:, first : first + step]
            signs = self.signs(first, first + part.shape[1], vectors.device)
            result += part @ signs.to(vectors.dtype)
        return result / self.dim**0.5


def _shifted(values: Tensor, count: int) -> Tensor:
    """Return int64 values shifted right without their sign."""
    return (values >> count) & ((1 << (64 - count)) - 1)


Projection = Sketch | SignProjection


def make_projection(kind: str, num_params: int, dim: int, seed: int) -> Projection:
    """Return the projection that a seed determines.

    Args:
        kind: One of `PROJECTIONS`.
        num_params: P.
        dim: k, up to 32,768.
        seed: The collection's.

    Raises:
        ValueError: If the kind is unknown or the dimension is out of range.
    """
    if kind not in PROJECTIONS:
        raise ValueError(
            f"There is no projection '{kind}'. Choose one of {', '.join(PROJECTIONS)}."
        )
    if not 1 <= dim <= MAX_DIM:
        raise ValueError(
            f"{dim} features were asked for. Choose 1 to {MAX_DIM:,}: more were never "
            "used and need too much memory."
        )
    generator = keyed_generator(seed, "projection", kind, dim)
    if kind == "sketch":
        return make_sketch(num_params, dim, generator)
    return SignProjection(dim, generator.initial_seed())


def checksum(projection: Projection) -> str:
    """Return a text that identifies a projection, to refuse another one's features."""
    if isinstance(projection, Sketch):
        return projection.checksum()
    return f"{projection.dim:x}-{projection.key:016x}"


def project_columns(projection: Projection, values: Tensor, first: int) -> Tensor:
    """Return what a few coordinates of many vectors add to their projections (B, k).

    Args:
        projection: On the CPU.
        values: Coordinates [first, first + n), shape (B, n).
        first: Number of the first one.
    """
    stop = first + values.shape[1]
    if isinstance(projection, SignProjection):
        signs = projection.signs(first, stop, values.device).to(values.dtype)
        return values @ signs / projection.dim**0.5
    buckets, signs = (torch.from_numpy(p[first:stop]) for p in projection.places)
    sums = values.new_zeros(len(projection.order), len(values))
    return sums.index_add_(0, buckets, (values * signs).T.contiguous()).T
