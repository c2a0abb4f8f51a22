"""The denoiser: Eq. 1, targets, autoencoders, sampling and its file."""

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, DDPMScheduler, VQModel

from core.drawing import Drawing
from core.measure.draws import keyed_generator
from core.model.checkpoint import denoiser_from_bytes, denoiser_to_bytes
from core.model.denoiser import Denoiser, to_pixels
from core.model.patch_autoencoder import PatchAutoencoder
from core.model.sampling import sample
from tests.helpers.toys import linear_denoiser, tiny_denoiser


def normal(*shape):
    """Return keyed normal numbers."""
    return torch.randn(*shape, generator=keyed_generator(0, "diffusion test"))


def test_noise_follows_the_schedule_of_diffusers():
    """x_t is Eq. 1 with the cumulative product of lambda^2, not of (1 - lambda)^2."""
    denoiser = tiny_denoiser()
    x_0, noise = normal(2, 20, 1, 4, 4).double()
    timesteps = torch.arange(20)
    expected = denoiser.scheduler.add_noise(x_0, noise, timesteps)
    result = denoiser.add_noise(x_0, noise, timesteps)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
    products = torch.cumprod(1 - denoiser.scheduler.betas, 0)
    torch.testing.assert_close(denoiser.alphas_cumprod, products.double())


@pytest.mark.parametrize("prediction_type", ["epsilon", "sample", "v_prediction"])
def test_each_target_leads_back_to_the_clean_example(prediction_type):
    """A model that hits its target denoises perfectly, by diffusers' own formula."""
    denoiser = tiny_denoiser(prediction_type=prediction_type)
    x_0, noise = normal(2, 5, 1, 4, 4).double()
    for t in (0, 7, 19):
        timesteps = torch.full((5,), t)
        x_t = denoiser.add_noise(x_0, noise, timesteps)
        target = denoiser.target(x_0, noise, timesteps)
        scheduler = DDPMScheduler.from_config(denoiser.scheduler.config)
        clean = scheduler.step(target, t, x_t).pred_original_sample
        torch.testing.assert_close(clean, x_0, rtol=1e-5, atol=1e-5)


def test_dropped_labels_are_the_null_label():
    """Where `drop` is true the label is the last class, elsewhere it stays."""
    denoiser = tiny_denoiser(label_dropout=0.1)
    labels = denoiser.dropped(torch.tensor([0, 1]), torch.tensor([False, True]))
    assert labels.tolist() == [0, denoiser.null_label] == [0, 2]


def test_patch_autoencoder_is_the_best_linear_one():
    """With all components nothing is lost; with k, what a dense SVD loses."""
    images = normal(40, 3, 8, 8).cumsum(3).tanh()
    full = PatchAutoencoder(3, 4, 48).fit(images)
    restored = full.decode(full.encode(images))
    torch.testing.assert_close(restored, images, rtol=1e-4, atol=1e-4)

    small = PatchAutoencoder(3, 4, 6).fit(images)
    error = (small.decode(small.encode(images)) - images).square().sum()
    patches = images.unfold(2, 4, 4).unfold(3, 4, 4)  # (B, 3, 2, 2, 4, 4)
    patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, 48)
    values = torch.linalg.svdvals(patches - patches.mean(0))
    torch.testing.assert_close(error, values[6:].square().sum(), rtol=1e-3, atol=0)


def test_latent_noise_is_pixel_noise():
    """Orthonormal components: equal latent steps are equal pixel steps, up to scale."""
    autoencoder = PatchAutoencoder(3, 4, 6).fit(normal(40, 3, 8, 8).cumsum(3).tanh())
    a, b = normal(2, 1, 6, 2, 2)
    pixels = (autoencoder.decode(a) - autoencoder.decode(b)).norm()
    torch.testing.assert_close(pixels, (a - b).norm() * autoencoder.scale)
    assert autoencoder.encode(autoencoder.decode(a)).shape == a.shape


def with_autoencoder(autoencoder, channels: int) -> Denoiser:
    """Return a latent denoiser around a diffusers autoencoder."""
    inner = tiny_denoiser(image_size=4, channels=channels).float()
    return Denoiser(inner.unet, inner.scheduler, autoencoder, None)


@pytest.mark.parametrize(
    "autoencoder",
    [
        AutoencoderKL(
            block_out_channels=(4, 4),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            norm_num_groups=2,
            latent_channels=2,
        ),
        VQModel(
            block_out_channels=(4, 4),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            norm_num_groups=2,
            latent_channels=2,
            num_vq_embeddings=8,
        ),
        PatchAutoencoder(3, 2, 2).fit(normal(8, 3, 8, 8)),
    ],
    ids=lambda autoencoder: type(autoencoder).__name__,
)
def test_latent_models_survive_their_file(autoencoder):
    """Encode, predict and decode are the same before and after saving."""
    denoiser = with_autoencoder(autoencoder.eval(), 2).eval()
    again = denoiser_from_bytes(denoiser_to_bytes(denoiser, torch.float32))
    images = normal(2, 3, 8, 8).tanh()
    x_0 = denoiser.encode(images)
    torch.testing.assert_close(again.encode(images), x_0)
    torch.testing.assert_close(
        again.encode(images), again.encode(images), rtol=0, atol=0
    )
    torch.testing.assert_close(again.decode(x_0), denoiser.decode(x_0))
    timesteps = torch.tensor([3, 15])
    with torch.no_grad():
        torch.testing.assert_close(
            again.predict(x_0, timesteps, None), denoiser.predict(x_0, timesteps, None)
        )


def test_half_precision_weights_are_the_model():
    """Saving a loaded model again gives the same bytes: rounding happens once."""
    denoiser = tiny_denoiser(label_dropout=0.1)
    once = denoiser_to_bytes(denoiser)
    assert denoiser_to_bytes(denoiser_from_bytes(once)) == once


def test_weights_without_a_description_are_refused():
    """A bare safetensors file is no model, and the message says how to get one."""
    import safetensors.torch

    data = safetensors.torch.save({"a": torch.zeros(1)})
    with pytest.raises(ValueError, match="no description of their model"):
        denoiser_from_bytes(data)


@pytest.mark.parametrize("sampler", ["ddim", "ddpm"])
def test_a_sample_does_not_depend_on_its_batch(sampler):
    """Alone or in company, the same generator gives the same trajectory."""
    denoiser = tiny_denoiser(label_dropout=0.1).float()
    labels = [0, 1, None]

    def run(numbers):
        return sample(
            denoiser, [Drawing(labels[n], n, sampler, 5, 2.0) for n in numbers], 0
        )

    together = run([0, 1, 2])
    for n in range(3):
        alone = run([n])[0]
        torch.testing.assert_close(alone.states, together[n].states)
    assert together[0].timesteps.tolist() == [19, 15, 11, 7, 3]
    assert not torch.equal(together[1].states, together[2].states)


def test_ddim_with_a_perfect_denoiser_finds_the_only_picture():
    """If all data are one image, the ideal model's samples are that image."""
    denoiser = linear_denoiser()
    picture = normal(1, 2, 2).double().tanh()

    def ideal(x_t, timesteps, labels):
        alpha = denoiser.alphas_cumprod[timesteps][:, None, None, None]
        return (x_t - alpha.sqrt() * picture) / (1 - alpha).sqrt()

    denoiser.predict = ideal
    state = sample(denoiser, [Drawing(None, 1, "ddim", 20)], 0)[0].states[-1]
    torch.testing.assert_close(state.double(), picture, rtol=1e-4, atol=1e-4)


def test_pixels_round_trip():
    """Every grey value survives the way to [-1, 1] and back."""
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    image = torch.from_numpy(values).float() / 127.5 - 1
    np.testing.assert_array_equal(to_pixels(image), values)


def test_sampling_mistakes_are_named():
    """Unknown samplers and impossible step counts get one sentence."""
    denoiser = linear_denoiser()
    with pytest.raises(
        ValueError, match="no sampler 'euler'. Choose one of ddim, ddpm"
    ):
        sample(denoiser, [Drawing(None, 0, "euler")], 0)
    with pytest.raises(ValueError, match="21 sampling steps were asked for"):
        sample(denoiser, [Drawing(None, 0, "ddim", 21)], 0)
