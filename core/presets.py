"""Which collections and presets there are: what ships, and those for own images.

Knows the dataclasses of `core.config`, not where settings are kept.
"""

from collections.abc import Callable
from dataclasses import replace

from core.config import (
    CollectionConfig,
    CurvatureConfig,
    DataConfig,
    GradientConfig,
    ModelConfig,
    RetrainConfig,
    SampleConfig,
    TrainConfig,
)

LIVELY_GROUPS = (
    "Activities",
    "Animals & Nature",
    "Food & Drink",
    "Smileys & Emotion",
)


_GLYPHS_MODEL = ModelConfig(
    autoencoder="patch",
    prediction_type="v_prediction",
    beta_schedule="scaled_linear",
    beta_start=0.00085,
    beta_end=0.016,
    clip_sample=False,
    label_dropout=0.1,
)


_GLYPHS_CPU = CollectionConfig(
    name="glyphs",
    title="Glyphs",
    captions=("name", "style"),
    data=DataConfig(
        label_columns=("style", "subgroup"), keep=(("group", LIVELY_GROUPS),)
    ),
    model=_GLYPHS_MODEL,
    train=TrainConfig(
        num_steps=13_000,
        batch_size=32,
        learning_rate=8e-4,
        warmup_steps=300,
        ema_decay=0.9995,
        start_from="glyphs-start.safetensors",
    ),
    curvature=CurvatureConfig(factor_draws=2, eigenvalue_draws=2),
    gradients=GradientConfig(num_draws=64),
    samples=SampleConfig(
        num_samples=64,
        num_candidates=288,  # two for each class
        sampler="ddpm",
        num_steps=100,
        guidance_scale=3.0,
    ),
)


# Concepts that can be told by their shape: animals, flowers, fruit, vegetables, sweets
# and smiling faces. 218 of them were drawn by all four houses.
SHAPELY_SUBGROUPS = (
    "animal-bird",
    "animal-bug",
    "animal-mammal",
    "animal-marine",
    "animal-reptile",
    "cat-face",
    "face-smiling",
    "food-fruit",
    "food-sweet",
    "food-vegetable",
    "monkey-face",
    "plant-flower",
)


_PAIRS_CPU = replace(
    _GLYPHS_CPU,
    name="glyphs-pairs",
    title="Glyphs, house and concept",
    data=DataConfig(
        label_columns=("style", "name"),
        keep=(("subgroup", SHAPELY_SUBGROUPS),),
        complete=True,
        held_out=0.1,
    ),
    model=replace(
        _GLYPHS_MODEL, part_dropout=(0.05, 0.05), lapped=True, finisher_steps=3_000
    ),
    train=TrainConfig(
        num_steps=9_000,
        batch_size=32,
        learning_rate=1e-3,
        warmup_steps=200,
        ema_decay=0.9995,
        common_draws=True,
    ),
    samples=replace(_GLYPHS_CPU.samples, num_candidates=0),
)


_FASHION_CPU = CollectionConfig(
    name="fashion2",
    title="Fashion-2",
    data=DataConfig(
        path="fashion2.parquet",
        image_size=16,
        channels=1,
        label_columns=("name",),
        limit=1000,  # classes are mixed in the file: 525 bags, 475 sneakers
    ),
    model=ModelConfig(block_out_channels=(24, 48), attention=(False, True)),
    train=TrainConfig(
        num_steps=3_000,
        batch_size=32,
        learning_rate=2e-3,
        warmup_steps=200,
        ema_decay=0.998,
        horizontal_flip=True,
        checkpoint_every=200,
    ),
    curvature=CurvatureConfig(factor_draws=2, eigenvalue_draws=2),
    # A small sketch: this collection is shipped for its evidence.
    gradients=GradientConfig(num_draws=64, sketch_dim=16_384),
)


def _tiny(config: CollectionConfig) -> CollectionConfig:
    """Return a small sibling: the same code path in seconds."""
    return replace(
        config,
        data=replace(config.data, limit=32),
        model=replace(
            config.model,
            block_out_channels=(16, 16),
            attention=(False, True),
            attention_head_dim=8,
            norm_num_groups=4,
            finisher_steps=min(10, config.model.finisher_steps),
        ),
        train=replace(
            config.train, num_steps=20, batch_size=8, warmup_steps=5, start_from=""
        ),
        curvature=CurvatureConfig(
            factor_draws=1, eigenvalue_draws=1, batch_size=16, group_size=4
        ),
        gradients=replace(
            config.gradients, num_draws=8, sketch_dim=4096, slice_examples=8, chunk=4
        ),
        samples=replace(
            config.samples,
            num_samples=4,
            num_candidates=min(8, config.samples.num_candidates),
            num_steps=5,
            num_draws=8,
        ),
    )


def _gpu(config: CollectionConfig) -> CollectionConfig:
    """Return the large sibling: all images, a wider model, the paper's draws."""
    return replace(
        config,
        data=replace(
            config.data, image_size=max(32, config.data.image_size), keep=(), limit=None
        ),
        model=replace(
            config.model,
            block_out_channels=(64, 128, 192),
            attention=(False, True, True),
        ),
        train=replace(
            config.train,
            num_steps=50_000,
            batch_size=128,
            learning_rate=6e-4,
            warmup_steps=1_000,
            ema_decay=0.9998,
            start_from="",
        ),
        curvature=CurvatureConfig(
            factor_draws=16, eigenvalue_draws=16, batch_size=512, group_size=256
        ),
        gradients=replace(config.gradients, num_draws=256),
    )


COLLECTIONS = {
    "glyphs": _GLYPHS_CPU,
    "glyphs-pairs": _PAIRS_CPU,
    "fashion2": _FASHION_CPU,
}


PRESETS = {"cpu": lambda config: config, "tiny": _tiny, "gpu": _gpu}


RETRAINING = {"gpu": RetrainConfig(num_subsets=48)}  # by preset, where not as usual


def collection_config(collection: str, preset: str = "cpu") -> CollectionConfig:
    """Return the settings of a shipped collection at the size of a preset.

    Raises:
        LookupError: If the collection or the preset is unknown; the message lists them.
    """
    if collection not in COLLECTIONS:
        raise LookupError(
            f"There is no collection '{collection}' to build. "
            f"Known collections: {', '.join(sorted(COLLECTIONS))}."
        )
    if preset not in PRESETS:
        raise LookupError(
            f"There is no preset '{preset}'. Known presets: {', '.join(PRESETS)}."
        )
    return PRESETS[preset](COLLECTIONS[collection])


def preset_of(config: CollectionConfig) -> str | None:
    """Return the preset that makes a collection's model, None if none does."""
    if config.name not in COLLECTIONS:
        return None
    wanted = config.fingerprint("data", "model", "train")
    for preset in PRESETS:
        made = collection_config(config.name, preset)
        if made.fingerprint("data", "model", "train") == wanted:
            return preset
    return None


def small(name: str, data: DataConfig) -> CollectionConfig:
    """Return a pixel model that two CPU cores train in an hour or two."""
    return CollectionConfig(
        name,
        data,
        ModelConfig(
            block_out_channels=(32, 64), attention=(False, True), label_dropout=0.1
        ),
        TrainConfig(
            num_steps=10_000,
            batch_size=32,
            learning_rate=1e-3,
            warmup_steps=300,
            ema_decay=0.9995,
        ),
        CurvatureConfig(factor_draws=2, eigenvalue_draws=2),
        GradientConfig(num_draws=64),
    )


def quick(name: str, data: DataConfig) -> CollectionConfig:
    """Return a model for a first look, made in ten minutes on two CPU cores.

    Patches of 2x2 pixels, all their numbers kept, leave a quarter of the places. Two
    cores trained it 7.3 steps a second, one core 5; with 240 images all else took five
    minutes on one. Trained as long, a pixel model showed nothing that can be told.
    """
    return CollectionConfig(
        name,
        data,
        replace(
            _GLYPHS_MODEL,
            patch_size=2,
            latent_channels=4 * data.channels,
            block_out_channels=(32, 64),
            attention=(False, True),
        ),
        TrainConfig(
            num_steps=2_000,
            batch_size=32,
            learning_rate=2e-3,
            warmup_steps=100,
            ema_decay=0.998,
            checkpoint_every=200,
        ),
        CurvatureConfig(factor_draws=2, eigenvalue_draws=2),
        GradientConfig(num_draws=32, sketch_dim=32_768),
        SampleConfig(num_samples=24, guidance_scale=2.0, num_draws=128),
    )


def cifar(name: str, data: DataConfig) -> CollectionConfig:
    """Return the paper's CIFAR-2 model and training (App. J.2, J.8): for a GPU."""
    return CollectionConfig(
        name,
        data,
        ModelConfig(
            block_out_channels=(128, 256, 256, 256),
            attention=(False, True, False, False),
            layers_per_block=2,
            attention_head_dim=None,
            norm_num_groups=32,
            dropout=0.1,
            time_scale_shift="scale_shift",
            norm_eps=1e-6,
            flip_sin_to_cos=False,
            freq_shift=1,
            downsample_padding=0,
        ),
        TrainConfig(horizontal_flip=True, ema_decay=0.999),
        CurvatureConfig(batch_size=256, group_size=256),
        GradientConfig(),
        SampleConfig(sampler="ddpm", num_steps=1000),
    )


def latent(name: str, data: DataConfig) -> CollectionConfig:
    """Return a model of 4x4 patch latents, as that of Glyphs, for larger images."""
    config = small(name, data)
    return replace(
        config,
        model=_GLYPHS_MODEL,
        train=replace(config.train, num_steps=25_000, learning_rate=8e-4),
        samples=SampleConfig(sampler="ddpm", num_steps=100, guidance_scale=3.0),
    )


# Name -> (recipe, side of its images in pixels)
RECIPES: dict[str, tuple[Callable, int]] = {
    "quick": (quick, 32),
    "small": (small, 32),
    "cifar": (cifar, 32),
    "latent": (latent, 64),
}


def recipe_size(recipe: str) -> int:
    """Return the side of a recipe's images in pixels.

    Raises:
        LookupError: If there is no such recipe.
    """
    if recipe not in RECIPES:
        raise LookupError(
            f"There is no preset '{recipe}' for your own images. Known: "
            f"{', '.join(RECIPES)}."
        )
    return RECIPES[recipe][1]
