"""`errors`: what standard errors leave out, and whether they hold."""

import argparse
from functools import partial

from core.rules import Whole
from precompute.verbs.options import add_published, valued
from precompute.verbs.settings import root_of

HELP = "tell and test standard errors by other draws"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_published(parser)
    parser.add_argument(
        "--repeats",
        type=valued(Whole(2)),
        default=4,
        metavar="N",
        help="of all draws: N tell the errors, N others test them (4)",
    )


def run(options: argparse.Namespace) -> None:
    """Ask again, and print where it is kept what that tells."""
    from precompute.stages.coverage import measure_coverage, thorough
    from precompute.stages.errors import laws_of

    root, name = root_of(options), options.collection
    print(laws_of(root, name))
    plan = partial(thorough, repeats=options.repeats)
    measure_coverage(root, name, options.work, plan)
