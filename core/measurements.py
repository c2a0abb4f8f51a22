"""What is measured of a picture: a cost per Monte Carlo draw."""

import torch
from torch import Tensor

from core.diffusion import Denoiser
from core.draws import Draws


def loss(denoiser: Denoiser, x_0: Tensor, label: int | None, draws: Draws) -> Tensor:
    """Return the training loss of one example at every draw.

    Its mean is the loss of the display after Eq. 2, in the prediction the model was
    trained with: squared errors summed over C, H, W.

    Args:
        denoiser: The model.
        x_0: Clean example, shape (C, H, W). It is mirrored as stored where `draws.flip`
            says so, which is exact for pixels; latent models are trained without flips.
        label: Class index; None means no label.
        draws: S draws, on the device of the model.

    Returns:
        Costs, shape (S,).
    """
    clean = x_0.expand(len(draws), *x_0.shape)
    if draws.flip.any():
        clean = torch.where(draws.flip[:, None, None, None], clean.flip(-1), clean)
    labels = None
    if denoiser.null_label is not None:
        given = denoiser.null_label if label is None else label
        labels = torch.full_like(draws.timesteps, given)
        labels = denoiser.dropped(labels, draws.drop_label)
    return denoiser.losses(clean, draws.noise, draws.timesteps, labels)


MEASUREMENTS = {"loss": loss}
