"""Scores of a method that is not ours: read, checked, and put beside the others.

Then every table, figure and page has it, paired tests included. And the other way
round: all that others need to compare without our code, in one file. Knows numpy,
pandas and pyarrow; no model.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from core.evidence.stored import OWN, RANDOM, Evidence, default_lens, default_rows
from core.files.table_files import DAMAGE
from core.methods import METHODS

BROUGHT = "brought"  # source of such scores
NAMES = {
    "sample_id": ("sample_id", "query", "query_id", "sample"),
    "example_id": ("example_id", "example", "image", "image_id", "id"),
    "score": ("score", "scores", "influence", "value"),
}
FORMATS = (".parquet", ".csv", ".npy")
EXPORTED = ("what", "name", "measurement", "number", "seed", "values")


def check_scores(path: Path) -> None:
    """Raise ValueError where a path is not that of a file that may hold scores."""
    if not path.is_file() or path.suffix.lower() not in FORMATS:
        raise ValueError(
            f"'{path}' holds no scores. Expected: a file that ends in "
            f"{', '.join(FORMATS)}."
        )


def brought_scores(path: Path, num_samples: int, example_ids: np.ndarray) -> np.ndarray:
    """Return scores (Q, N) out of a file, samples and images in order of their ids.

    Args:
        path: A table of sample, image and score (parquet or CSV), or an array (Q, N) as
            .npy.
        num_samples: Q, the samples that were measured.
        example_ids: Ids of the training images, shape (N,), ascending.

    Raises:
        ValueError: If it is not that; the message says what was expected.
    """
    check_scores(path)
    shape = (num_samples, len(example_ids))
    try:
        if path.suffix.lower() == ".npy":
            values = np.load(path, allow_pickle=False)
        elif path.suffix.lower() == ".csv":
            values = _rows(pd.read_csv(path), path, num_samples, example_ids)
        else:
            with open(path, "rb") as file:
                table = pd.read_parquet(file)
            values = _rows(table, path, num_samples, example_ids)
    except Wrong as error:
        raise ValueError(str(error)) from None
    except DAMAGE as error:
        raise ValueError(
            f"'{path.name}' cannot be read. Write it again, as a plain "
            f"{path.suffix.lower()[1:]} file."
        ) from error
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"'{path.name}' holds {values.dtype} of shape {values.shape}. Expected: "
            f"numbers of shape {shape}, samples by training images."
        )
    if values.shape[1] != shape[1] or len(values) < shape[0]:
        raise ValueError(
            f"'{path.name}' has scores of {len(values)} samples and {values.shape[1]} "
            f"images. Expected: the {shape[0]} samples that were measured and all "
            f"{shape[1]:,} training images, in the order of their ids."
        )
    values = values[:num_samples].astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError(
            f"{(~np.isfinite(values)).sum():,} scores in '{path.name}' are not finite. "
            "Every image needs a number."
        )
    return values


class Wrong(Exception):
    """What is wrong with a table, in a sentence."""


def _rows(
    table: pd.DataFrame, path: Path, num_samples: int, example_ids: np.ndarray
) -> np.ndarray:
    """Return a table of sample, image and score as an array (Q, N)."""
    known = {name.lower(): name for name in map(str, table.columns)}
    columns = {}
    for column, names in NAMES.items():
        given = [known[name] for name in names if name in known]
        if not given:
            raise Wrong(
                f"'{path.name}' has no column {column}; it has "
                f"{', '.join(map(repr, known.values()))}. Expected: "
                f"{', '.join(NAMES)}."
            )
        columns[given[0]] = column
    table = table.rename(columns=columns)[list(NAMES)]
    table = table[table["sample_id"].isin(range(num_samples))]
    twice = table.duplicated(["sample_id", "example_id"])
    if twice.any():
        first = table[twice].iloc[0]
        raise Wrong(
            f"'{path.name}' scores image {first['example_id']} twice for sample "
            f"{first['sample_id']}. Expected: one score each."
        )
    wide = table.pivot(index="sample_id", columns="example_id", values="score")
    wide = wide.reindex(index=range(num_samples), columns=example_ids)
    missing = wide.isna().to_numpy()
    if missing.any():
        sample, place = np.argwhere(missing)[0]
        raise Wrong(
            f"'{path.name}' has no score of {missing.sum():,} pairs, such as sample "
            f"{sample} and image {example_ids[place]}. Expected: samples 0 to "
            f"{num_samples - 1}, each with all {len(example_ids):,} training images."
        )
    return wide.to_numpy()


def with_method(evidence: Evidence, name: str, scores: np.ndarray) -> Evidence:
    """Return evidence in which a method of that name has these scores, and no others.

    Args:
        evidence: The stored one.
        name: What to call the method.
        scores: Shape (Q, N); a larger one says that removing the image raises the cost.

    Raises:
        ValueError: If the name is that of a method here.
    """
    if name in METHODS or name == RANDOM or not name.strip():
        raise ValueError(
            f"A method cannot be called '{name}' here: that is one of ours. Give it "
            "another name with --name."
        )
    lens = default_lens(evidence, name, OWN)
    rows = [
        lens | {"sample_id": number, "source": BROUGHT, "scores": row, "mean": np.nan}
        for number, row in enumerate(scores)
    ]
    old = evidence.scores[evidence.scores["method"] != name]
    table = pd.concat([old, pd.DataFrame(rows)], ignore_index=True)
    return replace(evidence, scores=table.reindex(columns=evidence.scores.columns))


def without_method(evidence: Evidence, name: str) -> Evidence:
    """Return evidence without a method that was brought.

    Raises:
        LookupError: If none of that name was; the message lists those that were.
    """
    rows = evidence.scores
    mine = rows["source"] == BROUGHT
    if not (mine & (rows["method"] == name)).any():
        names = ", ".join(sorted(rows.loc[mine, "method"].unique())) or "none"
        raise LookupError(f"No scores were brought as '{name}'. Brought: {names}.")
    return replace(evidence, scores=rows[rows["method"] != name])


def brought(evidence: Evidence) -> pd.DataFrame:
    """Return the rows of scores that were brought."""
    return evidence.scores[evidence.scores["source"] == BROUGHT]


def benchmark(evidence: Evidence) -> pd.DataFrame:
    """Return all that others need to compare their scores with ours, as one table.

    Columns `EXPORTED`. `what` is "kept": `values` says of each image (N) whether random
    half `number` keeps it, 1 or 0; "measured": the cost of sample `number` by
    `measurement` in the model of every half (M), NaN where it was not trained with that
    `seed`; or "scores": those of method `name` for sample `number`, one an image (N),
    for that `measurement`.
    """
    rows = [
        ("kept", "", "", number, 0, kept.astype(float))
        for number, kept in enumerate(evidence.masks)
    ]
    halves = evidence.measured.query("kind == 'half' and low == -1")
    order = range(len(evidence.masks))
    for (measurement, seed), part in halves.groupby(["measurement", "seed"]):
        costs = part.pivot(index="sample_id", columns="subset", values="value")
        costs = costs.reindex(columns=order)
        for number, values in zip(costs.index, costs.to_numpy(), strict=True):
            rows.append(("measured", "", measurement, number, seed, values))
    for measurement in sorted(halves["measurement"].unique()):
        for method, _ in default_rows(evidence, measurement):
            for number, values in evidence.default_scores(method, measurement).items():
                values = np.asarray(values, dtype=float)
                rows.append(("scores", method, measurement, number, 0, values))
    return pd.DataFrame(rows, columns=list(EXPORTED))
