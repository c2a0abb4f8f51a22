"""Low-rank adapters (LoRA): a frozen layer, and two small ones trained in its place.

What peft and diffusers saved is read by them, so that scales and names of layers are
theirs. What is kept of it are modules of `torch.nn`: a collection needs neither.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from torch import Tensor, nn

from core.model.adapter_files import ONLY, check_adapter
from core.model.weight_files import PICKLES, quietly, read_weights

PEFT_CONFIG = "adapter_config.json"
PREFIXES = ("unet.", "text_encoder.")
NAMES = ("pytorch_lora_weights", "adapter_model")  # as diffusers and peft write them
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
    """Put a saved LoRA around the layers of a UNet, and freeze the rest.

    What it holds for a text encoder goes there, and changes the texts alone.

    Args:
        folder: That peft or diffusers wrote, or the one file in it.
        unet: A diffusers model.
        text_encoder: Of transformers, None for a model without texts.

    Raises:
        FileNotFoundError: If there is nothing at the place.
        ValueError: If it is not a LoRA of this UNet, not whole, or of a kind that
            cannot be attributed.
    """
    if not folder.exists():
        raise FileNotFoundError(
            f"There is nothing at '{folder}'. Give the folder that peft or diffusers "
            "saved the LoRA in."
        )
    if folder.is_dir() and (folder / PEFT_CONFIG).is_file():
        read = _read_peft
    elif hasattr(unet, "load_lora_adapter"):
        read = _read_diffusers
    else:
        raise ValueError(
            f"A {type(unet).__name__} takes a LoRA that peft saved, with its "
            f"'{PEFT_CONFIG}'. Save it with peft's `save_pretrained`."
        )
    file = _weights_file(folder)
    weights, facts = read_weights(file)
    check_adapter(weights, file.name)
    try:
        read(file, weights, facts, unet, text_encoder)
    except ImportError:
        raise ValueError(
            "A LoRA is read by peft and transformers, which are not installed. "
            "Install them with `pip install peft transformers`."
        ) from None
    keep_adapters(unet)
    _check_trained(unet)


def _weights_file(given: Path) -> Path:
    """Return the one file of weights at a place, safetensors before pickles.

    Raises:
        ValueError: If there is none, or more than one.
    """
    if given.is_file():
        return given
    for endings in ((".safetensors",), PICKLES):
        files = sorted(path for path in given.iterdir() if path.suffix in endings)
        usual = [path for path in files if path.stem in NAMES]
        if len(usual or files) == 1:
            return (usual or files)[0]
        if usual or files:
            break
    held = ", ".join(sorted(path.name for path in given.iterdir())[:8]) or "nothing"
    raise ValueError(
        f"'{given.name}' has no file that is clearly the LoRA's; it holds {held}. Give "
        "the file of the LoRA itself, or the folder with its "
        f"'{PEFT_CONFIG}'."
    )


def _read_peft(file: Path, weights: dict, facts: dict, unet: nn.Module, _) -> None:
    """Put what peft's `save_pretrained` wrote around the layers of a UNet."""
    from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict

    where = f"'{PEFT_CONFIG}' beside '{file.name}'"
    try:
        settings = json.loads((file.parent / PEFT_CONFIG).read_text())
        if (kind := settings.get("peft_type")) == "LORA":
            with quietly():
                config = LoraConfig.from_pretrained(str(file.parent))
    except Exception:  # peft raises many kinds, with advice for programmers
        raise ValueError(
            f"{where} cannot be read as peft's settings. Save the LoRA again."
        ) from None
    if kind != "LORA":
        raise ValueError(f"The adapter is of the kind {kind}. {ONLY}")
    known = {field.name for field in fields(LoraConfig)}
    if unknown := [name for name in settings if settings[name] and name not in known]:
        raise ValueError(
            f"{where} sets '{unknown[0]}', which this version of peft does not know, "
            "so the LoRA may do more than is read. Save it with an older version."
        )
    if config.use_dora or config.lora_bias:
        raise ValueError(_NOT_PLAIN)
    if config.modules_to_save or config.bias != "none":
        raise ValueError(
            "Whole layers or biases were trained beside the LoRA. Only a LoRA alone "
            "can be attributed."
        )
    plain = {
        name.removeprefix("base_model.model.").removeprefix("unet."): value
        for name, value in weights.items()
    }
    layers = _check_fits(plain, unet, file.name)
    differ = ValueError(
        f"{where} says of other layers or another rank than the weights do. Copy both "
        "files of one LoRA."
    )
    try:
        with quietly():
            inject_adapter_in_model(config, unet, state_dict=None)
            loaded = set_peft_model_state_dict(unet, plain)
    except Exception:  # as above
        raise differ from None
    missing = [name for name in loaded.missing_keys if ".lora_" in name]
    if missing or loaded.unexpected_keys or layers != _adapted(unet):
        raise differ


def _read_diffusers(
    file: Path, weights: dict, facts: dict, unet: nn.Module, text_encoder: nn.Module
) -> None:
    """Put what diffusers' scripts write, or it converts, around a UNet's layers."""
    from diffusers.loaders import StableDiffusionLoraLoaderMixin as Loader
    from diffusers.loaders.lora_base import LORA_ADAPTER_METADATA_KEY
    from diffusers.utils import convert_unet_state_dict_to_peft

    number = len(weights)
    try:
        scales = json.loads(facts.get(LORA_ADAPTER_METADATA_KEY, "null"))
        with quietly():
            weights, alphas = Loader.lora_state_dict(weights, unet_config=unet.config)
    except Exception:  # diffusers raises many kinds, with advice for programmers
        raise ValueError(_unfit(file.name)) from None
    if not any(name.startswith(PREFIXES) for name in weights):
        weights = {f"unet.{name}": value for name, value in weights.items()}
    texts = {n: v for n, v in weights.items() if n.startswith("text_encoder.")}
    of_unet = {
        name.removeprefix("unet."): value
        for name, value in weights.items()
        if name.startswith("unet.")
    }
    if not of_unet:
        raise ValueError(
            f"The LoRA '{file.name}' has no layer in the UNet; only those can be "
            "attributed."
        )
    of_unet = convert_unet_state_dict_to_peft(of_unet)
    layers = _check_fits(of_unet, unet, file.name)
    if len(of_unet) + len(texts) + len(alphas or ()) != number:
        raise ValueError(_unfit(file.name))
    try:
        with quietly():
            Loader.load_lora_into_unet(weights, alphas, unet, metadata=scales)
            if texts:
                Loader.load_lora_into_text_encoder(
                    weights, alphas, text_encoder, metadata=scales
                )
    except Exception:  # as above
        raise ValueError(_unfit(file.name)) from None
    if layers != _adapted(unet) or len(texts) != 2 * len(_adapted(text_encoder)):
        raise ValueError(_unfit(file.name))


def _unfit(name: str, why: str = "") -> str:
    why = f": {why}" if why else ""
    return (
        f"The LoRA '{name}' could not be put around this model's layers{why}. Give the "
        "model that it was trained on."
    )


def _check_fits(weights: Mapping[str, Tensor], unet: nn.Module, name: str) -> set[str]:
    """Return the layers that a LoRA adapts, if the UNet has them in its sizes.

    Args:
        weights: By peft's names, as `LAYER.lora_A.weight`.
        unet: The model.
        name: Of the file, for people.

    Raises:
        ValueError: If it has not; the first tensor that does not fit is named.
    """
    modules, layers = dict(unet.named_modules()), set()
    for tensor, value in weights.items():
        layer, _, layer_kind = tensor.partition(".lora_")
        base = modules.get(layer)
        if not isinstance(base, nn.Linear | nn.Conv2d):
            why = f"it holds '{tensor}', and there is no such layer"
            raise ValueError(_unfit(name, why))
        rank_first = layer_kind.startswith("A")
        shape = value.shape[1:] if rank_first else value.shape[:1]
        wanted = base.weight.shape[1:] if rank_first else base.weight.shape[:1]
        if shape != wanted:
            why = (
                f"'{tensor}' has the shape {tuple(value.shape)} and the layer "
                f"{tuple(base.weight.shape)}"
            )
            raise ValueError(_unfit(name, why))
        layers.add(layer)
    return layers


def _adapted(model: nn.Module | None) -> set[str]:
    """Return the names of the layers that peft has adapted."""
    from peft.tuners.lora import LoraLayer

    if model is None:
        return set()
    return {
        name for name, module in model.named_modules() if isinstance(module, LoraLayer)
    }


def _check_trained(model: nn.Module) -> None:
    """Refuse adapters as they are before their first step of training."""
    if not any(_changes(layer) for layer in low_rank_layers(model).values()):
        raise ValueError(
            "The LoRA changes nothing: around each layer its alpha, or one of the two "
            "small layers, is zero. Give one that was trained."
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
        more = layer.lora_variant.get(adapter) or layer.lora_bias.get(adapter)
        if not plain or more:
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
    added = low_rank_layers(model)
    if not added:
        raise ValueError(
            "The LoRA adapts no layer of this model. Give the model that it was "
            "trained on."
        )
    for name, layer in added.items():
        if not math.isfinite(layer.scale):
            raise ValueError(
                f"The LoRA's alpha around '{name}' is not a number ({layer.scale}). "
                "Save it again."
            )
    for module in model.modules():  # what peft leaves behind, which nothing reads
        module.__dict__.pop("peft_config", None)
    train_adapters_only(model)


def _changes(layer: LowRank) -> bool:
    """Return whether an adapter adds anything to its layer's output."""
    return bool(layer.scale and layer.down.weight.any() and layer.up.weight.any())
