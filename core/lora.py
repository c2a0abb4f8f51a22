"""Low-rank adapters (LoRA): a frozen layer, and two small ones trained in its place.

What peft and diffusers saved is read by them, so that scales and names of layers are
theirs. What is kept of it are modules of `torch.nn`: a collection needs neither.
"""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

PEFT_CONFIG = "adapter_config.json"
PREFIXES = ("unet.", "text_encoder.")
_NOT_PLAIN = (
    "The LoRA is more than two small layers around each that it adapts (DoRA, a bias), "
    "or it adapts an embedding. Only plain LoRA of Linear and Conv2d layers can be "
    "attributed."
)


class LowRank(nn.Module):
    """A frozen layer, and what a LoRA adds to its output.

    Args:
        base: A Linear or Conv2d.
        down: Of the same kind, to a few channels.
        up: From these to the channels of the base.
        scale: Of what is added.
    """

    def __init__(self, base: nn.Module, down: nn.Module, up: nn.Module, scale: float):
        super().__init__()
        self.base, self.down, self.up = base, down, up
        self.scale = scale

    @property
    def weight(self) -> Tensor:
        """The base's weight: diffusers asks some layers for the type of theirs."""
        return self.base.weight

    @property
    def rank(self) -> int:
        """The channels between the two small layers."""
        return len(self.down.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the base's output and what is added, as peft does."""
        return self.base(x) + self.up(self.down(x)) * self.scale


def low_rank_layers(model: nn.Module) -> dict[str, LowRank]:
    """Return the adapted layers of a model by name, in the order of its modules."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, LowRank)
    }


def add_low_rank(model: nn.Module, name: str, rank: int, scale: float) -> None:
    """Put an adapter, its weights yet to be set, around a layer of a model."""
    base = model.get_submodule(name)
    kind = {"bias": False, "device": base.weight.device, "dtype": base.weight.dtype}
    if isinstance(base, nn.Conv2d):
        down = nn.Conv2d(
            base.in_channels,
            rank,
            base.kernel_size,
            base.stride,
            base.padding,
            base.dilation,
            **kind,
        )
        up = nn.Conv2d(rank, base.out_channels, 1, **kind)
    else:
        down = nn.Linear(base.in_features, rank, **kind)
        up = nn.Linear(rank, base.out_features, **kind)
    model.set_submodule(name, LowRank(base, down, up, scale))


def train_adapters_only(model: nn.Module) -> None:
    """Freeze all of a model but its adapters."""
    model.requires_grad_(False)
    for layer in low_rank_layers(model).values():
        layer.down.requires_grad_(True)
        layer.up.requires_grad_(True)


# --- what peft and diffusers saved ---------------------------------------------------


def read_lora(folder: Path, unet: nn.Module, text_encoder: nn.Module | None) -> None:
    """Put a saved LoRA around the layers of a UNet, and freeze all else.

    What it holds for a text encoder goes there, and changes the texts alone.

    Args:
        folder: That peft or diffusers wrote, or the one file in it.
        unet: A diffusers model.
        text_encoder: Of transformers, None for a model without texts.

    Raises:
        FileNotFoundError: If there is nothing at the place.
        ValueError: If it is no LoRA of this UNet, or of a kind that cannot be
            attributed.
    """
    if not folder.exists():
        raise FileNotFoundError(
            f"There is nothing at '{folder}'. Give the folder that peft or diffusers "
            "saved the LoRA in."
        )
    is_peft = folder.is_dir() and (folder / PEFT_CONFIG).is_file()
    try:
        if is_peft:
            _read_peft(folder, unet)
        else:
            _read_diffusers(_weights_file(folder), unet, text_encoder)
    except ImportError:
        raise ValueError(
            "A LoRA is read by peft and transformers, which are not installed. "
            "Install them with `pip install peft transformers`."
        ) from None
    except _Refused as refusal:
        raise ValueError(str(refusal)) from None
    except _TROUBLE as error:
        raise ValueError(_mismatch(folder, str(error))) from None
    keep_adapters(unet)


class _Refused(Exception):
    """What is refused for a reason of its own."""


# What peft and diffusers raise for files that do not fit.
_TROUBLE = (ValueError, TypeError, RuntimeError, LookupError, OSError, SafetensorError)


def _mismatch(folder: Path, reason: str) -> str:
    first_line = (reason.strip() or "no reason was given").splitlines()[0][:200]
    return (
        f"The LoRA '{folder.name}' could not be put around this model's layers: "
        f"{first_line.rstrip('.')}. Give the model that it was trained on."
    )


def _weights_file(place: Path) -> Path:
    """Return the one file of weights at a place."""
    if place.is_file():
        return place
    files = sorted(place.glob("*.safetensors"))
    usual = [path for path in files if path.name == "pytorch_lora_weights.safetensors"]
    if len(usual or files) != 1:
        raise _Refused(
            f"'{place.name}' holds {len(files)} files of weights (.safetensors) and no "
            f"'{PEFT_CONFIG}'. Give the file of the LoRA itself."
        )
    return (usual or files)[0]


def _read_peft(folder: Path, unet: nn.Module) -> None:
    """Put what peft's `save_pretrained` wrote around the layers of a UNet."""
    from peft import PeftConfig, inject_adapter_in_model, set_peft_model_state_dict
    from peft.utils import load_peft_weights

    kind = json.loads((folder / PEFT_CONFIG).read_text()).get("peft_type")
    if kind != "LORA":
        raise _Refused(f"The adapter is a {kind}; only a LoRA can be attributed.")
    config = PeftConfig.from_pretrained(str(folder))
    if config.use_dora or config.lora_bias:
        raise _Refused(_NOT_PLAIN)
    if config.modules_to_save or config.bias != "none":
        raise _Refused(
            "Whole layers or biases were trained beside the LoRA. Only a LoRA alone "
            "can be attributed."
        )
    weights = {
        name.removeprefix("base_model.model.").removeprefix("unet."): value
        for name, value in load_peft_weights(str(folder), device="cpu").items()
    }
    inject_adapter_in_model(config, unet, state_dict=None)
    found = set_peft_model_state_dict(unet, weights)
    missing = [name for name in found.missing_keys if ".lora_" in name]
    if missing or found.unexpected_keys:
        name = (missing or found.unexpected_keys)[0]
        raise ValueError(f"the weights and the settings differ at '{name}'")


def _read_diffusers(file: Path, unet: nn.Module, text_encoder) -> None:
    """Put what diffusers' scripts write, or it converts, around a UNet's layers."""
    from diffusers.loaders import StableDiffusionLoraLoaderMixin as Loader

    if not hasattr(unet, "load_lora_adapter"):
        raise _Refused(
            f"A {type(unet).__name__} takes a LoRA that peft saved, with its "
            f"'{PEFT_CONFIG}'. Save it with peft's `save_pretrained`."
        )
    with safe_open(file, "pt") as opened:  # diffusers would leave it out in silence
        if any("dora_scale" in name or "magnitude" in name for name in opened.keys()):
            raise _Refused(_NOT_PLAIN)
    weights, alphas, facts = Loader.lora_state_dict(
        str(file.parent),
        weight_name=file.name,
        local_files_only=True,
        use_safetensors=True,
        return_lora_metadata=True,
    )
    if not any(name.startswith(PREFIXES) for name in weights):
        weights = {f"unet.{name}": value for name, value in weights.items()}
    if not any(name.startswith("unet.") for name in weights):
        raise _Refused(
            f"The LoRA '{file.name}' has no layer in the UNet; only those can be "
            "attributed."
        )
    Loader.load_lora_into_unet(weights, alphas, unet, metadata=facts)
    if any(name.startswith("text_encoder.") for name in weights):
        Loader.load_lora_into_text_encoder(
            weights, alphas, text_encoder, metadata=facts
        )


def keep_adapters(model: nn.Module) -> None:
    """Put a `LowRank` in the place of every layer that peft adapted; freeze the rest.

    Raises:
        ValueError: If there is none, or one of another form.
    """
    from peft.tuners import lora

    for name, layer in list(model.named_modules()):
        if not isinstance(layer, lora.LoraLayer):
            continue
        (adapter,) = layer.active_adapters
        plain = isinstance(layer, lora.Linear | lora.Conv2d)
        if not plain or layer.use_dora.get(adapter) or layer.lora_bias.get(adapter):
            raise ValueError(_NOT_PLAIN)
        model.set_submodule(
            name,
            LowRank(
                layer.base_layer,
                layer.lora_A[adapter],
                layer.lora_B[adapter],
                float(layer.scaling[adapter]),
            ),
        )
    if not low_rank_layers(model):
        raise ValueError(
            "The LoRA adapts no layer of this model. Give the model that it was "
            "trained on."
        )
    for part in model.modules():  # what peft leaves behind, which nothing reads
        part.__dict__.pop("peft_config", None)
    train_adapters_only(model)
