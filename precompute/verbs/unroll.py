"""`unroll`: exact scores, by differentiating the training itself."""

import argparse
import re
from functools import partial

from core.measurements import MEASUREMENTS
from core.rules import Whole
from precompute.verbs.options import add_settings, one_of, valued
from precompute.verbs.settings import chosen_config, computing, root_of

HELP = "exact scores of gallery samples, through the whole training"


def samples(text: str) -> range:
    """Return the range of samples that `3` or `0:20` names.

    Raises:
        argparse.ArgumentTypeError: If it names none.
    """
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    first = int(found[1]) if found else 0
    chosen = range(first, int(found[2] or first + 1) if found else 0)
    if not len(chosen):
        raise argparse.ArgumentTypeError(
            f"cannot be '{text}'. Expected: a sample's number, or a range such as 0:20."
        )
    return chosen


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add what is asked."""
    parser.add_argument(
        "--sample", type=samples, required=True, help="of the gallery: 3, or 0:20"
    )
    parser.add_argument(
        "--measurement",
        type=one_of(*(n for n, one in MEASUREMENTS.items() if one.over == "draws")),
        default="loss",
        help="what is measured",
    )
    parser.add_argument(
        "--memory",
        type=valued(Whole(1)),
        default=2048,
        help="MiB that the states of one segment may take; default: 2048",
    )


add = partial(add_settings, others=[add_own])


def run(options: argparse.Namespace) -> None:
    """Go through the training, and print where the scores lie."""
    config = chosen_config(options)
    count = config.samples.num_samples
    if options.sample.stop > count:
        raise ValueError(
            f"The gallery of '{config.name}' has the samples 0 to {count - 1}, none of "
            f"number {options.sample.stop - 1}."
        )
    with computing(options) as device:
        from precompute.retraining.unroll import unroll

        places = (root_of(options), options.work)
        print(
            unroll(
                config,
                places,
                options.sample,
                options.measurement,
                device,
                options.memory << 20,
            )
        )
