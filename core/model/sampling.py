"""Sampling, and the distribution of each of its steps.

DDIM (Song et al. 2021) and DDPM (Ho et al. 2020) as diffusers takes them, the normal
distribution of every step of DDPM (`reverse_conditional`; DDIM's draw no noise), and
DDIM inversion. Knows nothing about gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from diffusers import DDIMInverseScheduler, DDIMScheduler, DDPMScheduler
from torch import Tensor

from core.config import SAMPLERS
from core.drawing import Drawing
from core.model.denoiser import Denoiser
from core.seeds import keyed_seed

SCHEDULERS = {"ddim": DDIMScheduler, "ddpm": DDPMScheduler}


@dataclass(frozen=True)
class Trajectory:
    """What a sampler visited.

    Attributes:
        timesteps: The timesteps of the steps taken, shape (S,), descending.
        states: The noisy examples, shape (S + 1, C, H, W); the last is the sample
            itself.
    """

    timesteps: Tensor
    states: Tensor


@dataclass(frozen=True)
class Subject:
    """One image as the model sees it, and how it was generated, where that is known.

    Attributes:
        x_0: Clean example, shape (C, H, W).
        label: Class index, or None for no label.
        trajectory: The steps that made it; None where they are not known.
        sampler: What made the trajectory, "ddim" or "ddpm".
        guidance_scale: Of the sampling.
    """

    x_0: Tensor
    label: int | None
    trajectory: Trajectory | None = None
    sampler: str = ""
    guidance_scale: float = 1.0


def previous_timesteps(timesteps: Tensor) -> Tensor:
    """Return the timestep that each step of DDPM leads to, -1 for the sample.

    Args:
        timesteps: All timesteps of the steps taken, descending, shape (S,).
    """
    return torch.cat([timesteps[1:], timesteps.new_tensor([-1])])


@torch.no_grad()
def invert(
    denoiser: Denoiser,
    subject: Subject,
    num_steps: int,
    on_step: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """Return an approximate trajectory of an image that was not sampled.

    DDIM inversion (Song et al. 2021): the steps of deterministic DDIM backwards, with
    the noise predicted at the state before the step, where the exact inverse would need
    the one after. The path is smooth: it holds no sampling noise.

    Args:
        denoiser: The model.
        subject: The image and its label.
        num_steps: Steps of the path, evenly spaced over [0, T).
        on_step: Called with (steps done, steps in all); may raise to stop.
    """
    scheduler = DDIMInverseScheduler.from_config(
        denoiser.scheduler.config, timestep_spacing="trailing"
    )
    scheduler.set_timesteps(num_steps)
    labels = denoiser.labels(subject.label, 1)
    state = subject.x_0[None].to(denoiser.device)
    states = [state[0].cpu()]
    for timestep in scheduler.timesteps:  # ascending
        output = denoiser.predict(state, timestep[None].to(denoiser.device), labels)
        state = scheduler.step(output, timestep, state).prev_sample
        states.append(state[0].cpu())
        if on_step is not None:
            on_step(len(states) - 1, num_steps)
    return Trajectory(scheduler.timesteps.flip(0), torch.stack(states[::-1]))


@torch.no_grad()
def sample(
    denoiser: Denoiser,
    drawings: list[Drawing],
    seed: int,
    on_step: Callable[[int, int], None] | None = None,
) -> list[Trajectory]:
    """Return one sampling trajectory per drawing.

    Steps are evenly spaced over [0, T). Each drawing has a source of noise of its own,
    so that it does not depend on its batch.

    Args:
        denoiser: The model.
        drawings: Any classes and seeds; the settings of sampling are the first one's.
        seed: Of the collection.
        on_step: Called with (steps done, steps in all); may raise to stop.

    Raises:
        ValueError: If the sampler is unknown or the number of steps is out of
            range.
    """
    sampler, num_steps = drawings[0].sampler, drawings[0].num_steps
    if sampler not in SAMPLERS:
        raise ValueError(
            f"There is no sampler '{sampler}'. Choose one of {', '.join(SAMPLERS)}."
        )
    if not 1 <= num_steps <= denoiser.num_train_timesteps:
        raise ValueError(
            f"{num_steps} sampling steps were asked for. Choose 1 to "
            f"{denoiser.num_train_timesteps}."
        )
    scheduler = SCHEDULERS[sampler].from_config(
        denoiser.scheduler.config, timestep_spacing="trailing"
    )
    scheduler.set_timesteps(num_steps)
    labels = None
    if denoiser.null_label is not None:
        labels = torch.cat([denoiser.labels(drawing.label, 1) for drawing in drawings])
    generators = [
        torch.Generator().manual_seed(keyed_seed(seed, "sample", drawing.seed))
        for drawing in drawings
    ]
    x_t = torch.stack([torch.randn(denoiser.shape, generator=g) for g in generators])
    states = [x_t]
    for step, timestep in enumerate(scheduler.timesteps):
        output = denoiser.guided(
            x_t.to(denoiser.device),
            timestep.to(denoiser.device).expand(len(x_t)),
            labels,
            drawings[0].guidance_scale,
        ).cpu()
        x_t = torch.cat([
            scheduler.step(
                output[i : i + 1], timestep, x_t[i : i + 1], generator=g
            ).prev_sample
            for i, g in enumerate(generators)
        ])
        states.append(x_t)
        if on_step is not None:
            on_step(step + 1, num_steps)
    stacked = torch.stack(states, dim=1)  # (B, S + 1, C, H, W)
    return [Trajectory(scheduler.timesteps.clone(), s) for s in stacked]


def reverse_conditional(
    denoiser: Denoiser,
    x_t: Tensor,
    timesteps: Tensor,
    previous: Tensor,
    labels: Tensor | None,
    guidance_scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of p(x^(t-1) | x^(t)), as DDPM draws it.

    The normal distribution of each step of `sample`, with the guidance and the
    clipping it was drawn with. Where the prediction is clipped, its gradient is
    zero, which is true of that distribution: the sampler ignores what it clips.

    Args:
        denoiser: The model.
        x_t: Noisy examples, shape (B, C, H, W).
        timesteps: Their timesteps, shape (B,).
        previous: The timesteps stepped to, shape (B,), -1 for the sample itself;
            see `previous_timesteps`.
        labels: Class per example, shape (B,), or None for a model without classes.
        guidance_scale: Of the sampling.

    Returns:
        Means of shape (B, C, H, W) and variances of shape (B, 1, 1, 1), zero where
        the step draws no noise.
    """
    clean = denoiser.expected(x_t, timesteps, labels, guidance_scale)
    alpha, before = _step_alphas(denoiser, timesteps, previous)
    from_clean = before.sqrt() * (1 - alpha / before) / (1 - alpha)
    from_noisy = (alpha / before).sqrt() * (1 - before) / (1 - alpha)
    mean = from_clean.to(x_t.dtype) * clean + from_noisy.to(x_t.dtype) * x_t
    return mean, step_variance(denoiser, timesteps, previous).to(x_t.dtype)


def step_variance(denoiser: Denoiser, timesteps: Tensor, previous: Tensor) -> Tensor:
    """Return the variance of DDPM's steps, 0 for one that draws no noise.

    The arguments are those of `reverse_conditional`.

    Returns:
        Shape (B, 1, 1, 1), float64.
    """
    alpha, before = _step_alphas(denoiser, timesteps, previous)
    large = 1 - alpha / before
    if denoiser.scheduler.config.variance_type == "fixed_large":
        return torch.where(_column(timesteps) > 0, large, 0)
    return (1 - before) / (1 - alpha) * large


def _step_alphas(
    denoiser: Denoiser, timesteps: Tensor, previous: Tensor
) -> list[Tensor]:
    """Return the cumulative alphas before and after a step, in float64.

    In float32 the difference of two that are close to 1 would lose its digits.
    """
    clean = torch.ones(1, dtype=torch.float64, device=denoiser.device)
    alphas = torch.cat([denoiser.alphas_cumprod.double(), clean])  # the last is t = -1
    return [_column(alphas[timesteps]), _column(alphas[previous])]


def _column(values: Tensor) -> Tensor:
    """Return values (B,) in shape (B, 1, 1, 1)."""
    return values[:, None, None, None]
