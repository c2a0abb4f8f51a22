"""What models that share everything but the images measured, and how far seeds agree.

Each model of the truth with the same seeds left a table beside the evidence; a part of
them is as good as all. Fresh seeds ask what a model of this recipe would measure, the
same seed what this exact model would. Knows numpy and pandas; no model.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from core.evidence.evaluation import lds, mean_and_error, subset_error
from core.evidence.stored import FEWEST
from core.files.table_files import read_table
from core.files.whole import Damaged

SAME_SEED = "same-seed"  # kind of these models, and the folder of their tables
FRESH = "fresh seeds"  # the random halves of the evidence, for comparison
COLUMNS = ("removed", "models", "change", "subsets", "agreement", "standard_error")
COLUMNS += ("subset_error",)


def read_same_seed(folder: Path) -> pd.DataFrame:
    """Return what these models measured, as `Evidence.measured` is.

    Args:
        folder: Of the evidence.

    Raises:
        LookupError: If there is none; the message says how to make it.
        ValueError: If a table is damaged.
    """
    paths = sorted((folder / SAME_SEED).glob("*-[0-9].parquet"))
    if not paths:
        name = folder.name.split("-evidence-")[0]
        raise LookupError(
            f"No models of '{name}' that share all draws were trained yet. Train them "
            f"with `python -m precompute retrain --collection {name} --same-seed`."
        )
    tables = []
    for path in paths:
        try:
            tables.append(read_table(path))
        except Damaged as error:
            raise ValueError(
                f"'{path.name}' in '{folder.name}/{SAME_SEED}' is damaged. Remove it "
                "and run `retrain --same-seed` again."
            ) from error
    return pd.concat(tables, ignore_index=True)


def costs(rows: pd.DataFrame, measurement: str) -> pd.DataFrame:
    """Return the costs over all timesteps, a row per sample and a column per subset."""
    rows = rows[(rows["measurement"] == measurement) & (rows["low"] < 0)]
    return rows.pivot_table("value", "sample_id", "subset")


def changes(
    measured: pd.DataFrame, measurement: str, fraction: float, seed: int
) -> pd.DataFrame:
    """Return the measured changes against the full model of the same seed, (Q, M)."""
    own = measured[measured["seed"] == seed]
    full = costs(own[own["subset"] < 0], measurement)
    part = costs(own[(own["fraction"] == fraction) & (own["subset"] >= 0)], measurement)
    if full.empty:
        return part.iloc[:, :0]
    return part.sub(full.iloc[:, 0], axis=0)


def agreement(first: pd.DataFrame, second: pd.DataFrame) -> dict:
    """Return how alike two seeds rank the subsets that both have, with errors.

    The Spearman correlation over subsets, the mean over samples: what is called LDS,
    with one seed in place of a prediction.
    """
    common = sorted(set(first.columns) & set(second.columns))
    row = {"subsets": len(common), "agreement": np.nan}
    row |= {"standard_error": np.nan, "subset_error": np.nan}
    if len(common) < FEWEST:
        return row
    pair = first[common].to_numpy(), second[common].to_numpy()
    mean, error = mean_and_error(lds(*pair))
    row |= {"agreement": mean, "standard_error": error}
    if len(common) > FEWEST:  # without one of them there are still enough
        row["subset_error"] = subset_error(*pair)
    return row


def same_seed_table(
    measured: pd.DataFrame, fresh: pd.DataFrame, measurement: str
) -> pd.DataFrame:
    """Return a row per share removed: how large changes are, how far two seeds agree.

    Args:
        measured: As `read_same_seed` returns it.
        fresh: `Evidence.measured`, for the last row: random halves, a seed each.
        measurement: What was measured.

    Returns:
        The columns `COLUMNS`: `change` is the root mean square of the change over
        samples and subsets, relative to the sample's cost in the full model.

    Raises:
        LookupError: If no model was measured so.
    """
    known = sorted(set(measured["measurement"]))
    if measurement not in known:
        raise LookupError(
            f"No model was measured by '{measurement}'. Measured: {', '.join(known)}."
        )
    shares = sorted(set(measured["fraction"]) - {0.0})
    seeds = sorted(set(measured["seed"]))
    full = costs(measured[measured["subset"] < 0].query("seed == 0"), measurement)
    rows = []
    for share in shares:
        parts = [changes(measured, measurement, share, seed) for seed in seeds]
        relative = parts[0].div(full.iloc[:, 0], axis=0).to_numpy()
        row = {
            "removed": f"{share:.0%}",
            "models": sum(part.shape[1] for part in parts),
        }
        row["change"] = (
            float(np.sqrt(np.mean(relative**2))) if relative.size else np.nan
        )
        other = parts[1] if len(parts) > 1 else parts[0].iloc[:, :0]
        rows.append(row | agreement(parts[0], other))
    halves = fresh[fresh["kind"] == "half"]
    one, two = (costs(halves[halves["seed"] == seed], measurement) for seed in (0, 1))
    row = {"removed": FRESH, "models": one.shape[1] + two.shape[1], "change": np.nan}
    rows.append(row | agreement(one, two))
    return pd.DataFrame(rows, columns=list(COLUMNS))
