"""`curvature`: K-FAC and EK-FAC alone."""

import argparse

from precompute.verbs.options import add_settings
from precompute.verbs.settings import chosen_config, computing

HELP = "fit K-FAC and EK-FAC (after train)"
add = add_settings


def run(options: argparse.Namespace) -> None:
    """Fit the curvature of the model, which is trained first if need be."""
    config = chosen_config(options)
    with computing(options) as device:
        from precompute.stages.curvature import fit_curvature
        from precompute.stages.stages import trained_model

        model = trained_model(config, options.work, device)
        fit_curvature(config, model.dataset, model.denoiser, model.workspace)
