"""Where every random number comes from: generators keyed by what they are for.

A generator is seeded by (collection seed, purpose, keys), never by global state, so
that a result depends neither on batch size, nor on order, resume, or the number of
processes. Draws are made on the CPU and then moved, so a GPU sees the same numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from scipy.special import gammaincinv
from torch import Tensor

from core.seeds import keyed_seed


def keyed_generator(seed: int, purpose: str, *keys: int | str) -> torch.Generator:
    """Return a CPU generator that depends on exactly the given values."""
    return torch.Generator().manual_seed(keyed_seed(seed, purpose, *keys))


def subset_mask(
    num_examples: int, subset: int, seed: int, share: float = 0.5
) -> np.ndarray:
    """Return which examples are in a random subset, shape (N,), bool.

    It depends on its own number alone, so more subsets can be added later.
    """
    generator = keyed_generator(seed, "subset", share, subset)
    order = torch.randperm(num_examples, generator=generator).numpy()
    mask = np.zeros(num_examples, dtype=bool)
    mask[order[: round(share * num_examples)]] = True
    return mask


def subset_masks(
    num_examples: int, num_subsets: int, seed: int, share: float = 0.5
) -> np.ndarray:
    """Return the first random subsets, shape (M, N), bool."""
    return np.stack([
        subset_mask(num_examples, m, seed, share) for m in range(num_subsets)
    ])


class Batch:
    """A dataclass of tensors that have an entry for each draw, or are None."""

    def __len__(self) -> int:
        """Return the number of draws."""
        return len(getattr(self, fields(self)[0].name))

    def __getitem__(self, index: slice | Tensor) -> Self:
        """Return the draws at a slice or an index tensor."""
        return self._each(lambda values: values[index])

    def to(self, device: torch.device | str) -> Self:
        """Return the same draws on another device."""
        return self._each(lambda values: values.to(device))

    def split(self, size: int) -> list[Self]:
        """Return the draws in runs of a size; the last may be shorter."""
        return [self[i : i + size] for i in range(0, len(self), size)]

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        values = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(None if one is None else change(one) for one in values))


@dataclass(frozen=True)
class Draws(Batch):
    """Monte Carlo draws of what the training loss averages over.

    Attributes:
        timesteps: 0-based timesteps, shape (S,), int64.
        noise: Standard normal noise, shape (S, C, H, W).
        drop_label: Whether the class label is replaced by the null label, shape (S,);
            with several conditions which of them
            (`core.model.conditions.SummedEmbedding`).
        flip: Whether the image is mirrored, shape (S,).
        weights: Factors of the costs, shape (S,), float32: the mean of weight times
            cost estimates the mean over all timesteps. Ones for a uniform proposal.
    """

    timesteps: Tensor
    noise: Tensor
    drop_label: Tensor
    flip: Tensor
    weights: Tensor


def systematic(num_draws: int, generator: torch.Generator) -> Tensor:
    """Return equally spaced positions in [0, 1) behind one random offset, ascending.

    Each of the equal slices of [0, 1) holds one position, uniform in its slice.

    Returns:
        Shape (num_draws,), float64.
    """
    offset = torch.rand(1, generator=generator, dtype=torch.float64)
    return (torch.arange(num_draws) + offset) / num_draws


def drawn_timesteps(positions: Tensor, proposal: Tensor) -> tuple[Tensor, Tensor]:
    """Return the proposal's quantiles at the positions, and their importance weights.

    Args:
        positions: In [0, 1), shape (S,), float64.
        proposal: Positive, shape (T',), float64; only ratios count.

    Returns:
        Timesteps, shape (S,), int64, each t with probability q_t = proposal_t / sum;
        and weights 1 / (T' q_t), shape (S,), float32.
    """
    probabilities = proposal / proposal.sum()
    bounds = probabilities.cumsum(0)[:-1]  # without the last, rounding cannot leave T'
    timesteps = torch.searchsorted(bounds, positions, right=True)
    return timesteps, (1 / (len(proposal) * probabilities[timesteps])).float()


def cosine_basis(size: int) -> Tensor:
    """Return the orthonormal cosines (DCT-II) of a side, rows by frequency, float64."""
    steps = torch.arange(size, dtype=torch.float64)
    rows = torch.cos(torch.pi * steps[:, None] * (steps + 0.5) / size)
    return rows / rows.norm(dim=1, keepdim=True)


def orthogonal_noise(
    num_draws: int, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    """Return standard normal images that are orthogonal to each other, band by band.

    The coordinates are the cosine coefficients of the channels, by frequency, in blocks
    of as many as there are draws. In each block the draws point in the orthogonal
    directions of a uniformly random rotation, with stratified lengths: alone, each
    image is standard normal; together they cover the coarse structure evenly, to
    which a denoiser is most sensitive.

    Args:
        num_draws: S.
        shape: Shape (C, H, W).
        generator: Source of every number drawn.

    Returns:
        Shape (S, C, H, W), float32.
    """
    channels, height, width = shape
    size = channels * height * width
    side = min(num_draws, size)
    if side == 1:
        return torch.randn(num_draws, *shape, generator=generator)
    groups, blocks = -(-num_draws // side), -(-size // side)
    normal = torch.randn(
        groups, blocks, side, side, generator=generator, dtype=torch.float64
    )
    directions, upper = torch.linalg.qr(normal)
    # The signs make the rotation uniform, whatever the convention of the library.
    directions = directions * upper.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
    order = torch.rand(groups, blocks, side, generator=generator).argsort(-1)
    offset = torch.rand(groups, blocks, side, generator=generator, dtype=torch.float64)
    # The quantiles of chi with `side` degrees of freedom.
    squares = 2 * gammaincinv(side / 2, ((order + offset) / side).numpy())
    lengths = torch.from_numpy(np.sqrt(squares))
    coordinates = directions * lengths[..., None]
    coordinates = coordinates.transpose(1, 2).reshape(groups * side, -1)

    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    frequency = (rows**2 + columns**2).expand(shape).flatten()
    spectrum = torch.empty(num_draws, size, dtype=torch.float64)
    spectrum[:, frequency.argsort(stable=True)] = coordinates[:num_draws, :size]
    spectrum = spectrum.view(num_draws, *shape)
    return (cosine_basis(height).T @ spectrum @ cosine_basis(width)).float()


def drop_codes(uniform: Tensor, shares: tuple[float, ...]) -> Tensor:
    """Return what is dropped at each of some uniform numbers in [0, 1).

    Args:
        uniform: Shape (S,).
        shares: How often the whole label is dropped, and each part alone.

    Returns:
        Shape (S,): whether, if there is one share; otherwise 0 for nothing, or the
        number of the share, counted from 1.
    """
    if len(shares) == 1:
        return uniform < shares[0]
    bounds = torch.tensor(shares, dtype=torch.float64).cumsum(0)
    code = torch.searchsorted(bounds, uniform.double(), right=True) + 1
    return torch.where(code > len(shares), 0, code)


def even_drops(
    count: int, shares: tuple[float, ...], generator: torch.Generator
) -> Tensor:
    """Return drops as `drop_codes` does, at regular intervals, shape (count,)."""
    total = sum(shares)
    # Systematic sampling of yes and no: a dropped label after every 1 / p pairs.
    drop = (torch.arange(count) + 1) * total
    drop = drop + torch.rand(1, generator=generator, dtype=torch.float64)
    before = (drop - total).floor()
    dropped = drop.floor() > before
    if len(shares) == 1:
        return dropped
    # Which one: a sequence that covers [0, 1) evenly, behind a random offset.
    offset = torch.rand(1, generator=generator, dtype=torch.float64)
    place = (before * (5**0.5 - 1) / 2 + offset) % 1
    relative = tuple(share / total for share in shares)
    codes = drop_codes(place.clamp(max=1 - 1e-12), relative)
    return torch.where(dropped, codes, 0)


def one_fold(
    num_draws: int,
    shape: tuple[int, ...],
    proposal: Tensor,
    generator: torch.Generator,
    label_dropout: tuple[float, ...],
    flip: bool,
) -> Draws:
    """Return draws that are a complete estimate, in order of their timesteps.

    Draws come in antithetic pairs: the same timestep, label and mirror, and opposite
    noise, so the part of the gradient that is odd in the noise, such as the product of
    image and noise, cancels. Of an odd number a random one has no partner. Labels are
    dropped and images mirrored at regular intervals. Each draw by itself is
    distributed as in training, so no expectation changes.
    """
    num_pairs = (num_draws + 1) // 2
    timesteps, weights = drawn_timesteps(systematic(num_pairs, generator), proposal)
    noise = orthogonal_noise(num_pairs, shape, generator)
    drop = even_drops(num_pairs, label_dropout, generator)
    mirrored = torch.arange(num_pairs) + torch.randint(2, (1,), generator=generator)
    mirrored = (mirrored % 2 == 1) & flip
    pairs = Draws(timesteps, noise, drop, mirrored, weights)
    both = pairs[torch.arange(num_pairs).repeat_interleave(2)]
    both.noise[1::2] *= -1
    alone = 2 * int(torch.randint(num_pairs, (1,), generator=generator))
    kept = torch.arange(2 * num_pairs) != alone + 1
    return both if num_draws % 2 == 0 else both[kept]


@dataclass(frozen=True)
class Augmentation:
    """What training changes at random of an example.

    Attributes:
        label_dropout: Probability of the null label; of it and of each part that is
            dropped alone, for a model of several conditions.
        flip: Whether half of the images are mirrored.
    """

    label_dropout: float | tuple[float, ...] = 0.0
    flip: bool = False


def make_draws(
    num_draws: int,
    shape: tuple[int, ...],
    timesteps: int | tuple[int, int],
    generator: torch.Generator,
    augmentation: Augmentation = Augmentation(),
    num_folds: int = 1,
    proposal: Tensor | None = None,
) -> Draws:
    """Return draws with systematic timesteps and antithetic noise, in complete folds.

    Args:
        num_draws: S, a multiple of `num_folds`.
        shape: Shape (C, H, W) of one noisy example.
        timesteps: T, or a half-open range of timesteps.
        generator: Source of every number drawn.
        augmentation: Of training, in the same shares.
        num_folds: Draws [f S/F, (f+1) S/F) form fold f, a complete estimate by itself.
        proposal: How often each timestep is drawn, positive, shape (T,), only ratios
            count; None draws all alike. The weights undo it.

    Raises:
        ValueError: If the draws do not divide into the folds, or the range is empty.
    """
    start, stop = (0, timesteps) if isinstance(timesteps, int) else timesteps
    if not 0 <= start < stop:
        raise ValueError(
            f"The timestep range {start}:{stop} is empty. Give a first timestep from 0 "
            "on, smaller than the last one."
        )
    if num_draws < num_folds or num_draws % num_folds:
        raise ValueError(
            f"{num_draws} draws cannot be split into {num_folds} equal folds. "
            f"Choose a multiple of {num_folds}."
        )
    uniform = torch.ones(stop - start)
    proposal = uniform if proposal is None else proposal[start:stop]
    shares, flip = augmentation.label_dropout, augmentation.flip
    shares = shares if isinstance(shares, tuple) else (shares,)
    size = num_draws // num_folds
    folds = [
        one_fold(size, shape, proposal.double(), generator, shares, flip)
        for _ in range(num_folds)
    ]
    draws = Draws(
        *(
            torch.cat([getattr(fold, field.name) for fold in folds])
            for field in fields(Draws)
        )
    )
    return replace(draws, timesteps=draws.timesteps + start)
