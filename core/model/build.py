"""Build an untrained denoiser from settings."""

import math

import torch
from diffusers import DDPMScheduler, UNet2DModel

from core.config import ModelConfig
from core.model.conditions import SummedEmbedding
from core.model.denoiser import Denoiser
from core.model.patch_autoencoder import PatchAutoencoder


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
