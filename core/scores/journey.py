"""Journey-TRAK's query features: what the sampler expected, step by step.

Georgiev et al. 2023. "Noise" is the predicted noise also of a model that was trained to
predict velocity or sample.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from core.curvature.basis import Eigenbasis
from core.index.projection import Projection
from core.measure.costs import loss
from core.measure.draws import keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.denoiser import Denoiser
from core.model.sampling import Trajectory


@torch.no_grad()
def expected_pictures(
    denoiser: Denoiser,
    trajectory: Trajectory,
    label: int | None,
    guidance_scale: float = 1.0,
    batch_size: int = 64,
) -> Tensor:
    """Return what the sampler expected the picture to become, at every step.

    Args:
        denoiser: The model.
        trajectory: Of S steps.
        label: Class index; None means no label.
        guidance_scale: With which the picture was drawn.
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
        clean, _ = denoiser.expected(x_t, t, labels, guidance_scale)
        parts.append(clean)
    return torch.cat(parts)


def journey_features(
    denoiser: Denoiser,
    basis: Eigenbasis,
    projection: Projection,
    trajectory: Trajectory,
    label: int | None,
    num_draws: int,
    seed: int,
    guidance_scale: float = 1.0,
    mask: Tensor | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Return Journey-TRAK's query features of every sampling step.

    Georgiev et al. 2023 measure, at each step, the denoising loss at the step's noise
    level of what the sampler then expected the picture to become, with fresh noise.
    Here it is the loss that the model was trained with, as for the features of TRAK.

    Args:
        denoiser: The model.
        basis: The Kronecker eigenbasis, on the model's device.
        projection: Of the TRAK features, on the model's device.
        trajectory: Of S steps.
        label: Class index; None means no label.
        num_draws: Noises per step; even numbers come in opposite pairs.
        seed: The collection's seed.
        guidance_scale: With which the picture was drawn.
        mask: Which entries of the loss count, boolean, shape (H, W); None means all.
        on_step: Called with (steps done, steps in all); may raise to stop.

    Returns:
        Shape (S, k), float32.
    """
    pictures = expected_pictures(denoiser, trajectory, label, guidance_scale)
    measure, features = partial(loss, mask=mask), []
    for step, (x_0, t) in enumerate(
        zip(pictures, trajectory.timesteps.tolist(), strict=True)
    ):
        draws = make_draws(
            num_draws,
            denoiser.shape,
            denoiser.num_train_timesteps,
            keyed_generator(seed, "journey", t, num_draws),
            timestep_range=(t, t + 1),
        ).to(denoiser.device)
        gradient, _ = fold_gradients(
            measure, denoiser, basis.layout, x_0, label, draws, 1
        )
        features.append(projection.apply(basis.rotate(gradient)).cpu())
        if on_step is not None:
            on_step(step + 1, len(pictures))
    return torch.cat(features)
