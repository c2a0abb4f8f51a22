"""`smoothness`: whether a recipe can be differentiated, before `unroll` does so."""

import argparse
import sys
from functools import partial

from core.files.texts import safe_csv
from core.rules import Whole
from precompute.verbs.options import add_settings, valued
from precompute.verbs.settings import chosen_config, computing

HELP = "whether `unroll` would be near the truth for this recipe"
IMAGES = 4


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add how much is tried."""
    parser.add_argument(
        "--images",
        type=valued(Whole(1)),
        default=IMAGES,
        help=f"whose weight is lowered, two trainings each; default: {IMAGES}",
    )


add = partial(add_settings, others=[add_own])


def run(options: argparse.Namespace) -> None:
    """Compare slopes with trainings; print every pair, and the verdict."""
    config = chosen_config(options)
    with computing(options) as device:
        from precompute.retraining.smoothness import smoothness, verdict

        table = smoothness(config, options.work, options.images, device)
        sys.stdout.write(safe_csv(table, "%.6g"))
        print(verdict(table))
