"""`train`: the model alone."""

import argparse
from functools import partial

from core.presets import COLLECTIONS
from precompute.verbs.options import add_settings
from precompute.verbs.settings import chosen_config, computing

HELP = "train the diffusion model"
add = partial(add_settings, own=True)


def run(options: argparse.Namespace) -> None:
    """Train, and print where the model lies."""
    config = chosen_config(options)
    with computing(options) as device:
        from precompute.stages.stages import ship_weights, trained_model

        model = trained_model(config, options.work, device)
        if config.name in COLLECTIONS:
            print(ship_weights(config, model.weights))
        else:
            print(model.workspace.path("train", "denoiser.safetensors"))
