"""`fidelity`: what each way to store gradients keeps of the scores."""

import argparse
from functools import partial
from pathlib import Path

from core.rules import Whole
from precompute.machinery.config import FIDELITY_EXAMPLES
from precompute.verbs.options import add_settings, valued
from precompute.verbs.settings import chosen_config, computing

HELP = "measure how much of the scores each index format keeps"


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add how many images are compared, and where the table goes."""
    parser.add_argument("--examples", type=valued(Whole(2)), default=FIDELITY_EXAMPLES)
    parser.add_argument("--out", type=Path, help="JSON or CSV; default: print")


add = partial(add_settings, others=[add_own])


def run(options: argparse.Namespace) -> None:
    """Compare the formats, and write or print the table."""
    config = chosen_config(options)
    with computing(options) as device:
        from precompute.stages.fidelity import fidelity, write_fidelity
        from precompute.stages.stages import needed_weights, trained_model

        weights = needed_weights(config, options.work)
        model = trained_model(config, options.work, device, weights)
        about = config, model.dataset, model.denoiser, model.workspace
        write_fidelity(fidelity(*about, options.examples), options.out)
