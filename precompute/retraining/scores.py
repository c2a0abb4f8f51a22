"""Scores of the measured samples under every lens, for the evidence."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from core.evidence.evaluation import predicted_changes
from core.evidence.left_out import group_members, group_name
from core.evidence.stored import GROUP_COLUMNS, OWN, RANDOM
from core.explorer.explorer import Explorer
from core.files.table_files import read_table, write_table
from core.lenses import Lens, stored_lenses
from core.measure.draws import keyed_generator
from core.measurements import tested_measurements
from core.methods import METHODS, measures
from core.scores.baselines import mean_eigenvalue, trak_damping
from core.scores.influence import centred
from precompute.machinery.progress import Bar
from precompute.retraining.measure import MeasureConfig

# That are asked about whole groups: those whose answers are stored.
GROUP_METHODS = tuple(dict.fromkeys(lens.method for lens in stored_lenses()))
RELATIVE_DAMPINGS = (1e-6, 1e-5, 1e-4, 1e-2, 0.1, 1.0, 10.0)  # of mean eigenvalue
PAPER_DAMPING = 1e-8  # App. J.5
QUERY_DRAWS = (16, 64, 256)  # the app's own is one of them, and asked anyway


@dataclass(frozen=True)
class Asked:
    """A lens, and the name of what is varied besides it."""

    lens: Lens
    variant: str = ""

    def record(self) -> dict:
        """Return a value for each column of `LENS`."""
        lens, fixed = self.lens, not measures(self.lens.method)
        low, high = lens.timesteps or (-1, -1)
        return {
            "method": lens.method,
            "measurement": OWN if fixed else lens.measurement,
            "low": low,
            "high": high,
            "damping": float("nan") if lens.damping is None else lens.damping,
            "num_draws": lens.num_draws,
            "variant": self.variant,
        }


def default_form(explorer: Explorer) -> str:
    """Return "full" where the full index came along, else "sketch"."""
    return "full" if explorer.engine.scoring.indexed is not None else "sketch"


def dampings(explorer: Explorer, method: str) -> dict[str, float]:
    """Return a method's own damping, and the mean eigenvalue it is a multiple of."""
    scoring, kind = explorer.engine.scoring, METHODS[method].preconditioner
    if kind is not None:
        mean = float(scoring.eigenvalues[kind].cpu().double().numpy().mean())
        return {"own": scoring.own_damping, "mean_eigenvalue": mean}
    features = scoring.method_file(method).features
    mean = float(mean_eigenvalue(features))
    return {"own": float(trak_damping(features)), "mean_eigenvalue": mean}


def asked_measurements(method: str) -> list[str]:
    """Return the measurements of retrained models that a method is asked about."""
    return tested_measurements() if measures(method) else [Lens.measurement]


def asked_lenses(explorer: Explorer) -> list[Asked]:
    """Return every lens that evidence is wanted for, of the methods there are."""
    facts = explorer.method_facts()
    methods = facts[facts["available"]]["method"].tolist()
    form = default_form(explorer)
    lenses = []
    for method in methods:
        for measurement in asked_measurements(method):
            lens = Lens(method, measurement, form=form)
            lenses.append(Asked(lens))
            if METHODS[method].swept:
                known = dampings(explorer, method)
                scale = known["mean_eigenvalue"]
                swept = [PAPER_DAMPING, *(scale * r for r in RELATIVE_DAMPINGS)]
                lenses += [
                    Asked(replace(lens, damping=damping))
                    for damping in swept
                    if not np.isclose(damping, known["own"], rtol=1e-3, atol=0)
                ]
    for measurement in tested_measurements():
        lens = Lens("ekfac", measurement, form=form)
        others = [count for count in QUERY_DRAWS if count != lens.num_draws]
        lenses += [Asked(replace(lens, num_draws=count)) for count in others]
        if form != "sketch":
            lenses.append(Asked(replace(lens, form="sketch"), "sketch"))
    return lenses


def score_samples(
    explorer: Explorer, settings: MeasureConfig, folder: Path
) -> pd.DataFrame:
    """Return the scores of all images for each sample under each lens.

    Sample by sample, so that lenses share what they have in common.

    Returns:
        The columns of `Evidence.scores`.
    """
    lenses = asked_lenses(explorer)
    key = json.dumps([one.record() for one in lenses]) + explorer.fingerprint
    return by_sample(
        lambda sample_id: sample_scores(explorer, sample_id, lenses, settings),
        "scores",
        key,
        settings,
        folder,
    )


def by_sample(
    make: Callable[[int], pd.DataFrame],
    name: str,
    key: str,
    settings: MeasureConfig,
    folder: Path,
) -> pd.DataFrame:
    """Return the tables of all samples as one, each made once and kept in a file.

    Args:
        make: Returns the table of a sample.
        name: What the tables are called.
        key: What they depend on besides the sample.
        settings: How many samples.
        folder: Of the files.
    """
    digest, tables = hashlib.sha256(key.encode()).hexdigest()[:12], []
    for sample_id in Bar(range(settings.num_samples), name):
        path = folder / f"{name}-{digest}-{sample_id}.parquet"
        if not path.exists():
            write_table(path, make(sample_id))
        tables.append(read_table(path))
    return pd.concat(tables, ignore_index=True)


def sample_scores(
    explorer: Explorer, sample_id: int, lenses: list[Asked], settings: MeasureConfig
) -> pd.DataFrame:
    """Return one sample's scores: a row per lens, per band of timesteps, and random."""
    query = explorer.query_from_gallery(sample_id)
    rows = []
    for one in lenses:
        answer = explorer.answer(query, one.lens)
        scores = answer.scores.astype(np.float32)
        rows.append(one.record() | {"source": answer.source, "scores": scores})
    lens = Lens("ekfac", "loss", form=default_form(explorer))
    bands = explorer.band_answers(query, lens, settings.num_bands)
    edges = list(bands.edges)
    for low, high, scores in zip(edges[:-1], edges[1:], bands.scores, strict=True):
        record = Asked(replace(lens, timesteps=(int(low), int(high)))).record()
        rows.append(
            record | {"source": bands.source, "scores": scores.astype(np.float32)}
        )
    rows.append(random_scores(explorer, sample_id))
    return pd.DataFrame(rows).assign(sample_id=sample_id)


def variant_table(variant: str, num_draws: int, scores: np.ndarray) -> pd.DataFrame:
    """Return rows of EK-FAC scores (Q, N) from gradients that were kept otherwise."""
    record = Asked(Lens("ekfac", "loss", num_draws=num_draws), variant).record()
    rows = [
        record | {"sample_id": i, "source": variant, "scores": row.astype(np.float32)}
        for i, row in enumerate(centred(scores.astype(np.float64)))
    ]
    return pd.DataFrame(rows)


def random_scores(explorer: Explorer, sample_id: int) -> dict:
    """Return a row of scores that know nothing of the sample."""
    generator = keyed_generator(explorer.engine.seed, "random scores", sample_id)
    scores = torch.randn(explorer.num_examples, generator=generator).numpy()
    record = Asked(Lens("clip")).record() | {"method": RANDOM}
    return record | {"source": "random", "scores": scores}


def group_predictions(
    explorer: Explorer, names: list[str], settings: MeasureConfig, folder: Path
) -> pd.DataFrame:
    """Return what is predicted of each sample when each of some groups is left out.

    Args:
        explorer: The collection.
        names: The groups, as `core.evidence.left_out.group_name` calls them.
        settings: How many samples.
        folder: Where finished samples are kept.

    Returns:
        The columns `GROUP_COLUMNS`.
    """
    if not names:
        return pd.DataFrame(columns=GROUP_COLUMNS)
    return by_sample(
        lambda sample_id: sample_groups(explorer, sample_id, names),
        "groups",
        json.dumps([names, GROUP_METHODS]) + explorer.fingerprint,
        settings,
        folder,
    )


def sample_groups(explorer: Explorer, sample_id: int, names: list[str]) -> pd.DataFrame:
    """Return one sample's rows of `group_predictions`."""
    query, table = explorer.query_from_gallery(sample_id), explorer.examples.table
    members = np.stack([group_members(name, table) for name in names])
    shares = np.full(len(names), np.nan)
    if query.label is not None:
        alike = np.ones(len(table), dtype=bool)
        for column, value in explorer.classes.loc[query.label].items():
            alike &= group_members(group_name(column, value), table)
        shares = members[:, alike].mean(1)
    facts = explorer.method_facts()
    known = facts[facts["available"]]["method"].tolist()
    rows = []
    for method in [name for name in GROUP_METHODS if name in known]:
        for measurement in asked_measurements(method):
            lens = Lens(method, measurement)
            answer = explorer.answer(query, lens)
            errors = np.full(len(names), np.nan)
            if METHODS[method].has_errors:
                errors = explorer.uncertainty(query, answer).of_groups(members)
            record = Asked(lens).record()
            changes = predicted_changes(answer.scores[None], ~members)[0]
            for name, share, change, error in zip(
                names, shares, changes, errors, strict=True
            ):
                rows.append(
                    {"group": name, "sample_id": sample_id, "share": share}
                    | {name: record[name] for name in ("method", "measurement")}
                    | {"predicted": change, "standard_error": error}
                )
    return pd.DataFrame(rows)[list(GROUP_COLUMNS)]
