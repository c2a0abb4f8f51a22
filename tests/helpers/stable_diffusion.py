"""A random Stable Diffusion of toy size as diffusers saves it, and LoRAs around it."""

import json
from pathlib import Path

import torch
from diffusers import (
    PNDMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from tests.core.model.test_pipelines import kl
from tests.helpers import layouts

TOKENS = 12  # of a text
WORDS = "a red green blue square dot drawing of".split()
CAPTIONS = ("a blue dot", "a drawing of a red square", "green")
ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]


def tokenizer(folder: Path) -> CLIPTokenizer:
    """Return a tokenizer of single letters and a few words."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces, merges = [*letters, *(f"{letter}</w>" for letter in letters)], []
    for word in WORDS:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            if (pair := " ".join(parts[:2])) not in merges:
                merges.append(pair)
            parts = ["".join(parts[:2]), *parts[2:]]
            if parts[0] not in pieces:
                pieces.append(parts[0])
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    facts = {"model_max_length": TOKENS, "tokenizer_class": "CLIPTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return CLIPTokenizer.from_pretrained(folder)


def text_encoder(vocabulary: int, width: int = 16) -> CLIPTextModel:
    """Return a random text encoder."""
    torch.manual_seed(3)
    config = CLIPTextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=TOKENS,
        bos_token_id=vocabulary - 2,
        eos_token_id=vocabulary - 1,
        pad_token_id=vocabulary - 1,
    )
    return CLIPTextModel(config).eval()


def text_unet(**changes) -> UNet2DConditionModel:
    """Return a random UNet that is conditional on a text."""
    torch.manual_seed(4)
    settings = {
        "sample_size": 8,
        "block_out_channels": (8, 16),
        "layers_per_block": 1,
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "cross_attention_dim": 16,
        "attention_head_dim": 2,
        "norm_num_groups": 4,
    }
    return UNet2DConditionModel(**settings | changes).eval()


def save_pipeline(folder: Path, **changes) -> Path:
    """Save a pipeline; `changes` are settings of its UNet."""
    words = tokenizer(folder / "words")
    scheduler = PNDMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        skip_prk_steps=True,
        steps_offset=1,
    )
    pipeline = StableDiffusionPipeline(
        kl(5, 0.18215),
        text_encoder(len(words)),
        words,
        text_unet(**changes),
        scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder / "model")
    return folder / "model"


def with_lora(model: nn.Module, **changes) -> nn.Module:
    """Add a random LoRA of rank 2 to a model; both its layers are filled."""
    settings = {"r": 2, "lora_alpha": 2, "target_modules": ATTENTION}
    model.add_adapter(LoraConfig(**settings | changes))
    torch.manual_seed(6)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape) / 4)
    return model


def save_peft_lora(folder: Path, pipeline: Path, **changes) -> Path:
    """Save a LoRA as peft does: weights, and settings beside them."""
    unet = with_lora(UNet2DConditionModel.from_pretrained(pipeline / "unet"), **changes)
    config = unet.peft_config["default"]
    config.save_pretrained(folder)
    weights = {
        f"base_model.model.{name}": value.contiguous()
        for name, value in get_peft_model_state_dict(unet).items()
    }
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def save_kohya_lora(folder: Path, pipeline: Path, alpha: float = 3.0) -> Path:
    """Save a LoRA as kohya's scripts and many web sites have it: one file."""
    unet = with_lora(UNet2DConditionModel.from_pretrained(pipeline / "unet"))
    weights = {}
    for name, value in get_peft_model_state_dict(unet).items():
        layer, part = name.removesuffix(".weight").rsplit(".", 1)
        layer = f"lora_unet_{layer.replace('.', '_')}"
        which = {"lora_A": "lora_down", "lora_B": "lora_up"}[part]
        weights[f"{layer}.{which}.weight"] = value.contiguous()
        weights[f"{layer}.alpha"] = torch.tensor(alpha)
    folder.mkdir()
    save_file(weights, folder / "drawings.safetensors")
    return folder / "drawings.safetensors"


def save_diffusers_lora(folder: Path, pipeline: Path, texts: bool = False) -> Path:
    """Save a LoRA as diffusers' training scripts do, perhaps also of the texts."""
    unet = with_lora(UNet2DConditionModel.from_pretrained(pipeline / "unet"))
    layers = {"unet_lora_layers": get_peft_model_state_dict(unet)}
    if texts:
        encoder = CLIPTextModel.from_pretrained(pipeline / "text_encoder")
        with_lora(encoder, target_modules=["q_proj", "v_proj"])
        layers["text_encoder_lora_layers"] = get_peft_model_state_dict(encoder)
    StableDiffusionPipeline.save_lora_weights(folder, **layers)
    return folder


def drawings(folder: Path, kind: str) -> Path:
    """Write the images with captions in a table or in text files, one without.

    `kind` is "table" or "files"; any other writes no captions.
    """
    root = layouts.image_folder(folder)
    files = sorted(root.rglob("*.png"))
    texts = {file: CAPTIONS[i % 3] for i, file in enumerate(files) if i != 4}
    if kind == "table":
        rows = [f'{file.relative_to(root)},"{text}"' for file, text in texts.items()]
        (root / "metadata.csv").write_text("\n".join(["file_name,text", *rows]))
    elif kind == "files":
        for file, text in texts.items():
            file.with_suffix(".txt").write_text(f"{text}\n")
    return root
