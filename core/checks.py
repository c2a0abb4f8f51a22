"""Whether settings can make a collection: the rule of each, and which go together.

All that a command is given is checked here before anything is read, kept or computed.
A sentence names the setting, its value, and what is expected.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from core import config as settings_of
from core.config import (
    DATA_DIR,
    GGNS,
    KFAC_APPROXIMATIONS,
    MAX_DIM,
    PROJECTIONS,
    SAMPLERS,
    CollectionConfig,
)
from core.lenses import QUERY_FOLDS
from core.rules import (
    SWITCH,
    Number,
    OneOf,
    OrNone,
    Rule,
    Selected,
    Several,
    Text,
    Whole,
    written,
)

AUTOENCODERS = ("none", "patch", "kl", "vq")  # the last two of imported models alone
PREDICTIONS = ("epsilon", "v_prediction", "sample")
BETA_SCHEDULES = ("linear", "scaled_linear", "squaredcos_cap_v2")  # DDPM and DDIM have
SHARE = Number(0, 1, below=True)
PART = Number(0, 1, above=True, below=True)
POSITIVE = Number(0, above=True)
NAME = Text(
    "[a-z0-9][a-z0-9_-]{0,40}",
    "small letters, digits, '-' and '_', such as 'my-drawings'",
)

# A settings dataclass -> the rule of each of its fields.
RULES: dict[type, dict[str, Rule]] = {
    settings_of.DataConfig: {
        "path": Text(".+", "the path of a data set"),
        "image_size": Whole(4, 1024),
        "channels": OneOf((1, 3)),
        "label_columns": Several(Text(".+", "the name of a column")),
        "keep": Selected(),
        "limit": OrNone(Whole(2)),
        "complete": SWITCH,
        "held_out": SHARE,
    },
    settings_of.ModelConfig: {
        "autoencoder": OneOf(AUTOENCODERS),
        "patch_size": Whole(1, 64),
        "latent_channels": Whole(1),
        "block_out_channels": Several(Whole(4), 1),
        "attention": Several(SWITCH, 1),
        "layers_per_block": Whole(1, 16),
        "attention_head_dim": OrNone(Whole(1)),
        "norm_num_groups": Whole(1),
        "prediction_type": OneOf(PREDICTIONS),
        "num_train_timesteps": Whole(8),
        "beta_schedule": OneOf(BETA_SCHEDULES),
        "beta_start": PART,
        "beta_end": PART,
        "clip_sample": SWITCH,
        "label_dropout": SHARE,
        "part_dropout": Several(PART),
        "lapped": SWITCH,
        "finisher_steps": Whole(0),
        "dropout": SHARE,
        "time_scale_shift": OneOf(("default", "scale_shift")),
        "norm_eps": PART,
        "flip_sin_to_cos": SWITCH,
        "freq_shift": OneOf((0, 1)),
        "downsample_padding": OneOf((0, 1)),
    },
    settings_of.TrainConfig: {
        "num_steps": Whole(1),
        "batch_size": Whole(1),
        "learning_rate": PART,
        "weight_decay": SHARE,
        "warmup_steps": Whole(0),
        "max_grad_norm": POSITIVE,
        "ema_decay": SHARE,
        "horizontal_flip": SWITCH,
        "start_from": Text(words="a file of weights in data/models, or nothing"),
        "checkpoint_every": Whole(1),
        "imported": Text(words="what import-model wrote, or nothing"),
        "common_draws": SWITCH,
        "root_epsilon": SHARE,
    },
    settings_of.CurvatureConfig: {
        "ggn": OneOf(GGNS),
        "kfac_approx": OneOf(KFAC_APPROXIMATIONS),
        "factor_draws": Whole(1),
        "eigenvalue_draws": Whole(1),
        "batch_size": Whole(1),
        "max_positions": OrNone(Whole(1)),
        "group_size": Whole(1),
    },
    settings_of.GradientConfig: {
        "num_draws": Whole(2),
        "num_folds": Whole(2),
        "relative_damping": POSITIVE,
        "sketch_dim": Whole(8, step=8),
        "slice_examples": Whole(2),
        "chunk": Whole(1),
        "index_bits": OneOf((8, 4, 1)),
    },
    settings_of.SampleConfig: {
        "num_samples": Whole(1),
        "num_candidates": Whole(0),
        "sampler": OneOf(SAMPLERS),
        "num_steps": Whole(1),
        "guidance_scale": Number(0, 100),
        "num_draws": Whole(QUERY_FOLDS, step=QUERY_FOLDS),
    },
    settings_of.MethodConfig: {
        "dim": Whole(1, MAX_DIM),
        "projection": OneOf(PROJECTIONS),
        "num_draws": Whole(1),
    },
    settings_of.RetrainConfig: {
        "num_subsets": Whole(1),
        "num_seeds": Whole(1),
        "share": PART,
    },
    settings_of.RemovalConfig: {
        "methods": Several(Text(".+", "the name of a method"), 1),
        "fractions": Several(PART, 1),
        "num_samples": Whole(1),
        "num_random": Whole(0),
        "num_group_controls": Whole(0),
        "num_seeds": Whole(1),
    },
    settings_of.DisjointConfig: {
        "shares": Several(Number(0, 0.5, above=True), 1),
        "steps": Number(0, 1, above=True),
    },
    CollectionConfig: {
        "name": NAME,
        "title": Text(),
        "captions": Several(Text(".+", "the name of a column")),
        "seed": Whole(),
    },
}


def check_fields(settings: Any, prefix: str = "", rules: dict | None = None) -> None:
    """Refuse settings of which one has a value it may not have.

    Args:
        settings: Any settings dataclass; those inside it are checked, too.
        prefix: What stands before the names of its fields, such as "train.".
        rules: Of its fields; None for those in `RULES`.

    Raises:
        ValueError: If a setting has a value that it may not have.
    """
    rules = RULES[type(settings)] if rules is None else rules
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(field.type):
            if type(value) is not field.type:
                raise ValueError(f"`{prefix}{field.name}` are not settings: {value}.")
            check_fields(value, f"{prefix}{field.name}.")
        elif not rules[field.name].allows(value):
            raise ValueError(
                f"`{prefix}{field.name}` cannot be {written(value)}. Expected: "
                f"{rules[field.name].expected()}."
            )


def check_settings(config: CollectionConfig) -> None:
    """Refuse settings that make no collection, whatever the images are.

    Raises:
        ValueError: If one has a value it may not have, or two do not go together.
    """
    imported, dropout = config.train.imported, config.model.label_dropout
    # A model that another program made and trained is as it is, but for one setting.
    checked = (
        settings_of.ModelConfig(label_dropout=dropout) if imported else config.model
    )
    check_fields(replace(config, model=checked))
    conflicts = [*_gallery(config), *_gradients(config)]
    if not imported:
        conflicts = [*_model(config), *_training(config), *conflicts]
        conflicts += _beginning(config)
    if conflicts:
        raise ValueError(conflicts[0])


def check_classes(config: CollectionConfig, num_classes: int) -> None:
    """Refuse settings that do not go together with the classes of the images.

    Raises:
        ValueError: If there are more samples than classes to choose them for.
    """
    samples = config.samples
    if samples.num_candidates and samples.num_samples > num_classes:
        raise ValueError(
            f"`samples.num_samples` is {samples.num_samples}, and of the candidates "
            f"one is chosen for each class. Expected: at most {num_classes}, the "
            "number of classes; or `samples.num_candidates` 0."
        )


def _model(config: CollectionConfig) -> Iterator[str]:
    model, widths = config.model, config.model.block_out_channels
    shown, levels = list(widths), len(widths)
    if levels != len(model.attention):
        yield (
            f"`model.block_out_channels` has {levels} levels and `model.attention` "
            f"{len(model.attention)}. Expected: the same number of levels in both."
        )
        return
    if any(width % model.norm_num_groups for width in widths):
        yield (
            f"The widths {shown} of `model.block_out_channels` are not multiples of "
            f"`model.norm_num_groups`, {model.norm_num_groups}. Change one of them."
        )
    head = model.attention_head_dim
    attends = (*model.attention[:-1], True)  # the middle, as wide as the last, does
    if head and any(w % head for w, a in zip(widths, attends, strict=True) if a):
        yield (
            f"The widths {shown} of `model.block_out_channels`, where there is "
            f"attention, are not multiples of `model.attention_head_dim`, {head}. "
            "Change one of them."
        )
    patch = model.patch_size if model.autoencoder == "patch" else 1
    unit = patch * 2 ** (levels - 1)
    if config.data.image_size % unit:
        yield (
            f"`data.image_size` cannot be {config.data.image_size} with {levels} "
            "levels in `model.block_out_channels`"
            + (f" and patches of {patch} pixels" if patch > 1 else "")
            + f". Expected: a multiple of {unit}."
        )
    most = config.data.channels * patch**2
    if model.autoencoder == "patch" and model.latent_channels > most:
        yield (
            f"`model.latent_channels` cannot be {model.latent_channels}. Expected: at "
            f"most {most}, the numbers in a patch of {patch}x{patch} pixels."
        )
    if model.autoencoder not in ("none", "patch"):
        yield (
            f"`model.autoencoder` cannot be '{model.autoencoder}' for a model that is "
            "trained here. Expected: none or patch."
        )
    if model.autoencoder != "none" and model.clip_sample:
        yield (
            "`model.clip_sample` cannot be true for a latent model: latents have no "
            "bounds. Expected: false."
        )
    if model.lapped and (model.autoencoder != "patch" or patch % 2 or patch < 4):
        yield (
            f"`model.lapped` cannot be true with autoencoder {model.autoencoder} and "
            f"patches of {patch} pixels. Expected: patches of an even side from 4 on."
        )
    size = config.data.image_size
    if model.finisher_steps and (model.autoencoder != "patch" or size % 2):
        yield (
            f"`model.finisher_steps` cannot be {model.finisher_steps} with autoencoder "
            f"{model.autoencoder} and images of {size} pixels. Expected: patches of an "
            "even side, or 0."
        )
    yield from _conditions(config)
    if model.beta_start >= model.beta_end:
        yield (
            f"`model.beta_start` is {model.beta_start:g}. Expected: less than "
            f"`model.beta_end`, {model.beta_end:g}."
        )


def _conditions(config: CollectionConfig) -> Iterator[str]:
    data, model = config.data, config.model
    columns, shares = len(data.label_columns), len(model.part_dropout)
    if shares and (shares != columns or not model.label_dropout):
        yield (
            f"`model.part_dropout` has {shares} numbers, `data.label_columns` "
            f"{columns} and `model.label_dropout` is {model.label_dropout:g}. "
            "Expected: a number for each of the columns, and a label dropout above 0."
        )
    if sum(model.drops) >= 1:
        yield (
            f"`model.label_dropout` and `model.part_dropout` add up to "
            f"{sum(model.drops):g}. Expected: less than 1."
        )
    if data.held_out and columns != 2:
        yield (
            f"`data.held_out` cannot be {data.held_out:g} with {columns} label "
            "columns. Expected: two of them, whose pairs can be held out."
        )


def _beginning(config: CollectionConfig) -> Iterator[str]:
    train = config.train
    begun = DATA_DIR / "models" / train.start_from
    # A model that ships is not trained again: what it began with is not needed.
    trains = not config.shipped_weights_path().is_file()
    if train.start_from and trains and not begun.is_file():
        yield (
            f"`train.start_from` cannot be '{train.start_from}'. Expected: a file of "
            "weights in data/models, or nothing: train.start_from= begins with random "
            "weights."
        )


def _training(config: CollectionConfig) -> Iterator[str]:
    train = config.train
    if train.warmup_steps >= train.num_steps:
        yield (
            f"`train.warmup_steps` is {train.warmup_steps:,}. Expected: less than "
            f"`train.num_steps`, {train.num_steps:,}, such as "
            f"train.warmup_steps={train.num_steps // 20}."
        )
    if train.horizontal_flip and config.model.autoencoder != "none":
        yield (
            "`train.horizontal_flip` cannot be true for a latent model: mirrored "
            "latents are not those of the mirrored image. Expected: false."
        )


def _gallery(config: CollectionConfig) -> Iterator[str]:
    samples, levels = config.samples, config.model.num_train_timesteps
    if samples.num_steps > levels:
        yield (
            f"`samples.num_steps` cannot be {samples.num_steps:,}. Expected: at most "
            f"{levels:,}, the timesteps of the model."
        )
    if 0 < samples.num_candidates < samples.num_samples:
        yield (
            f"`samples.num_candidates` cannot be {samples.num_candidates}. Expected: "
            f"at least `samples.num_samples`, {samples.num_samples}, or 0 for the "
            "first ones drawn."
        )
    guided = config.model.label_dropout > 0 or config.train.imported
    if samples.guidance_scale != 1 and not guided:
        yield (
            f"`samples.guidance_scale` cannot be {samples.guidance_scale:g} for a "
            "model without classes (`model.label_dropout` is 0). Expected: 1."
        )


def _gradients(config: CollectionConfig) -> Iterator[str]:
    gradients = config.gradients
    if gradients.num_draws % gradients.num_folds:
        yield (
            f"`gradients.num_draws` cannot be {gradients.num_draws}. Expected: a "
            f"multiple of `gradients.num_folds`, {gradients.num_folds}."
        )
