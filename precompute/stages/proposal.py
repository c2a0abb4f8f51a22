"""How often each timestep should be drawn, measured on a few training images.

The least noisy of all unbiased estimates draws a timestep in proportion to the standard
deviation of what it contributes (Neyman allocation). What matters here is the noise of
centred scores, which shared draws do not cancel. Knows nothing of files.
"""

import numpy as np
import torch
from torch import Tensor

from core.curvature.basis import Curvature
from core.measure.costs import loss
from core.measure.draws import Augmentation, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.denoiser import Denoiser

NUM_BANDS = 32  # of timesteps, each seen by one antithetic pair
NUM_QUERIES = 8
NUM_IMAGES = 16
UNIFORM_SHARE = 0.1  # of the draws, whatever is measured: no weight exceeds ten


def timestep_proposal(
    denoiser: Denoiser,
    curvature: Curvature,
    damping: float,
    x_0: Tensor,
    labels: Tensor,
    seed: int,
    flip: bool = False,
) -> Tensor:
    """Return the probability of each timestep that makes scores least noisy, (T,).

    Some training images are the queries, others are scored by one antithetic pair of
    draws in each band of timesteps.

    Args:
        denoiser: The model.
        curvature: Of the model, on its device.
        damping: In units of the eigenvalues.
        x_0: Clean training examples, shape (N, C, H, W).
        labels: Classes, shape (N,).
        seed: The collection's seed.
        flip: Whether the model was trained on mirrored images.
    """
    order = torch.randperm(len(x_0), generator=keyed_generator(seed, "pilot pictures"))
    order = order[: NUM_QUERIES + NUM_IMAGES].tolist()
    num_queries = min(NUM_QUERIES, len(order) // 2)  # a small set leaves few of either

    def gradients(position: int, draws) -> Tensor:
        return fold_gradients(
            loss,
            denoiser,
            curvature.basis.layout,
            x_0[position],
            int(labels[position]),
            draws,
            1,
        )[0]

    def pilot_draws(purpose: str):
        return make_draws(
            2 * NUM_BANDS,
            denoiser.shape,
            denoiser.num_train_timesteps,
            keyed_generator(seed, purpose),
            Augmentation(flip=flip),
        ).to(denoiser.device)

    draws = pilot_draws("pilot query draws")
    queries = torch.cat([
        curvature.solve(gradients(position, draws), damping)
        for position in order[:num_queries]
    ])
    draws = pilot_draws("pilot draws")
    scores = torch.stack([
        torch.cat([
            gradients(position, draws[2 * band : 2 * band + 2]) @ queries.T
            for band in range(NUM_BANDS)
        ])
        for position in order[num_queries:]
    ])
    return proposal_of_scores(scores.cpu().double(), denoiser.num_train_timesteps)


def proposal_of_scores(scores: Tensor, num_train_timesteps: int) -> Tensor:
    """Return the probability of each timestep from scores per band.

    Args:
        scores: Shape (images, bands, queries), bands of equal width.
        num_train_timesteps: T.

    Returns:
        Shape (T,), float64, at least `UNIFORM_SHARE` / T everywhere.
    """
    centred = scores - scores.mean(0)
    centred = centred / centred.mean(1).square().mean(0).sqrt()  # queries count alike
    # Neighbouring bands differ by noise; what they have in common is signal.
    noise = (centred[:, 1:] - centred[:, :-1]).square().mean((0, 2)).log() / 2
    padded = np.pad(noise.numpy(), 2, mode="edge")
    smooth = np.convolve(padded, np.ones(5) / 5, "valid")
    bounds = np.arange(1, scores.shape[1]) / scores.shape[1] * num_train_timesteps
    density = np.exp(np.interp(np.arange(num_train_timesteps) + 0.5, bounds, smooth))
    density = (1 - UNIFORM_SHARE) * density / density.sum()
    return torch.from_numpy(density + UNIFORM_SHARE / num_train_timesteps)
