"""A linear autoencoder of images: principal components of patches, lapped or not.

Every patch of p x p pixels becomes K numbers. Both ways are linear, so x_0 stays linear
in the pixels. Where only some components are kept, neighbouring patches are wrong in
different ways, and their borders show as a grid. A lapped transform mends this: before
the patches are cut, an orthogonal matrix mixes the p pixels around each border, so that
a component reaches p/2 pixels into the patches beside it and falls off there.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn

from core.model.finisher import Finisher


def _cosines(size: int, shift: float) -> Tensor:
    """Return the orthonormal DCT-II (shift 0) or DCT-IV (shift 1/2), rows by number."""
    numbers = torch.arange(size, dtype=torch.float64)
    rows = torch.cos(torch.pi * (numbers[:, None] + shift) * (numbers + 0.5) / size)
    return rows / rows.norm(dim=1, keepdim=True)


def border_mixing(width: int) -> Tensor:
    """Return the orthogonal matrix (p, p) that mixes the pixels around a border.

    The pre-filter of the lapped orthogonal transform (Tran, Liang and Tu 2003, "Lapped
    transform via time-domain pre- and post-filtering", type II): what is even around
    the border stays, what is odd is rotated by J C_II^T C_IV J.

    Args:
        width: The patches' side p, even, from 4 on.

    Returns:
        Float64. It keeps constants as they are.
    """
    half = width // 2
    eye = torch.eye(half, dtype=torch.float64)
    flip, zero = eye.flip(0), torch.zeros_like(eye)
    rotation = flip @ _cosines(half, 0.0).T @ _cosines(half, 0.5) @ flip
    butterfly = torch.cat([torch.cat([eye, flip], 1), torch.cat([flip, -eye], 1)])
    middle = torch.cat([torch.cat([eye, zero], 1), torch.cat([zero, rotation], 1)])
    return butterfly @ middle @ butterfly / 2


@lru_cache(maxsize=8)
def lapping(size: int, patch_size: int) -> Tensor:
    """Return the orthogonal matrix (size, size) that mixes all inner borders of a side.

    Raises:
        ValueError: If patches of an odd side are to overlap, or of 2 pixels, which have
            nothing to mix, or do not fill the side.
    """
    if patch_size % 2 or patch_size < 4 or size % patch_size:
        raise ValueError(
            f"Patches of {patch_size} pixels cannot overlap on a side of {size}. "
            "Choose an even model.patch_size from 4 on that divides data.image_size."
        )
    matrix, half = torch.eye(size, dtype=torch.float64), patch_size // 2
    for border in range(patch_size, size, patch_size):
        around = slice(border - half, border + half)
        matrix[around, around] = border_mixing(patch_size)
    return matrix


class PatchAutoencoder(nn.Module):
    """A linear autoencoder: the first principal components of square patches.

    The components are orthonormal, so noise in the latents is noise of one size in
    pixels.

    Attributes:
        components: Orthonormal rows, shape (K, C p^2).
        mean: The mean patch, shape (C p^2,).
        scale: Standard deviation of the latents before scaling, a scalar.
        lapped: Whether patches reach into their neighbours.
        finisher: What takes the grain out of decoded images, None for nothing.
    """

    def __init__(
        self,
        channels: int,
        patch_size: int,
        latent_channels: int,
        lapped: bool = False,
        finisher_width: int = 0,
    ):
        super().__init__()
        self.patch_size, self.lapped = patch_size, lapped
        size = channels * patch_size**2
        self.register_buffer("components", torch.zeros(latent_channels, size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(()))
        self.finisher = Finisher(channels, finisher_width) if finisher_width else None

    def _mixed(self, images: Tensor, back: bool = False) -> Tensor:
        """Return images (B, C, H, W) with their borders mixed, or with that undone."""
        if not self.lapped:
            return images
        rows, columns = (
            lapping(size, self.patch_size).to(images) for size in images.shape[-2:]
        )
        if back:
            return rows.T @ images @ columns
        return rows @ images @ columns.T

    def _patches(self, images: Tensor) -> Tensor:
        mixed = self._mixed(images)
        return nn.functional.pixel_unshuffle(mixed, self.patch_size).movedim(1, -1)

    @torch.no_grad()
    def fit(self, images: Tensor) -> "PatchAutoencoder":
        """Set the components from images of shape (B, C, H, W) in [-1, 1]."""
        patches = self._patches(images).flatten(0, 2).double()  # (B h w, C p^2)
        mean = patches.mean(0)
        centred = patches - mean
        covariance = centred.T @ centred / len(centred)
        components = torch.linalg.eigh(covariance).eigenvectors.flip(1).T
        components = components[: len(self.components)]
        # The sign of an eigenvector is arbitrary; fix it so that a refit is identical.
        largest = components.abs().argmax(1, keepdim=True)
        components = components * components.gather(1, largest).sign()
        self.mean.copy_(mean)
        self.components.copy_(components)
        self.scale.copy_((centred @ components.T).std())
        return self

    def encode(self, images: Tensor) -> Tensor:
        """Return latents, shape (B, K, H/p, W/p) of unit variance over the fit data."""
        centred = self._patches(images) - self.mean
        return (centred @ self.components.T / self.scale).movedim(-1, 1)

    def decode(self, latents: Tensor) -> Tensor:
        """Return images of shape (B, C, H, W), finished where there is a finisher."""
        images = self.linear_decode(latents)
        return images if self.finisher is None else self.finisher.finish(images)

    def linear_decode(self, latents: Tensor) -> Tensor:
        """Return images of shape (B, C, H, W), linear in the latents (B, K, h, w)."""
        patches = latents.movedim(1, -1) * self.scale @ self.components + self.mean
        images = nn.functional.pixel_shuffle(patches.movedim(-1, 1), self.patch_size)
        return self._mixed(images, back=True)
