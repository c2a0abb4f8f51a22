"""The sampling trajectory as a cost: -log p of the steps that made an image.

Sec. 3.3's measurement without Monte Carlo error: a sum over steps, each a normal
distribution (`core.model.sampling.reverse_conditional`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.measure.costs import masked_total
from core.measure.draws import Batch
from core.model.denoiser import Denoiser
from core.model.sampling import (
    Subject,
    previous_timesteps,
    reverse_conditional,
    step_variance,
)


@dataclass(frozen=True)
class PathSteps(Batch):
    """The sampling steps of an image that have a probability.

    Attributes:
        timesteps: Shape (S,), descending.
        previous: The timesteps stepped to, shape (S,).
        before: States before each step, shape (S, C, H, W).
        after: States after it, same shape.
    """

    timesteps: Tensor
    previous: Tensor
    before: Tensor
    after: Tensor


def path_steps(denoiser: Denoiser, subject: Subject) -> PathSteps:
    """Return the steps that made an image, without those that draw no noise.

    The last step draws none, as the samplers end: the image is a function of the
    state before it and has no density given that state. The probability is then that
    of all states but the image itself.

    Raises:
        ValueError: If the trajectory is not known, or no step of it drew noise.
    """
    if subject.trajectory is None:
        raise ValueError(
            "This image has no sampling trajectory: only one that this model made "
            "does. Ask for its loss or its ELBO instead, or for an approximate path."
        )
    if subject.sampler == "ddim":
        raise ValueError(
            "DDIM is deterministic: its trajectory has no probability. Sample with "
            "DDPM."
        )
    timesteps, states = subject.trajectory.timesteps, subject.trajectory.states
    previous = previous_timesteps(timesteps)
    device = denoiser.device
    variance = step_variance(denoiser, timesteps.to(device), previous.to(device))
    noisy = (variance.flatten() > 0).cpu()
    steps = PathSteps(timesteps, previous, states[:-1], states[1:])[noisy]
    if not len(steps):
        raise ValueError(
            "A trajectory of one step draws no noise and has no probability. Sample "
            "with two steps or more."
        )
    return steps


def path_costs(
    denoiser: Denoiser,
    subject: Subject,
    steps: PathSteps,
    mask: Tensor | None = None,
) -> Tensor:
    """Return -log p(x^(t-1) | x^(t)) of sampling steps, in nats, shape (S,).

    Their sum over `path_steps` is the trajectory measurement. The step from x^(T) also
    counts -log p(x^(T)), the standard normal the sampling started with: a constant
    without parameters.

    Args:
        denoiser: The model.
        subject: The image, with its trajectory and guidance.
        steps: Some of its `path_steps`.
        mask: Which entries count, boolean, shape (H, W); None means all.
    """
    device = denoiser.device
    before, after = steps.before.to(device), steps.after.to(device)
    mean, variance = reverse_conditional(
        denoiser,
        before,
        steps.timesteps.to(device),
        steps.previous.to(device),
        denoiser.labels(subject.label, len(steps)),
        subject.guidance_scale,
    )
    terms = _normal_cost(after - mean, variance)
    first = (steps.timesteps == subject.trajectory.timesteps[0]).to(terms)
    start = _normal_cost(before, torch.ones_like(variance))
    return masked_total(terms + first[:, None, None, None] * start, mask)


def _normal_cost(difference: Tensor, variance: Tensor) -> Tensor:
    """Return the negative log-density of a normal distribution, per entry, in nats."""
    return ((2 * torch.pi * variance).log() + difference.square() / variance) / 2
