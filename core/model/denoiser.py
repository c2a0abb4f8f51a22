"""The denoiser: a diffusers UNet, its scheduler and, if latent, its autoencoder.

One face for pixel and latent models, for every prediction type, with or without
classes or texts. Holds Eq. 1 (`add_noise`), Eq. 2 (`losses`, in the prediction the
model was trained with), sampling, and the distribution of each sampling step
(`reverse_conditional`). Knows nothing about gradients.
"""

import numpy as np
import torch
from diffusers import (
    DDPMScheduler,
    UNet2DModel,
    VQModel,
)
from torch import Tensor, nn

from core.model.conditions import SummedEmbedding
from core.model.patch_autoencoder import PatchAutoencoder
from core.model.prompts import TextConditioned

MOST_AT_ONCE = 256  # noisy examples in one pass
PASS_BYTES = 8e9  # of outputs of a large model's layers in one pass
AUTOENCODED = 2**20  # pixels through the autoencoder at once, four of 512x512


class Denoiser(nn.Module):
    """A trained (or untrained) diffusion model behind one face.

    Args:
        unet: Predicts from (x_t, timesteps, class labels).
        scheduler: Holds the noise schedule and the prediction type.
        autoencoder: Maps images to latents; None for a pixel model.
        null_label: The class that stands for "no label"; None for a model without
            classes.
        most_at_once: Noisy examples that one pass may hold; bounds the memory.
    """

    def __init__(
        self,
        unet: UNet2DModel | TextConditioned,
        scheduler: DDPMScheduler,
        autoencoder: nn.Module | None = None,
        null_label: int | None = None,
        most_at_once: int = MOST_AT_ONCE,
    ):
        super().__init__()
        self.most_at_once = most_at_once
        self.unet = unet
        self.autoencoder = autoencoder
        self.scheduler = scheduler
        self.null_label = null_label
        self.register_buffer(
            "alphas_cumprod", scheduler.alphas_cumprod.clone(), persistent=False
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.alphas_cumprod.device

    @property
    def num_train_timesteps(self) -> int:
        """T, the number of fidelity levels."""
        return self.scheduler.config.num_train_timesteps

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of one noisy example."""
        size = self.unet.config.sample_size
        return self.unet.config.in_channels, size, size

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Return x_0 of shape (B, C, H, W) for images in [-1, 1]; or latents."""
        if self.autoencoder is None:
            return images
        if isinstance(self.autoencoder, PatchAutoencoder):
            return self.autoencoder.encode(images)
        some = max(1, AUTOENCODED // images[0, 0].numel())
        latents = [self._latents(batch) for batch in images.split(some)]
        return torch.cat(latents) * self.autoencoder.config.scaling_factor

    def _latents(self, images: Tensor) -> Tensor:
        """Return what a diffusers autoencoder makes of images, before scaling."""
        encoded = self.autoencoder.encode(images)
        if isinstance(self.autoencoder, VQModel):
            return encoded.latents
        # The mean, not a sample: the same image must always have the same x_0.
        return encoded.latent_dist.mode()

    @torch.no_grad()
    def decode(self, x_0: Tensor, finish: bool = True) -> Tensor:
        """Return images in [-1, 1] for clean examples of shape (B, C, H, W).

        Args:
            x_0: The examples.
            finish: Whether a finisher may take out their grain; it is for clean ones.
        """
        if self.autoencoder is None:
            images = x_0
        elif isinstance(self.autoencoder, PatchAutoencoder):
            patches = self.autoencoder
            images = patches.decode(x_0) if finish else patches.linear_decode(x_0)
        else:
            factor = pixels_per_latent(self.autoencoder)
            some = max(1, AUTOENCODED // (x_0[0, 0].numel() * factor**2))
            plain = x_0 / self.autoencoder.config.scaling_factor
            batches = [
                self.autoencoder.decode(batch).sample for batch in plain.split(some)
            ]
            images = torch.cat(batches)
        return images.clamp(-1, 1)

    def _alphas(self, timesteps: Tensor, like: Tensor) -> Tensor:
        """Return the cumulative alphas of the timesteps, shape (B, 1, 1, 1)."""
        return self.alphas_cumprod[timesteps].to(like.dtype)[:, None, None, None]

    def add_noise(self, x_0: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Return x_t of Eq. 1, shape (B, C, H, W)."""
        alpha = self._alphas(timesteps, x_0)
        return alpha.sqrt() * x_0 + (1 - alpha).sqrt() * noise

    def predict(self, x_t: Tensor, timesteps: Tensor, labels: Tensor | None) -> Tensor:
        """Return the model output: noise, velocity or sample, as it was trained."""
        if self.null_label is None:
            return self.unet(x_t, timesteps).sample
        return self.unet(x_t, timesteps, class_labels=labels).sample

    def target(self, x_0: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Return what `predict` was trained to give, shape (B, C, H, W)."""
        prediction_type = self.scheduler.config.prediction_type
        if prediction_type == "epsilon":
            return noise
        if prediction_type == "sample":
            return x_0
        alpha = self._alphas(timesteps, x_0)
        return alpha.sqrt() * noise - (1 - alpha).sqrt() * x_0  # v_prediction

    def errors(
        self, x_0: Tensor, noise: Tensor, timesteps: Tensor, labels: Tensor | None
    ) -> Tensor:
        """Return the output minus its target, shape (B, C, H, W)."""
        x_t = self.add_noise(x_0, noise, timesteps)
        return self.predict(x_t, timesteps, labels) - self.target(x_0, noise, timesteps)

    def losses(
        self, x_0: Tensor, noise: Tensor, timesteps: Tensor, labels: Tensor | None
    ) -> Tensor:
        """Return the squared error of each example, shape (B,): the sum over C, H, W.

        The summand of Eq. 2. For a velocity or sample model the error is in *its*
        output: influence needs the gradient and curvature of the loss that was
        minimised.
        """
        errors = self.errors(x_0, noise, timesteps, labels)
        return errors.square().sum((1, 2, 3))

    def noise_errors(
        self, x_0: Tensor, noise: Tensor, timesteps: Tensor, labels: Tensor | None
    ) -> Tensor:
        """Return the predicted noise minus the noise, shape (B, C, H, W).

        For an epsilon model these are its `errors`; an output of another kind implies
        a noise through Eq. 1, with x_t known.
        """
        errors = self.errors(x_0, noise, timesteps, labels)
        prediction_type = self.scheduler.config.prediction_type
        if prediction_type == "epsilon":
            return errors
        alpha = self._alphas(timesteps, errors)
        if prediction_type == "sample":
            return -(alpha / (1 - alpha)).sqrt() * errors
        return alpha.sqrt() * errors  # v_prediction

    def clean_and_noise(
        self, output: Tensor, x_t: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the clean example and the noise that an output implies, by Eq. 1.

        Args:
            output: Of `predict`, shape (B, C, H, W).
            x_t: Noisy examples, same shape.
            alpha: Cumulative alphas of x_t, shape (B, 1, 1, 1).
        """
        signal, sigma = alpha.sqrt(), (1 - alpha).sqrt()
        prediction_type = self.scheduler.config.prediction_type
        if prediction_type == "epsilon":
            return (x_t - sigma * output) / signal, output
        if prediction_type == "sample":
            return output, (x_t - signal * output) / sigma
        return signal * x_t - sigma * output, signal * output + sigma * x_t

    def labels(self, label: int | None, count: int) -> Tensor | None:
        """Return a label `count` times; the null label for None; None without classes.

        On the device of the model, shape (count,).
        """
        if self.null_label is None:
            return None
        given = self.null_label if label is None else label
        return torch.full((count,), given, device=self.device)

    @property
    def conditions(self) -> SummedEmbedding | None:
        """The embeddings of several conditions, or None for a model with one or none.

        Only such a model knows labels that leave a part open.
        """
        embedding = getattr(self.unet, "class_embedding", None)
        return embedding if isinstance(embedding, SummedEmbedding) else None

    def dropped(self, labels: Tensor | None, drop: Tensor) -> Tensor | None:
        """Return the labels with the null label where `drop` is true, shape (B,).

        With several conditions `drop` says which (`SummedEmbedding.drops`).
        """
        if self.null_label is None:
            return None
        if self.conditions is not None:
            return self.conditions.dropped(labels, drop)
        return torch.where(drop, torch.full_like(labels, self.null_label), labels)

    def guided(
        self,
        x_t: Tensor,
        timesteps: Tensor,
        labels: Tensor | None,
        guidance_scale: float,
    ) -> Tensor:
        """Return the model output, extrapolated away from that of the null label."""
        output = self.predict(x_t, timesteps, labels)
        if guidance_scale == 1.0 or self.null_label is None:
            return output
        nothing = torch.full_like(labels, self.null_label)
        unlabelled = self.predict(x_t, timesteps, nothing)
        return unlabelled + guidance_scale * (output - unlabelled)

    def expected(
        self,
        x_t: Tensor,
        timesteps: Tensor,
        labels: Tensor | None,
        guidance_scale: float,
    ) -> Tensor:
        """Return the clean examples, clipped, that a step goes by, (B, C, H, W)."""
        config = self.scheduler.config
        output = self.guided(x_t, timesteps, labels, guidance_scale)
        clean, _ = self.clean_and_noise(output, x_t, self._alphas(timesteps, x_t))
        if config.clip_sample:
            clean = clean.clamp(-config.clip_sample_range, config.clip_sample_range)
        return clean


def pixels_per_latent(autoencoder: nn.Module) -> int:
    """Return how many pixels a latent of a diffusers autoencoder has a side."""
    return 2 ** (len(autoencoder.config.block_out_channels) - 1)


def to_pixels(images: Tensor) -> np.ndarray:
    """Return images in [-1, 1], of any shape, as uint8 pixels."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
