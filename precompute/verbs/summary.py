"""`summary`: what a collection's model was trained on, for everyone to read."""

import argparse
from contextlib import closing
from pathlib import Path

from precompute.machinery.out import write_out
from precompute.verbs.options import add_root

HELP = "the public summary of the training images, as Markdown"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--collection", required=True)
    add_root(parser)
    parser.add_argument("--out", type=Path, help="file; default: print it")


def run(options: argparse.Namespace) -> None:
    """Print the summary, or write it."""
    from core.explorer.explorer import open_explorer
    from core.report.training_summary import training_summary

    with closing(open_explorer(options.collection, options.root)) as explorer:
        text = training_summary(explorer)
    if options.out is None:
        print(text, end="")
    else:
        write_out(options.out, text.encode(errors="replace"))
