"""`gradients`: all that a build computes, without publishing it."""

import argparse

from precompute.verbs.options import add_settings
from precompute.verbs.settings import chosen_config, computing, root_of

HELP = "compute the training gradients (after all of these)"
add = add_settings


def run(options: argparse.Namespace) -> None:
    """Run every stage up to the training gradients."""
    config = chosen_config(options)
    with computing(options) as device:
        from precompute.stages.stages import compute

        compute(config, root_of(options), options.work, device)
