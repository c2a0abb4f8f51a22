"""Journey-TRAK: what the sampler expected, step by step, and scores of each step.

Georgiev et al. 2023. "Noise" is the predicted noise also of a model that was trained to
predict velocity or sample.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from core.measure.draws import keyed_generator, make_draws
from core.measure.gradients import Costs, fold_gradients
from core.model.denoiser import Denoiser
from core.model.parameters import parameter_layout
from core.model.sampling import Subject, Trajectory


@torch.no_grad()
def expected_images(
    denoiser: Denoiser,
    trajectory: Trajectory,
    label: int | None,
    guidance_scale: float = 1.0,
    batch_size: int = 64,
) -> Tensor:
    """Return what the sampler expected the image to become, at every step.

    Args:
        denoiser: The model.
        trajectory: Of S steps.
        label: Class index; None means no label.
        guidance_scale: With which the image was drawn.
        batch_size: Steps at a time, at most.

    Returns:
        Clean examples, shape (S, C, H, W), on the model's device.
    """
    parts = []
    states = trajectory.states[:-1].to(denoiser.device)
    timesteps = trajectory.timesteps.to(denoiser.device)
    size = min(batch_size, denoiser.most_at_once)
    for first in range(0, len(timesteps), size):
        x_t, t = states[first : first + size], timesteps[first:][:size]
        labels = denoiser.labels(label, len(t))
        clean = denoiser.expected(x_t, t, labels, guidance_scale)
        parts.append(clean)
    return torch.cat(parts)


def draws_per_step(num_draws: int, num_steps: int) -> int:
    """Return how many draws each sampling step gets: at least one opposite pair."""
    return max(2, num_draws // num_steps // 2 * 2)


def step_features(
    denoiser: Denoiser,
    subject: Subject,
    measure: Costs,
    project: Callable[[Tensor], Tensor],
    num_draws: int,
    seed: int,
    on_step: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Return a query's features at every sampling step, shape (S, k), float32.

    Georgiev et al. 2023, "The Journey, Not the Destination: How Data Guides Diffusion
    Models", measure, at each step, the denoising loss at the step's noise level of what
    the sampler then expected the image to become, with fresh noise. Here it is the
    loss that the model was trained with, as for the features of TRAK.

    Args:
        denoiser: The model.
        subject: The image, with its S sampling steps.
        measure: Costs of one example at every draw.
        project: Features (1, k) of a gradient (1, P), as those of the training images.
        num_draws: Noises per step; even numbers come in opposite pairs.
        seed: The collection's seed.
        on_step: Called with (steps done, steps in all); may raise to stop.
    """
    images = expected_images(
        denoiser, subject.trajectory, subject.label, subject.guidance_scale
    )
    layout, features = parameter_layout(denoiser.unet), []
    for step, (x_0, t) in enumerate(
        zip(images, subject.trajectory.timesteps.tolist(), strict=True)
    ):
        draws = make_draws(
            num_draws,
            denoiser.shape,
            (t, t + 1),
            keyed_generator(seed, "journey", t, num_draws),
        ).to(denoiser.device)
        gradient, _ = fold_gradients(
            measure, denoiser, layout, x_0, subject.label, draws, 1
        )
        features.append(project(gradient))
        if on_step is not None:
            on_step(step + 1, len(images))
    return torch.cat(features)


def band_sums(
    rows: np.ndarray, timesteps: Tensor, edges: tuple[int, ...]
) -> list[np.ndarray]:
    """Return the sums over the steps in each band of scores (S, N) of every step."""
    band = np.digitize(timesteps.numpy(), edges) - 1
    return [rows[band == number].sum(0) for number in range(len(edges) - 1)]
