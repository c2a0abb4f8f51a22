"""What a verb makes of its options: places, images, settings, device, processes.

What is wrong with settings is said before torch is loaded.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from core.config import DATA_DIR, CollectionConfig

if TYPE_CHECKING:
    from precompute.imports.selection import Selection

# Option -> the setting it is short for.
SHORT = {
    "seed": "seed",
    "ggn": "curvature.ggn",
    "kfac_approx": "curvature.kfac_approx",
}


def root_of(options: argparse.Namespace) -> Path:
    """Return the folder of published collections."""
    return getattr(options, "root", None) or DATA_DIR / "collections"


def selection(options: argparse.Namespace) -> "Selection":
    """Return which images are wanted."""
    from precompute.imports.selection import Selection, parse_keep

    keep = parse_keep(options.keep)
    return Selection(
        options.split,
        keep,
        options.index,
        options.limit,
        allow_outside=options.allow_outside,
        drop_duplicates=options.drop_duplicates,
        exclude_opted_out=options.exclude_opted_out,
        classes=options.classes and tuple(options.classes.split(",")),
        credits=getattr(options, "credits", None),
    )


def changes_of(options: argparse.Namespace) -> list[str]:
    """Return all settings that are given on the command line, as `--set` takes them."""
    changes = list(options.set)
    for name, setting in SHORT.items():
        if (value := getattr(options, name, None)) is not None:
            changes.append(f"{setting}={value}")
    return changes


def check_data_options(options: argparse.Namespace) -> None:
    """Refuse options about images that no --data names: they would do nothing.

    Raises:
        ValueError: If there are such options.
    """
    if getattr(options, "data", None) is not None:
        return
    names = ("classes", "credits", "split", "keep", "index", "limit")
    for name in (*names, "drop_duplicates", "exclude_opted_out"):
        if getattr(options, name, None):
            option = name.replace("_", "-")
            raise ValueError(
                f"`--{option}` is about the images that --data PATH names, and there "
                "is no --data. Give it, or omit both."
            )


def chosen_config(options: argparse.Namespace) -> CollectionConfig:
    """Return the settings of a collection, made anew where its images are given."""
    from precompute.machinery.settings import has_results, settings_for

    name, root, work = options.collection, root_of(options), options.work
    check_data_options(options)
    if getattr(options, "data", None) is None:
        return settings_for(name, root, work, options.preset, changes_of(options))

    from precompute.imports.images import make_own

    recipe, chosen = options.preset or "small", selection(options)
    anew = not has_results(name, root, work)
    return make_own(name, options.data, recipe, chosen, changes_of(options), anew)


def set_threads(options: argparse.Namespace) -> None:
    """Have torch use as many threads as asked for."""
    if options.threads is not None:
        import torch

        torch.set_num_threads(options.threads)


@contextmanager
def computing(options: argparse.Namespace) -> Iterator[str]:
    """Join torchrun's other processes, if any, for a `with` block.

    Yields:
        The device of this process.
    """
    from precompute.machinery.parallel import joined, own_device

    set_threads(options)
    device = own_device(options.device)
    with joined(device):
        yield device


def own_part(options: argparse.Namespace) -> tuple[int, int]:
    """Return this process's share of the work: as asked for, or torchrun's."""
    from precompute.machinery.parallel import parse_part, rank_and_size

    return parse_part(options.part) if options.part else rank_and_size()
