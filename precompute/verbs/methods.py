"""`methods`: what methods read beside a collection."""

import argparse

from core.checks import RULES
from core.config import PROJECTIONS, MethodConfig
from core.methods import parts
from precompute.verbs.options import add_machine, add_places, one_of, valued
from precompute.verbs.settings import computing, root_of

HELP = "what TRAK and other methods need"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--collection", required=True)
    parser.add_argument("--only", default=",".join(parts()), help=", ".join(parts()))
    add_places(parser)
    add_machine(parser)
    rules = RULES[MethodConfig]
    features = parser.add_argument_group("the features of a gradient")
    features.add_argument("--dim", type=valued(rules["dim"]), default=MethodConfig.dim)
    features.add_argument(
        "--projection",
        type=one_of(*PROJECTIONS),
        default=MethodConfig.projection,
        help=", ".join(PROJECTIONS),
    )
    features.add_argument(
        "--draws", type=valued(rules["num_draws"]), default=MethodConfig.num_draws
    )


def run(options: argparse.Namespace) -> None:
    """Make the files, and print where they lie."""
    with computing(options) as device:
        from precompute.machinery.parallel import rank_and_size
        from precompute.stages.methods import compute_methods

        settings = MethodConfig(options.dim, options.projection, options.draws)
        only, root = options.only.split(","), root_of(options)
        paths = compute_methods(
            root, options.collection, options.work, device, only, settings
        )
        if rank_and_size()[0] == 0:
            print("\n".join(map(str, paths)))
