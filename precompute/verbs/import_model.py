"""`import-model`: a model that was trained elsewhere."""

import argparse
from dataclasses import replace
from pathlib import Path

from precompute.verbs.options import add_credits, add_selection
from precompute.verbs.settings import selection

HELP = "read a model that diffusers saved"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "folder", type=Path, help="of a pipeline, a checkpoint of training, or a UNet"
    )
    parser.add_argument("--collection", help="of it; default: only say what it is")
    parser.add_argument("--data", type=Path, metavar="PATH", help="what it was shown")
    parser.add_argument(
        "--lora", type=Path, metavar="PATH", help="a LoRA: attribute its layers alone"
    )
    parser.add_argument(
        "--unet", metavar="NAME", help="its sub-folder, such as unet_ema"
    )
    parser.add_argument(
        "--scheduler",
        type=Path,
        metavar="PATH",
        help="folder or file of the noise schedule, where the model has none",
    )
    texts = parser.add_argument_group("the texts of a text-to-image model's images")
    texts.add_argument("--caption", default="", metavar="COLUMN", help="that has them")
    texts.add_argument("--prompt", default="", help="of images that have none")
    parser.add_argument("--set", action="append", default=[], help="as for build")
    add_selection(parser)
    add_credits(parser)


def run(options: argparse.Namespace) -> None:
    """Say what a saved model is; with its images, make a collection's settings.

    Raises:
        ValueError: If options do not go together, or with the model.
    """
    from core.model.model_folders import SavedModel
    from core.model.pipelines import read_pipeline
    from core.model.prompts import TextConditioned
    from core.model.trial import try_out
    from precompute.imports.models import describe_model, describe_saved, import_model
    from precompute.imports.selection import Prompts

    saved = SavedModel(
        options.folder, options.lora, options.unet or "", options.scheduler
    )
    denoiser = read_pipeline(saved)
    try_out(denoiser)
    print("\n".join([*describe_model(denoiser), *describe_saved(saved)]))
    if options.collection is None and options.data is None:
        return
    if options.collection is None or options.data is None:
        raise ValueError(
            "To make a collection give both --collection NAME and --data PATH, the "
            "images that the model was trained on."
        )
    chosen = selection(options)
    if options.caption or options.prompt:
        if not isinstance(denoiser.unet, TextConditioned):
            raise ValueError(
                "--caption and --prompt are for text-to-image models, and this is "
                "not one. Omit them."
            )
        chosen = replace(chosen, prompts=Prompts(options.caption, options.prompt))
    del denoiser  # a large one need not be in memory twice
    import_model(saved, options.collection, options.data, chosen, options.set)
    print(f"Next: python -m precompute build --collection {options.collection}")
