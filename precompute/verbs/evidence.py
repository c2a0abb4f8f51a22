"""`evidence`: what the retrained models measured, and tables of it."""

import argparse
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from core.config import CollectionConfig
from core.evidence.brought import (
    benchmark,
    brought_scores,
    check_scores,
    with_method,
    without_method,
)
from core.evidence.same_seed import (
    QUESTIONS,
    SAME_SEED,
    read_same_seed,
    same_seed_table,
)
from core.evidence.stored import evidence_folder, read_evidence, write_evidence
from core.evidence.tables import TABLES, make_table
from core.evidence.within_class import within_class_table
from core.explorer.explorer import open_explorer
from core.files.table_files import table_bytes
from core.files.texts import safe_csv
from core.measurements import MEASUREMENTS
from core.rules import Whole
from precompute.machinery.config import MeasureConfig
from precompute.machinery.out import check_out, write_out
from precompute.verbs.options import add_settings, one_of, valued
from precompute.verbs.settings import chosen_config, computing, own_part, root_of

WITHIN_CLASS = "within-class"
AGAIN = Path()  # --scores without a file
HELP = "measure the retrained models; print tables such as the LDS"


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add what is measured or printed."""
    parser.add_argument("--part", help="share of this process, such as 0/2")
    parser.add_argument(
        "--table",
        type=one_of(*TABLES, SAME_SEED, WITHIN_CLASS),
        help=f"only print it: {', '.join([*TABLES, SAME_SEED, WITHIN_CLASS])}",
    )
    parser.add_argument(
        "--measurement",
        type=one_of(*MEASUREMENTS),
        default="loss",
        help="what is measured",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--add",
        action="store_true",
        help="keep the stored evidence, add what it has not measured",
    )
    what.add_argument(
        "--scores",
        nargs="?",
        const=AGAIN,
        type=Path,
        metavar="FILE",
        help="keep what was measured, score anew, which needs no retrained model; with "
        "FILE (.parquet, .csv, .npy) put the scores of another method beside ours",
    )
    what.add_argument(
        "--forget", metavar="NAME", help="remove scores that --scores FILE brought"
    )
    what.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="write halves, measured costs and all scores as one parquet file",
    )
    what.add_argument(
        "--models",
        type=Path,
        metavar="FOLDER",
        help="measure models that others trained again (.safetensors, in the order of "
        "their names), beside ours",
    )
    what.add_argument(
        "--same-seed",
        action="store_true",
        help="score the full model of `retrain --same-seed`, by its own gradients",
    )
    parser.add_argument(
        "--masks",
        type=Path,
        metavar="FILE",
        help="of --models: .npy, a row a model, 1 for each image it saw, 0 for others",
    )
    parser.add_argument(
        "--name", help="what to call the method of --scores FILE; default: the file's"
    )
    parser.add_argument(
        "--samples",
        type=valued(Whole(1)),
        help="of the gallery, its first, that are measured in every model; "
        f"default: {MeasureConfig.num_samples}, with --add as stored",
    )
    parser.add_argument(
        "--probability-draws",
        type=valued(Whole(0)),
        help="of the log-probability, the slowest; 0 leaves it out; "
        f"default: {MeasureConfig.probability_draws}, with --add as stored",
    )


add = partial(add_settings, others=[add_own])


def run(options: argparse.Namespace) -> None:
    """Print a table as CSV, or make what the tables come from."""
    config = chosen_config(options)
    if options.table is not None:
        print_table(config, options)
        return
    if options.export or options.forget or options.scores not in (None, AGAIN):
        change_stored(config, options)
        return
    if (options.models is None) != (options.masks is None):
        raise ValueError(
            "--models FOLDER and --masks FILE belong together: a row of the masks says "
            "what a model was trained on. Give both."
        )
    wanted = {
        "num_samples": options.samples,
        "probability_draws": options.probability_draws,
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    with computing(options) as device:
        from precompute.retraining.evidence import make_evidence, score_again
        from precompute.retraining.own_scores import score_own_model

        places, part = (root_of(options), options.work), own_part(options)
        if options.models is not None:
            from precompute.retraining.brought_models import bring_models

            given = options.models, options.masks, wanted
            print(bring_models(config, *places, device, *given))
            return
        if options.same_seed:
            print(score_own_model(config, *places, device))
            return
        if options.scores is not None:
            print(score_again(config, *places, device))
            return
        folder = make_evidence(config, *places, part, device, wanted, options.add)
        if folder is not None:
            print(folder)


def change_stored(config: CollectionConfig, options: argparse.Namespace) -> None:
    """Bring or forget another method's scores, or write all for others."""
    root = root_of(options)
    folder = evidence_folder(root, config)
    if options.export:
        check_out("evidence", options.export)
    elif options.scores:
        check_scores(options.scores)
    evidence = read_evidence(folder)
    if options.export:
        write_out(options.export, table_bytes(benchmark(evidence)))
        print(options.export)
        return
    if options.forget:
        write_evidence(folder, without_method(evidence, options.forget))
        print(f"Forgotten: {options.forget}.")
        return
    with closing(open_explorer(config.name, root)) as explorer:
        ids = explorer.examples.table.index.to_numpy()
    count = evidence.measured["sample_id"].nunique()
    scores = brought_scores(options.scores, count, ids)
    name = options.name or options.scores.stem
    write_evidence(folder, with_method(evidence, name, scores))
    print(
        f"'{name}' stands beside the other methods: `python -m precompute evidence "
        f"--collection {config.name} --table paired` compares them. "
        f"--forget {name} removes it."
    )


def print_table(config: CollectionConfig, options: argparse.Namespace) -> None:
    """Print one table of stored evidence."""
    folder = evidence_folder(root_of(options), config)
    evidence = read_evidence(folder)
    if options.table == SAME_SEED:
        truth = read_same_seed(folder)
        table = same_seed_table(truth, evidence, options.measurement)
        print(QUESTIONS, file=sys.stderr)
    elif options.table == WITHIN_CLASS:
        with closing(open_explorer(config.name, root_of(options))) as explorer:
            columns = list(explorer.classes.columns)
            classes = explorer.examples.table[columns].astype(str).agg(" ".join, axis=1)
        table = within_class_table(evidence, options.measurement, classes)
    else:
        table = make_table(evidence, options.table, options.measurement)
    sys.stdout.write(safe_csv(table, "%.6g"))
