"""`errors`: how standard errors grow with scores, and whether they hold."""

import argparse
from functools import partial

from core.rules import Whole
from precompute.verbs.options import add_published, valued
from precompute.verbs.settings import root_of

HELP = "say how errors grow with scores, and test that with other draws"


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
    """Write the laws of the errors, print where they lie, and test them."""
    from precompute.stages.coverage import measure_coverage, thorough
    from precompute.stages.errors import tell_errors

    about = root_of(options), options.collection, options.work
    print(tell_errors(*about))
    measure_coverage(*about, partial(thorough, repeats=options.repeats))
