"""Which models are trained again without some images: what every claim is measured by.

A job says which images a model keeps, what its seed depends on, and where its file
lies: `retrained-SUBSET-SEED.safetensors` for random halves. How jobs are done is
`precompute.retraining.train`.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from core.config import (
    CollectionConfig,
    DisjointConfig,
    RemovalConfig,
    RetrainConfig,
)
from core.data.datasets import Dataset
from core.evidence.evaluation import without_top
from core.evidence.left_out import control_share, group_members, group_name
from core.evidence.stored import NOTHING, RANDOM, Evidence
from core.files.texts import file_name
from core.measure.draws import keyed_generator, subset_mask
from precompute.machinery.workspace import workspace_of

DECIDE = ("data", "model", "train", "seed")  # settings that make a model what it is


def retrain_folder(config: CollectionConfig, root: Path | None = None) -> Path:
    """Return where the models that were trained again with these settings lie."""
    fingerprint = config.fingerprint(*DECIDE[:-1])
    return workspace_of(config, root).folder / f"retrain-{fingerprint}"


def recipe(
    config: CollectionConfig, share: float, *keys: int | str, anew: bool = False
) -> CollectionConfig:
    """Return the settings of a model that is trained for a share of the steps.

    Args:
        config: The full model's settings.
        share: Of its steps.
        keys: What the seed of weights, order and noise depends on besides the
            collection's; without any it is the full model's own.
        anew: Whether to begin with random weights where the full model did not.

    Raises:
        ValueError: If the full model was trained elsewhere, or went on from weights
            that saw every image.
    """
    settings = config.train
    if settings.imported:
        raise ValueError(
            f"The model of '{config.name}' was trained elsewhere, so there is no "
            "recipe to train it again by. Train one here with --data and a preset."
        )
    if settings.start_from and not anew:
        raise ValueError(
            f"'{config.name}' was trained from '{settings.start_from}', weights that "
            "have seen every image, so training from them leaves none out. Choose a "
            "preset that starts anew: --preset gpu."
        )
    settings = replace(
        settings,
        start_from="",
        num_steps=max(1, round(share * settings.num_steps)),
        warmup_steps=round(share * settings.warmup_steps),
    )
    if not keys:
        return replace(config, train=settings)
    generator = keyed_generator(config.seed, "retrain", *keys)
    return replace(config, train=settings, seed=generator.initial_seed())


@dataclass(frozen=True)
class Job:
    """A model to be trained on a part of the images.

    Attributes:
        path: The file to make.
        kept: Which images it is trained on, shape (N,), bool.
        keys: What its seed depends on besides the collection's.
        why: Facts that say why these were kept, for its file.
        steps: Share of the full training's steps. None is that of the images: each is
            seen as often as in the full training, as in the paper's LDS. Where few are
            left out the paper keeps all steps; here random removals are as short, and
            are what others are compared with. With `train.common_draws` it is all
            steps: who is left out keeps a turn, so each is seen as often anyway.
        anew: Whether to begin with random weights where the full model did not.
        seed_number: Which models share weights, order and noise, where these belong to
            images and visits (`train.common_draws`); 0 are those of the full model.
    """

    path: Path
    kept: np.ndarray
    keys: tuple[int | str, ...]
    why: dict = field(default_factory=dict)
    steps: float | None = None
    anew: bool = False
    seed_number: int = 0

    def settings(self, config: CollectionConfig) -> CollectionConfig:
        """Return the settings it is trained with, given those of the full model."""
        if config.train.common_draws:
            share = 1.0 if self.steps is None else self.steps
            shared = ("common", self.seed_number) if self.seed_number else ()
            return recipe(config, share, *shared, anew=self.anew)
        share = float(self.kept.mean()) if self.steps is None else self.steps
        return recipe(config, share, *self.keys, anew=self.anew)

    def facts(self, config: CollectionConfig) -> dict:
        """Return what its file says about how it was made, but for the seconds."""
        return {
            "mask_sha256": hashlib.sha256(np.packbits(self.kept).tobytes()).hexdigest(),
            "num_kept": int(self.kept.sum()),
            "keys": list(self.keys),
            "settings": deciding(self.settings(config)),
            **self.why,
        }


def deciding(config: CollectionConfig) -> dict:
    """Return the settings that make a model what it is, as its file holds them."""
    settings = json.loads(json.dumps(config.to_dict()))
    return {name: settings[name] for name in DECIDE}


def identity_of(facts: dict | None) -> dict:
    """Return which model facts speak of, by column of `MODEL` in the evidence.

    Args:
        facts: Those of a retrained model's file, or of a job; None for the full model.
    """
    which = {"kind": "full", "subset": -1, "seed": 0}
    which |= {"method": "", "fraction": 0.0, "about": -1}
    if facts is None:
        return which
    if "removed" in facts:
        return which | {"kind": "removed"} | facts["removed"]
    for kind in ("disjoint", "same-seed"):
        if kind in facts:
            return which | {"kind": kind} | facts[kind]
    subset, seed = facts["keys"]
    return which | {"kind": "half", "subset": subset, "seed": seed}


def is_measured(which: dict, measured: pd.DataFrame) -> bool:
    """Return whether evidence holds the costs in a model, named by `identity_of`."""
    rows = measured[list(which)]
    return bool((rows == pd.Series(which)).all(axis=1).any())


def missing_jobs(
    jobs: list[Job], config: CollectionConfig, evidence: Evidence
) -> list[Job]:
    """Return the jobs whose models evidence has not measured.

    Raises:
        ValueError: If there are random halves among them that its scores say nothing
            of: they could not be added to it.
    """
    named = [(job, identity_of(job.facts(config))) for job in jobs]
    missing = [pair for pair in named if not is_measured(pair[1], evidence.measured)]
    count = len(evidence.masks) if evidence.num_halves else 0
    for _, which in missing:
        if which["kind"] == "half" and which["subset"] >= count:
            raise ValueError(
                f"The stored evidence scores {count} random halves, so that half "
                f"{which['subset'] + 1} cannot be added to it. Leave out --missing, "
                "and make the evidence anew, without --add."
            )
    return [job for job, _ in missing]


def model_path(folder: Path, subset: int, seed: int) -> Path:
    """Return the file of the model of a subset and a seed number."""
    return folder / f"retrained-{subset:03d}-{seed}.safetensors"


def subset_jobs(
    config: CollectionConfig, settings: RetrainConfig, num_examples: int, folder: Path
) -> list[Job]:
    """Return the M x K models to train; the first seed of every subset comes first."""
    return [
        Job(
            model_path(folder, m, k),
            subset_mask(num_examples, m, config.seed, settings.share),
            (m, k),
            seed_number=k,
        )
        for k in range(settings.num_seeds)
        for m in range(settings.num_subsets)
    ]


def disjoint_jobs(
    config: CollectionConfig, settings: DisjointConfig, num_examples: int, folder: Path
) -> list[Job]:
    """Return two models for each size, on parts that share no image.

    A larger part holds the smaller ones of its side.

    Raises:
        ValueError: If two parts of a size would not fit.
    """
    if max(settings.shares) > 0.5:
        raise ValueError(
            f"Two parts of {max(settings.shares):g} of the images must overlap. "
            "Choose shares up to 0.5."
        )
    generator = keyed_generator(config.seed, "disjoint")
    order = torch.randperm(num_examples, generator=generator).numpy()
    jobs = []
    for share in settings.shares:
        for side, ranked in enumerate((order, order[::-1])):
            kept = np.zeros(num_examples, dtype=bool)
            kept[ranked[: int(share * num_examples)]] = True
            path = folder / f"disjoint-{kept.sum():06d}-{side}.safetensors"
            why = {"disjoint": {"fraction": share, "subset": side}}
            keys = ("disjoint", int(kept.sum()), side)
            jobs.append(Job(path, kept, keys, why, settings.steps))
    return jobs


def removal_jobs(
    config: CollectionConfig,
    settings: RemovalConfig,
    evidence: Evidence,
    folder: Path,
) -> list[Job]:
    """Return models without the images that matter most for a sample (App. J.7).

    Beside them, models after random removals as large, and one with every image. All of
    one seed number start from the same weights.
    """
    return [
        _removal_job(folder, *removal, seed, kept)
        for seed in range(settings.num_seeds)
        for *removal, kept in removals(config, settings, evidence)
    ]


def _removal_job(
    folder: Path,
    method: str,
    fraction: float,
    about: int,
    seed: int,
    kept: np.ndarray,
    anew: bool = False,
) -> Job:
    """Return a model without some images, named by why; as in `Evidence.measured`."""
    why = {"method": method, "fraction": fraction, "about": about, "seed": seed}
    name = "-".join(["removed", *map(str, why.values())])
    if "=" in method:  # a group's name, which can be any text
        name = file_name("removed", method, seed, ending="").rstrip(".")
    path = folder / f"{name}.safetensors"
    keys = ("removed", seed)
    return Job(path, kept, keys, {"removed": why}, anew=anew, seed_number=seed)


def removals(
    config: CollectionConfig, settings: RemovalConfig, evidence: Evidence
) -> Iterator[tuple[str, float, int, np.ndarray]]:
    """Yield method, fraction, sample and the mask (N,) of what is kept.

    Raises:
        LookupError: If there are no scores of a method to remove by.
    """
    count = evidence.masks.shape[1]
    yield NOTHING, 0.0, -1, np.ones(count, dtype=bool)
    for fraction in settings.fractions:
        for number in range(settings.num_random):
            kept = ~subset_mask(count, number, config.seed, fraction)
            yield RANDOM, fraction, number, kept
        for method in settings.methods:
            table = evidence.default_scores(method, "loss")
            if table is None:
                raise LookupError(
                    f"There are no scores of '{method}' to remove images by. Compute "
                    "them with `python -m precompute evidence`."
                )
            for sample_id in sorted(table.index)[: settings.num_samples]:
                kept = without_top(table[sample_id], fraction)
                yield method, fraction, sample_id, kept


def named_groups(texts: list[str], dataset: Dataset) -> list[str]:
    """Return the groups that "COLUMN=VALUE" names, or "COLUMN", each of its values.

    A column or a value that is not there raises the LookupError of `group_members`.
    """
    names = []
    for text in texts:
        if text in dataset.metadata:
            values = sorted(dataset.metadata[text].astype(str).unique())
            names += [group_name(text, value) for value in values]
        else:
            group_members(text, dataset.metadata)
            names.append(text)
    return list(dict.fromkeys(names))


def group_jobs(
    config: CollectionConfig,
    settings: RemovalConfig,
    groups: list[str],
    dataset: Dataset,
    folder: Path,
) -> list[Job]:
    """Return a model with every image, one without each group, and controls.

    The controls leave out a random group as large: their training is as short as that
    without the group. All start from the same random weights, also where the full model
    went on from others, which saw every image: so they are compared with each other.

    Args:
        config: The full model's settings.
        settings: How many controls there are of each size.
        groups: As `named_groups` returns them.
        dataset: All images.
        folder: Where the files lie.

    Raises:
        ValueError: If nothing would be left.
    """
    everything = np.ones(len(dataset), dtype=bool)
    jobs = [_removal_job(folder, NOTHING, 0.0, -1, 0, everything, anew=True)]
    for name in groups:
        members = group_members(name, dataset.metadata)
        if members.all():
            raise ValueError(
                f"Every image is in '{name}', so that no model can be trained "
                "without it. Name a smaller group."
            )
        share = float(members.mean())
        jobs.append(_removal_job(folder, name, share, -1, 0, ~members, anew=True))
    sizes = dict.fromkeys(control_share(job.why["removed"]["fraction"]) for job in jobs)
    for share in list(sizes)[1:]:
        for number in range(settings.num_group_controls):
            kept = ~subset_mask(len(dataset), number, config.seed, share)
            jobs.append(_removal_job(folder, RANDOM, share, number, 0, kept, anew=True))
    return jobs
