"""An image with the noise of several levels, and what the model makes of each.

What the page Timesteps plays: Eq. 1 with one noise for all levels, so that nothing but
the level changes from frame to frame.
"""

import numpy as np
import torch

from core.answers import Forming
from core.measure.draws import keyed_generator
from core.model.denoiser import Denoiser, to_pixels
from core.model.patch_autoencoder import PatchAutoencoder
from core.model.sampling import Subject


@torch.no_grad()
def forming(
    denoiser: Denoiser, subject: Subject, timesteps: np.ndarray, seed: int
) -> Forming:
    """Return an image at several noise levels, noisy and as the model expects it clean.

    Args:
        denoiser: The model.
        subject: The image, with its label.
        timesteps: The levels, shape (L,).
        seed: The collection's; one noise for all levels comes from it.
    """
    noise = _noise(subject.x_0, seed).to(denoiser.device)
    x_0, levels = subject.x_0.to(denoiser.device), torch.as_tensor(timesteps)
    noisy, expected = [], []
    for part in levels.to(denoiser.device).split(denoiser.most_at_once):
        count = len(part)
        x_t = denoiser.add_noise(
            x_0.expand(count, -1, -1, -1), noise.expand(count, -1, -1, -1), part
        )
        labels = denoiser.labels(subject.label, count)
        clean = denoiser.expected(x_t, part, labels, 1.0)
        noisy.append(to_pixels(denoiser.decode(x_t, finish=False)))
        expected.append(to_pixels(denoiser.decode(clean)))
    share = 1 - denoiser.alphas_cumprod.cpu()[levels].double().numpy()
    return Forming(
        np.asarray(timesteps), share, np.concatenate(noisy), np.concatenate(expected)
    )


def _noise(x_0: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the one noise of all levels and images, of the shape of an example."""
    return torch.randn(x_0.shape, generator=keyed_generator(seed, "forming"))


@torch.no_grad()
def noise_images(
    denoiser: Denoiser, x_0: torch.Tensor, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return that noise and latents of zero, both decoded and unclipped, (C, H, W).

    Of a linear autoencoder alone: there the noisy image is a mix of these two with the
    clean one, as it was before a finisher. None for other autoencoders.

    Args:
        denoiser: The model.
        x_0: Any clean example.
        seed: The collection's.
    """
    noise = _noise(x_0, seed)
    both = torch.stack([noise, torch.zeros_like(noise)]).to(denoiser.device)
    if isinstance(denoiser.autoencoder, PatchAutoencoder):
        both = denoiser.autoencoder.linear_decode(both)
    elif denoiser.autoencoder is not None:
        return None
    decoded, ground = both.cpu().numpy()
    return decoded, ground
