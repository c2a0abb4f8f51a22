"""Make collections and ask them: `python -m precompute STAGE --collection NAME`."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch

from core.config import COLLECTIONS, DATA_DIR, PRESETS, collection_config
from core.datasets import load_dataset
from core.diffusion import denoiser_from_bytes
from core.explorer import Cancelled, Lens, open_explorer
from precompute.attribute import answer_table, attribute, write_table
from precompute.build import build, compute, ship_weights, shipped_weights
from precompute.clip import train_clip
from precompute.curvature import fit_curvature
from precompute.parallel import first_one_first, joined, own_device
from precompute.samples import make_samples
from precompute.sheet import contact_sheet
from precompute.train import train
from precompute.workspace import open_workspace


def parser() -> argparse.ArgumentParser:
    """Return the command line, one sub-command per verb."""
    main = argparse.ArgumentParser(
        prog="python -m precompute",
        description=(
            "Make a collection, or ask one. Every stage resumes. Under torchrun, "
            "curvature, gradients and build share the work."
        ),
    )
    verbs = main.add_subparsers(dest="verb", required=True, metavar="STAGE")
    for verb, text in {
        "train": "train the diffusion model",
        "curvature": "fit K-FAC and EK-FAC (after train)",
        "samples": "draw the gallery (after train)",
        "gradients": "compute the training gradients (after all of these)",
        "build": "run every stage and publish the collection",
    }.items():
        stage = verbs.add_parser(verb, help=text)
        stage.add_argument("--collection", required=True, help=", ".join(COLLECTIONS))
        stage.add_argument("--preset", default="cpu", help=", ".join(PRESETS))
        stage.add_argument("--seed", type=int, help="of everything random")
        stage.add_argument("--root", type=Path, help="folder of published collections")
        stage.add_argument("--work", type=Path, help="folder of unfinished work")
        stage.add_argument(
            "--device", help="cpu or cuda; default: cuda if there is one"
        )
        stage.add_argument("--threads", type=int, help="CPU threads")
    clip = verbs.add_parser("clip", help="train the small CLIP model on Glyphs")
    clip.add_argument("--out", type=Path, required=True, help="safetensors file")
    clip.add_argument("--steps", type=int, default=4_000)
    clip.add_argument("--seed", type=int, default=0)
    clip.add_argument("--device", default="cpu")

    sheet = verbs.add_parser("sheet", help="gallery beside training pictures, as PNG")
    sheet.add_argument("--collection", required=True)
    sheet.add_argument("--root", type=Path, help="folder of published collections")
    sheet.add_argument("--out", type=Path, required=True, help="PNG file")

    ask = verbs.add_parser("attribute", help="score all training pictures for one")
    ask.add_argument("--collection", required=True)
    ask.add_argument("--root", type=Path, help="folder of published collections")
    which = ask.add_argument_group("the picture (one of)")
    which = which.add_mutually_exclusive_group(required=True)
    which.add_argument("--image", type=Path, metavar="FILE", help="any picture")
    which.add_argument("--sample", type=int, metavar="ID", help="a gallery sample")
    which.add_argument("--example", type=int, metavar="ID", help="a training picture")
    which.add_argument("--seed", type=int, metavar="N", help="generate one")
    made = ask.add_argument_group("how it is made, or what it is taken for")
    made.add_argument("--label", type=int, help="class; default: none")
    made.add_argument("--sampler", default="ddim", help="ddim or ddpm")
    made.add_argument("--steps", type=int, default=50, help="sampling steps")
    made.add_argument("--guidance", type=float, default=2.0, help="1 is none")
    lens = ask.add_argument_group("the lens")
    lens.add_argument("--method", default="ekfac", help="ekfac or clip")
    lens.add_argument("--measurement", default="loss", help="loss")
    lens.add_argument("--draws", type=int, default=64, help="of the query gradient")
    lens.add_argument("--damping", type=float, help="default: the collection's")
    lens.add_argument("--index", default="auto", choices=("auto", "full", "sketch"))
    ask.add_argument("--out", type=Path, help="CSV file; default: standard output")
    return main


def run_stage(options: argparse.Namespace) -> None:
    """Run one stage; what it needs from earlier stages is made or loaded first."""
    config = collection_config(options.collection, options.preset)
    if options.seed is not None:
        config = replace(config, seed=options.seed)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    root = options.root or DATA_DIR / "collections"
    device = own_device(options.device)
    if options.verb == "build":
        if path := build(config, root, options.work, device):
            print(path)
        return
    with joined(device):
        if options.verb == "gradients":
            compute(config, root, options.work, device)
            return
        dataset = load_dataset(config.data)
        workspace = open_workspace(config, options.work)
        weights = first_one_first(
            lambda: shipped_weights(config) or train(config, dataset, workspace, device)
        )
        denoiser = denoiser_from_bytes(weights).to(device)
        if options.verb == "train":
            print(ship_weights(config, weights))
        elif options.verb == "curvature":
            fit_curvature(config, dataset, denoiser, workspace)
        elif options.verb == "samples":
            make_samples(config, denoiser, len(dataset.class_names), workspace)


def run_attribute(options: argparse.Namespace) -> None:
    """Answer one question and write the CSV."""
    explorer = open_explorer(options.collection, options.root)
    if options.image is not None:
        query = explorer.query_from_upload(read_file(options.image), options.label)
    elif options.sample is not None:
        query = explorer.query_from_gallery(options.sample)
    elif options.example is not None:
        query = explorer.query_from_example(options.example)
    else:
        query = explorer.generate(
            options.label,
            options.seed,
            options.sampler,
            options.steps,
            options.guidance,
        )
    lens = Lens(
        options.method,
        options.measurement,
        options.draws,
        options.damping,
        options.index,
    )
    table = answer_table(explorer, attribute(explorer, query, lens))
    if options.out is None:
        table.to_csv(sys.stdout, index=False, float_format="%.9g")
    else:
        write_table(table, options.out)


def read_file(path: Path) -> bytes:
    """Return a file's bytes.

    Raises:
        ValueError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read ({error.strerror}). Give the path of a picture."
        ) from error


def main() -> int:
    """Run a verb; a person's mistake is one sentence and exit status 1."""
    options = parser().parse_args()
    try:
        if options.verb == "attribute":
            run_attribute(options)
        elif options.verb == "sheet":
            explorer = open_explorer(options.collection, options.root)
            contact_sheet(explorer).save(options.out)
        elif options.verb == "clip":
            train_clip(options.out, options.seed, options.device, options.steps)
        else:
            run_stage(options)
    except (LookupError, ValueError, FileNotFoundError) as error:
        print(error.args[0] if error.args else error, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Cancelled):
        print("Stopped; run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
