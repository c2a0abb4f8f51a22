"""Whose patches would the best local denoiser copy? Attribution without a model.

Zhao et al. 2026, "Nonparametric Data Attribution for Diffusion Models" (NDA, ICML; code
sail-sg/NDA): a denoiser that sees one patch at a time and fits the training set best
(Kamb and Ganguli 2024) paints each patch as a mean of training patches, weighted by how
probable they are under the noise. An image scores what its patches weigh. Only the
noise schedule comes from the model, no weight of it does.

Noise level and size of a patch are those of the authors' example. Other than there,
scores are a mean over two draws of opposite noise in place of one draw, and all patches
of an image count, not its best hundred.
"""

import torch
from torch import Tensor
from torch.nn import functional

SIDE = 7 / 32  # of a patch, relative to the image's
LEVEL = 0.1  # the timestep, of all
OUTSIDE = 10.0  # so far from everything is a place outside of an image
IMAGES = 16  # whose patches are in memory at a time


def patch_side(height: int) -> int:
    """Return the side of a patch, an odd number, for images so high."""
    return max(3, int(SIDE * height) // 2 * 2 + 1)


def patches(images: Tensor, side: int) -> Tensor:
    """Return the patches around all places of images, shape (N, H W, (C + 1) side^2).

    One channel more says which entries lie outside of the image, so that a patch at a
    border is like others at that border.

    Args:
        images: Shape (N, C, H, W).
        side: Odd.
    """
    outside = torch.zeros_like(images[:, :1])
    pad = [side // 2] * 4
    padded = torch.cat(
        [functional.pad(images, pad), functional.pad(outside, pad, value=OUTSIDE)], 1
    )
    return functional.unfold(padded, side).mT


def patch_shares(
    query: Tensor, images: Tensor, signal: float, noise: Tensor, side: int
) -> Tensor:
    """Return what every image's patches weigh in the denoised query, shape (N,).

    The weights of each of the query's patches sum to 1, and so do the shares.

    Args:
        query: Clean example, shape (C, H, W).
        images: Those of the training set, shape (N, C, H, W).
        signal: alpha-bar of the noise level, above 0 and below 1.
        noise: Of the query, shape (C, H, W).
        side: Of a patch.
    """
    noisy = signal**0.5 * query + (1 - signal) ** 0.5 * noise
    rows, weights = patches(noisy[None], side)[0], []
    for part in images.split(IMAGES):
        others = patches(signal**0.5 * part, side)
        count, places = others.shape[:2]
        others = others.flatten(0, 1)
        # |a - b|^2 less |a|^2, which a softmax over b does not see.
        apart = torch.addmm(others.square().sum(1)[None], rows, others.T, alpha=-2)
        apart = apart.view(len(rows), count, places) / (-2 * (1 - signal))
        weights.append(apart.logsumexp(2))
    return torch.cat(weights, 1).softmax(1).mean(0)


def patch_scores(
    query: Tensor, images: Tensor, alphas_cumprod: Tensor, generator: torch.Generator
) -> Tensor:
    """Return the mean of `patch_shares` over noise and its opposite, shape (N,).

    Args:
        query: Clean example, shape (C, H, W).
        images: Those of the training set, shape (N, C, H, W).
        alphas_cumprod: The noise schedule, shape (T,).
        generator: Of the noise.
    """
    side = patch_side(query.shape[-2])
    signal = float(alphas_cumprod[int(LEVEL * len(alphas_cumprod))])
    noise = torch.randn(query.shape, generator=generator)
    pair = [patch_shares(query, images, signal, one, side) for one in (noise, -noise)]
    return (pair[0] + pair[1]) / 2
