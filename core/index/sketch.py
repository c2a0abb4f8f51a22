"""Short forms of long vectors whose inner products survive: what fits inside DuckDB.

A sketch of dimension k permutes the coordinates, flips their signs at random and adds
them up in k groups of equal size; the inner product of two sketches is an unbiased
estimate of that of the vectors (a count sketch, Charikar et al. 2002, with balanced
buckets). Stored sketches keep one bit per coordinate and one scale.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from core.index.kernels import add_to_buckets, block_products
from core.measure.draws import keyed_generator

BLOCK = 4096  # coordinates that the kernel decodes at a time


@dataclass(frozen=True)
class Sketch:
    """One random sketch of vectors of length P.

    Attributes:
        order: Coordinate at each place, shape (k, m) with k m >= P; P marks an empty
            place.
        signs: +1 or -1 at each place, times a weight if there are weights, 0 at empty
            ones, shape (k, m).
    """

    order: Tensor
    signs: Tensor

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each coordinate's bucket, int32, and its sign, float32."""
        taken = (self.signs.flatten() != 0).nonzero()[:, 0]
        coordinates = self.order.flatten()[taken]
        buckets = torch.empty(len(taken), dtype=torch.int32)
        buckets[coordinates] = (taken // self.order.shape[1]).int()
        signs = torch.empty(len(taken))
        signs[coordinates] = self.signs.flatten()[taken]
        return buckets.numpy(), signs.numpy()

    def weighted(self, weights: Tensor) -> "Sketch":
        """Return the sketch that multiplies vectors by positive weights (P,) first."""
        padded = torch.nn.functional.pad(weights, (0, 1))
        return Sketch(self.order, self.signs * padded[self.order])

    def apply(self, vectors: Tensor) -> Tensor:
        """Return the sketches (B, k), on the CPU, of vectors (B, P)."""
        sums = np.empty((len(vectors), len(self.order)), np.float32)
        add_to_buckets(vectors.cpu().contiguous().numpy(), *self.places, sums)
        return torch.from_numpy(sums)

    def checksum(self) -> str:
        """Return hex digits that identify the sketch, to refuse another one's data."""
        digest = hashlib.sha256(self.order.numpy().astype("<i8").tobytes())
        digest.update(self.signs.numpy().astype("<f4").tobytes())
        return digest.hexdigest()[:16]


def make_sketch(num_params: int, dim: int, generator: torch.Generator) -> Sketch:
    """Return a random sketch of vectors of length `num_params` to `dim` coordinates."""
    width = -(-num_params // dim)
    order = torch.full((dim * width,), num_params)
    order[:num_params] = torch.arange(num_params)
    order = order[torch.randperm(dim * width, generator=generator)]
    signs = torch.randint(2, (dim * width,), generator=generator).float() * 2 - 1
    signs = torch.where(order < num_params, signs, torch.zeros(()))
    return Sketch(order.view(dim, width), signs.view(dim, width))


def collection_sketch(seed: int, num_params: int, dim: int) -> Sketch:
    """Return the one sketch that a collection's seed and sizes determine."""
    return make_sketch(num_params, dim, keyed_generator(seed, "sketch"))


def pack_signs(sketches: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return sketches (B, k) as sign bits (B, k / 8) and one scale each (B,).

    The scale |s|^2 / |s|_1 makes the packed vector's component along s equal to s
    itself. So an inner product keeps its size, but where both vectors are large in the
    same few coordinates: of those one bit forgets how large they are, and products of
    vectors that are much alike come out low, by 2 to 8% on Glyphs.
    `core.scores.scoring` corrects that on average.
    """
    s = sketches.cpu().numpy()
    total = np.abs(s).sum(1, dtype=np.float64)
    scales = np.divide(
        np.square(s, dtype=np.float64).sum(1),
        total,
        out=np.zeros_like(total),
        where=total > 0,
    )
    return np.packbits(s > 0, axis=1), scales.astype(np.float32)


def packed_products(
    queries: Tensor, bits: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """Return inner products (Q, N) of query sketches (Q, k) with packed ones.

    Args:
        queries: Shape (Q, k), float32.
        bits: Shape (N, k / 8), uint8.
        scales: Shape (N,), float32.
    """
    # A byte of `packbits` holds neighbours, first coordinate highest; the kernel takes
    # the k-th fields of all bytes of a block together, lowest first.
    planar = [
        part.unflatten(1, (-1, 8)).flip(2).mT.flatten(1)
        for part in queries.cpu().split(BLOCK, dim=1)
    ]
    values = torch.cat(planar, dim=1).numpy()
    block_scales = np.repeat(scales[:, None], len(planar), axis=1)
    threads = torch.get_num_threads()
    return block_products(values, bits, block_scales, BLOCK, 1, threads)
