"""`attribute`: the scores of all training images for one image, as CSV."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from core.checks import RULES
from core.config import SampleConfig
from core.drawing import GUIDANCE, Drawing
from core.labels import label_of
from core.lenses import (
    Lens,
    check_lens,
    parse_region,
    parse_timesteps,
)
from core.measurements import MEASUREMENTS
from core.methods import METHODS
from core.rules import Number, Whole
from precompute.machinery.out import write_out
from precompute.verbs.options import add_root, one_of, valued

if TYPE_CHECKING:
    from core.explorer.explorer import Answer, Explorer, Query

HELP = "score all training images for one"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--collection", required=True)
    add_root(parser)
    which = parser.add_argument_group("the image (one of)")
    which = which.add_mutually_exclusive_group(required=True)
    which.add_argument("--image", type=Path, metavar="FILE", help="any image")
    which.add_argument(
        "--sample", type=valued(Whole(0)), metavar="ID", help="a gallery sample"
    )
    which.add_argument(
        "--example", type=valued(Whole(0)), metavar="ID", help="a training image"
    )
    which.add_argument("--seed", type=valued(Whole()), metavar="N", help="generate one")
    made = parser.add_argument_group("how it is made, or what it is taken for")
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
        "--guidance",
        type=valued(Number(0, 100), float),
        default=GUIDANCE,
        help="1 is none",
    )
    made.add_argument(
        "--invert",
        action="store_true",
        help="find approximate sampling steps of an image the model did not draw",
    )
    lens = parser.add_argument_group("the lens")
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
    parser.add_argument("--out", type=Path, help="CSV file; default: standard output")


def run(options: argparse.Namespace) -> None:
    """Answer one question and write the CSV."""
    from core.explorer.explorer import open_explorer
    from core.report.table import answer_csv

    explorer = open_explorer(options.collection, options.root)
    lens = Lens(
        options.method,
        options.measurement,
        options.timesteps and parse_timesteps(options.timesteps),
        options.region and parse_region(options.region),
        options.draws,
        options.damping,
        options.index,
    )
    check_lens(lens, explorer.num_train_timesteps, explorer.config.data.image_size)
    query = chosen_query(explorer, options)
    answer = attribute(explorer, query, lens)
    if answer.note:
        print(answer.note, file=sys.stderr)
    text = answer_csv(answer, explorer.examples.table)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_out(options.out, text.encode())


def chosen_query(explorer: "Explorer", options: argparse.Namespace) -> "Query":
    """Return the image that is asked about."""
    label = chosen_label(explorer, options)
    if options.image is not None:
        query = explorer.query_from_upload(read_file(options.image), label)
    elif options.sample is not None:
        query = explorer.query_from_gallery(options.sample)
    elif options.example is not None:
        query = explorer.query_from_example(options.example)
    else:
        how = options.sampler, options.steps, options.guidance
        query = explorer.generate(Drawing(label, options.seed, *how))
    return explorer.inverted(query) if options.invert else query


def chosen_label(explorer: "Explorer", options: argparse.Namespace) -> int | None:
    """Return the class that an image is drawn or taken for, and say which it is.

    Raises:
        ValueError: If the image has a class of its own.
    """
    from core.files.texts import one_line

    if options.label is None:
        return None
    if options.image is None and options.seed is None:
        raise ValueError(
            "--label is for --image and --seed: a gallery sample and a training "
            "image have a class of their own. Omit it."
        )
    label = label_of(options.label, explorer.class_names())
    print(f"class {label}: {one_line(explorer.class_words(label))}", file=sys.stderr)
    return label


def read_file(path: Path) -> bytes:
    """Return a file's bytes.

    Raises:
        ValueError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read ({error.strerror}). Give the path of an image."
        ) from error


def attribute(explorer: "Explorer", query: "Query", lens: Lens) -> "Answer":
    """Return an answer, with a progress bar while it is computed."""
    from tqdm import tqdm

    with tqdm(desc="measuring", leave=False) as bar:

        def show(done: int, total: int, what: str) -> None:
            bar.total = total
            bar.set_description(what.lower(), refresh=False)
            bar.update(done - bar.n)

        return explorer.answer(query, lens, show)
