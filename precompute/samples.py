"""Make the gallery: samples over all classes, and their query gradients; resumable."""

import time

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from core.config import CollectionConfig
from core.curvature import Curvature
from core.diffusion import Denoiser, to_pixels
from core.draws import keyed_generator
from core.query import rotated_query
from precompute.workspace import Workspace

BATCH = 16


def gallery_labels(num_samples: int, num_classes: int) -> list[int]:
    """Return a label per sample, spread evenly over the classes."""
    return [
        i * num_classes // num_samples if num_samples < num_classes else i % num_classes
        for i in range(num_samples)
    ]


def make_samples(
    config: CollectionConfig, denoiser: Denoiser, num_classes: int, workspace: Workspace
) -> dict[str, Tensor]:
    """Return the gallery: `x_0` (M, C, H, W), `pixels` uint8 and `labels` (M,).

    Each sample has a generator of its own; its seed is its number.
    """
    saved = workspace.load("samples", "samples")
    if saved is not None:
        return saved[0]
    started, settings = time.time(), config.samples
    labels = gallery_labels(settings.num_samples, num_classes)
    conditional = denoiser.null_label is not None
    x_0, pixels = [], []
    for first in tqdm(range(0, len(labels), BATCH), "samples"):
        numbers = range(first, min(first + BATCH, len(labels)))
        trajectories = denoiser.sample(
            [keyed_generator(config.seed, "sample", number) for number in numbers],
            torch.tensor([labels[n] for n in numbers]) if conditional else None,
            settings.sampler,
            settings.num_steps,
            guidance_scale=settings.guidance_scale,
        )
        clean = torch.stack([trajectory.states[-1] for trajectory in trajectories])
        x_0.append(clean)
        pixels.append(to_pixels(denoiser.decode(clean.to(denoiser.device))))
    tensors = {
        "x_0": torch.cat(x_0),
        "pixels": torch.from_numpy(np.concatenate(pixels)),
        "labels": torch.tensor(labels),
    }
    workspace.save("samples", "samples", tensors, seconds=time.time() - started)
    return tensors


def sample_queries(
    config: CollectionConfig,
    denoiser: Denoiser,
    curvature: Curvature,
    samples: dict[str, Tensor],
    workspace: Workspace,
) -> tuple[Tensor, Tensor]:
    """Return rotated query gradients (M, F, P) and losses (M,) of the gallery."""
    saved = workspace.load("samples", "queries")
    if saved is not None:
        return saved[0]["queries"], saved[0]["losses"]
    started = time.time()
    basis = curvature.basis.to(denoiser.device)
    conditional = denoiser.null_label is not None
    queries, losses = [], []
    for x_0, label in tqdm(
        zip(samples["x_0"], samples["labels"].tolist(), strict=True),
        "queries",
        len(samples["x_0"]),
    ):
        rotated, value = rotated_query(
            denoiser,
            basis,
            "loss",
            x_0,
            label if conditional else None,
            config.samples.num_draws,
            config.seed,
        )
        queries.append(rotated.cpu())
        losses.append(value)
    tensors = {
        "queries": torch.stack(queries),
        "losses": torch.tensor(losses, dtype=torch.float64),
    }
    workspace.save("samples", "queries", tensors, seconds=time.time() - started)
    return tensors["queries"], tensors["losses"]
