"""Train the models that jobs ask for, one after the other or several at once.

A finished file is never made again; an unfinished model goes on from its last
checkpoint. Models are independent of each other, so processes share them by number.
"""

import hashlib
import shutil
from itertools import groupby
from pathlib import Path

import numpy as np

from core.config import CollectionConfig, config_from_dict
from core.data.datasets import Dataset
from core.evidence.twins import twins_folder
from core.files.tensor_files import read_header, read_tensors, write_tensors
from precompute.machinery.workspace import Workspace, write_atomically
from precompute.retraining.jobs import Job, deciding
from precompute.retraining.together import train_together
from precompute.stages.stages import shipped_weights
from precompute.stages.train import train


def retrain_jobs(
    config: CollectionConfig,
    dataset: Dataset,
    jobs: list[Job],
    part: tuple[int, int] = (0, 1),
    device: str = "cpu",
    together: int = 1,
) -> list[Path]:
    """Return the files of this process's share of the jobs, doing those still to do.

    Args:
        config: The full model's settings.
        dataset: All images.
        jobs: In the order to do them.
        part: (number of this process, number of processes).
        device: Where to compute.
        together: How many models are trained at once, if they keep equally many
            images and follow each other.
    """
    number, size = part
    jobs = jobs[number::size]
    for _, alike in groupby(jobs, lambda job: int(job.kept.sum())):
        alike = list(alike)
        for first in range(0, len(alike), together):
            group = alike[first : first + together]
            # A step that can be differentiated is not stacked.
            if together > 1 and not config.train.root_epsilon:
                retrain_together(config, dataset, group, device)
            else:
                retrain(config, dataset, group[0], device)
            for job in group:
                seconds = model_facts(job.path)["seconds"]
                print(f"{job.path.name}: {seconds:.0f} s", flush=True)
    return [job.path for job in jobs]


def retrain(
    config: CollectionConfig, dataset: Dataset, job: Job, device: str = "cpu"
) -> Path:
    """Return a job's file, training on the images it keeps unless that is done.

    A file there that was made from other images or settings is refused.
    """
    if job.path.exists():
        check_facts(job.path, job.facts(config))
        return job.path
    settings = job.settings(config)
    weights = shipped_weights(config)
    if weights and job.kept.all() and deciding(settings) == deciding(config):
        # With common draws a model of every image is the full model, which is there.
        write_model(job, weights, job.facts(config) | {"seconds": 0.0})
        return job.path
    workspace = unfinished(settings, [job], job.path.stem)
    kept = dataset.restricted(job.kept)
    data = train(settings, kept, workspace, device, whole=dataset)
    _, spent = workspace.load("train", "train")
    write_model(job, data, job.facts(config) | spent)
    shutil.rmtree(workspace.folder)
    return job.path


def retrain_together(
    config: CollectionConfig, dataset: Dataset, jobs: list[Job], device: str
) -> None:
    """Do jobs that keep equally many images, all at once, unless they are done.

    What was trained in other company differs in its last bits, so that no file which is
    there is written anew.
    """
    done = {job.path for job in jobs if job.path.exists()}
    missing = [job for job in jobs if job.path not in done]
    for job in jobs:
        if job.path in done:
            check_facts(job.path, job.facts(config))
    settings = [job.settings(config) for job in jobs]
    name = f"{jobs[0].path.stem}-to-{jobs[-1].path.stem}"
    workspace = unfinished(settings[0], jobs, name)
    if not missing:
        return
    if len(missing) < len(jobs) and not workspace.folder.exists():
        retrain_together(config, dataset, missing, device)
        return
    kept = [dataset.restricted(job.kept) for job in jobs]
    models = train_together(settings, kept, workspace, device, whole=dataset)
    _, facts = workspace.load("train", "checkpoint")
    spent = {"seconds": facts["seconds"] / len(jobs)}
    for job, data in zip(jobs, models, strict=True):
        if job.path not in done:
            write_model(job, data, job.facts(config) | spent)
    shutil.rmtree(workspace.folder)


def keep_twins(root: Path, config: CollectionConfig, paths: list[Path]) -> None:
    """Put models without groups beside the collection, where the app finds them.

    A model of every image that is the full model itself is there already.

    Args:
        root: Folder of the published collections.
        config: The full model's settings.
        paths: The models' files.
    """
    folder = twins_folder(root, config)
    for path in paths:
        facts = model_facts(path)
        if facts["removed"]["fraction"] or facts["settings"] != deciding(config):
            write_atomically(folder / path.name, path.read_bytes())


def unfinished(settings: CollectionConfig, jobs: list[Job], name: str) -> Workspace:
    """Return where jobs that are trained at once leave their checkpoints.

    Its name tells which images they keep: with others, a training starts afresh.
    """
    kept = np.packbits(np.stack([job.kept for job in jobs]), axis=1)
    digits = hashlib.sha256(kept.tobytes()).hexdigest()[:12]
    return Workspace(settings, jobs[0].path.with_name(f"{name}-{digits}.work"))


def write_model(job: Job, data: bytes, facts: dict) -> None:
    """Write a model's file: its weights, and the facts in the same header."""
    tensors, header = read_tensors(data, sealed=False)
    write_tensors(job.path, tensors, header | {"facts": facts})


def model_facts(path: Path) -> dict:
    """Return what a retrained model's file says about how it was made."""
    return read_header(path)["facts"]


def check_facts(path: Path, wanted: dict) -> None:
    """Raise ValueError where a file was not made as wanted; the message prints both."""
    facts = model_facts(path)
    # A file from before there was a setting was made with its default.
    facts["settings"] = deciding(config_from_dict({"name": ""} | facts["settings"]))
    for name, value in wanted.items():
        if facts[name] != value:
            raise ValueError(
                f"'{path}' was made with {name} {facts[name]}, not {value}. Move it "
                "away, or give another --work folder."
            )
