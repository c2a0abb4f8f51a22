"""The denoiser: a diffusers UNet, its scheduler and, if latent, its autoencoder.

One face for pixel and latent models, for every prediction type, with or without
classes or texts. Holds Eq. 1 (`add_noise`), Eq. 2 (`losses`, in the prediction the
model was trained with), sampling, and the distribution of each sampling step
(`reverse_conditional`). Knows nothing about gradients.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from diffusers import (
    DDIMInverseScheduler,
    DDIMScheduler,
    DDPMScheduler,
    UNet2DModel,
    VQModel,
)
from torch import Tensor, nn

from core.config import ModelConfig
from core.model.conditions import SummedEmbedding
from core.model.patch_autoencoder import PatchAutoencoder
from core.model.prompts import TextConditioned

SAMPLERS = {"ddim": DDIMScheduler, "ddpm": DDPMScheduler}
MOST_AT_ONCE = 256  # noisy examples in one pass
PASS_BYTES = 8e9  # of what the layers of a large model put out in one pass
AUTOENCODED = 2**20  # pixels through the autoencoder at once, four of 512x512


@dataclass(frozen=True)
class Trajectory:
    """What a sampler visited.

    Attributes:
        timesteps: The timesteps of the steps taken, shape (S,), descending.
        states: The noisy examples, shape (S + 1, C, H, W); the last is the sample
            itself.
    """

    timesteps: Tensor
    states: Tensor


@dataclass(frozen=True)
class Subject:
    """One picture as the model sees it, and how it was drawn, where that is known.

    Attributes:
        x_0: Clean example, shape (C, H, W).
        label: Class index, or None for no label.
        trajectory: The steps that drew it; None where they are not known.
        sampler: What drew the trajectory, "ddim" or "ddpm".
        eta: Noise of DDIM, 0 to 1.
        guidance_scale: Of the sampling.
    """

    x_0: Tensor
    label: int | None
    trajectory: Trajectory | None = None
    sampler: str = ""
    eta: float = 0.0
    guidance_scale: float = 1.0


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
        latents = [self._latents(part) for part in images.split(some)]
        return torch.cat(latents) * self.autoencoder.config.scaling_factor

    def _latents(self, images: Tensor) -> Tensor:
        """Return what a diffusers autoencoder makes of images, before scaling."""
        encoded = self.autoencoder.encode(images)
        if isinstance(self.autoencoder, VQModel):
            return encoded.latents
        # The mean, no sample: the same picture must always have the same x_0.
        return encoded.latent_dist.mode()

    @torch.no_grad()
    def decode(self, x_0: Tensor) -> Tensor:
        """Return images in [-1, 1] for clean examples of shape (B, C, H, W)."""
        if self.autoencoder is None:
            images = x_0
        elif isinstance(self.autoencoder, PatchAutoencoder):
            images = self.autoencoder.decode(x_0)
        else:
            factor = picture_factor(self.autoencoder)
            some = max(1, AUTOENCODED // (x_0[0, 0].numel() * factor**2))
            plain = x_0 / self.autoencoder.config.scaling_factor
            parts = [self.autoencoder.decode(part).sample for part in plain.split(some)]
            images = torch.cat(parts)
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

    @torch.no_grad()
    def sample(
        self,
        generators: list[torch.Generator],
        labels: Tensor | None = None,
        sampler: str = "ddim",
        num_steps: int = 50,
        eta: float = 0.0,
        guidance_scale: float = 1.0,
        on_step: Callable[[int, int], None] | None = None,
        away: Tensor | None = None,
    ) -> list[Trajectory]:
        """Return one sampling trajectory per generator.

        Args:
            generators: One source of noise per sample, so none depends on its batch.
            labels: Class per sample, shape (B,); the null label where None.
            sampler: "ddim" (Song et al. 2021) or "ddpm" (Ho et al. 2020).
            num_steps: Steps taken, evenly spaced over [0, T).
            eta: Noise of DDIM, 0 to 1.
            guidance_scale: 1 follows the model; more exaggerates the class.
            on_step: Called with (steps done, steps in all); may raise to stop.
            away: Labels that guidance leads away from, shape (B,); the null label where
                None. One that leaves only the house open exaggerates the house alone.

        Raises:
            ValueError: If the sampler is unknown or the number of steps is out of
                range.
        """
        if sampler not in SAMPLERS:
            raise ValueError(
                f"There is no sampler '{sampler}'. Choose one of {', '.join(SAMPLERS)}."
            )
        if not 1 <= num_steps <= self.num_train_timesteps:
            raise ValueError(
                f"{num_steps} sampling steps were asked for. Choose 1 to "
                f"{self.num_train_timesteps}."
            )
        scheduler = SAMPLERS[sampler].from_config(
            self.scheduler.config, timestep_spacing="trailing"
        )
        scheduler.set_timesteps(num_steps)
        extra = {"eta": eta} if sampler == "ddim" else {}
        if labels is None and self.null_label is not None:
            labels = torch.full((len(generators),), self.null_label)
        labels = None if labels is None else labels.to(self.device)

        x_t = torch.stack([torch.randn(self.shape, generator=g) for g in generators])
        states = [x_t]
        for step, timestep in enumerate(scheduler.timesteps):
            output = self.guided(
                x_t.to(self.device),
                timestep.to(self.device).expand(len(x_t)),
                labels,
                guidance_scale,
                None if away is None else away.to(self.device),
            ).cpu()
            x_t = torch.cat([
                scheduler_step(
                    scheduler, output[i : i + 1], timestep, x_t[i : i + 1], g, extra
                )
                for i, g in enumerate(generators)
            ])
            states.append(x_t)
            if on_step is not None:
                on_step(step + 1, num_steps)
        stacked = torch.stack(states, dim=1)  # (B, S + 1, C, H, W)
        return [Trajectory(scheduler.timesteps.clone(), s) for s in stacked]

    def guided(
        self,
        x_t: Tensor,
        timesteps: Tensor,
        labels: Tensor | None,
        guidance_scale: float,
        away: Tensor | None = None,
    ) -> Tensor:
        """Return the model output, extrapolated away from the one of other labels.

        These are `away`, shape (B,), or the null label.
        """
        output = self.predict(x_t, timesteps, labels)
        if guidance_scale == 1.0 or self.null_label is None:
            return output
        if away is None:
            away = torch.full_like(labels, self.null_label)
        unlabelled = self.predict(x_t, timesteps, away)
        return unlabelled + guidance_scale * (output - unlabelled)

    def expected(
        self,
        x_t: Tensor,
        timesteps: Tensor,
        labels: Tensor | None,
        guidance_scale: float,
    ) -> tuple[Tensor, Tensor]:
        """Return the clean examples, clipped, and the noise that a step goes by."""
        config = self.scheduler.config
        output = self.guided(x_t, timesteps, labels, guidance_scale)
        clean, noise = self.clean_and_noise(output, x_t, self._alphas(timesteps, x_t))
        if config.clip_sample:
            clean = clean.clamp(-config.clip_sample_range, config.clip_sample_range)
        return clean, noise

    def reverse_conditional(
        self,
        x_t: Tensor,
        timesteps: Tensor,
        previous: Tensor,
        labels: Tensor | None,
        sampler: str,
        eta: float = 0.0,
        guidance_scale: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """Return mean and variance of p(x^(t-1) | x^(t)), as the sampler draws it.

        The normal distribution of each step of `sample`, with the guidance and the
        clipping it was drawn with. Where the prediction is clipped, its gradient is
        zero, which is true of that distribution: the sampler ignores what it clips.

        Args:
            x_t: Noisy examples, shape (B, C, H, W).
            timesteps: Their timesteps, shape (B,).
            previous: The timesteps stepped to, shape (B,), -1 for the sample itself;
                see `previous_timesteps`.
            labels: Class per example, shape (B,), or None for a model without classes.
            sampler: "ddim" or "ddpm".
            eta: Noise of DDIM.
            guidance_scale: Of the sampling.

        Returns:
            Means of shape (B, C, H, W) and variances of shape (B, 1, 1, 1), zero where
            the step draws no noise.
        """
        clean, noise = self.expected(x_t, timesteps, labels, guidance_scale)
        alpha, before = self._step_alphas(timesteps, previous)
        variance = self.step_variance(timesteps, previous, sampler, eta)
        if sampler == "ddim":
            from_clean = before.sqrt()
            other = noise
            from_other = (1 - before - variance).sqrt()
        else:
            from_clean = before.sqrt() * (1 - alpha / before) / (1 - alpha)
            other = x_t
            from_other = (alpha / before).sqrt() * (1 - before) / (1 - alpha)
        mean = from_clean.to(x_t.dtype) * clean + from_other.to(x_t.dtype) * other
        return mean, variance.to(x_t.dtype)

    def step_variance(
        self, timesteps: Tensor, previous: Tensor, sampler: str, eta: float = 0.0
    ) -> Tensor:
        """Return the variance of sampling steps, 0 for one that draws no noise.

        The arguments are those of `reverse_conditional`.

        Returns:
            Shape (B, 1, 1, 1), float64.
        """
        alpha, before = self._step_alphas(timesteps, previous)
        large = 1 - alpha / before
        small = (1 - before) / (1 - alpha) * large
        if sampler == "ddim":
            return eta**2 * small
        if self.scheduler.config.variance_type == "fixed_large":
            return torch.where(_column(timesteps) > 0, large, 0)
        return small

    def _step_alphas(self, timesteps: Tensor, previous: Tensor) -> list[Tensor]:
        """Return the cumulative alphas before and after a step, in float64.

        In float32 the difference of two that are close to 1 would lose its digits.
        """
        clean = torch.ones(1, dtype=torch.float64, device=self.device)
        alphas = torch.cat([self.alphas_cumprod.double(), clean])  # the last is t = -1
        return [_column(alphas[timesteps]), _column(alphas[previous])]


def picture_factor(autoencoder: nn.Module) -> int:
    """Return how many pixels a latent of a diffusers autoencoder has a side."""
    return 2 ** (len(autoencoder.config.block_out_channels) - 1)


def _column(values: Tensor) -> Tensor:
    """Return values (B,) in shape (B, 1, 1, 1)."""
    return values[:, None, None, None]


def previous_timesteps(
    sampler: str, timesteps: Tensor, num_train_timesteps: int
) -> Tensor:
    """Return the timestep that each step of a sampler leads to, -1 for the sample.

    Diffusers' DDIM steps down by T // S even where T / S is not whole; its DDPM steps
    to the next timestep.

    Args:
        sampler: "ddim" or "ddpm".
        timesteps: All timesteps of the steps taken, descending, shape (S,).
        num_train_timesteps: T.
    """
    if sampler == "ddim":
        stride = num_train_timesteps // len(timesteps)
        return (timesteps - stride).clamp(min=-1)
    return torch.cat([timesteps[1:], timesteps.new_tensor([-1])])


@torch.no_grad()
def invert(
    denoiser: Denoiser,
    subject: Subject,
    num_steps: int,
    on_step: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """Return an approximate trajectory of a picture that was not sampled.

    DDIM inversion (Song et al. 2021): the steps of deterministic DDIM backwards, with
    the noise predicted at the state before the step, where the exact inverse would need
    the one after. The path is smooth: it holds no sampling noise.

    Args:
        denoiser: The model.
        subject: The picture and its label.
        num_steps: Steps of the path, evenly spaced over [0, T).
        on_step: Called with (steps done, steps in all); may raise to stop.
    """
    scheduler = DDIMInverseScheduler.from_config(
        denoiser.scheduler.config, timestep_spacing="trailing"
    )
    scheduler.set_timesteps(num_steps)
    labels = denoiser.labels(subject.label, 1)
    state = subject.x_0[None].to(denoiser.device)
    states = [state[0].cpu()]
    for timestep in scheduler.timesteps:  # ascending
        output = denoiser.predict(state, timestep[None].to(denoiser.device), labels)
        state = scheduler.step(output, timestep, state).prev_sample
        states.append(state[0].cpu())
        if on_step is not None:
            on_step(len(states) - 1, num_steps)
    return Trajectory(scheduler.timesteps.flip(0), torch.stack(states[::-1]))


def scheduler_step(scheduler, output, timestep, x_t, generator, extra) -> Tensor:
    """Return x_{t-1}, shape (1, C, H, W), with noise from the sample's generator."""
    return scheduler.step(
        output, timestep, x_t, generator=generator, **extra
    ).prev_sample


def to_pixels(images: Tensor) -> np.ndarray:
    """Return images in [-1, 1], of any shape, as uint8 pixels."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu().numpy()


def make_denoiser(
    config: ModelConfig,
    image_size: int,
    channels: int,
    num_classes: int | tuple[int, ...],
    generator: torch.Generator,
) -> Denoiser:
    """Return an untrained denoiser; its weights depend on the generator alone.

    With label dropout there is one class more than `num_classes`: the null label, the
    last. Without it the model has no classes. Given a number per label column, each has
    an embedding of its own (`SummedEmbedding`). Which settings fit a model is in
    `core.checks`.
    """
    summed = isinstance(num_classes, tuple)
    sizes, num_classes = num_classes, math.prod(num_classes) if summed else num_classes
    size, in_channels, autoencoder = image_size, channels, None
    if config.autoencoder == "patch":
        autoencoder = PatchAutoencoder(
            channels, config.patch_size, config.latent_channels, config.lapped
        )
        size, in_channels = image_size // config.patch_size, config.latent_channels
    null_label = num_classes if config.label_dropout > 0 else None
    down = ["AttnDownBlock2D" if a else "DownBlock2D" for a in config.attention]
    up = ["AttnUpBlock2D" if a else "UpBlock2D" for a in reversed(config.attention)]
    with torch.random.fork_rng(devices=[]):
        # diffusers initialises from the global state; seed it for this line alone.
        torch.manual_seed(generator.initial_seed())
        unet = UNet2DModel(
            sample_size=size,
            in_channels=in_channels,
            out_channels=in_channels,
            block_out_channels=config.block_out_channels,
            layers_per_block=config.layers_per_block,
            down_block_types=tuple(down),
            up_block_types=tuple(up),
            attention_head_dim=config.attention_head_dim,
            norm_num_groups=config.norm_num_groups,
            norm_eps=config.norm_eps,
            dropout=config.dropout,
            resnet_time_scale_shift=config.time_scale_shift,
            flip_sin_to_cos=config.flip_sin_to_cos,
            freq_shift=config.freq_shift,
            downsample_padding=config.downsample_padding,
            num_class_embeds=None if null_label is None or summed else num_classes + 1,
            class_embed_type="identity" if summed else None,
        )
        if summed:
            width = unet.time_embedding.linear_2.out_features
            unet.class_embedding = SummedEmbedding(sizes, width)
    scheduler = DDPMScheduler(
        num_train_timesteps=config.num_train_timesteps,
        beta_schedule=config.beta_schedule,
        beta_start=config.beta_start,
        beta_end=config.beta_end,
        prediction_type=config.prediction_type,
        variance_type="fixed_small",  # App. J.3
        clip_sample=config.clip_sample,
    )
    return Denoiser(unet, scheduler, autoencoder, null_label)
