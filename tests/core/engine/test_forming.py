"""An image forming out of noise, against its closed form."""

import numpy as np
import pytest
import torch

from core.engine.forming import forming, noise_images
from core.explorer.stored_levels import NoiseImages
from core.measure.draws import keyed_generator
from core.model.denoiser import to_pixels
from core.model.sampling import Subject
from tests.helpers.toys import gaussian_denoiser

SEED = 3


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("most_at_once", [256, 2])
def test_frames_are_eq_1_and_the_mean_of_the_data_behind_it(kind, most_at_once):
    """One noise for all levels; of normal data the expected image is a formula."""
    denoiser = gaussian_denoiser(kind, latent=False, size=4)
    denoiser.most_at_once = most_at_once
    mean, covariance = denoiser.unet.mean, denoiser.unet.covariance
    x_0 = (mean + 0.1).view(1, 4, 4)
    timesteps = np.array([18, 9, 3, 0])
    found = forming(denoiser, Subject(x_0, None), timesteps, SEED)

    noise = torch.randn(x_0.shape, generator=keyed_generator(SEED, "forming"))
    for level, timestep in enumerate(timesteps):
        alpha = denoiser.alphas_cumprod[timestep].double()
        noisy = alpha.sqrt() * x_0 + (1 - alpha).sqrt() * noise.double()
        spread = alpha * covariance + (1 - alpha) * torch.eye(16)
        away = noisy.flatten() - alpha.sqrt() * mean
        clean = mean + alpha.sqrt() * covariance @ torch.linalg.solve(spread, away)
        for image, expected in (
            (found.noisy[level], noisy.flatten()),
            (found.expected[level], clean),
        ):
            pixels = ((expected.clamp(-1, 1) + 1) * 127.5).numpy()
            assert np.abs(image.ravel() - pixels).max() <= 0.51
        assert found.noise[level] == pytest.approx(1 - float(alpha))
    assert (np.diff(found.noise) < 0).all()  # noise first, detail last


def test_the_noisy_image_is_a_mix_of_decoded_ones():
    """As `forming` has it, to a grey level; unknown autoencoders need not be linear."""
    denoiser = gaussian_denoiser("epsilon", latent=False, size=4)
    x_0 = (denoiser.unet.mean / 3).view(1, 4, 4)
    found = forming(denoiser, Subject(x_0, None), np.array([18, 9, 3, 0]), SEED)
    pixels = to_pixels(denoiser.decode(x_0[None]))[0]
    assert 0 < pixels.min() and pixels.max() < 255  # nothing is clipped
    images = NoiseImages(*noise_images(denoiser, x_0, SEED))
    off = images.noisy(pixels, found.noise).astype(int) - found.noisy
    assert np.abs(off).max() <= 1
    denoiser.autoencoder = torch.nn.Identity()
    assert noise_images(denoiser, x_0, SEED) is None
