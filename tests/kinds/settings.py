"""Settings that no collection can have: alone, and beside each other."""

from functools import partial
from pathlib import Path

from core import config as settings_of
from core.checks import RULES, check_fields, check_settings
from core.config import CollectionConfig
from core.presets import RECIPES, collection_config
from core.recipes import with_settings
from core.rules import written
from tests.kinds import Case, Found

# Of which at least one is wrong for any rule.
WRONG = (-1, 0, 1.5, float("nan"), 10**6, True, None, "", "no such", (), (-1,), ("",))
APART = {
    "gradients.index_bits=2": "`gradients.index_bits` cannot be '2'. Expected: 8, 4 ",
    "gradients.num_draws=7": "`gradients.num_draws` cannot be 7. Expected: a multiple "
    "of `gradients.num_folds`, 2.",
    "samples.num_draws=6": "Expected: a multiple of 4 from 4 up.",
    "samples.sampler=euler": "`samples.sampler` cannot be 'euler'. Expected: ddim or d",
    "samples.num_steps=2000": "Expected: at most 1,000, the timesteps of the model.",
    "samples.num_candidates=3": "at least `samples.num_samples`, 64, or 0",
    "model.prediction_type=eps": "Expected: epsilon, v_prediction or sample.",
    "train.num_steps=0": "`train.num_steps` cannot be '0'. Expected: a whole number ",
    "train.num_steps=100": "`train.warmup_steps` is 300. Expected: less than `train.",
    "train.horizontal_flip=true": "cannot be true for a latent model",
    "train.start_from=none.safetensors": "Expected: a file of weights in data/models",
    "train.learning_rate=inf": "Expected: a number above 0 and below 1.",
    "model.block_out_channels=8,16": "has 2 levels and `model.attention` 3",
    "model.block_out_channels=8,16,12": "not multiples of `model.norm_num_groups`, 8",
    "model.attention_head_dim=40": "not multiples of `model.attention_head_dim`, 40",
    "model.latent_channels=64": "Expected: at most 48, the numbers in a patch of 4x4",
    "model.clip_sample=true": "latents have no bounds. Expected: false.",
    "model.beta_start=0.5": "Expected: less than `model.beta_end`, 0.016.",
    "model.autoencoder=kl": "that is trained here. Expected: none or patch.",
    "model.label_dropout=0": "`samples.guidance_scale` cannot be 3 for a model without",
    "data.image_size=40": "with 3 levels in `model.block_out_channels` and patches of "
    "4 pixels. Expected: a multiple of 16.",
}


def ask_all(change: str, path: Path) -> Found:
    """Check the settings of Glyphs with one changed, as every command does."""
    check_settings(with_settings(collection_config("glyphs"), [change]))
    return Found("They make a collection.")


def ask_one(kind: type, name: str, value: object, path: Path) -> Found:
    """Check one setting alone, for instance out of a file of settings."""
    settings = kind("mine") if kind is CollectionConfig else kind()
    object.__setattr__(settings, name, value)
    check_fields(settings)
    return Found("It may be so.")


def ask_recipe(name: str, path: Path) -> Found:
    """Check what a preset makes of own images."""
    recipe, side = RECIPES[name]
    check_settings(recipe("mine", settings_of.DataConfig(image_size=side)))
    return Found("They make a collection.")


def nothing(folder: Path) -> Path:
    """Write nothing: it is about settings alone."""
    return folder


ALONE = [
    (kind, name, next(value for value in WRONG if not rule.allows(value)))
    for kind, rules in RULES.items()
    for name, rule in rules.items()
]
CASES = [
    *(
        Case(
            "presets",
            name,
            nothing,
            says=("collection",),
            ask=partial(ask_recipe, name),
        )
        for name in RECIPES
    ),
    *(
        Case(
            "settings that do not fit",
            change,
            nothing,
            refused=said,
            ask=partial(ask_all, change),
        )
        for change, said in APART.items()
    ),
    *(
        Case(
            "settings out of range",
            f"{kind.__name__}.{name}={written(value)}",
            nothing,
            refused="Expected: ",
            ask=partial(ask_one, kind, name, value),
        )
        for kind, name, value in ALONE
    ),
]
