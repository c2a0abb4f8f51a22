"""`clip`: the CLIP model that ships."""

import argparse
from pathlib import Path

from core.rules import Whole
from precompute.verbs.options import device, valued

HELP = "train the small CLIP model on Glyphs"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--out", type=Path, required=True, help="safetensors file")
    parser.add_argument("--steps", type=valued(Whole(1)), default=4_000)
    parser.add_argument("--seed", type=valued(Whole()), default=0)
    parser.add_argument("--device", type=device, default="cpu")


def run(options: argparse.Namespace) -> None:
    """Train and write it."""
    from precompute.stages.clip import ClipTraining, train_clip

    training = ClipTraining(options.seed, options.steps)
    train_clip(options.out, training, options.device)
