"""`plan`: what a build would cost here."""

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from precompute.verbs.options import add_settings
from precompute.verbs.settings import (
    changes_of,
    check_data_options,
    chosen_config,
    root_of,
    selection,
    set_threads,
)

HELP = "say what a build will cost here, from short trials"
add = partial(add_settings, own=True)


def run(options: argparse.Namespace) -> None:
    """Print what a build would take; nothing is kept of it."""
    check_data_options(options)
    config = None if options.data is not None else chosen_config(options)

    from precompute.machinery.parallel import own_device
    from precompute.planning.plan import plan, printed

    set_threads(options)
    device, root = own_device(options.device), root_of(options)
    if config is not None:
        print(printed(plan(config, options.work, device), root))
        return

    from core.data.datasets import load_dataset
    from precompute.imports.images import own_settings

    recipe, chosen = options.preset or "small", selection(options)
    with TemporaryDirectory(prefix="afterimage-") as folder:
        source = options.collection, options.data, recipe, chosen
        config = own_settings(*source, changes_of(options), Path(folder))
        data = replace(config.data, path=str(Path(folder) / config.data.path))
        dataset = load_dataset(data)
        print(printed(plan(config, options.work, device, dataset), root))
