"""A user's own images: say what lies at a path, and make a collection's settings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from core.checks import check_classes, check_settings
from core.config import CollectionConfig, DataConfig, sets_folder
from core.data.datasets import read_set
from core.data.sets import Summary, inspect, write_set
from core.data.sources import find_source, opened
from core.files.whole import made_folders
from core.presets import RECIPES, recipe_size
from core.recipes import check_free, check_name, save_own, with_settings
from precompute.imports.credits import read_credits, write_credits
from precompute.imports.described import class_columns, described
from precompute.imports.origin import write_origin
from precompute.imports.selection import Selection
from precompute.machinery.progress import Bar

FEWEST = 4  # images that a collection needs
CAPTIONS = ("title", "name", "artist", "label")  # shown under an image, if there


def inspect_data(path: Path, selection: Selection) -> str:
    """Return what lies at a path, in lines for a person.

    Errors of `find_source` and of the selection pass through.
    """
    with opened(path) as inside:
        source = find_source(inside, selection.allow_outside)
        records = selection.records(source)
        summary = inspect(
            records,
            lambda loop: Bar(loop, "read", unit=" images"),
            selection.drop_duplicates,
            selection.exclude_opted_out,
        )
    layout = f"layout: {source.layout}"
    columns = class_columns(summary, selection.classes)
    return "\n".join([layout, *described(summary, columns, source.notes)])


def data_settings(
    name: str, path: Path, selection: Selection, size: int, folder: Path
) -> tuple[DataConfig, Summary]:
    """Bring the wanted images of a path into one file; return its settings.

    Errors of `find_source` and of the selection pass through.

    Args:
        name: Of the collection.
        path: Where the images lie.
        selection: Which are wanted.
        size: Side in pixels of the square they are fitted into.
        folder: Where the file goes.

    Returns:
        The settings, and what was seen on the way.

    Raises:
        ValueError: If there are too few images.
    """
    credits = None if selection.credits is None else read_credits(selection.credits)
    with opened(path) as inside:
        source = find_source(inside, selection.allow_outside)
        made, summary = write_set(
            selection.records(source),
            folder,
            name,
            size,
            lambda loop: Bar(loop, "import", unit=" images"),
            selection.drop_duplicates,
            selection.exclude_opted_out,
        )
    write_origin(made, path, source, selection, summary)
    columns = class_columns(summary, selection.classes)
    if selection.prompts is not None:
        columns = ("caption",)
    notes = list(source.notes)
    if credits is not None:
        notes += write_credits(credits, summary.values, size, made)
    print("\n".join(described(summary, columns, notes)))
    if summary.count < FEWEST:
        raise ValueError(
            f"Only {summary.count} images could be read; a collection needs at least "
            f"{FEWEST}. Give more, or loosen --split, --keep and --limit."
        )
    settings = DataConfig(
        path=made.name,
        image_size=size,
        channels=1 if summary.grey else 3,
        label_columns=columns,
    )
    return settings, summary


def num_classes(path: Path, data: DataConfig) -> int:
    """Return how many classes a data set has."""
    if not data.label_columns:
        return 1
    columns = read_set(path, list(data.label_columns)).to_pydict().values()
    return len(set(zip(*columns, strict=True)))


def finished(
    config: CollectionConfig,
    summary: Summary,
    changes: list[str],
    first: tuple[str, ...] = (),
) -> CollectionConfig:
    """Return the settings of a collection with what is shown of it, checked.

    Args:
        config: The settings.
        summary: What was seen of the images.
        changes: As for `with_settings`.
        first: Columns that are shown of an image before all others.
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
        TemporaryDirectory(dir=sets_folder(), prefix=".import-") as folder,
    ):
        yield Path(folder)
        for path in Path(folder).iterdir():
            os.replace(path, sets_folder() / path.name)


def own_settings(
    name: str,
    path: Path,
    recipe: str,
    selection: Selection,
    changes: list[str],
    folder: Path,
) -> CollectionConfig:
    """Return the settings of a collection of a user's own images, checked.

    All that can be is checked before an image is read. Errors of the parts pass
    through.

    Args:
        name: Of the collection.
        path: Where the images lie.
        recipe: One of `RECIPES`.
        selection: Which images are wanted.
        changes: As for `with_settings`, on top of the recipe.
        folder: Where the images go.
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
    """Return the settings of a new collection of a user's own images, and keep them.

    The same call again gives the same settings; a refused one keeps nothing. Arguments
    and errors are those of `own_settings`, and of `check_free` unless `anew`.
    """
    with staged_sets() as folder:
        config = own_settings(name, path, recipe, selection, changes, folder)
        if not anew:
            check_free(config)
    save_own(config)
    return config
