"""Ways to store a gradient in few bytes, and the two ways of the paper's App. F.

Everything is said in whitened coordinates: a training gradient in the eigenbasis over
the root of (eigenvalue + damping) at the collection's own damping, which is what the
collection's sketch holds. Queries of any damping are scaled to match. Which format
keeps how much of the scores is `precompute.stages.fidelity`'s question.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.curvature.basis import Eigenbasis
from core.index.full import BLOCK, balance
from core.index.kernels import block_products, encode_blocks, packed_bytes
from core.index.sketch import make_sketch
from core.measure.draws import keyed_generator
from core.model.parameters import Layout

BUDGETS = (1_024, 8_192, 65_536, 524_288)  # bytes per example
BITS = (8, 4, 1)


@dataclass(frozen=True)
class Format:
    """A linear map of whitened gradients, then some bits for each coordinate.

    Attributes:
        family: How coordinates are made.
        dim: How many, k.
        bits: Of each: 8, 4 or 1; blocks of coordinates share a scale.
        budget: Bytes per example that it was made for; None for all coordinates.
        store: Whitened training gradients (B, P) -> what is packed (B, k).
        ask: Whitened queries (Q, P) -> what is multiplied with it (Q, k).
    """

    family: str
    dim: int
    bits: int
    budget: int | None
    store: Callable[[Tensor], Tensor]
    ask: Callable[[Tensor], Tensor]

    @property
    def num_bytes(self) -> int:
        """Return the bytes per example, scales included."""
        return packed_bytes(self.dim, BLOCK, self.bits) + 4 * -(-self.dim // BLOCK)

    def empty(self, num_examples: int) -> tuple[np.ndarray, np.ndarray]:
        """Return codes and scales for so many examples, to be filled."""
        width = packed_bytes(self.dim, BLOCK, self.bits)
        codes = np.zeros((num_examples, width), np.uint8)
        return codes, np.zeros((num_examples, -(-self.dim // BLOCK)), np.float32)

    def pack(self, whitened: Tensor, codes: np.ndarray, scales: np.ndarray) -> None:
        """Write whitened gradients (B, P) into codes and scales of B examples."""
        values = self.store(whitened).contiguous().numpy()
        threads = torch.get_num_threads()
        encode_blocks(values, codes, scales, BLOCK, self.bits, threads)

    def products(
        self, queries: Tensor, codes: np.ndarray, scales: np.ndarray
    ) -> np.ndarray:
        """Return inner products (Q, B) of queries after `ask` with packed examples."""
        values, threads = queries.contiguous().numpy(), torch.get_num_threads()
        return block_products(values, codes, scales, BLOCK, self.bits, threads)


def full_formats(rms: Tensor, whitening: Tensor) -> list[Format]:
    """Return the full index in every number of bits.

    Args:
        rms: Of each rotated coordinate, shape (P,).
        whitening: (eigenvalue + own damping)^-1/2, shape (P,).
    """
    size = balance(rms) * whitening
    return [
        Format(
            "full, balanced",
            len(rms),
            bits,
            None,
            lambda v: v / size,
            lambda q: q * size,
        )
        for bits in BITS
    ]


def budget_formats(layout: Layout, eigenvalues: Tensor, seed: int) -> list[Format]:
    """Return every way to spend every budget on a part of the dimensions.

    Few dimensions in many bits, or many in few; ways that would need more dimensions
    than there are parameters are left out.
    """
    families = {
        "sketch": lambda dim: _sketch(layout, dim, seed),
        "largest eigenvalues": lambda dim: _largest(eigenvalues, dim),
        "Kronecker projection": lambda dim: _kronecker(layout, dim, seed),
    }
    formats = []
    for budget in BUDGETS:
        for bits in BITS:
            dim = budget * 8 // bits
            if dim >= layout.num_params:
                continue
            for family, make in families.items():
                kept, project = make(dim)
                formats.append(Format(family, kept, bits, budget, project, project))
    return formats


Projection = tuple[int, Callable[[Tensor], Tensor]]  # dimension, and the map to it


def _sketch(layout: Layout, dim: int, seed: int) -> Projection:
    generator = keyed_generator(seed, "fidelity sketch", dim)
    return dim, make_sketch(layout.num_params, dim, generator).apply


def _largest(eigenvalues: Tensor, dim: int) -> Projection:
    chosen = eigenvalues.topk(dim).indices.sort().values
    return dim, lambda vectors: vectors.index_select(1, chosen)


def _kronecker(layout: Layout, dim: int, seed: int) -> Projection:
    """Return G -> L G R with random signs, both sides of all layers cut alike."""
    kept = (dim / layout.num_params) ** 0.5
    generator = keyed_generator(seed, "fidelity kronecker", dim)

    def signs(rows: int, columns: int) -> Tensor:
        return torch.randint(2, (rows, columns), generator=generator) * 2.0 - 1

    sides = []
    for layer in layout.layers:
        a, b = max(1, int(kept * layer.d_out)), max(1, int(kept * layer.d_in))
        sides.append((signs(a, layer.d_out) / a**0.5, signs(layer.d_in, b) / b**0.5))

    def project(vectors: Tensor) -> Tensor:
        matrices = zip(sides, layout.split(vectors), strict=True)
        return layout.join([
            left @ matrix @ right for (left, right), matrix in matrices
        ])

    return sum(len(left) * right.shape[1] for left, right in sides), project


def int8_per_tensor(basis: Eigenbasis, preconditioned: Tensor) -> Tensor:
    """Return preconditioned queries (Q, P) rounded as the paper rounds them.

    In the space of the parameters every weight and every bias gets one scale, its
    largest magnitude over 127. Given and returned in the eigenbasis.
    """
    rounded = []
    matrices = basis.layout.split(basis.rotate_back(preconditioned))
    for layer, matrix in zip(basis.layout.layers, matrices, strict=True):
        weights = layer.d_in - layer.has_bias
        parts = matrix.split([weights, layer.d_in - weights], dim=-1)
        rounded.append(torch.cat([_int8(part) for part in parts if part.numel()], -1))
    return basis.rotate(basis.layout.join(rounded))


def _int8(tensor: Tensor) -> Tensor:
    scale = balance(tensor.abs().amax((-2, -1), keepdim=True) / 127)
    return (tensor / scale).round() * scale


def low_rank(
    layout: Layout, preconditioned: Tensor, rank: int | None
) -> tuple[Tensor, int]:
    """Return queries (Q, P) with each layer's matrix cut to a rank, and their bytes.

    The singular vectors are kept in float32; rotating into the eigenbasis changes no
    singular value, so the cut may be made there.

    Args:
        layout: The layers.
        preconditioned: Shape (Q, P), in the eigenbasis or not.
        rank: None for that which takes as many bytes as one per parameter, at least 1.
    """
    parts, num_bytes = [], 0
    for layer, matrix in zip(layout.layers, layout.split(preconditioned), strict=True):
        sides = layer.d_out + layer.d_in
        r = rank or max(1, layer.size // (4 * sides))
        u, s, v = torch.linalg.svd(matrix, full_matrices=False)
        parts.append((u[..., :r] * s[..., None, :r]) @ v[..., :r, :])
        num_bytes += 4 * min(r, s.shape[-1]) * sides
    return layout.join(parts), num_bytes
