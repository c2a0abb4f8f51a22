"""What D-TRAK, DAS and Journey-TRAK differentiate: not the training loss.

Costs of one example at every draw, with the signature of `core.measure.costs`, and the
sampling steps of Journey-TRAK. "Noise" is always the predicted noise, also of a model
that was trained to predict velocity or sample, because the papers' models predict
noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from core.curvature.fit import Eigenbasis
from core.index.projection import Projection
from core.measure.costs import loss, masked_total, noising
from core.measure.draws import Draws, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.denoiser import Denoiser, Trajectory


@dataclass(frozen=True)
class Prediction:
    """What the model gives at the draws of one example.

    Attributes:
        output: Of the model, shape (S, C, H, W).
        target: What it was trained to give, same shape.
        predicted_noise: The same statement as a noise, same shape.
        noise: The true one, same shape.
    """

    output: Tensor
    target: Tensor
    predicted_noise: Tensor
    noise: Tensor

    def losses(self) -> Tensor:
        """Return the training losses, shape (S,)."""
        return (self.output - self.target).square().sum((1, 2, 3))

    def square_norms(self, mask: Tensor | None = None) -> Tensor:
        """Return the squared norms of the predicted noise, shape (S,): D-TRAK's.

        Args:
            mask: Which entries count, boolean, shape (H, W); None means all.
        """
        return masked_total(self.predicted_noise.square(), mask)

    def sizes(self, mask: Tensor | None = None) -> Tensor:
        """Return the sums of sizes of the predicted noise, shape (S,): DAS's output.

        The authors' earlier script takes the plain mean of the entries, which nearly
        cancels between draws of opposite noise.

        Args:
            mask: Which entries count, boolean, shape (H, W); None means all.
        """
        return masked_total(self.predicted_noise.abs(), mask)

    def residual(self) -> Tensor:
        """Return the root mean square error of the predicted noise, a scalar."""
        return (self.predicted_noise - self.noise).square().mean().sqrt()


def predict(
    denoiser: Denoiser, x_0: Tensor, label: int | None, draws: Draws
) -> Prediction:
    """Return what the model gives for one example at every draw.

    Args:
        denoiser: The model.
        x_0: Clean example, shape (C, H, W).
        label: Class index; None means no label.
        draws: S draws, on the device of the model.
    """
    clean, noise, timesteps, labels = noising(denoiser, x_0, label, draws)
    x_t = denoiser.add_noise(clean, noise, timesteps)
    output = denoiser.predict(x_t, timesteps, labels)
    alpha = denoiser.alphas_cumprod[timesteps].to(x_t.dtype)[:, None, None, None]
    return Prediction(
        output,
        denoiser.target(clean, noise, timesteps),
        denoiser.clean_and_noise(output, x_t, alpha)[1],
        noise,
    )


def square_norm(
    denoiser: Denoiser,
    x_0: Tensor,
    label: int | None,
    draws: Draws,
    mask: Tensor | None = None,
) -> Tensor:
    """Return D-TRAK's costs (S,): squared norms of the predicted noise."""
    return predict(denoiser, x_0, label, draws).square_norms(mask)


def output_size(
    denoiser: Denoiser,
    x_0: Tensor,
    label: int | None,
    draws: Draws,
    mask: Tensor | None = None,
) -> Tensor:
    """Return what stands for the model's output in DAS, shape (S,)."""
    return predict(denoiser, x_0, label, draws).sizes(mask)


# What a method measures of a query in place of a measurement that a person chooses.
OUTPUTS = {"square-norm": square_norm, "output": output_size}


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
