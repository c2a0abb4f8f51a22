"""A denoiser as one file: its weights, and what they are the weights of.

safetensors, with the configuration of every part in the header, so that the file alone
is enough to evaluate the model.
"""

import json

import torch
from diffusers import (
    AutoencoderKL,
    DDPMScheduler,
    UNet2DConditionModel,
    UNet2DModel,
    VQModel,
)
from torch import Tensor

from core.files.tensor_files import read_tensors, tensors_file
from core.model.conditions import SummedEmbedding
from core.model.denoiser import MOST_AT_ONCE, Denoiser
from core.model.lora import add_low_rank, low_rank_layers, train_adapters_only
from core.model.own_unet import OwnUNet, load_weights, own_unet
from core.model.patch_autoencoder import PatchAutoencoder
from core.model.prompts import TextConditioned

_AUTOENCODERS = {"AutoencoderKL": AutoencoderKL, "VQModel": VQModel}


def plain_config(module) -> dict:
    """Return the settings of a diffusers object, equal for equal objects.

    diffusers adds a list of defaulted names whose order differs between processes.
    """
    return {k: v for k, v in module.config.items() if k != "_use_default_values"}


def denoiser_to_bytes(
    denoiser: Denoiser, dtype: torch.dtype | None = torch.float16
) -> bytes:
    """Return weights and configuration as the bytes of a safetensors file.

    Args:
        denoiser: The model.
        dtype: Of the weights; None keeps every value exactly, in half precision where
            that holds it, as most weights that are passed around were saved.
    """
    settings = {
        "unet": None,
        "scheduler": plain_config(denoiser.scheduler),
        "null_label": denoiser.null_label,
        "autoencoder": None,
    }
    if isinstance(denoiser.unet, OwnUNet):
        settings["own"] = denoiser.unet.description
    else:
        settings["unet"] = plain_config(denoiser.unet)
    if isinstance(denoiser.autoencoder, PatchAutoencoder):
        rows, size = denoiser.autoencoder.components.shape
        patch = denoiser.autoencoder.patch_size
        arguments = [size // patch**2, patch, rows]
        lapped, finisher = denoiser.autoencoder.lapped, denoiser.autoencoder.finisher
        if lapped or finisher:
            arguments.append(lapped)
        if finisher:
            arguments.append(finisher.width)
        settings["autoencoder"] = {"class": "PatchAutoencoder", "arguments": arguments}
    elif denoiser.autoencoder is not None:
        settings["autoencoder"] = {
            "class": type(denoiser.autoencoder).__name__,
            "config": plain_config(denoiser.autoencoder),
        }
    if denoiser.conditions is not None:
        settings["conditions"] = denoiser.conditions.sizes
    if isinstance(denoiser.unet, TextConditioned):
        settings["text"] = {
            "captions": denoiser.unet.captions,
            "table": denoiser.unet.table.shape,
            "most_at_once": denoiser.most_at_once,
        }
    if adapted := low_rank_layers(denoiser.unet):
        settings["lora"] = [
            (name, layer.rank, layer.scale) for name, layer in adapted.items()
        ]
    weights = {
        # The autoencoder defines x_0; it stays exact.
        name: exact_half(tensor)
        if dtype is None
        else tensor
        if name.startswith("autoencoder.")
        else tensor.to(dtype)
        for name, tensor in denoiser.state_dict().items()
    }
    settings = json.loads(json.dumps(settings, default=str))
    return tensors_file(weights, {"denoiser": settings}, sealed=False)


def exact_half(tensor: Tensor) -> Tensor:
    """Return a tensor in half precision if that changes no value, otherwise itself."""
    half = tensor.half()
    return half if tensor.is_floating_point() and half.equal(tensor) else tensor


def denoiser_from_bytes(data: bytes) -> Denoiser:
    """Return the denoiser that `denoiser_to_bytes` wrote, in float32, to evaluate.

    Raises:
        ValueError: If the bytes hold weights without a description.
    """
    weights, header = read_tensors(data, sealed=False)
    if "denoiser" not in header:
        raise ValueError(
            "The weights have no description of their model. Write them with "
            "`python -m precompute train`."
        )
    settings = header["denoiser"]
    autoencoder = None
    if settings["autoencoder"]:
        kind = settings["autoencoder"]["class"]
        if kind == "PatchAutoencoder":
            autoencoder = PatchAutoencoder(*settings["autoencoder"]["arguments"])
        else:
            autoencoder = _AUTOENCODERS[kind].from_config(
                settings["autoencoder"]["config"]
            )
    text, most_at_once = settings.get("text"), MOST_AT_ONCE
    if "own" in settings:
        unet = own_unet(settings["own"])
    elif text is None:
        unet = UNet2DModel.from_config(settings["unet"])
        if "conditions" in settings:
            width = unet.time_embedding.linear_2.out_features
            unet.class_embedding = SummedEmbedding(settings["conditions"], width)
    else:
        unet = UNet2DConditionModel.from_config(settings["unet"])
        unet = TextConditioned(unet, text["captions"], torch.empty(text["table"]))
        most_at_once = text["most_at_once"]
    for name, rank, scale in settings.get("lora", ()):
        add_low_rank(unet, name, rank, scale)
    if "lora" in settings:
        train_adapters_only(unet)
    denoiser = Denoiser(
        unet,
        DDPMScheduler.from_config(settings["scheduler"]),
        autoencoder,
        settings["null_label"],
        most_at_once,
    )
    if "own" in settings:
        load_weights(denoiser, weights, settings["own"]["make"])
    else:
        denoiser.load_state_dict(weights)
    return denoiser.float().eval()
