"""What takes the grain out of decoded images: it mends noise, and changes no x_0."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.checks import check_settings
from core.data.datasets import load_dataset
from core.drawing import Drawing
from core.measure.draws import keyed_generator
from core.model.checkpoint import denoiser_from_bytes, denoiser_to_bytes
from core.model.denoiser import to_pixels
from core.model.finisher import Finisher, fit
from core.model.patch_autoencoder import PatchAutoencoder
from core.model.sampling import sample
from core.presets import collection_config
from precompute.stages.train import fit_finisher, new_denoiser


@pytest.fixture(scope="module")
def drawings() -> torch.Tensor:
    """Return drawings of 32x32, half of them to learn from."""
    config = collection_config("glyphs-pairs").data
    config = replace(config, image_size=32, limit=96, held_out=0.0)
    return load_dataset(config).images()


def fitted(images: torch.Tensor, steps: int = 300):
    autoencoder = PatchAutoencoder(3, 4, 12, True).fit(images)
    g = keyed_generator(0, "finisher")
    return autoencoder, fit(Finisher(3, 24), autoencoder, images, range(steps), g)


def test_it_returns_what_it_is_given_until_it_is_fitted(drawings):
    torch.testing.assert_close(Finisher(3).finish(drawings), drawings, rtol=0, atol=0)


def test_noise_in_the_latents_is_mended_also_in_drawings_it_never_saw(drawings):
    """Mean absolute error of images it did not learn from; alone as with others."""
    seen, unseen = drawings[::2], drawings[1::2]
    autoencoder, finisher = fitted(seen)
    g = torch.Generator().manual_seed(1)
    z = autoencoder.encode(unseen)
    noisy = z + 0.3 * torch.randn(z.shape, generator=g)
    plain = autoencoder.linear_decode(noisy).clamp(-1, 1)
    mended = finisher.finish(plain)
    errors = [float((one - unseen).abs().mean()) for one in (plain, mended)]
    assert errors[1] < 0.9 * errors[0], errors
    alone = torch.cat([finisher.finish(one[None]) for one in plain])
    torch.testing.assert_close(alone, mended, rtol=0, atol=0)
    again = fitted(seen)[1]
    for one, other in zip(finisher.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_only_decoding_changes():
    """The same x_0 before and after, also through the file; noisy ones stay noisy."""
    config = collection_config("glyphs-pairs", "tiny")
    dataset = load_dataset(config.data)
    denoiser = new_denoiser(config, dataset).eval()
    x_0, drawing = denoiser.encode(dataset.images()), Drawing(0, 1, "ddim", 3)
    before = sample(denoiser, [drawing], 0)[0].states[-1]
    plain = denoiser.decode(x_0)
    fit_finisher(config, denoiser, None)
    assert denoiser.autoencoder.finisher is None  # a part of the images teaches nothing
    fit_finisher(config, denoiser, dataset)
    torch.testing.assert_close(denoiser.encode(dataset.images()), x_0, rtol=0, atol=0)
    after = sample(denoiser, [drawing], 0)[0].states[-1]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    torch.testing.assert_close(denoiser.decode(x_0, finish=False), plain)
    assert (denoiser.decode(x_0) - plain).abs().max() > 0.01
    read = denoiser_from_bytes(denoiser_to_bytes(denoiser))
    torch.testing.assert_close(read.decode(x_0), denoiser.decode(x_0))
    together = to_pixels(read.decode(x_0))
    for i in (0, 5):
        np.testing.assert_array_equal(
            to_pixels(read.decode(x_0[i : i + 1]))[0], together[i]
        )


def test_it_needs_patches():
    config = collection_config("fashion2")
    config = replace(config, model=replace(config.model, finisher_steps=5))
    with pytest.raises(ValueError, match="`model.finisher_steps` cannot be 5 with"):
        check_settings(config)
