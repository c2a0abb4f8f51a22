"""A model that diffusers saved: say what it is, and make a collection around it."""

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from core.config import CollectionConfig, CurvatureConfig, SampleConfig, TrainConfig
from core.data.datasets import read_set
from core.data.sets import Summary
from core.files.texts import one_line
from core.model.checkpoint import denoiser_to_bytes
from core.model.denoiser import Denoiser
from core.model.lora import low_rank_layers
from core.model.model_folders import SavedModel
from core.model.own_unet import OwnUNet
from core.model.parameters import parameter_layout
from core.model.pipelines import (
    decoded_channels,
    decoded_size,
    model_settings,
    read_pipeline,
    unused_settings,
)
from core.model.prompts import TextConditioned, cut_texts, read_tokenizer
from core.presets import RECIPES
from core.recipes import check_free, check_name, save_own, with_settings
from precompute.imports.images import data_settings, finished, num_classes, staged_sets
from precompute.imports.selection import Prompts, Selection
from precompute.machinery.workspace import write_atomically

GUIDANCE = 7.5  # of a text-to-image model's gallery, as diffusers draws


def describe_saved(saved: SavedModel) -> list[str]:
    """Return which parts of a saved model were taken, and which settings were not."""
    lines = saved.remarks()
    if unused := unused_settings(saved):
        lines.append(
            f"scheduler settings that are not used: {', '.join(unused)}; samples are "
            "drawn by DDIM or DDPM, clipped as trained, with a fixed small variance"
        )
    return lines


def describe_model(denoiser: Denoiser) -> list[str]:
    """Return what a model is and what of it is attributed, a line for each thing."""
    layout = parameter_layout(denoiser.unet)
    total = sum(p.numel() for p in denoiser.unet.parameters())
    size, schedule = decoded_size(denoiser), denoiser.scheduler.config
    colour = "grey" if decoded_channels(denoiser) == 1 else "colour"
    lines = [f"images: {size}x{size}, {colour}"]
    text = isinstance(denoiser.unet, TextConditioned)
    model = "UNet2DConditionModel, text to image," if text else "UNet2DModel"
    if isinstance(denoiser.unet, OwnUNet):
        model = f"{one_line(denoiser.unet.make)}, its maker's own,"
    if denoiser.autoencoder is None:
        lines.append(f"model: {model} in pixels")
    else:
        kind = type(denoiser.autoencoder).__name__
        channels, side, _ = denoiser.shape
        lines.append(f"model: {model} in {channels}x{side}x{side} latents ({kind})")
    if text:
        tokens, width = denoiser.unet.table.shape[1:]
        lines.append(
            f"texts: {tokens} tokens of {width} numbers; a query without one is given "
            "the empty text"
        )
    elif denoiser.null_label is None:
        lines.append("classes: none")
    elif isinstance(denoiser.unet, OwnUNet):
        count = denoiser.null_label
        lines.append(f"classes: {count}; a query without one is given class {count}")
    else:
        lines.append(
            f"classes: {denoiser.null_label}; a query without one is given the mean "
            "of their embeddings"
        )
    if adapted := low_rank_layers(denoiser.unet).values():
        ranks = sorted({layer.rank for layer in adapted})
        lines.append(
            f"LoRA: rank {', '.join(map(str, ranks))} around {len(adapted)} layers; "
            "all else is frozen"
        )
    lines.append(
        f"noise: {schedule.num_train_timesteps} timesteps, {schedule.beta_schedule} "
        f"betas, predicts {schedule.prediction_type}"
    )
    digits = 2 if adapted else 0
    lines.append(
        f"attributed: {layout.num_params:,} weights of {len(layout.layers)} Linear and "
        f"Conv2d layers, {layout.num_params / total:.{digits}%} of "
        f"{total:,}"
    )
    return lines


def import_model(
    saved: SavedModel,
    name: str,
    path: Path,
    selection: Selection,
    changes: list[str],
) -> CollectionConfig:
    """Return the settings of a collection around a model that diffusers saved.

    The model is copied beside the data set, every weight exactly. Nothing is kept
    where anything is refused. Errors of the parts pass through.

    Args:
        saved: Where the model lies, with the LoRA, if any, that was trained on the
            images.
        name: Of the collection.
        path: Where the images lie that the model was trained on.
        selection: Which of them.
        changes: As for `with_settings`.
    """
    check_name(name)
    with_settings(CollectionConfig(name), changes)
    with staged_sets() as folder:
        config = _imported(saved, name, path, selection, changes, folder)
        check_free(config)
    save_own(config)
    return config


def _imported(
    saved: SavedModel,
    name: str,
    path: Path,
    selection: Selection,
    changes: list[str],
    folder: Path,
) -> CollectionConfig:
    """Return what `import_model` does, its files in a folder of their own.

    Raises:
        ValueError: If the images do not have the model's classes.
    """
    denoiser = read_pipeline(saved)
    conditional = isinstance(denoiser.unet, TextConditioned)
    if conditional != (selection.prompts is not None):
        prompts = (selection.prompts or Prompts()) if conditional else None
        selection = replace(selection, prompts=prompts)
    data, summary = data_settings(name, path, selection, decoded_size(denoiser), folder)
    if conditional:
        captions = distinct_captions(folder / data.path)
        print("\n".join(described_captions(saved, captions, summary)))
        denoiser = read_pipeline(saved, captions)
    elif denoiser.null_label is None:
        data = replace(data, label_columns=())
    elif (classes := num_classes(folder / data.path, data)) != denoiser.null_label:
        raise ValueError(
            f"The model has {denoiser.null_label} classes and the images {classes}. "
            "Give the images it was trained on, in folders or with a 'label' column; "
            "--classes names other columns."
        )
    # Models of texts are large, and most of their weights were saved in half precision.
    weights = denoiser_to_bytes(denoiser, None if conditional else torch.float32)
    digest = hashlib.sha256(weights).hexdigest()[:12]
    kept = folder / f"{name}-model-{digest}.safetensors"
    write_atomically(kept, weights)
    base = RECIPES["small"][0](name, data)
    config = replace(
        base,
        data=replace(data, channels=decoded_channels(denoiser)),
        model=model_settings(denoiser),
        train=TrainConfig(imported=kept.name),
    )
    if conditional:
        most = min(CurvatureConfig.batch_size, denoiser.most_at_once)
        config = replace(
            config,
            curvature=replace(config.curvature, batch_size=most),
            samples=SampleConfig(guidance_scale=GUIDANCE),
        )
    return finished(config, summary, changes, ("caption",) if conditional else ())


def distinct_captions(path: Path) -> tuple[str, ...]:
    """Return the texts of a data set as `load_dataset` numbers them."""
    column = read_set(path, ["caption"])["caption"]
    return tuple(sorted(set(column.to_pylist())))


def described_captions(
    saved: SavedModel, captions: tuple[str, ...], summary: Summary
) -> list[str]:
    """Return what was seen of the texts, a line for each thing."""
    lines = [f"captions: {len(captions):,} different"]
    if empty := (summary.values.get("caption") or {}).get(""):
        lines[0] += f"; images without one, taken with the empty text: {empty:,}"
    if cut := cut_texts(read_tokenizer(saved.part("tokenizer")), captions):
        lines.append(f"longer than the text encoder reads, and cut: {cut:,}")
    return lines
