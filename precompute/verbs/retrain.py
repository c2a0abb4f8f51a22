"""`python -m precompute retrain`: which models to train again, and what with."""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from core.checks import check_fields
from core.config import CollectionConfig, DisjointConfig, RemovalConfig, RetrainConfig
from core.data.datasets import load_dataset
from core.evidence.same_seed import SAME_SEED
from core.evidence.stored import evidence_folder, read_evidence
from core.model.checkpoint import denoiser_from_bytes
from core.presets import RETRAINING, preset_of
from precompute.machinery.workspace import open_workspace
from precompute.retraining.jobs import (
    disjoint_jobs,
    group_jobs,
    missing_jobs,
    named_groups,
    removal_jobs,
    retrain_folder,
    retrain_jobs,
    subset_jobs,
)
from precompute.retraining.measure import MeasureConfig
from precompute.retraining.ready import needed_weights
from precompute.retraining.same_seed import (
    SAME_SEED_RULES,
    SameSeedConfig,
    common_config,
    same_seed_jobs,
    train_and_measure,
    write_masks,
)
from precompute.stages.samples import make_samples


def run_retrain(
    config: CollectionConfig,
    options: argparse.Namespace,
    root: Path,
    part: tuple[int, int],
    device: str,
) -> None:
    """Train this process's share of the models without some of the pictures."""
    if options.same_seed:
        run_same_seed(config, options, root, part, device)
        return
    asked = {"num_subsets": options.subsets, "num_seeds": options.seeds}
    settings = RETRAINING.get(preset_of(config), RetrainConfig())
    settings = replace(settings, **{k: v for k, v in asked.items() if v is not None})
    check_fields(settings)
    dataset = load_dataset(config.data)
    folder = retrain_folder(config, options.work)
    jobs = subset_jobs(config, settings, len(dataset), folder)
    if options.removals:
        evidence = read_evidence(evidence_folder(root, config))
        jobs = removal_jobs(config, RemovalConfig(), evidence, folder)
    elif options.disjoint:
        jobs = disjoint_jobs(config, DisjointConfig(), len(dataset), folder)
    elif options.without:
        groups = named_groups(options.without, dataset)
        jobs = group_jobs(config, RemovalConfig(), groups, dataset, folder)
    if options.missing:
        evidence = read_evidence(evidence_folder(root, config))
        jobs = missing_jobs(jobs, config, evidence)
    on_gpu = torch.device(device).type == "cuda"
    together = options.together or (16 if on_gpu else 1)
    retrain_jobs(config, dataset, jobs, part, device, together)


def run_same_seed(
    config: CollectionConfig,
    options: argparse.Namespace,
    root: Path,
    part: tuple[int, int],
    device: str,
) -> None:
    """Train and measure this process's share of the models that share all draws."""
    asked = {"num_subsets": options.subsets, "num_seeds": options.seeds}
    asked = {name: value for name, value in asked.items() if value is not None}
    wanted = SameSeedConfig(**asked)
    check_fields(wanted, rules=SAME_SEED_RULES)
    weights = needed_weights(config, options.work)
    dataset, workspace = load_dataset(config.data), open_workspace(config, options.work)
    denoiser = denoiser_from_bytes(weights).to(device)
    samples = make_samples(config, denoiser, dataset, workspace)
    common = common_config(config)
    folder = retrain_folder(common, options.work)
    jobs = same_seed_jobs(common, wanted, len(dataset), folder)
    results = evidence_folder(root, config) / SAME_SEED
    results.mkdir(parents=True, exist_ok=True)
    if part[0] == 0:
        write_masks(jobs, results / "masks.parquet")
    number, size = part
    measure = MeasureConfig()
    measure = replace(
        measure, num_samples=min(measure.num_samples, len(samples["x_0"]))
    )
    train_and_measure(
        common, dataset, jobs[number::size], samples, measure, results, device
    )
