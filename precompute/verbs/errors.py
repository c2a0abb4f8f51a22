"""`errors`: how standard errors grow with scores, and whether they hold."""

import argparse

from precompute.verbs.options import add_published
from precompute.verbs.settings import root_of

HELP = "say how errors grow with scores, and test that with other draws"
add = add_published


def run(options: argparse.Namespace) -> None:
    """Write the laws of the errors, print where they lie, and test them."""
    from precompute.stages.coverage import measure_coverage
    from precompute.stages.errors import tell_errors

    about = root_of(options), options.collection, options.work
    print(tell_errors(*about))
    measure_coverage(*about)
