"""`build`: a whole collection."""

import argparse
from functools import partial

from precompute.verbs.options import add_settings
from precompute.verbs.settings import chosen_config, root_of, set_threads

HELP = "run every stage and publish the collection"
add = partial(add_settings, own=True)


def run(options: argparse.Namespace) -> None:
    """Build, and print where the collection lies."""
    config = chosen_config(options)
    set_threads(options)
    from precompute.stages.build import build

    if path := build(config, root_of(options), options.work, options.device):
        print(path)
