"""Scores of the measured samples under every lens, for the evidence."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from core.evidence.evaluation import predicted_changes
from core.evidence.left_out import group_members, group_name
from core.evidence.stored import GROUP_COLUMNS, RANDOM
from core.explorer.explorer import Explorer, Query
from core.files.table_files import read_table, write_table
from core.lenses import Lens, stored_lenses
from core.measure.draws import keyed_generator
from core.methods import METHODS
from core.scores.influence import centred
from precompute.machinery.progress import Bar
from precompute.retraining.asked import (
    Asked,
    asked_lenses,
    asked_measurements,
    default_form,
)
from precompute.retraining.measure import MeasureConfig

# That are asked about whole groups: those whose answers are stored.
GROUP_METHODS = tuple(dict.fromkeys(lens.method for lens in stored_lenses()))


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
        row = {"source": answer.source, "scores": scores}
        if one.lens.damping is None:
            row["mean"] = raw_mean(explorer, query, one.lens)
        rows.append(one.record() | row)
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


def raw_mean(explorer: Explorer, query: Query, lens: Lens) -> float:
    """Return the mean of influences before they are centred; NaN for other scores.

    Centred scores predict how a removal differs from an average one of its size; with
    the mean, how the cost changes at all.
    """
    method, engine = METHODS[lens.method], explorer.engine
    if method.kind != "influence" or method.reads != "gradients":
        return float("nan")
    (measured,) = engine.gradients(query, lens)
    vector = engine.scoring.preconditioned(measured.folds.mean(0)[None], lens)
    return float(engine.scoring.gradients(lens).products(vector).mean())


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
