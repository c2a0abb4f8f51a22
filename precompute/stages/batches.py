"""What each training step sees: which images, timesteps, noise, mirrors and labels.

There are two ways to draw it. Usually a step's numbers depend on the step, so that
leaving an image out moves all that follow it. With `train.common_draws` every image
brings its own numbers and its own place in the order, by its id and its visit: two
trainings on parts of one data set then differ only in the images that they see.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from core.config import CollectionConfig
from core.data.datasets import Dataset
from core.measure.draws import drop_codes, keyed_generator
from core.model.denoiser import Denoiser
from core.unrolled.step import Seen


@dataclass(frozen=True)
class Batch:
    """What one training step sees.

    Attributes:
        index: Positions of the images, shape (B,).
        timesteps: Shape (B,).
        noise: Shape (B, C, H, W).
        drop: Whose label is dropped, or which part of it, shape (B,).
        flip: What is mirrored, shape (B,).
    """

    index: Tensor
    timesteps: Tensor
    noise: Tensor
    drop: Tensor
    flip: Tensor

    def __getitem__(self, rows: Tensor) -> "Batch":
        """Return some of its rows."""
        return Batch(*(getattr(self, field.name)[rows] for field in fields(self)))

    def to(self, device: torch.device | str) -> "Batch":
        """Return the same batch on another device."""
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))

    def pictures(self, x_0: Tensor) -> Tensor:
        """Return its clean examples out of all (N, C, H, W), mirrored where said."""
        clean = x_0[self.index]
        return torch.where(self.flip[:, None, None, None], clean.flip(-1), clean)


def batch_indices(step: int, batch_size: int, num_examples: int, seed: int) -> Tensor:
    """Return the examples of a training step, shape (batch_size,).

    Steps walk through one random order of the examples after another.
    """
    first = step * batch_size
    positions = torch.arange(first, first + batch_size)
    orders = {
        epoch: torch.randperm(
            num_examples, generator=keyed_generator(seed, "order", epoch)
        )
        for epoch in (positions // num_examples).unique().tolist()
    }
    return torch.stack([
        orders[p // num_examples][p % num_examples] for p in positions.tolist()
    ])


def training_batch(
    config: CollectionConfig, denoiser: Denoiser, ids: np.ndarray, step: int
) -> Batch:
    """Return what a training step sees; it depends on the settings and the step.

    Args:
        config: The settings.
        denoiser: The model to be trained.
        ids: Of the images that take turns, shape (N,), int64, ascending.
        step: Its number.
    """
    if config.train.common_draws:
        return visiting_batch(config, denoiser, ids, step)
    settings, seed = config.train, config.seed
    index = batch_indices(step, settings.batch_size, len(ids), seed)
    g = keyed_generator(seed, "training step", step)
    timesteps = torch.randint(denoiser.num_train_timesteps, (len(index),), generator=g)
    noise = torch.randn(len(index), *denoiser.shape, generator=g)
    drop = drop_codes(torch.rand(len(index), generator=g), config.model.drops)
    flip = torch.rand(len(index), generator=g) < 0.5 * settings.horizontal_flip
    return Batch(index, timesteps, noise, drop, flip)


@lru_cache(maxsize=8)
def visiting_order(seed: int, ids: bytes, visit: int) -> tuple[int, ...]:
    """Return the positions of all images in the order of their visit.

    Every image draws its own place, so that any two come in the same order whatever
    the others are.

    Args:
        seed: The collection's.
        ids: Of the images, int64 as bytes, which can be cached.
        visit: How often each was seen before.
    """
    places = [
        torch.rand(
            1,
            generator=keyed_generator(seed, "place", image, visit),
            dtype=torch.float64,
        )
        for image in np.frombuffer(ids, np.int64).tolist()
    ]
    return tuple(torch.cat(places).argsort(stable=True).tolist())


def visiting_batch(
    config: CollectionConfig, denoiser: Denoiser, ids: np.ndarray, step: int
) -> Batch:
    """Return a step's batch in which every number belongs to an image and its visit.

    An image is seen once in each walk through all, so its visit is the walk's number.
    """
    size, key = config.train.batch_size, ids.astype(np.int64).tobytes()
    rows = []
    for turn in range(step * size, (step + 1) * size):
        visit, place = divmod(turn, len(ids))
        position = visiting_order(config.seed, key, visit)[place]
        g = keyed_generator(config.seed, "visit", int(ids[position]), visit)
        timestep = torch.randint(denoiser.num_train_timesteps, (), generator=g)
        noise = torch.randn(denoiser.shape, generator=g)
        drop = drop_codes(torch.rand((), generator=g), config.model.drops)
        flip = torch.rand((), generator=g) < 0.5 * config.train.horizontal_flip
        rows.append((torch.tensor(position), timestep, noise, drop, flip))
    return Batch(*map(torch.stack, zip(*rows, strict=True)))


def seen_rows(batch: Batch, kept: Tensor) -> Tensor:
    """Return the rows of a batch that are worth computing, at least one.

    Args:
        batch: What the step sees.
        kept: Weight of every image, 0 where it is left out, shape (N,).
    """
    rows = kept[batch.index].nonzero().flatten()
    return rows if len(rows) else torch.zeros(1, dtype=torch.long)


def seen_by(
    config: CollectionConfig,
    denoiser: Denoiser,
    turns: Dataset,
    x_0: Tensor,
    kept: Tensor,
) -> Callable[[int], Seen]:
    """Return what each step sees, a function of its number.

    Args:
        config: The settings.
        denoiser: The model to be trained.
        turns: The images that take turns.
        x_0: All of them clean, shape (N, C, H, W), on the model's device.
        kept: Weight of every image, 0 where it is left out, shape (N,).
    """
    device, labels = denoiser.device, torch.from_numpy(turns.labels)
    size = config.train.batch_size * math.prod(denoiser.shape)

    def seen(step: int) -> Seen:
        batch = training_batch(config, denoiser, turns.ids, step)
        batch = batch[seen_rows(batch, kept.cpu())].to(device)
        given = denoiser.dropped(labels.to(device)[batch.index], batch.drop)
        clean = batch.pictures(x_0)
        return Seen(batch.index, clean, batch.noise, batch.timesteps, given, size)

    return seen
