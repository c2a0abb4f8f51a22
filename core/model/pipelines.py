"""A diffusion model that diffusers saved, as a denoiser; or a sentence why not.

Reads the folder of a pipeline (`unet`, `scheduler` and perhaps `vae` or `vqvae`), as
diffusers' training examples write it, and that of a StableDiffusionPipeline, with or
without a LoRA. Nothing is fetched from anywhere.
"""

import inspect
from dataclasses import fields

import diffusers
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMScheduler,
    UNet2DConditionModel,
    UNet2DModel,
    VQModel,
)
from torch import Tensor, nn

from core.config import ModelConfig
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import MOST_AT_ONCE, PASS_BYTES, Denoiser, pixels_per_latent
from core.model.lora import read_lora
from core.model.model_folders import SavedModel, read_settings
from core.model.own_unet import OwnUNet
from core.model.parameters import parameter_layout
from core.model.prompts import (
    TextConditioned,
    embed_texts,
    read_text_encoder,
    read_tokenizer,
)
from core.model.weight_files import load_whole

UNETS = {"UNet2DModel": UNet2DModel, "UNet2DConditionModel": UNet2DConditionModel}
AUTOENCODERS = {"AutoencoderKL": ("kl", AutoencoderKL), "VQModel": ("vq", VQModel)}
# Of a scheduler: what decides the noise a model was trained with.
SCHEDULE = (
    "num_train_timesteps",
    "beta_schedule",
    "beta_start",
    "beta_end",
    "trained_betas",
    "prediction_type",
    "clip_sample",
    "clip_sample_range",
)
PREDICTIONS = ("epsilon", "v_prediction", "sample")
BETAS = ("linear", "scaled_linear", "squaredcos_cap_v2")  # that DDIM can make
CLIPPING = ("DDPMScheduler", "DDIMScheduler")  # that clip if they do not say
# Of a text-to-image UNet: settings that ask for more than a text, and what they mean.
MORE_THAN_TEXT = {
    "addition_embed_type": "sizes or a second text (as SDXL)",
    "encoder_hid_dim_type": "an embedded image",
    "class_embed_type": "a class",
    "num_class_embeds": "a class",
    "time_cond_proj_dim": "the guidance (as distilled models)",
}


def read_pipeline(saved: SavedModel, captions: tuple[str, ...] = ()) -> Denoiser:
    """Return a model that diffusers saved, in float32, to evaluate.

    A model that cannot be attributed is a ValueError that says why.

    Args:
        saved: Where it lies, and which of its parts are wanted.
        captions: The texts that a text-to-image model is to know, its classes.
    """
    if saved.own is not None:
        return denoiser_from_bytes(saved.own.read_bytes())
    unet = read_unet(saved)
    scheduler = read_scheduler(saved)
    autoencoder = read_autoencoder(saved, unet)
    null_label, most_at_once = None, MOST_AT_ONCE
    if isinstance(unet, UNet2DConditionModel):
        null_label, most_at_once = len(captions), examples_at_once(unet.config)
        unet = with_texts(saved, unet, captions)
    else:
        if unet.config.num_class_embeds is not None:
            null_label = add_null_label(unet)
        if saved.lora is not None:
            read_lora(saved.lora, unet, None)
    denoiser = Denoiser(unet, scheduler, autoencoder, null_label, most_at_once)
    return denoiser.float().eval()


def with_texts(
    saved: SavedModel, unet: UNet2DConditionModel, captions: tuple[str, ...]
) -> TextConditioned:
    """Return a UNet with its LoRA and its texts.

    Raises:
        ValueError: If a part is not there, or the text encoder is of another model.
    """
    folders = {name: saved.part(name) for name in ("tokenizer", "text_encoder")}
    for name, folder in folders.items():
        if folder is None:
            raise ValueError(
                f"The model is conditional on text, but there is no '{name}' folder "
                "beside 'unet'. Give the whole folder that `pipeline.save_pretrained` "
                "wrote."
            )
    tokenizer = read_tokenizer(folders["tokenizer"])
    encoder = read_text_encoder(folders["text_encoder"])
    width = encoder.config.hidden_size
    if width != unet.config.cross_attention_dim:
        raise ValueError(
            f"The text encoder gives {width} numbers a token and the model takes "
            f"{unet.config.cross_attention_dim}. They do not belong together."
        )
    if saved.lora is not None:
        read_lora(saved.lora, unet, encoder)
    table = embed_texts(tokenizer, encoder, (*captions, ""))
    return TextConditioned(unet, captions, table)


def examples_at_once(config: dict) -> int:
    """Return how many noisy examples one pass of a UNet2DConditionModel may hold.

    A backward pass keeps about the outputs of the layers.
    """
    return int(min(MOST_AT_ONCE, max(1, PASS_BYTES // output_bytes(config))))


def output_bytes(config: dict) -> int:
    """Return the bytes of all layers' outputs for one example, in float32.

    Counted on shapes alone, without any computation.

    Args:
        config: Of a UNet2DConditionModel.
    """
    total = 0

    def count(module: nn.Module, inputs, output) -> None:
        nonlocal total
        if isinstance(output, Tensor):
            total += 4 * output.numel()

    with torch.device("meta"), torch.no_grad():
        unet = UNet2DConditionModel.from_config(config)
        for module in unet.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        size = unet.config.sample_size
        x_t = torch.empty(1, unet.config.in_channels, size, size)
        texts = torch.empty(1, 77, unet.config.cross_attention_dim)
        unet(x_t, torch.zeros(1, dtype=torch.long), encoder_hidden_states=texts)
    return total


def read_unet(saved: SavedModel) -> UNet2DModel | UNet2DConditionModel:
    """Return the UNet.

    Raises:
        ValueError: If it is of a kind that cannot be attributed.
    """
    for folder_name, what in {
        "transformer": "a diffusion transformer (as SD 3 or Flux)",
        "controlnet": "steered by a ControlNet",
    }.items():
        if (saved.folder / folder_name).is_dir():
            raise ValueError(
                f"The model is {what}; only a UNet that is conditional on a text, a "
                "class or nothing can be attributed."
            )
    folder = saved.unet_folder()
    settings = read_settings(folder / "config.json")
    kind = settings.get("_class_name", "an unknown class")
    if kind not in UNETS:
        raise ValueError(
            f"The model is a {kind}; only {' and '.join(UNETS)} can be attributed so "
            "far."
        )
    if kind == "UNet2DConditionModel":
        check_text_unet(settings)
    size = settings.get("sample_size")
    if isinstance(size, list) and len(set(size)) == 1:
        size = size[0]
    if not isinstance(size, int):
        raise ValueError(
            f"The model's sample_size is {size}; square images of one size are "
            "needed. Set sample_size in unet/config.json."
        )
    if settings.get("class_embed_type"):
        raise ValueError(
            f"The model embeds its classes by '{settings['class_embed_type']}'; only "
            "a table of classes (num_class_embeds) can be read."
        )
    unet = load_whole(UNETS[kind], folder, torch_dtype=torch.float32)
    if unet.config.out_channels != unet.config.in_channels:
        raise ValueError(
            f"The model gives {unet.config.out_channels} channels for "
            f"{unet.config.in_channels}: it also learned the variance, whose loss is "
            "another one. Only models of a fixed variance can be attributed."
        )
    unet.register_to_config(sample_size=size)
    parameter_layout(unet)  # its own errors for layers that have no single block
    return unet


def check_text_unet(settings: dict) -> None:
    """Refuse a UNet2DConditionModel that is shown more than a noisy image and a text.

    Raises:
        ValueError: If it also takes another condition, or an image as for inpainting.
    """
    for name, what in MORE_THAN_TEXT.items():
        if settings.get(name) is not None:
            raise ValueError(
                f"The model is also conditional on {what}: its {name} is "
                f"'{settings[name]}'. Only models of a text alone can be attributed."
            )
    given, made = settings.get("in_channels", 4), settings.get("out_channels", 4)
    if given > made:
        raise ValueError(
            f"The model takes {given} channels and gives {made}: it is also shown a "
            "image, as for inpainting. Only models of a text alone can be attributed."
        )


def read_scheduler(saved: SavedModel) -> DDPMScheduler:
    """Return the noise schedule that the model was trained with.

    Raises:
        ValueError: If its loss or its noise levels are not those of a DDPM.
    """
    settings = read_settings(saved.scheduler_file())
    kind = settings.get("_class_name", "an unknown class")
    if "num_train_timesteps" not in settings or "beta_schedule" not in settings:
        raise ValueError(
            f"The scheduler {kind} has no table of betas, so the training loss is not "
            "that of a DDPM. Only DDPM and DDIM training can be attributed."
        )
    prediction = settings.get("prediction_type", "epsilon")
    if prediction not in PREDICTIONS:
        raise ValueError(
            f"The model predicts '{prediction}'; known: {', '.join(PREDICTIONS)}."
        )
    if settings.get("rescale_betas_zero_snr"):
        raise ValueError(
            "The noise schedule ends without any signal (rescale_betas_zero_snr), "
            "where the ELBO and the noise of Eq. 1 are not defined. Only schedules "
            "that keep some signal can be attributed."
        )
    if str(settings.get("variance_type", "")).startswith("learned"):
        raise ValueError(
            "The variance was learned with the model, which has a loss of its own. "
            "Only models of a fixed variance can be attributed."
        )
    kept = {"clip_sample": kind in CLIPPING}
    kept |= {name: settings[name] for name in SCHEDULE if name in settings}
    try:
        DDIMScheduler(**kept)  # knows fewer kinds of betas, and draws the gallery
        return DDPMScheduler(**kept, variance_type="fixed_small")  # App. J.3
    except NotImplementedError:
        raise ValueError(
            f"The noise schedule's beta_schedule is '{kept['beta_schedule']}', which "
            f"DDIM does not have; it has {', '.join(BETAS)}. Only models of these can "
            "be attributed."
        ) from None
    except Exception:  # from settings of any kind, with a library's words
        raise ValueError(
            f"The noise schedule cannot be made from the settings of the {kind}: "
            f"{', '.join(f'{name} {value}' for name, value in kept.items())}. Save the "
            "model again with `save_pretrained`."
        ) from None


def unused_settings(saved: SavedModel) -> list[str]:
    """Return the settings of the scheduler that change nothing here, as NAME VALUE.

    Those that only a sampler reads, where they are not its class's defaults.
    Samples are drawn by DDIM and DDPM with a fixed small variance, as in App. J.3.
    """
    if saved.own is not None:
        return []
    settings = read_settings(saved.scheduler_file())
    kind = getattr(diffusers, settings.get("_class_name", ""), None)
    usual = {} if kind is None else inspect.signature(kind.__init__).parameters
    unused = []
    for name, value in settings.items():
        default = usual[name].default if name in usual else None
        given = "fixed_small" if name == "variance_type" else default
        if not name.startswith("_") and name not in SCHEDULE and value != given:
            unused.append(f"{name} {value}")
    return unused


def read_autoencoder(
    saved: SavedModel, unet: UNet2DModel | UNet2DConditionModel
) -> nn.Module | None:
    """Return the autoencoder of a latent model, None for a pixel model.

    Raises:
        ValueError: If its kind or its latents do not fit.
    """
    folder = saved.part("vae", "vqvae")
    if folder is None:
        if unet.config.in_channels not in (1, 3):
            raise ValueError(
                f"The model has {unet.config.in_channels} channels, so it is one of "
                "latents, but there is no 'vae' or 'vqvae' folder beside 'unet'. Add "
                "it."
            )
        return None
    settings = read_settings(folder / "config.json")
    kind = settings.get("_class_name", "an unknown class")
    if kind not in AUTOENCODERS:
        raise ValueError(
            f"The autoencoder is a {kind}; known: {', '.join(AUTOENCODERS)}."
        )
    if settings.get("shift_factor") or settings.get("latents_mean"):
        raise ValueError(
            "The autoencoder shifts its latents, which is not supported. Only a "
            "scaling_factor is."
        )
    autoencoder = load_whole(AUTOENCODERS[kind][1], folder, torch_dtype=torch.float32)
    if autoencoder.config.latent_channels != unet.config.in_channels:
        raise ValueError(
            f"The autoencoder has {autoencoder.config.latent_channels} channels and "
            f"the model {unet.config.in_channels}. They do not belong together."
        )
    return autoencoder.requires_grad_(False)


def add_null_label(unet: UNet2DModel) -> int:
    """Add a class that stands for "no label" to a class-conditional UNet.

    Its embedding is the mean of all others: a query without a class has to be given
    something, and no class is nearer to the mean than another. Embeddings are not
    among the attributed weights.

    Returns:
        The number of the new class.
    """
    table = unet.class_embedding.weight.data
    wider = nn.Embedding(len(table) + 1, table.shape[1])
    wider.weight.data = torch.cat([table, table.mean(0, keepdim=True)])
    unet.class_embedding = wider
    unet.register_to_config(num_class_embeds=len(table) + 1)
    return len(table)


def decoded_size(denoiser: Denoiser) -> int:
    """Return the side in pixels of the images that a model makes."""
    size = denoiser.unet.config.sample_size
    if denoiser.autoencoder is None:
        return size
    return size * pixels_per_latent(denoiser.autoencoder)


def decoded_channels(denoiser: Denoiser) -> int:
    """Return the channels of the images that a model makes, 1 or 3."""
    module = denoiser.unet if denoiser.autoencoder is None else denoiser.autoencoder
    return module.config.in_channels


def model_settings(denoiser: Denoiser) -> ModelConfig:
    """Return what a collection records of a model that was trained elsewhere."""
    unet, schedule = denoiser.unet.config, denoiser.scheduler.config
    if isinstance(denoiser.unet, OwnUNet):
        names = {field.name for field in fields(ModelConfig)}
        known = {name: schedule[name] for name in names & set(SCHEDULE)}
        return ModelConfig(**known)
    heads = unet.attention_head_dim
    autoencoder = "none"
    if denoiser.autoencoder is not None:
        autoencoder = AUTOENCODERS[type(denoiser.autoencoder).__name__][0]
    return ModelConfig(
        autoencoder=autoencoder,
        block_out_channels=tuple(unet.block_out_channels),
        attention=tuple("Attn" in block for block in unet.down_block_types),
        layers_per_block=unet.layers_per_block,
        attention_head_dim=max(heads) if isinstance(heads, list | tuple) else heads,
        norm_num_groups=unet.norm_num_groups,
        prediction_type=schedule.prediction_type,
        num_train_timesteps=schedule.num_train_timesteps,
        beta_schedule=schedule.beta_schedule,
        beta_start=schedule.beta_start,
        beta_end=schedule.beta_end,
        clip_sample=schedule.clip_sample,
        dropout=unet.dropout,
        time_scale_shift=unet.resnet_time_scale_shift,
        norm_eps=unet.norm_eps,
        flip_sin_to_cos=unet.flip_sin_to_cos,
        freq_shift=unet.freq_shift,
        downsample_padding=unet.downsample_padding,
    )
