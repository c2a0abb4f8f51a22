"""Models that share everything with the full one but the images: a second ground truth.

Initial weights, order, timesteps, noise and mirrors are the full model's
(`train.common_draws`), so what a model without some images measures is what these
images did to this model. Fresh seeds ask another question: what they do to a model of
this recipe. Every model is measured as soon as it is trained, and what it measured is a
small file of its own, so that a part of the work can be used.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from core.checks import check_fields
from core.config import CollectionConfig
from core.evidence.same_seed import SAME_SEED
from core.evidence.stored import evidence_folder
from core.files.table_files import write_table
from core.measure.draws import subset_mask
from precompute.machinery.config import SAME_SEED_RULES, MeasureConfig, SameSeedConfig
from precompute.retraining.jobs import Job, retrain_folder
from precompute.retraining.measure import gallery_fingerprint, identity, measure_model
from precompute.retraining.ready import Gallery, open_gallery
from precompute.retraining.train import retrain


def run_same_seed(
    config: CollectionConfig,
    settings: SameSeedConfig,
    root: Path,
    work: Path | None,
    part: tuple[int, int],
    device: str,
) -> None:
    """Train and measure this process's share of the models that share all draws.

    Args:
        config: The full model's settings.
        settings: How many models of which size.
        root: Folder of the published collections.
        work: Folder of unfinished work; None for `data/work`.
        part: (number of this process, number of processes).
        device: Where to compute.
    """
    check_fields(settings, rules=SAME_SEED_RULES)
    gallery = open_gallery(config, work, device)
    common = common_config(config)
    folder = retrain_folder(common, work)
    jobs = same_seed_jobs(common, settings, len(gallery.dataset), folder)
    results = evidence_folder(root, config) / SAME_SEED
    results.mkdir(parents=True, exist_ok=True)
    number, size = part
    if number == 0:
        write_masks(jobs, results / "masks.parquet")
    measure = gallery.at_most(MeasureConfig())
    train_and_measure(common, gallery, jobs[number::size], measure, results, device)


def common_config(config: CollectionConfig) -> CollectionConfig:
    """Return the same settings with draws that belong to images and visits."""
    return replace(config, train=replace(config.train, common_draws=True))


def same_seed_jobs(
    config: CollectionConfig, settings: SameSeedConfig, num_examples: int, folder: Path
) -> list[Job]:
    """Return a seed's full model, then its removals, one of each size in turn.

    So all sizes are covered alike whenever the work is stopped, and the first seed,
    which scores are compared with, comes before those that repeat it. The half that is
    kept is that of the random halves with fresh seeds.

    Args:
        config: The full model's settings, with common draws.
        settings: How many of which size.
        num_examples: N.
        folder: Where the files lie.
    """
    everything = np.ones(num_examples, dtype=bool)
    jobs = []
    for k in range(settings.num_seeds):
        jobs.append(_job(folder, 0.0, -1, k, everything))
        for m in range(settings.num_repeated if k else settings.num_subsets):
            for fraction in settings.fractions:
                kept = subset_mask(num_examples, m, config.seed, 1 - fraction)
                jobs.append(_job(folder, fraction, m, k, kept))
    return jobs


def _job(folder: Path, fraction: float, subset: int, seed: int, kept) -> Job:
    """Return the model of a seed without a random fraction of the images."""
    name = "full" if subset < 0 else f"without-{fraction:g}-{subset:03d}"
    why = {SAME_SEED: {"fraction": fraction, "subset": subset, "seed": seed}}
    path = folder / f"{name}-{seed}.safetensors"
    return Job(path, kept, (SAME_SEED, seed), why, seed_number=seed)


def write_masks(jobs: list[Job], path: Path) -> None:
    """Write which images each removal keeps: `fraction`, `subset`, packed bits."""
    rows = {}
    for job in jobs:
        why = job.why[SAME_SEED]
        if why["subset"] >= 0:
            rows[why["fraction"], why["subset"]] = np.packbits(job.kept).tobytes()
    table = pd.DataFrame([(*key, kept) for key, kept in sorted(rows.items())])
    write_table(path, table.set_axis(["fraction", "subset", "kept"], axis=1))


def train_and_measure(
    config: CollectionConfig,
    gallery: Gallery,
    jobs: list[Job],
    settings: MeasureConfig,
    results: Path,
    device: str = "cpu",
) -> list[Path]:
    """Return the files of results, training each model and measuring the gallery in it.

    A model that is trained is not trained again, a result that is there is kept.

    Args:
        config: The full model's settings, with common draws.
        gallery: What is measured, and all images.
        jobs: In the order to do them.
        settings: What to measure.
        results: Folder of the results, a table of the columns `MODEL` and `COSTS` each.
        device: Where to compute.

    Returns:
        A file per job.
    """
    how = f"{settings.fingerprint()}-{gallery_fingerprint(config)}"
    paths = []
    for job in jobs:
        path = results / f"{job.path.stem}.parquet"
        paths.append(path)
        if path.exists():
            continue
        retrain(config, gallery.dataset, job, device)
        kept = job.path.with_name(f"measured-{how}-{job.path.stem}.parquet")
        weights = job.path.read_bytes()
        table = measure_model(
            weights, gallery.samples, settings, config.seed, kept, device
        )
        write_table(path, table.assign(**identity(job.path)))
        print(f"{path.name} ({len(paths)} of {len(jobs)})", flush=True)
    return paths
