"""Where every random number comes from: generators keyed by what they are for.

A generator is seeded by (collection seed, purpose, keys), never by global state, so
that a result depends neither on batch size, nor on order, resume, or the number of
processes. Draws are made on the CPU and then moved, so a GPU sees the same numbers.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


def keyed_generator(seed: int, purpose: str, *keys: int | str) -> torch.Generator:
    """Return a CPU generator that depends on exactly the given values."""
    text = "\x1f".join([str(seed), purpose, *map(str, keys)])
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class Draws:
    """Monte Carlo draws of what the training loss averages over.

    Attributes:
        timesteps: 0-based timesteps, shape (S,), int64.
        noise: Standard normal noise, shape (S, C, H, W).
        drop_label: Whether the class label is replaced by the null label, shape (S,).
        flip: Whether the picture is mirrored, shape (S,).
    """

    timesteps: Tensor
    noise: Tensor
    drop_label: Tensor
    flip: Tensor

    def __len__(self) -> int:
        """Return the number of draws S."""
        return len(self.timesteps)

    def __getitem__(self, index) -> "Draws":
        """Return the draws at a slice or an index tensor."""
        return Draws(
            self.timesteps[index],
            self.noise[index],
            self.drop_label[index],
            self.flip[index],
        )

    def to(self, device: torch.device | str) -> "Draws":
        """Return the same draws on another device."""
        return Draws(
            self.timesteps.to(device),
            self.noise.to(device),
            self.drop_label.to(device),
            self.flip.to(device),
        )


def stratified_timesteps(
    num_draws: int, generator: torch.Generator, start: int, stop: int
) -> Tensor:
    """Return timesteps of which each lies uniformly in its own slice of [start, stop).

    The slices have equal width, so the mean over the draws is an unbiased and less
    noisy estimate of the mean over all timesteps (0.74 instead of 0.48 Spearman between
    two sets of 32 draws). The order is random, so any subset of the draws is also
    spread out.

    Returns:
        Timesteps, shape (num_draws,), int64.
    """
    position = torch.arange(num_draws) + torch.rand(num_draws, generator=generator)
    timesteps = start + (position * ((stop - start) / num_draws)).floor().long()
    timesteps = timesteps.clamp(max=stop - 1)
    return timesteps[torch.randperm(num_draws, generator=generator)]


def make_draws(
    num_draws: int,
    shape: tuple[int, ...],
    num_train_timesteps: int,
    generator: torch.Generator,
    label_dropout: float = 0.0,
    flip: bool = False,
    timestep_range: tuple[int, int] | None = None,
    num_folds: int = 1,
) -> Draws:
    """Return draws with stratified timesteps, in folds that are each stratified.

    Args:
        num_draws: S, a multiple of `num_folds`.
        shape: Shape (C, H, W) of one noisy example.
        num_train_timesteps: T.
        generator: Source of every number drawn.
        label_dropout: Probability of the null label.
        flip: Whether to mirror half of the pictures.
        timestep_range: Half-open range of timesteps; None means [0, T).
        num_folds: Draws [f S/F, (f+1) S/F) form fold f, a complete estimate by itself.

    Raises:
        ValueError: If the draws do not divide into the folds, or the range is empty.
    """
    start, stop = timestep_range or (0, num_train_timesteps)
    if not 0 <= start < stop <= num_train_timesteps:
        raise ValueError(
            f"The timestep range {start}:{stop} is not inside 0:{num_train_timesteps}. "
            "Give a first timestep smaller than the last one."
        )
    if num_draws < num_folds or num_draws % num_folds:
        raise ValueError(
            f"{num_draws} draws cannot be split into {num_folds} equal folds. "
            f"Choose a multiple of {num_folds}."
        )
    per_fold = num_draws // num_folds
    timesteps = torch.cat([
        stratified_timesteps(per_fold, generator, start, stop) for _ in range(num_folds)
    ])
    noise = torch.randn(num_draws, *shape, generator=generator)
    drop_label = torch.rand(num_draws, generator=generator) < label_dropout
    flips = torch.rand(num_draws, generator=generator) < (0.5 if flip else 0.0)
    return Draws(timesteps, noise, drop_label, flips)
