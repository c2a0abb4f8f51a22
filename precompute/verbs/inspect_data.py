"""`inspect-data`: what images lie at a path."""

import argparse
from pathlib import Path

from precompute.verbs.options import add_selection
from precompute.verbs.settings import selection

HELP = "say what images lie at a path"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("path", type=Path)
    add_selection(parser)


def run(options: argparse.Namespace) -> None:
    """Print what was found."""
    from precompute.imports.images import inspect_data

    print(inspect_data(options.path, selection(options)))
