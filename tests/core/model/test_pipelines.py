"""Models that diffusers saved: read as they were, or refused in a sentence."""

import json

import numpy as np
import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    LDMPipeline,
    UNet2DModel,
    VQModel,
)
from torch.nn import functional as F

from core.explorer.explorer import Lens, open_explorer
from core.model.model_folders import SavedModel
from core.model.pipelines import decoded_size, read_pipeline
from core.recipes import named_config
from tests.helpers import layouts
from tests.precompute.test_own import run

TOY = """
    curvature.factor_draws=1 curvature.eigenvalue_draws=1
    gradients.num_draws=4 gradients.sketch_dim=1024 gradients.slice_examples=4
    samples.num_samples=2 samples.num_steps=4 samples.num_draws=8
""".split()


def unet(size=16, channels=3, **changes) -> UNet2DModel:
    """Return a small UNet with attention."""
    torch.manual_seed(0)
    settings = {
        "sample_size": size,
        "in_channels": channels,
        "out_channels": channels,
        "block_out_channels": (8, 16),
        "layers_per_block": 1,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 8,
        "norm_num_groups": 4,
    }
    return UNet2DModel(**settings | changes).eval()


def vq(latent_channels=3) -> VQModel:
    """Return a small VQ autoencoder that halves the side."""
    torch.manual_seed(1)
    return VQModel(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        latent_channels=latent_channels,
        num_vq_embeddings=16,
    ).eval()


def kl(seed: int = 1, scaling_factor: float = 0.5) -> AutoencoderKL:
    """Return a small KL autoencoder that halves the side."""
    torch.manual_seed(seed)
    return AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        latent_channels=4,
        scaling_factor=scaling_factor,
    ).eval()


def trained(model: UNet2DModel, scheduler, steps: int = 3) -> None:
    """Train a model on the images as diffusers' example loop does."""
    pictures, _ = layouts.training_pictures()
    clean = torch.from_numpy(pictures).permute(0, 3, 1, 2)[:, :, ::2, ::2] / 127.5 - 1
    clean = clean[:, : model.config.in_channels]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        noise = torch.randn(clean.shape)
        timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (20,))
        noisy = scheduler.add_noise(clean, noise, timesteps)
        F.mse_loss(model(noisy, timesteps).sample, noise).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def test_a_pixel_model_is_read_as_it_was(tmp_path):
    """Its loss is the squared error that diffusers' training loop averages."""
    scheduler = DDPMScheduler(500, beta_schedule="squaredcos_cap_v2")
    model = unet()
    DDPMPipeline(model, scheduler).save_pretrained(tmp_path)
    denoiser = read_pipeline(SavedModel(tmp_path))
    generator = torch.Generator().manual_seed(0)
    clean, noise = torch.randn(2, 5, 3, 16, 16, generator=generator)
    timesteps = torch.tensor([0, 7, 100, 250, 499])
    noisy = scheduler.add_noise(clean, noise, timesteps)
    with torch.no_grad():
        expected = F.mse_loss(model(noisy, timesteps).sample, noise, reduction="none")
        found = denoiser.losses(clean, noise, timesteps, None)
    torch.testing.assert_close(found, expected.sum((1, 2, 3)))
    assert denoiser.num_train_timesteps == 500 and decoded_size(denoiser) == 16


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_every_prediction_type_has_its_own_target(prediction, tmp_path):
    """What the scheduler says the model was trained to give."""
    scheduler = DDIMScheduler(prediction_type=prediction)
    unet().save_pretrained(tmp_path / "unet")
    scheduler.save_pretrained(tmp_path / "scheduler")
    denoiser = read_pipeline(SavedModel(tmp_path))
    clean, noise = torch.randn(2, 3, 3, 16, 16)
    timesteps = torch.tensor([1, 500, 999])
    expected = {
        "epsilon": noise,
        "sample": clean,
        "v_prediction": scheduler.get_velocity(clean, noise, timesteps),
    }[prediction]
    torch.testing.assert_close(denoiser.target(clean, noise, timesteps), expected)


@pytest.mark.parametrize("kind", ["vq", "kl"])
def test_latents_are_scaled_as_diffusers_does(kind, tmp_path):
    """Encoded, they are what the pipeline's UNet was shown; decoded, its images."""
    autoencoder = vq() if kind == "vq" else kl()
    channels = autoencoder.config.latent_channels
    unet(8, channels).save_pretrained(tmp_path / "unet")
    DDIMScheduler().save_pretrained(tmp_path / "scheduler")
    autoencoder.save_pretrained(tmp_path / ("vqvae" if kind == "vq" else "vae"))
    denoiser = read_pipeline(SavedModel(tmp_path))
    images = torch.rand(2, 3, 16, 16) * 2 - 1
    with torch.no_grad():
        encoded = autoencoder.encode(images)
        plain = encoded.latents if kind == "vq" else encoded.latent_dist.mode()
        decoded = autoencoder.decode(plain).sample.clamp(-1, 1)
    scaled = denoiser.encode(images)
    torch.testing.assert_close(scaled, plain * autoencoder.config.scaling_factor)
    torch.testing.assert_close(denoiser.decode(scaled), decoded, atol=1e-4, rtol=1e-4)
    assert decoded_size(denoiser) == 16 and denoiser.shape == (channels, 8, 8)


def test_a_class_conditional_model_gets_a_class_for_none(tmp_path):
    """The mean embedding; what the model says of its own classes stays."""
    model = unet(num_class_embeds=5)
    model.save_pretrained(tmp_path / "unet")
    DDPMScheduler().save_pretrained(tmp_path / "scheduler")
    denoiser = read_pipeline(SavedModel(tmp_path))
    x_t, timesteps = torch.randn(3, 3, 16, 16), torch.tensor([1, 500, 999])
    labels = torch.tensor([0, 4, 2])
    with torch.no_grad():
        expected = model(x_t, timesteps, class_labels=labels).sample
        torch.testing.assert_close(denoiser.predict(x_t, timesteps, labels), expected)
    assert denoiser.null_label == 5
    table = denoiser.unet.class_embedding.weight
    torch.testing.assert_close(table[5], table[:5].mean(0))


def changed(folder, file: str, **changes):
    """Change settings in a saved pipeline."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


UNET, SCHEDULER = "unet/config.json", "scheduler/scheduler_config.json"
WRONG = {
    "other class": (
        lambda f: changed(f, UNET, _class_name="UNet1DModel"),
        "is a UNet1DModel; only UNet2DModel and UNet2DConditionModel",
    ),
    "not square": (lambda f: changed(f, UNET, sample_size=[16, 8]), "square images"),
    "other embedding": (
        lambda f: changed(f, UNET, class_embed_type="timestep"),
        "embeds its classes by 'timestep'",
    ),
    "no betas": (
        lambda f: (f / SCHEDULER).write_text('{"_class_name": "KarrasVeScheduler"}'),
        "KarrasVeScheduler has no table of betas",
    ),
    "zero signal": (
        lambda f: changed(f, SCHEDULER, rescale_betas_zero_snr=True),
        "ends without any signal",
    ),
    "learned variance": (
        lambda f: changed(f, SCHEDULER, variance_type="learned_range"),
        "variance was learned",
    ),
    "two outputs": (
        lambda f: unet(out_channels=6).save_pretrained(f / "unet"),
        "gives 6 channels for 3",
    ),
    "other prediction": (
        lambda f: changed(f, SCHEDULER, prediction_type="flow"),
        "predicts 'flow'",
    ),
    "no scheduler": (lambda f: (f / SCHEDULER).unlink(), "no 'scheduler' folder"),
    "no JSON": (lambda f: (f / UNET).write_text("{"), "does not hold settings in JSON"),
    "latents alone": (
        lambda f: unet(channels=4).save_pretrained(f / "unet"),
        "no 'vae' or 'vqvae' folder",
    ),
    "other latents": (
        lambda f: vq(4).save_pretrained(f / "vqvae"),
        "has 4 channels and the model 3",
    ),
}


@pytest.mark.parametrize("spoil, said", WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_attributed_is_refused_in_a_sentence(spoil, said, tmp_path):
    DDPMPipeline(unet(), DDPMScheduler()).save_pretrained(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match="^[^\n]*$") as found:
        read_pipeline(SavedModel(tmp_path))
    assert said in str(found.value)


@pytest.mark.parametrize("kind", ["pixels", "latents"])
def test_from_a_saved_model_to_answers_with_two_commands(
    kind, tmp_path, monkeypatch, capsys
):
    """Import it with its images, then build; no model is trained."""
    monkeypatch.setenv("AFTERIMAGE_SETS", str(tmp_path / "sets"))
    root, work = tmp_path / "root", tmp_path / "work"
    if kind == "pixels":
        model, scheduler = unet(), DDPMScheduler()
        trained(model, scheduler)
        DDPMPipeline(model, scheduler).save_pretrained(tmp_path / "model")
    else:
        pipeline = LDMPipeline(vq(), unet(8), DDIMScheduler())
        pipeline.save_pretrained(tmp_path / "model")
    data = layouts.image_folder(tmp_path / "in")
    changes = [part for change in TOY for part in ("--set", change)]
    arguments = ["--collection", "own", "--data", data, "--limit", 6, *changes]
    assert run(monkeypatch, "import-model", tmp_path / "model", *arguments) == 0
    said = capsys.readouterr().out
    assert "images: 16x16, colour" in said and "predicts epsilon" in said
    assert ("latents (VQModel)" in said) == (kind == "latents")
    where = ["--root", root, "--work", work]
    assert run(monkeypatch, "build", "--collection", "own", *where) == 0
    assert not list(work.rglob("train-*"))
    explorer = open_explorer("own", root)
    answer = explorer.answer(explorer.query_from_gallery(0), Lens())
    assert np.isfinite(answer.scores).all() and answer.scores.std() > 0
    assert run(monkeypatch, "retrain", "--collection", "own", *where) == 1
    assert "was trained elsewhere" in capsys.readouterr().err
    assert named_config("own").data.label_columns == ()
