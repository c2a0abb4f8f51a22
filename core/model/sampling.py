"""Sampling, and the distribution of each of its steps.

DDIM (Song et al. 2021) and DDPM (Ho et al. 2020) as diffusers takes them, the normal
distribution of every step (`reverse_conditional`), and DDIM inversion. Knows nothing
about gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from diffusers import DDIMInverseScheduler, DDIMScheduler, DDPMScheduler
from torch import Tensor

from core.config import SAMPLERS
from core.model.denoiser import Denoiser

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
        eta: Noise of DDIM, 0 to 1.
        guidance_scale: Of the sampling.
    """

    x_0: Tensor
    label: int | None
    trajectory: Trajectory | None = None
    sampler: str = ""
    eta: float = 0.0
    guidance_scale: float = 1.0


def previous_timesteps(
    sampler: str, timesteps: Tensor, num_train_timesteps: int
) -> Tensor:
    """Return the timestep that each step of a sampler leads to, -1 for the sample.

    Diffusers' DDIM steps down by T // S even where T / S is not whole; its DDPM steps
    to the next timestep.

    Args:
        sampler: "ddim" or "ddpm".
        timesteps: All timesteps of the steps taken, descending, shape (S,).
        num_train_timesteps: T.
    """
    if sampler == "ddim":
        stride = num_train_timesteps // len(timesteps)
        return (timesteps - stride).clamp(min=-1)
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


def scheduler_step(scheduler, output, timestep, x_t, generator, extra) -> Tensor:
    """Return x_{t-1}, shape (1, C, H, W), with noise from the sample's generator."""
    return scheduler.step(
        output, timestep, x_t, generator=generator, **extra
    ).prev_sample


@torch.no_grad()
def sample(
    denoiser: Denoiser,
    generators: list[torch.Generator],
    labels: Tensor | None = None,
    sampler: str = "ddim",
    num_steps: int = 50,
    eta: float = 0.0,
    guidance_scale: float = 1.0,
    on_step: Callable[[int, int], None] | None = None,
    away: Tensor | None = None,
) -> list[Trajectory]:
    """Return one sampling trajectory per generator.

    Args:
        denoiser: The model.
        generators: One source of noise per sample, so none depends on its batch.
        labels: Class per sample, shape (B,); the null label where None.
        sampler: "ddim" (Song et al. 2021) or "ddpm" (Ho et al. 2020).
        num_steps: Steps taken, evenly spaced over [0, T).
        eta: Noise of DDIM, 0 to 1.
        guidance_scale: 1 follows the model; more exaggerates the class.
        on_step: Called with (steps done, steps in all); may raise to stop.
        away: Labels that guidance leads away from, shape (B,); the null label where
            None. One that leaves only the house open exaggerates the house alone.

    Raises:
        ValueError: If the sampler is unknown or the number of steps is out of
            range.
    """
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
    extra = {"eta": eta} if sampler == "ddim" else {}
    if labels is None and denoiser.null_label is not None:
        labels = torch.full((len(generators),), denoiser.null_label)
    labels = None if labels is None else labels.to(denoiser.device)

    x_t = torch.stack([torch.randn(denoiser.shape, generator=g) for g in generators])
    states = [x_t]
    for step, timestep in enumerate(scheduler.timesteps):
        output = denoiser.guided(
            x_t.to(denoiser.device),
            timestep.to(denoiser.device).expand(len(x_t)),
            labels,
            guidance_scale,
            None if away is None else away.to(denoiser.device),
        ).cpu()
        x_t = torch.cat([
            scheduler_step(
                scheduler, output[i : i + 1], timestep, x_t[i : i + 1], g, extra
            )
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
    sampler: str,
    eta: float = 0.0,
    guidance_scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of p(x^(t-1) | x^(t)), as the sampler draws it.

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
        sampler: "ddim" or "ddpm".
        eta: Noise of DDIM.
        guidance_scale: Of the sampling.

    Returns:
        Means of shape (B, C, H, W) and variances of shape (B, 1, 1, 1), zero where
        the step draws no noise.
    """
    clean, noise = denoiser.expected(x_t, timesteps, labels, guidance_scale)
    alpha, before = _step_alphas(denoiser, timesteps, previous)
    variance = step_variance(denoiser, timesteps, previous, sampler, eta)
    if sampler == "ddim":
        from_clean = before.sqrt()
        other = noise
        from_other = (1 - before - variance).sqrt()
    else:
        from_clean = before.sqrt() * (1 - alpha / before) / (1 - alpha)
        other = x_t
        from_other = (alpha / before).sqrt() * (1 - before) / (1 - alpha)
    mean = from_clean.to(x_t.dtype) * clean + from_other.to(x_t.dtype) * other
    return mean, variance.to(x_t.dtype)


def step_variance(
    denoiser: Denoiser,
    timesteps: Tensor,
    previous: Tensor,
    sampler: str,
    eta: float = 0.0,
) -> Tensor:
    """Return the variance of sampling steps, 0 for one that draws no noise.

    The arguments are those of `reverse_conditional`.

    Returns:
        Shape (B, 1, 1, 1), float64.
    """
    alpha, before = _step_alphas(denoiser, timesteps, previous)
    large = 1 - alpha / before
    small = (1 - before) / (1 - alpha) * large
    if sampler == "ddim":
        return eta**2 * small
    if denoiser.scheduler.config.variance_type == "fixed_large":
        return torch.where(_column(timesteps) > 0, large, 0)
    return small


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
