"""`answers`: what the app shows of the gallery at once."""

import argparse

from precompute.verbs.options import add_published
from precompute.verbs.settings import root_of

HELP = "answer the gallery under more lenses"
add = add_published


def run(options: argparse.Namespace) -> None:
    """Publish the answers, and print where the collection lies."""
    from precompute.stages.answers import store_answers

    print(store_answers(root_of(options), options.collection, options.work))
