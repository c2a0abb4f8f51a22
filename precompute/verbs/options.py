"""The command line of `python -m precompute`: its verbs, options, and what they take.

A wrong value is one sentence, as everywhere: the option, its value, what is expected.
Nothing is run here.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import torch

from core.checks import RULES
from core.config import GGNS, KFAC_APPROXIMATIONS, MethodConfig, SampleConfig
from core.evidence.same_seed import SAME_SEED
from core.evidence.tables import TABLES
from core.index.projection import PROJECTIONS
from core.lenses import Lens
from core.measurements import MEASUREMENTS
from core.methods import METHODS, parts
from core.presets import COLLECTIONS, PRESETS, RECIPES
from core.rules import Number, OneOf, Rule, Whole
from precompute.retraining.measure import MeasureConfig
from precompute.retraining.same_seed import SameSeedConfig
from precompute.stages.fidelity import EXAMPLES

SPLITS = ("train", "validation", "test", "all")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the list of all options."""

    def error(self, message: str) -> None:
        """End the program; an option that is named comes first."""
        named = re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)
        said = (
            f"`{named[1]}` {named[2]}" if named else message[:1].upper() + message[1:]
        )
        choice = r"invalid choice: (.*) \(choose from (.*)\)"
        said = re.sub(choice, r"cannot be \1. Expected: one of \2.", said)
        end = "" if said.endswith(".") else f". `{self.prog} --help` lists all."
        self.exit(2, f"{said}{end}\n")


def valued(rule: Rule, kind: type = int) -> Callable[[str], object]:
    """Return what reads an option whose values a rule allows."""

    def read(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not rule.allows(value):
            raise argparse.ArgumentTypeError(
                f"cannot be '{text}'. Expected: {rule.expected()}."
            )
        return value

    return read


def one_of(*values: str) -> Callable[[str], object]:
    """Return what reads an option with few values."""
    return valued(OneOf(values), str)


def device(text: str) -> str:
    """Return the name of a device that is here.

    Raises:
        argparse.ArgumentTypeError: If it is not.
    """
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = re.fullmatch(r"cpu|cuda(?::(\d+))?", text)
    if named and (text == "cpu" or int(named[1] or 0) < cards):
        return text
    expected = f"cpu, or one of {cards} cards, cuda:0 and up" if cards else "cpu"
    none = "" if cards or not named else "; torch finds no CUDA card on this machine"
    raise argparse.ArgumentTypeError(f"cannot be '{text}'. Expected: {expected}{none}.")


def parser() -> argparse.ArgumentParser:
    """Return the command line, one sub-command per verb."""
    main = Parser(
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
        "fidelity": "measure how much of the scores each index format keeps",
        "build": "run every stage and publish the collection",
        "plan": "say what a build will cost here, from short trials",
        "retrain": "train again on random subsets, to measure what scores predict",
        "evidence": "measure the retrained models; print tables such as the LDS",
    }.items():
        stage = verbs.add_parser(verb, help=text)
        stage.add_argument(
            "--collection", required=True, help=f"{', '.join(COLLECTIONS)} or your own"
        )
        stage.add_argument(
            "--preset",
            help=f"{', '.join(PRESETS)}; with --data {', '.join(RECIPES)}",
        )
        stage.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="STAGE.SETTING=VALUE",
            help="change one setting, such as train.num_steps=500",
        )
        if verb in ("train", "build", "plan"):
            own = stage.add_argument_group("a collection of your own pictures")
            own.add_argument("--data", type=Path, metavar="PATH", help="where they lie")
            add_selection(own)
            add_credits(own)
        stage.add_argument("--seed", type=valued(Whole()), help="of everything random")
        stage.add_argument("--root", type=Path, help="folder of published collections")
        stage.add_argument("--work", type=Path, help="folder of unfinished work")
        stage.add_argument(
            "--device", type=device, help="cpu or cuda; default: cuda if there is one"
        )
        stage.add_argument("--threads", type=valued(Whole(1, 1024)), help="CPU threads")
        if verb == "fidelity":
            stage.add_argument("--examples", type=valued(Whole(2)), default=EXAMPLES)
            stage.add_argument(
                "--out",
                type=Path,
                help="JSON or CSV; default: print",
            )
        if verb in ("retrain", "evidence"):
            stage.add_argument("--part", help="share of this process, such as 0/2")
        if verb == "retrain":
            add_retrain_options(stage)
        if verb == "evidence":
            stage.add_argument(
                "--table",
                type=one_of(*TABLES, SAME_SEED),
                help=f"only print it: {', '.join([*TABLES, SAME_SEED])}",
            )
            stage.add_argument(
                "--measurement",
                type=one_of(*MEASUREMENTS),
                default="loss",
                help="what is measured",
            )
            stage.add_argument(
                "--add",
                action="store_true",
                help="keep the stored evidence, add what it has not measured",
            )
            stage.add_argument(
                "--samples",
                type=valued(Whole(1)),
                help="of the gallery, its first, that are measured in every model; "
                f"default: {MeasureConfig.num_samples}, with --add as stored",
            )
            stage.add_argument(
                "--probability-draws",
                type=valued(Whole(0)),
                help="of the log-probability, the slowest; 0 leaves it out; "
                f"default: {MeasureConfig.probability_draws}, with --add as stored",
            )
        hessian = stage.add_argument_group("the curvature; default: the preset's")
        hessian.add_argument(
            "--ggn", type=one_of(*GGNS), help="of the model or the loss"
        )
        hessian.add_argument("--kfac-approx", type=one_of(*KFAC_APPROXIMATIONS))
    look = verbs.add_parser("inspect-data", help="say what pictures lie at a path")
    look.add_argument("path", type=Path)
    add_selection(look)
    model = verbs.add_parser("import-model", help="read a model that diffusers saved")
    model.add_argument(
        "folder", type=Path, help="of a pipeline, a checkpoint of training, or a UNet"
    )
    model.add_argument("--collection", help="of it; default: only say what it is")
    model.add_argument("--data", type=Path, metavar="PATH", help="what it was shown")
    model.add_argument(
        "--lora", type=Path, metavar="PATH", help="a LoRA: attribute its layers alone"
    )
    model.add_argument(
        "--unet", metavar="NAME", help="its sub-folder, such as unet_ema"
    )
    model.add_argument(
        "--scheduler",
        type=Path,
        metavar="PATH",
        help="folder or file of the noise schedule, where the model has none",
    )
    texts = model.add_argument_group("the texts of a text-to-image model's pictures")
    texts.add_argument("--caption", default="", metavar="COLUMN", help="that has them")
    texts.add_argument("--prompt", default="", help="of pictures that have none")
    model.add_argument("--set", action="append", default=[], help="as for build")
    add_selection(model)
    add_credits(model)
    clip = verbs.add_parser("clip", help="train the small CLIP model on Glyphs")
    clip.add_argument("--out", type=Path, required=True, help="safetensors file")
    clip.add_argument("--steps", type=valued(Whole(1)), default=4_000)
    clip.add_argument("--seed", type=valued(Whole()), default=0)
    clip.add_argument("--device", type=device, default="cpu")

    methods = verbs.add_parser("methods", help="what TRAK and other methods need")
    methods.add_argument("--collection", required=True)
    methods.add_argument("--only", default=",".join(parts()), help=", ".join(parts()))
    methods.add_argument("--root", type=Path, help="folder of published collections")
    methods.add_argument("--work", type=Path, help="folder of unfinished work")
    methods.add_argument(
        "--device", type=device, help="cpu or cuda; default: cuda if there is one"
    )
    methods.add_argument("--threads", type=valued(Whole(1, 1024)), help="CPU threads")
    of_methods = RULES[MethodConfig]
    features = methods.add_argument_group("the features of a gradient")
    features.add_argument(
        "--dim", type=valued(of_methods["dim"]), default=MethodConfig.dim
    )
    features.add_argument(
        "--projection",
        type=one_of(*PROJECTIONS),
        default=MethodConfig.projection,
        help=", ".join(PROJECTIONS),
    )
    features.add_argument(
        "--draws", type=valued(of_methods["num_draws"]), default=MethodConfig.num_draws
    )

    for verb, text in {
        "answers": "answer the gallery under more lenses",
        "errors": "say how errors grow with scores, and test that with other draws",
    }.items():
        more = verbs.add_parser(verb, help=text)
        more.add_argument("--collection", required=True)
        more.add_argument("--root", type=Path, help="folder of published collections")
        more.add_argument("--work", type=Path, help="folder of unfinished work")

    sheet = verbs.add_parser("sheet", help="gallery beside training pictures, as PNG")
    sheet.add_argument("--collection", required=True)
    sheet.add_argument("--root", type=Path, help="folder of published collections")
    sheet.add_argument("--out", type=Path, required=True, help="PNG or WebP file")

    ask = verbs.add_parser("attribute", help="score all training pictures for one")
    ask.add_argument("--collection", required=True)
    ask.add_argument("--root", type=Path, help="folder of published collections")
    which = ask.add_argument_group("the picture (one of)")
    which = which.add_mutually_exclusive_group(required=True)
    which.add_argument("--image", type=Path, metavar="FILE", help="any picture")
    which.add_argument(
        "--sample", type=valued(Whole(0)), metavar="ID", help="a gallery sample"
    )
    which.add_argument(
        "--example", type=valued(Whole(0)), metavar="ID", help="a training picture"
    )
    which.add_argument("--seed", type=valued(Whole()), metavar="N", help="generate one")
    made = ask.add_argument_group("how it is made, or what it is taken for")
    made.add_argument("--label", help="class, by number or name; default: none")
    made.add_argument(
        "--sampler",
        type=valued(RULES[SampleConfig]["sampler"], str),
        default="ddim",
        help="ddim or ddpm",
    )
    made.add_argument(
        "--steps", type=valued(Whole(1)), default=50, help="sampling steps"
    )
    made.add_argument(
        "--guidance", type=valued(Number(0, 100), float), default=2.0, help="1 is none"
    )
    made.add_argument(
        "--invert",
        action="store_true",
        help="find approximate sampling steps of a picture the model did not draw",
    )
    lens = ask.add_argument_group("the lens")
    lens.add_argument(
        "--method", type=one_of(*METHODS), default="ekfac", help=", ".join(METHODS)
    )
    lens.add_argument(
        "--measurement",
        type=one_of(*MEASUREMENTS),
        default="loss",
        help=", ".join(MEASUREMENTS),
    )
    lens.add_argument("--timesteps", metavar="A:B", help="contribution of [A, B)")
    lens.add_argument("--region", metavar="X0,Y0,X1,Y1", help="part of a box of pixels")
    lens.add_argument(
        "--draws",
        type=valued(RULES[SampleConfig]["num_draws"]),
        default=Lens.num_draws,
        help="of the query gradient",
    )
    lens.add_argument(
        "--damping",
        type=valued(Number(0, above=True), float),
        help="default: the collection's",
    )
    lens.add_argument("--index", type=one_of("auto", "full", "sketch"), default="auto")
    ask.add_argument("--out", type=Path, help="CSV file; default: standard output")
    return main


def add_credits(group) -> None:
    """Add the option that says whose the images are."""
    group.add_argument(
        "--credits",
        type=Path,
        metavar="FILE",
        help="whose the images are, and their licence: a text for all, or a .csv with "
        "one of their columns and 'credit'",
    )


def add_selection(group) -> None:
    """Add the options that say which pictures of a path are wanted."""
    group.add_argument(
        "--split",
        type=one_of(*SPLITS),
        help=f"{', '.join(SPLITS)}; default: what PATH is called, else train",
    )
    group.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN=VALUE,...",
        help="only pictures with one of these values",
    )
    group.add_argument("--index", type=Path, help="file of positions among these")
    group.add_argument(
        "--limit", type=valued(Whole(1)), help="only as many, the first ones"
    )
    group.add_argument(
        "--classes",
        metavar="COLUMN[,COLUMN]",
        help="columns whose combination is the class; default: label",
    )
    group.add_argument(
        "--allow-outside",
        action="store_true",
        help="read images out of the folder that tables name",
    )
    group.add_argument(
        "--drop-duplicates",
        action="store_true",
        help="use each image once: leave out those with the pixels of an earlier one",
    )


def add_retrain_options(stage: argparse.ArgumentParser) -> None:
    """Add the options that say which models are trained again."""
    stage.add_argument(
        "--subsets",
        type=valued(Whole(1)),
        help="random halves, M; default: 32, 48 with gpu; with --same-seed removals of "
        f"each size, default: {SameSeedConfig.num_subsets}",
    )
    stage.add_argument("--seeds", type=valued(Whole(1)), help="models of each, K")
    other = stage.add_mutually_exclusive_group()
    other.add_argument(
        "--removals",
        action="store_true",
        help="instead, leave out what matters most for a sample",
    )
    other.add_argument(
        "--disjoint",
        action="store_true",
        help="instead, pairs of models that share no picture, of growing size",
    )
    other.add_argument(
        "--without",
        action="append",
        metavar="COLUMN[=VALUE]",
        help="instead, leave out a group, or each value of a column in turn",
    )
    other.add_argument(
        "--same-seed",
        action="store_true",
        help="instead, leave out random images from models that share initial weights, "
        "order and noise; each is measured at once",
    )
    stage.add_argument(
        "--missing",
        action="store_true",
        help="only models that the stored evidence has not measured",
    )
    stage.add_argument(
        "--together",
        type=valued(Whole(1)),
        help="models trained at once; default: 16 on GPUs",
    )
