"""Weights that others saved: whole or not, in every format that passes for a LoRA."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import torch
from diffusers import DDPMPipeline, DDPMScheduler
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.model.lora import low_rank_layers, read_lora
from core.model.model_folders import SavedModel
from core.model.pipelines import read_pipeline, read_unet
from core.model.prompts import read_text_encoder
from precompute.imports.models import describe_model
from tests.core.model.test_pipelines import unet
from tests.helpers.stable_diffusion import (
    CAPTIONS,
    save_kohya_lora,
    save_peft_lora,
    save_pipeline,
)
from tests.kinds import Case, Found

PLAIN = "diffusion_pytorch_model.safetensors"
QUERY = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
KOHYA = f"lora_unet_{QUERY.replace('.', '_')}"
UNTOLD = ("weights_only", "low_cpu_mem", "ignore_mismatched", "renamed", "github")


@cache
def saved(kind: str) -> Path:
    """Return the folder of a tiny model, or of a LoRA, made once for all cases."""
    folder = Path(tempfile.mkdtemp(prefix="afterimage-kinds-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if kind == "pixels":
        DDPMPipeline(unet(), DDPMScheduler()).save_pretrained(folder)
        return folder
    if kind == "texts":
        return save_pipeline(folder)
    if kind == "peft":
        return save_peft_lora(folder / "lora", saved("texts"))
    return save_kohya_lora(folder / "lora", saved("texts")).parent


def copied(kind: str, folder: Path) -> Path:
    """Return a copy of a saved model or LoRA that may be spoilt."""
    return Path(shutil.copytree(saved(kind), folder / kind))


def read(folder: Path) -> Found:
    """Return what is said of a model."""
    return Found("\n".join(describe_model(read_pipeline(SavedModel(folder), CAPTIONS))))


@cache
def parts() -> tuple:
    """Return the UNet and the text encoder that LoRAs are put around."""
    model = SavedModel(saved("texts"))
    return read_unet(model), read_text_encoder(model.part("text_encoder"))


def adapted(place: Path) -> Found:
    """Return what a LoRA adapts."""
    unet, encoder = deepcopy(parts())
    read_lora(place, unet, encoder)
    layers = low_rank_layers(unet).values()
    ranks = {layer.rank for layer in layers}
    return Found(f"ranks {ranks} around {len(layers)} layers")


def rewritten(file: Path, change: Callable[[dict], dict]) -> None:
    """Change the tensors in a file."""
    save_file(change(load_file(file)), file, {"format": "pt"})


def filled(name: str, value: float) -> Callable[[dict], dict]:
    """Return what puts a value into one number of a tensor."""

    def change(weights: dict) -> dict:
        weights[name].view(-1)[0] = value
        return weights

    return change


def without(name: str) -> Callable[[dict], dict]:
    """Return what leaves a tensor out."""
    return lambda weights: {n: v for n, v in weights.items() if n != name}


def beside(**more: Tensor) -> Callable[[dict], dict]:
    """Return what adds tensors."""
    return lambda weights: weights | more


class Harm:
    """What runs code where it is unpickled as more than weights."""

    def __reduce__(self):
        """Return the code."""
        return (Path.touch, (Path(tempfile.gettempdir()) / "afterimage-harmed",))


def pickled(file: Path, to: str, harm: bool = False) -> None:
    """Put a pickle in the place of a file of weights."""
    weights = load_file(file)
    file.unlink()
    torch.save(weights | ({"more": Harm()} if harm else {}), file.with_name(to))


def in_parts(place: Path, variant: str = "", spoil: str = "") -> None:
    """Split a file of weights into two, and perhaps lose one or their index."""
    weights = load_file(place / PLAIN)
    (place / PLAIN).unlink()
    names = sorted(weights)
    index, middle = {}, f".{variant}" if variant else ""
    for part in (0, 1):
        file = f"diffusion_pytorch_model{middle}-0000{part + 1}-of-00002.safetensors"
        held = {name: weights[name] for name in names[part::2]}
        index |= dict.fromkeys(held, file)
        save_file(held, place / file, {"format": "pt"})
        if part and spoil == "part":
            (place / file).unlink()
    if spoil != "index":
        path = place / f"diffusion_pytorch_model.safetensors.index{middle}.json"
        path.write_text(json.dumps({"metadata": {}, "weight_map": index}))


def halved(place: Path, stem: str, variant: str = "fp16") -> None:
    """Leave of a file of weights only one in half precision."""
    weights = load_file(place / f"{stem}.safetensors")
    (place / f"{stem}.safetensors").unlink()
    half = {
        name: value.half() if value.is_floating_point() else value
        for name, value in weights.items()
    }
    save_file(half, place / f"{stem}.{variant}.safetensors", {"format": "pt"})


def halved_pipeline(folder: Path) -> None:
    """Leave of every part of a pipeline with texts only half precision."""
    for part, stem in {
        "unet": "diffusion_pytorch_model",
        "vae": "diffusion_pytorch_model",
        "text_encoder": "model",
    }.items():
        halved(folder / part, stem)


def as_before(weights: dict) -> dict:
    """Return a UNet's attention under the names of the first versions of diffusers."""
    renamed = {}
    for name, value in weights.items():
        for old, new in {
            "query": "to_q",
            "key": "to_k",
            "value": "to_v",
            "proj_attn": "to_out.0",
        }.items():
            name = name.replace(f".{new}.", f".{old}.")
        renamed[name] = value
    return renamed


def model(name: str, kind: str, spoil: Callable[[Path], object], **expected) -> Case:
    """Return the case of a model that was spoilt."""

    def make(folder: Path) -> Path:
        path = copied(kind, folder)
        spoil(path)
        return path

    return Case("weights of a model", name, make, never=UNTOLD, ask=read, **expected)


def part(path: str, change: Callable[[dict], dict]) -> Callable[[Path], None]:
    """Return what changes the tensors in a file of a folder."""
    return lambda folder: rewritten(folder / path, change)


UNET = f"unet/{PLAIN}"
ENCODER = "text_encoder/model.safetensors"
TOKENS = "embeddings.token_embedding.weight"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n"

MODELS = [
    model("NaN in the UNet", "pixels", part(UNET, filled("conv_in.weight", torch.nan)),
          refused="has weights that are not numbers (NaN or infinite): 'conv_in"),
    model("infinite in the UNet", "pixels",
          part(UNET, filled("conv_out.bias", -torch.inf)), refused="'conv_out.bias'"),
    model("NaN in the autoencoder", "texts",
          part(f"vae/{PLAIN}", filled("quant_conv.bias", torch.nan)),
          refused="'vae' has weights that are not numbers (NaN or infinite): 'quant_c"),
    model("NaN in the text encoder", "texts", part(ENCODER, filled(TOKENS, torch.nan)),
          refused=f"weights that are not numbers (NaN or infinite): '{TOKENS}'"),
    model("a tensor is missing", "pixels", part(UNET, without("conv_in.bias")),
          refused="'unet' lacks the weights 'conv_in.bias'"),
    model("a tensor of the autoencoder is missing", "texts",
          part(f"vae/{PLAIN}", without("quant_conv.bias")),
          refused="'vae' lacks the weights 'quant_conv.bias'"),
    model("a tensor of the text encoder is missing", "texts",
          part(ENCODER, without(TOKENS)), refused=f"lacks the weights '{TOKENS}'"),
    model("two tensors too many", "pixels",
          part(UNET, beside(a=torch.ones(1), b=torch.ones(1))),
          refused="holds 2 weights, 'a' first that a model of its config.json does"),
    model("a tensor of the text encoder too many", "texts",
          part(ENCODER, beside(a=torch.ones(1))), refused="'text_encoder' holds the w"),
    model("a tensor of another shape", "pixels",
          part(UNET, beside(**{"conv_in.bias": torch.ones(3)})),
          refused="has 'conv_in.bias' of shape (3,) and its config.json asks for (8,)"),
    model("an empty file", "pixels", lambda f: (f / UNET).write_bytes(b""),
          refused="is damaged, or not a file of weights"),
    model("half a file", "pixels",
          lambda f: (f / UNET).write_bytes((f / UNET).read_bytes()[:5000]),
          refused=f"'unet/{PLAIN}' is damaged"),
    model("a pointer of Git LFS", "pixels", lambda f: (f / UNET).write_bytes(LFS),
          refused="Fetch them with `git lfs pull`"),
    model("a web page in its place", "pixels",
          lambda f: (f / UNET).write_bytes(b"<!DOCTYPE html><html>"),
          refused="is damaged, or not a file of weights"),
    model("no file", "pixels", lambda f: (f / UNET).unlink(),
          refused="'unet' has no file of weights; it holds config.json"),
    model("a pickle of weights", "pixels",
          lambda f: pickled(f / UNET, "diffusion_pytorch_model.bin"), says=("16x16",)),
    model("a pickle named safetensors", "pixels", lambda f: pickled(f / UNET, PLAIN),
          refused="is a pickle, not a safetensors file. Rename it"),
    model("a pickle with code", "pixels",
          lambda f: pickled(f / UNET, "diffusion_pytorch_model.bin", harm=True),
          refused="holds more than weights, which may be code, so it was not opened"),
    model("a pickled text encoder with code", "texts",
          lambda f: pickled(f / ENCODER, "pytorch_model.bin", harm=True),
          refused="'text_encoder/pytorch_model.bin' is a pickle that is damaged or"),
    model("half precision only", "texts", halved_pipeline, says=("text to image",)),
    model("only weights that are no average", "pixels",
          lambda f: halved(f / "unet", "diffusion_pytorch_model", "non_ema"),
          says=("16x16",)),
    model("two unusual variants", "pixels",
          lambda f: (halved(f / "unet", "diffusion_pytorch_model", "bf16"),
                     shutil.copy(f / "unet/diffusion_pytorch_model.bf16.safetensors",
                                 f / "unet/diffusion_pytorch_model.ema.safetensors")),
          refused="'unet' holds its weights as bf16, ema"),
    model("in two parts", "pixels", lambda f: in_parts(f / "unet"), says=("16x16",)),
    model("half precision in two parts", "pixels",
          lambda f: in_parts(f / "unet", "fp16"), says=("16x16",)),
    model("one of two parts", "pixels", lambda f: in_parts(f / "unet", spoil="part"),
          refused="'unet' holds 1 of the 2 files of its weights"),
    model("parts without their index", "pixels",
          lambda f: in_parts(f / "unet", spoil="index"), refused="without the index"),
    model("attention by its first names", "pixels", part(UNET, as_before),
          says=("16x16",)),
    model("a text encoder by its former names", "texts",
          part(ENCODER, lambda w: {f"text_model.{n}": v for n, v in w.items()}
               | {"text_model.embeddings.position_ids": torch.arange(12)[None]}),
          says=("text to image",)),
]  # fmt: skip


def lora(
    name: str,
    weights: dict[str, Tensor] | Callable[[dict], dict],
    ending: str = "safetensors",
    **expected,
) -> Case:
    """Return the case of a LoRA as one file, or of a changed one of kohya's."""

    def make(folder: Path) -> Path:
        file = folder / f"drawings.{ending}"
        held = weights
        if callable(weights):
            held = weights(load_file(saved("kohya") / "drawings.safetensors"))
        if ending == "safetensors":
            save_file(held, file)
        else:
            torch.save(held, file)
        return file

    return Case("adapters", name, make, never=UNTOLD, ask=adapted, **expected)


def peft(name: str, spoil: Callable[[Path], object], **expected) -> Case:
    """Return the case of a LoRA that peft saved, and that was spoilt."""

    def make(folder: Path) -> Path:
        path = copied("peft", folder)
        spoil(path)
        return path

    return Case("adapters of peft", name, make, never=UNTOLD, ask=adapted, **expected)


def settings(**changes) -> Callable[[Path], None]:
    """Return what changes the settings beside a LoRA."""

    def change(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def named(*parts: str, layer: str = KOHYA) -> dict[str, Tensor]:
    """Return small tensors with the names that a kind of adapter has."""
    return {f"{layer}.{part}": torch.ones(2, 2) for part in parts}


def processors(weights: dict) -> dict:
    """Return kohya's query layer alone, as diffusers named it at first."""
    place = QUERY.replace("to_q", "processor.to_q_lora")
    return {
        f"{place}.{part}.weight": weights[f"{KOHYA}.lora_{part}.weight"]
        for part in ("down", "up")
    }


def scaled(value: float) -> Callable[[dict], dict]:
    """Return what sets every alpha."""
    return lambda weights: {
        n: torch.tensor(value) if n.endswith(".alpha") else v
        for n, v in weights.items()
    }


def zeroed(which: str) -> Callable[[dict], dict]:
    """Return what fills one of the two small layers with zeros, everywhere."""
    return lambda weights: {
        n: v * 0 if f"lora_{which}" in n else v for n, v in weights.items()
    }


PAIR = ("lora_down.weight", "lora_up.weight")
FORMATS = {
    "is a LoHa": named("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b", "alpha"),
    "is a LoKr": named("lokr_w1", "lokr_w2_a", "lokr_w2_b", "alpha"),
    "is a LoRA of three layers": named(*PAIR, "lora_mid.weight", "alpha"),
    "is a DoRA": named(*PAIR, "dora_scale", "alpha"),
    "is a DoRA.": {
        f"unet.{QUERY}.lora_A.weight": torch.ones(2, 8),
        f"unet.{QUERY}.lora_B.weight": torch.ones(8, 2),
        f"unet.{QUERY}.lora_magnitude_vector": torch.ones(8),
    },
    "is an IA3": named("weight", "on_input"),
    "is an IA3.": named("ia3_l", layer=f"base_model.model.{QUERY}"),
    "is an OFT": named("oft_blocks", "alpha"),
    "is an OFT.": named("oft_R.weight", layer=f"base_model.model.{QUERY}"),
    "is a BOFT": named("boft_R", "boft_s", layer=f"base_model.model.{QUERY}"),
    "is a GLoRA": named("a1.weight", "a2.weight", "b1.weight", "b2.weight", "alpha"),
    "is a VeRA": named("vera_lambda_b", layer=f"base_model.model.{QUERY}"),
    "is an AdaLoRA": named("lora_A", "lora_B", "lora_E", layer=QUERY),
    "is a DyLoRA": named("up_list.0", "down_list.0", "alpha"),
    "holds trained norms": named("w_norm", "b_norm"),
    "holds whole layers": named("diff", "diff_b"),
    "is a ControlNet": {"lora_controlnet": torch.ones(1)},
    "is an IP-Adapter": named("proj.weight", layer="image_proj"),
    "is of Custom Diffusion": named("to_k_custom_diffusion.weight", layer=QUERY),
    "is a text embedding (textual inversion)": {"<drawings>": torch.ones(16)},
    "is a text embedding": {"emb_params": torch.ones(2, 16)},
    "holds a text embedding": named(*PAIR) | {"bundle_emb.x": torch.ones(2)},
    "is a LoRA with biases": named(
        "lora_A.weight", "lora_B.weight", "lora_B.bias", layer=QUERY
    ),
    "is for a model of two texts": named(*PAIR, layer="lora_te2_text_model_x"),
    "is for a diffusion transformer": named(
        "lora_A.weight", "lora_B.weight", layer="transformer.blocks.0.attn.to_q"
    ),
    "holds a whole model": {"model.diffusion_model.out.0.bias": torch.ones(1)},
    "holds a whole model, not a LoRA.": named("weight", layer=QUERY),
    "is not a LoRA; it holds 'x'": {"x": torch.ones(1)},
    "is not a LoRA; it holds nothing": {},
}

LORAS = [
    *(
        lora(f"{said.strip('.')} ({number})", weights, refused=said.strip("."))
        for number, (said, weights) in enumerate(FORMATS.items())
    ),
    lora("as kohya's scripts save it", lambda w: w, says=("around 32 layers",)),
    lora("a pickle of weights", lambda w: w, "pt", says=("around 32 layers",)),
    lora("a checkpoint of Lightning", lambda w: {"state_dict": w}, "ckpt",
         says=("around 32 layers",)),
    lora("a pickle with code", lambda w: w | {"x": Harm()}, "bin",
         refused="holds more than weights, which may be code, so it was not opened"),
    lora("a pickle of something else", lambda w: list(w.values()), "pth",
         refused="holds more than weights"),
    lora("pickled textual inversion", {"string_to_param": {"*": torch.ones(1, 16)}},
         "pt", refused="holds more than weights"),
    lora("as diffusers named its layers at first", processors,
         says=("around 1 layers",)),
    lora("NaN", filled(f"{KOHYA}.lora_up.weight", torch.nan),
         refused=f"weights that are not numbers (NaN or infinite): '{KOHYA}.lora_up"),
    lora("an infinite alpha", scaled(torch.inf),
         refused="weights that are not numbers (NaN or infinite)"),
    lora("every alpha is 0", scaled(0.0), refused="The LoRA changes nothing"),
    lora("every second layer is 0", zeroed("up"), refused="The LoRA changes nothing"),
    lora("every first layer is 0", zeroed("down"), refused="The LoRA changes nothing"),
    lora("a small layer is missing", without(f"{KOHYA}.lora_up.weight"),
         refused=f"holds '{KOHYA}.lora_down.weight' without the other small layer"),
    lora("an alpha too many", beside(**{"lora_unet_x.alpha": torch.ones(())}),
         refused="'lora_unet_x.alpha' without the layer that it scales"),
    lora("a tensor too many", beside(**{f"{KOHYA}.more": torch.ones(1)}),
         refused=f"'{KOHYA}.more', which is not part of a LoRA"),
    lora("a layer that the model does not have",
         lambda w: {n.replace("down_blocks_0", "down_blocks_7"): v
                    for n, v in w.items()},
         refused="down_blocks.7"),
    lora("two ranks in one pair",
         beside(**{f"{KOHYA}.lora_down.weight": torch.ones(3, 8)}),
         refused="whose ranks differ"),
    lora("of a wider model",
         beside(**{f"{KOHYA}.lora_down.weight": torch.ones(2, 320),
                   f"{KOHYA}.lora_up.weight": torch.ones(320, 2)}),
         refused="has the shape (2, 320) and the layer (8, 8)"),
    peft("as it was saved", lambda f: None, says=("around 32 layers",)),
    peft("a pickle of weights",
         lambda f: pickled(f / "adapter_model.safetensors", "adapter_model.bin"),
         says=("around 32 layers",)),
    peft("a pickle with code",
         lambda f: pickled(f / "adapter_model.safetensors", "adapter_model.bin", True),
         refused="holds more than weights"),
    peft("the states of training beside it",
         lambda f: (f / "optimizer.bin").write_bytes(b"x"), says=("32 layers",)),
    peft("NaN", part("adapter_model.safetensors",
                     filled(f"base_model.model.{QUERY}.lora_A.weight", torch.nan)),
         refused=f"'base_model.model.{QUERY}.lora_A.weight'"),
    peft("a small layer is missing",
         part("adapter_model.safetensors",
              without(f"base_model.model.{QUERY}.lora_A.weight")),
         refused="without the other small layer"),
    peft("a whole pair is missing",
         part("adapter_model.safetensors",
              lambda w: {n: v for n, v in w.items() if QUERY not in n}),
         refused="says of other layers or another rank"),
    peft("another rank in its settings", settings(r=3),
         refused="says of other layers or another rank"),
    peft("other layers in its settings", settings(target_modules=["query"]),
         refused="says of other layers or another rank"),
    peft("an alpha of 0", settings(lora_alpha=0), refused="The LoRA changes nothing"),
    peft("an alpha of NaN", settings(lora_alpha=float("nan")),
         refused="is not a number (nan)"),
    peft("settings of IA3", settings(peft_type="IA3"), refused="of the kind IA3"),
    peft("settings of LoHa", settings(peft_type="LOHA", alpha=1),
         refused="of the kind LOHA"),
    peft("settings of DoRA", settings(use_dora=True), refused="DoRA"),
    peft("a setting of a newer peft", settings(unheard_of=1),
         refused="sets 'unheard_of', which this version of peft does not know"),
    peft("a setting of a newer peft that is off", settings(unheard_of=None),
         says=("32 layers",)),
    peft("settings that are no JSON",
         lambda f: (f / "adapter_config.json").write_text("{"),
         refused="cannot be read as peft's settings"),
    peft("settings alone", lambda f: (f / "adapter_model.safetensors").unlink(),
         refused="has no file that is clearly the LoRA's; it holds adapter_config"),
    peft("two LoRAs in a folder",
         lambda f: ((f / "adapter_config.json").unlink(),
                    (f / "adapter_model.safetensors").rename(f / "a.safetensors"),
                    shutil.copy(f / "a.safetensors", f / "b.safetensors")),
         refused="it holds a.safetensors, b.safetensors"),
]  # fmt: skip

CASES = MODELS + LORAS
