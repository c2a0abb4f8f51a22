"""A user's own pictures: say what lies at a path, and make a collection's settings."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from core.checks import check_classes, check_settings
from core.columns import free_names
from core.config import (
    CollectionConfig,
    CurvatureConfig,
    DataConfig,
    SampleConfig,
    TrainConfig,
    sets_folder,
)
from core.data.datasets import read_set
from core.data.sets import Summary, inspect, write_set
from core.data.sources import Record, Source, find_source, opened, selected
from core.data.sources.captions import TEXTS
from core.data.sources.names import plain_text
from core.data.sources.records import read_index
from core.files.whole import made_folders
from core.model.checkpoint import denoiser_to_bytes
from core.model.denoiser import Denoiser
from core.model.lora import low_rank_layers
from core.model.model_folders import SavedModel
from core.model.parameters import parameter_layout
from core.model.pipelines import (
    model_settings,
    picture_channels,
    picture_size,
    read_pipeline,
    unused_settings,
)
from core.model.prompts import TextConditioned, cut_texts, read_tokenizer
from core.presets import RECIPES, recipe_size
from core.recipes import check_free, check_name, save_own, with_settings
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import write_atomically
from precompute.verbs.credits import read_credits, write_credits
from precompute.verbs.described import class_columns, described

FEWEST = 4  # pictures that a collection needs
CAPTIONS = ("title", "name", "artist", "label")  # shown under a picture, if there
GUIDANCE = 7.5  # of a text-to-image model's gallery, as diffusers draws


@dataclass(frozen=True)
class Prompts:
    """What texts a text-to-image model was shown its pictures with.

    Attributes:
        column: That holds them; "" takes the first of `TEXTS` that is there.
        other: The text of pictures that have none.
    """

    column: str = ""
    other: str = ""

    def said_of(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield records with their text as `caption`.

        Raises:
            ValueError: If no picture has a text and none is given for all.
        """
        columns = (self.column,) if self.column else TEXTS
        seen, found = set(), bool(self.other)
        for record in records:
            seen |= record.facts.keys()
            texts = (record.facts.get(column, "").strip() for column in columns)
            text = next(filter(None, texts), "")
            found = found or bool(text)
            facts = dict(record.facts)
            if "caption" in facts and "caption" not in columns:  # not the text
                name = free_names(["caption", *facts], ["caption"])["caption"]
                facts[name] = facts["caption"]
            yield replace(record, facts=facts | {"caption": text or self.other})
        if not found:
            raise ValueError(
                "The model is conditional on text and no picture has a "
                f"{' or '.join(map(repr, columns))}; there are: "
                f"{', '.join(sorted(seen)) or 'no columns'}. Put a metadata.csv with "
                "'file_name' and 'caption' beside the pictures, or a .txt for each; "
                "name another column with --caption; or give one text for all with "
                "--prompt."
            )


@dataclass(frozen=True)
class Selection:
    """Which pictures of a source are wanted.

    Attributes:
        split: "train", "validation", "test" or "all"; None for the one that the path is
            named after, if it is, and otherwise "train".
        keep: Allowed values by column.
        index: File of positions among those, or None for all.
        limit: At most as many, the first ones; None for all.
        prompts: Their texts, where a model is conditional on them.
        allow_outside: Whether tables may name files out of the folder.
        drop_duplicates: Whether an image whose pixels came before is left out.
        classes: Columns whose combination is the class; None for the usual one.
        credits: File that says whose they are.
    """

    split: str | None = None
    keep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    index: Path | None = None
    limit: int | None = None
    prompts: Prompts | None = None
    allow_outside: bool = False
    drop_duplicates: bool = False
    classes: tuple[str, ...] | None = None
    credits: Path | None = None

    def records(self, source: Source) -> Iterable[Record]:
        """Yield the wanted records of a source."""
        if self.prompts is not None:
            return self.prompts.said_of(replace(self, prompts=None).records(source))
        return self._wanted(source)

    def _wanted(self, source: Source) -> Iterator[Record]:
        index = None if self.index is None else read_index(self.index)
        found = selected(source, self.split, dict(self.keep), index)
        for number, record in enumerate(found):
            if number == self.limit:
                return
            yield record


def parse_keep(texts: list[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return allowed values by column, written "label=automobile,horse".

    Raises:
        ValueError: If one does not read so.
    """
    for text in texts:
        if not all(text.partition("=")):
            raise ValueError(
                f"'{text}' says nothing to keep. Write COLUMN=VALUE,VALUE, such as "
                "label=automobile,horse."
            )
    parts = [plain_text(text).split("=", 1) for text in texts]
    return tuple((column, tuple(values.split(","))) for column, values in parts)


def inspect_data(path: Path, selection: Selection) -> str:
    """Return what lies at a path, in lines for a person.

    Errors of `find_source` and of the selection pass through.
    """
    with opened(path) as inside:
        source = find_source(inside, selection.allow_outside)
        records = selection.records(source)
        summary = inspect(
            records,
            lambda loop: Bar(loop, "read", unit=" pictures"),
            selection.drop_duplicates,
        )
    layout = f"layout: {source.layout}"
    columns = class_columns(summary, selection.classes)
    return "\n".join([layout, *described(summary, columns, source.notes)])


def data_settings(
    name: str, path: Path, selection: Selection, size: int, folder: Path
) -> tuple[DataConfig, Summary]:
    """Bring the wanted pictures of a path into one file; return its settings.

    Errors of `find_source` and of the selection pass through.

    Args:
        name: Of the collection.
        path: Where the pictures lie.
        selection: Which are wanted.
        size: Side in pixels of the square they are fitted into.
        folder: Where the file goes.

    Returns:
        The settings, and what was seen on the way.

    Raises:
        ValueError: If there are too few pictures.
    """
    credits = None if selection.credits is None else read_credits(selection.credits)
    with opened(path) as inside:
        source = find_source(inside, selection.allow_outside)
        made, summary = write_set(
            selection.records(source),
            folder,
            name,
            size,
            lambda loop: Bar(loop, "import", unit=" pictures"),
            selection.drop_duplicates,
        )
    columns = class_columns(summary, selection.classes)
    if selection.prompts is not None:
        columns = ("caption",)
    notes = list(source.notes)
    if credits is not None:
        notes += write_credits(credits, summary.values, size, made)
    print("\n".join(described(summary, columns, notes)))
    if summary.count < FEWEST:
        raise ValueError(
            f"Only {summary.count} pictures could be read; a collection needs at least "
            f"{FEWEST}. Give more, or loosen --split, --keep and --limit."
        )
    settings = DataConfig(
        path=made.name,
        image_size=size,
        channels=1 if summary.grey else 3,
        label_columns=columns,
    )
    return settings, summary


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
    size, schedule = picture_size(denoiser), denoiser.scheduler.config
    colour = "grey" if picture_channels(denoiser) == 1 else "colour"
    lines = [f"pictures: {size}x{size}, {colour}"]
    text = isinstance(denoiser.unet, TextConditioned)
    model = "UNet2DConditionModel, text to image," if text else "UNet2DModel"
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
            pictures.
        name: Of the collection.
        path: Where the pictures lie that the model was trained on.
        selection: Which of them.
        changes: As for `with_settings`.
    """
    check_name(name)
    with_settings(CollectionConfig(name), changes)
    with staged_sets() as place:
        config = _imported(saved, name, path, selection, changes, place)
        check_free(config)
    save_own(config)
    return config


def _imported(
    saved: SavedModel,
    name: str,
    path: Path,
    selection: Selection,
    changes: list[str],
    place: Path,
) -> CollectionConfig:
    """Return what `import_model` does, its files in a folder of their own.

    Raises:
        ValueError: If the pictures do not have the model's classes.
    """
    denoiser = read_pipeline(saved)
    conditional = isinstance(denoiser.unet, TextConditioned)
    if conditional != (selection.prompts is not None):
        prompts = (selection.prompts or Prompts()) if conditional else None
        selection = replace(selection, prompts=prompts)
    data, summary = data_settings(name, path, selection, picture_size(denoiser), place)
    if conditional:
        captions = distinct_captions(place / data.path)
        print("\n".join(described_captions(saved, captions, summary)))
        denoiser = read_pipeline(saved, captions)
    elif denoiser.null_label is None:
        data = replace(data, label_columns=())
    elif (classes := num_classes(place / data.path, data)) != denoiser.null_label:
        raise ValueError(
            f"The model has {denoiser.null_label} classes and the pictures {classes}. "
            "Give the pictures it was trained on, in folders or with a 'label' column; "
            "--classes names other columns."
        )
    # Models of texts are large, and most of their weights were saved in half precision.
    weights = denoiser_to_bytes(denoiser, None if conditional else torch.float32)
    digest = hashlib.sha256(weights).hexdigest()[:12]
    kept = place / f"{name}-model-{digest}.safetensors"
    write_atomically(kept, weights)
    base = RECIPES["small"][0](name, data)
    config = replace(
        base,
        data=replace(data, channels=picture_channels(denoiser)),
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


def num_classes(path: Path, data: DataConfig) -> int:
    """Return how many classes a data set has."""
    if not data.label_columns:
        return 1
    columns = read_set(path, list(data.label_columns)).to_pydict().values()
    return len(set(zip(*columns, strict=True)))


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
        lines[0] += f"; pictures without one, taken with the empty text: {empty:,}"
    if cut := cut_texts(read_tokenizer(saved.part("tokenizer")), captions):
        lines.append(f"longer than the text encoder reads, and cut: {cut:,}")
    return lines


def finished(
    config: CollectionConfig,
    summary: Summary,
    changes: list[str],
    first: tuple[str, ...] = (),
) -> CollectionConfig:
    """Return the settings of a collection with what is shown of it, checked.

    Args:
        config: The settings.
        summary: What was seen of the pictures.
        changes: As for `with_settings`.
        first: Columns that are shown of a picture before all others.
    """
    others = (column for column in CAPTIONS if column in summary.values)
    captions = (*first, *others)[:2]
    config = replace(config, title=config.name, captions=captions)
    config = with_settings(config, changes)
    check_settings(config)
    return config


@contextmanager
def staged_sets() -> Iterator[Path]:
    """Bring files into the folder of users' sets together, if a block succeeds.

    Yields:
        Where they are put first.
    """
    with (
        made_folders(sets_folder()),
        TemporaryDirectory(dir=sets_folder(), prefix=".import-") as place,
    ):
        yield Path(place)
        for path in Path(place).iterdir():
            os.replace(path, sets_folder() / path.name)


def own_settings(
    name: str,
    path: Path,
    recipe: str,
    selection: Selection,
    changes: list[str],
    folder: Path,
) -> CollectionConfig:
    """Return the settings of a collection of a user's own pictures, checked.

    All that can be is checked before a picture is read. Errors of the parts pass
    through.

    Args:
        name: Of the collection.
        path: Where the pictures lie.
        recipe: One of `RECIPES`.
        selection: Which pictures are wanted.
        changes: As for `with_settings`, on top of the recipe.
        folder: Where the pictures go.
    """
    check_name(name)
    data = DataConfig(image_size=recipe_size(recipe))
    planned = with_settings(RECIPES[recipe][0](name, data), changes)
    check_settings(planned)
    size = planned.data.image_size
    data, summary = data_settings(name, path, selection, size, folder)
    config = RECIPES[recipe][0](name, data)
    check_classes(config, num_classes(folder / data.path, data))
    if not data.label_columns:  # nothing to drop, nothing to guide by
        config = replace(
            config,
            model=replace(config.model, label_dropout=0.0),
            samples=replace(config.samples, guidance_scale=1.0),
        )
    return finished(config, summary, changes)


def make_own(
    name: str,
    path: Path,
    recipe: str,
    selection: Selection,
    changes: list[str],
    anew: bool = False,
) -> CollectionConfig:
    """Return the settings of a new collection of a user's own pictures, and keep them.

    The same call again gives the same settings; a refused one keeps nothing. Arguments
    and errors are those of `own_settings`, and of `check_free` unless `anew`.
    """
    with staged_sets() as folder:
        config = own_settings(name, path, recipe, selection, changes, folder)
        if not anew:
            check_free(config)
    save_own(config)
    return config
