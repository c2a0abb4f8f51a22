"""`retrain`: models without some of the images."""

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from core.checks import check_fields
from core.config import CollectionConfig, DisjointConfig, RemovalConfig, RetrainConfig
from core.evidence.stored import evidence_folder, read_evidence
from core.presets import RETRAINING, preset_of
from core.rules import Whole
from precompute.machinery.config import SameSeedConfig
from precompute.verbs.options import add_settings, valued
from precompute.verbs.settings import chosen_config, computing, own_part, root_of

if TYPE_CHECKING:
    from core.data.datasets import Dataset
    from precompute.retraining.jobs import Job

HELP = "train again on random subsets, to measure what scores predict"
ON_GPU = 16  # models that a GPU trains at once


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add which models are trained again."""
    parser.add_argument("--part", help="share of this process, such as 0/2")
    parser.add_argument(
        "--subsets",
        type=valued(Whole(1)),
        help="random halves, M; default: 32, 48 with gpu; with --same-seed removals of "
        f"each size, default: {SameSeedConfig.num_subsets}",
    )
    parser.add_argument("--seeds", type=valued(Whole(1)), help="models of each, K")
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--removals",
        action="store_true",
        help="instead, leave out what matters most for a sample",
    )
    other.add_argument(
        "--disjoint",
        action="store_true",
        help="instead, pairs of models that share no image, of growing size",
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
    parser.add_argument(
        "--missing",
        action="store_true",
        help="only models that the stored evidence has not measured",
    )
    parser.add_argument(
        "--together",
        type=valued(Whole(1)),
        help="models trained at once; default: 16 on GPUs",
    )


add = partial(add_settings, others=[add_own])


def run(options: argparse.Namespace) -> None:
    """Train this process's share of the models without some of the images."""
    config, root = chosen_config(options), root_of(options)
    wanted = {"num_subsets": options.subsets, "num_seeds": options.seeds}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    with computing(options) as device:
        import torch

        from precompute.retraining.same_seed import run_same_seed
        from precompute.retraining.train import keep_twins, retrain_jobs

        part = own_part(options)
        if options.same_seed:
            wanted = SameSeedConfig(**wanted)
            run_same_seed(config, wanted, root, options.work, part, device)
            return
        settings = RETRAINING.get(preset_of(config), RetrainConfig())
        settings = replace(settings, **wanted)
        check_fields(settings)
        dataset, jobs = chosen_jobs(config, options, settings)
        on_gpu = torch.device(device).type == "cuda"
        together = options.together or (ON_GPU if on_gpu else 1)
        paths = retrain_jobs(config, dataset, jobs, part, device, together)
        if options.without:
            keep_twins(root, config, paths)


def chosen_jobs(
    config: CollectionConfig, options: argparse.Namespace, settings: RetrainConfig
) -> "tuple[Dataset, list[Job]]":
    """Return the images, and which models are to be trained on parts of them."""
    from core.data.datasets import load_dataset
    from precompute.retraining import jobs

    dataset, folder = (
        load_dataset(config.data),
        jobs.retrain_folder(config, options.work),
    )
    stored = evidence_folder(root_of(options), config)
    if options.removals:
        chosen = jobs.removal_jobs(
            config, RemovalConfig(), read_evidence(stored), folder
        )
    elif options.disjoint:
        chosen = jobs.disjoint_jobs(config, DisjointConfig(), len(dataset), folder)
    elif options.without:
        groups = jobs.named_groups(options.without, dataset)
        chosen = jobs.group_jobs(config, RemovalConfig(), groups, dataset, folder)
    else:
        chosen = jobs.subset_jobs(config, settings, len(dataset), folder)
    if options.missing:
        chosen = jobs.missing_jobs(chosen, config, read_evidence(stored))
    return dataset, chosen
