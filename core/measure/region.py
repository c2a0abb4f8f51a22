"""Which entries of x_0 a box of image pixels stands for."""

import torch
from diffusers import AutoencoderKL, VQModel
from torch import Tensor

from core.lenses import check_region
from core.model.denoiser import Denoiser
from core.model.patch_autoencoder import PatchAutoencoder


def pixels_per_cell(denoiser: Denoiser) -> int:
    """Return the side of the square of image pixels that one entry of x_0 stands for.

    1 for a pixel model.
    """
    autoencoder = denoiser.autoencoder
    if autoencoder is None:
        return 1
    if isinstance(autoencoder, PatchAutoencoder):
        return autoencoder.patch_size
    return 2 ** (len(autoencoder.config.block_out_channels) - 1)


def region_mask(
    denoiser: Denoiser, box: tuple[int, int, int, int]
) -> tuple[Tensor, str]:
    """Return the mask (H, W) of a box in image pixels, and a sentence about it.

    For a latent model the mask holds every latent cell that the box touches.

    Args:
        denoiser: The model.
        box: x0, y0, x1, y1 in image pixels, half-open.
    """
    cell, (_, height, width) = pixels_per_cell(denoiser), denoiser.shape
    check_region(box, width * cell)
    x0, y0, x1, y1 = box
    left, top, right, bottom = x0 // cell, y0 // cell, -(-x1 // cell), -(-y1 // cell)
    mask = torch.zeros(height, width, dtype=torch.bool, device=denoiser.device)
    mask[top:bottom, left:right] = True
    if cell == 1:
        return mask, f"Measured inside the box of {x1 - x0} x {y1 - y0} pixels."
    covered = f"{right - left} x {bottom - top} latent cells"
    sentence = (
        f"Measured on the {covered} that the box touches: pixels {left * cell} to "
        f"{right * cell} across and {top * cell} to {bottom * cell} down."
    )
    if isinstance(denoiser.autoencoder, AutoencoderKL | VQModel):
        sentence += " A cell of this autoencoder also sees some pixels around it."
    return mask, sentence
