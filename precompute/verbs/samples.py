"""`samples`: the gallery alone."""

import argparse

from precompute.verbs.options import add_settings
from precompute.verbs.settings import chosen_config, computing

HELP = "draw the gallery (after train)"
add = add_settings


def run(options: argparse.Namespace) -> None:
    """Draw the gallery of the model, which is trained first if need be."""
    config = chosen_config(options)
    with computing(options) as device:
        from precompute.stages.samples import make_samples
        from precompute.stages.stages import trained_model

        model = trained_model(config, options.work, device)
        make_samples(config, model.denoiser, model.dataset, model.workspace)
