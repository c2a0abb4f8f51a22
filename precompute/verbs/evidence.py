"""`evidence`: what the retrained models measured, and tables of it."""

import argparse
import sys
from functools import partial

from core.config import CollectionConfig
from core.evidence.same_seed import SAME_SEED, read_same_seed, same_seed_table
from core.evidence.stored import evidence_folder, read_evidence
from core.evidence.tables import TABLES, make_table
from core.files.texts import safe_csv
from core.measurements import MEASUREMENTS
from core.rules import Whole
from precompute.machinery.config import MeasureConfig
from precompute.verbs.options import add_settings, one_of, valued
from precompute.verbs.settings import chosen_config, computing, own_part, root_of

HELP = "measure the retrained models; print tables such as the LDS"


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add what is measured or printed."""
    parser.add_argument("--part", help="share of this process, such as 0/2")
    parser.add_argument(
        "--table",
        type=one_of(*TABLES, SAME_SEED),
        help=f"only print it: {', '.join([*TABLES, SAME_SEED])}",
    )
    parser.add_argument(
        "--measurement",
        type=one_of(*MEASUREMENTS),
        default="loss",
        help="what is measured",
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="keep the stored evidence, add what it has not measured",
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
    wanted = {
        "num_samples": options.samples,
        "probability_draws": options.probability_draws,
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    with computing(options) as device:
        from precompute.retraining.evidence import make_evidence

        places, part = (root_of(options), options.work), own_part(options)
        folder = make_evidence(config, *places, part, device, wanted, options.add)
        if folder is not None:
            print(folder)


def print_table(config: CollectionConfig, options: argparse.Namespace) -> None:
    """Print one table of stored evidence."""
    folder = evidence_folder(root_of(options), config)
    evidence = read_evidence(folder)
    if options.table == SAME_SEED:
        removals, halves = read_same_seed(folder), evidence.measured
        table = same_seed_table(removals, halves, options.measurement)
    else:
        table = make_table(evidence, options.table, options.measurement)
    sys.stdout.write(safe_csv(table, "%.6g"))
