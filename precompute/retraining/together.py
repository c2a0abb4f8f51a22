"""Train many small models at once: `torch.func.vmap` over stacked weights.

What `precompute.stages.train` does for one model, here every operation does for a
group. It is for a GPU, which one small model leaves idle; a CPU gains nothing. The
recipe and the draws are the same, so the models are equal up to rounding.
"""

import math
import time

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from core.config import CollectionConfig
from core.data.datasets import Dataset
from core.model.checkpoint import denoiser_to_bytes
from core.model.denoiser import Denoiser
from core.unrolled.step import Losses
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import Workspace
from precompute.stages.batches import training_batch
from precompute.stages.train import (
    checkpoint,
    encode_all,
    new_denoiser,
    optimizers,
    restore,
    taking_turns,
)


def clip_each(gradients: list[Tensor], max_norm: float) -> None:
    """Shorten each model's gradient to at most `max_norm`, in place.

    Args:
        gradients: Stacked over models in the first dimension.
        max_norm: Of all of a model's gradients together.
    """
    squares = sum(gradient.flatten(1).square().sum(1) for gradient in gradients)
    factors = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))


def train_together(
    configs: list[CollectionConfig],
    datasets: list[Dataset],
    workspace: Workspace,
    device: str = "cpu",
    whole: Dataset | None = None,
) -> list[bytes]:
    """Return the bytes of a model for each configuration, resuming a checkpoint.

    Args:
        configs: Equal but for their seeds.
        datasets: What each is trained on, all of one size unless all images keep
            their turns (`train.common_draws`).
        workspace: Where the checkpoint lies; its last one stays.
        device: Where to compute.
        whole: All images, which the autoencoders are fitted to.
    """
    settings = configs[0].train
    denoisers = [
        new_denoiser(config, whole or dataset).to(device)
        for config, dataset in zip(configs, datasets, strict=True)
    ]
    first = Losses(denoisers[0].train())
    names = [name for name, _ in first.named_parameters()]
    stack = nn.ParameterList([
        torch.stack(weights).detach()
        for weights in zip(*(d.parameters() for d in denoisers), strict=True)
    ])
    turns, kept = zip(
        *(taking_turns(settings, dataset, whole) for dataset in datasets), strict=True
    )
    x_0 = [encode_all(*pair) for pair in zip(denoisers, turns, strict=True)]
    labels = [torch.from_numpy(dataset.labels).to(device) for dataset in turns]
    size = settings.batch_size * math.prod(denoisers[0].shape)
    optimizer, schedule, ema = optimizers(list(stack), settings)
    start, _, before = restore(workspace, stack, optimizer, schedule, ema)
    started = time.time() - before

    in_dims = (0, 0, 0, 0, None if denoisers[0].null_label is None else 0)
    losses_of_all = vmap(
        lambda weights, *arguments: functional_call(first, weights, arguments), in_dims
    )
    steps = range(start, settings.num_steps)
    for step in Bar(steps, f"train {len(configs)}", settings.num_steps, initial=start):
        batches = [
            training_batch(config, denoisers[0], dataset.ids, step)
            for config, dataset in zip(configs, turns, strict=True)
        ]
        weights = torch.stack([
            values[batch.index] for values, batch in zip(kept, batches, strict=True)
        ]).to(device)
        batches = [batch.to(device) for batch in batches]
        losses = losses_of_all(
            dict(zip(names, stack, strict=True)),
            torch.stack([b.pictures(x) for b, x in zip(batches, x_0, strict=True)]),
            torch.stack([batch.noise for batch in batches]),
            torch.stack([batch.timesteps for batch in batches]),
            given_labels(denoisers[0], labels, batches),
        )
        ((weights * losses).sum() / size).backward()
        clip_each([values.grad for values in stack], settings.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        ema.step(list(stack))
        done = step + 1
        if done % settings.checkpoint_every == 0 or done == settings.num_steps:
            facts = {"smooth_loss": None, "seconds": time.time() - started}
            checkpoint(workspace, stack, optimizer, ema, step=done, **facts)

    ema.copy_to(list(stack))
    return [model_bytes(denoiser, stack, i) for i, denoiser in enumerate(denoisers)]


def given_labels(denoiser, labels, batches) -> Tensor | None:
    """Return the labels of all models' batches, shape (G, B), or None without any."""
    if denoiser.null_label is None:
        return None
    return torch.stack([
        denoiser.dropped(values[batch.index], batch.drop)
        for values, batch in zip(labels, batches, strict=True)
    ])


@torch.no_grad()
def model_bytes(denoiser: Denoiser, stack: nn.ParameterList, number: int) -> bytes:
    """Return one of the stacked models as the bytes of its file."""
    for parameter, weights in zip(denoiser.parameters(), stack, strict=True):
        parameter.copy_(weights[number])
    return denoiser_to_bytes(denoiser)
