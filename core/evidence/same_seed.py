"""How well do scores predict models that share everything but the images?

Two ground truths answer two questions. With fresh seeds a model without some images
also has other initial weights, order and noise: what would a model of this recipe do?
With the same seed only the images differ: what would this exact model do? Each model of
the second truth left a table beside the evidence; a part of them is as good as all.
Knows numpy and pandas; no model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from core.evidence.evaluation import (
    lds,
    predicted_changes,
    size_of_changes,
    slope_error,
)
from core.evidence.stored import (
    CEILING,
    FEWEST,
    OWN,
    PREDICTED_BY,
    Evidence,
    default_rows,
    figures,
)
from core.files.table_files import read_table
from core.files.whole import Damaged

SAME_SEED = "same-seed"  # kind of these models, and the folder of their tables
SAME, FRESH = "same seed", "fresh seeds"  # the two truths
OWN_MODEL, SHIPPED = "its full model", "shipped model"  # whose scores predict
SCORE_FILE = "scores.parquet"
MASK_FILE = "masks.parquet"
UNROLLED_FILE = "unrolled.parquet"
UNROLLED = "unrolled"  # method: the derivative of the training itself
COLUMNS = ("truth", "removed", "method", "scores", "relative_damping", "default")
COLUMNS += ("lds", "standard_error", "subset_error", "slope", "slope_error")
COLUMNS += ("first_half", "second_half", "subsets", "change")
QUESTIONS = (
    "'same seed' asks what this exact model would do without some images: models share "
    "initial weights, order and noise with the full one. 'fresh seeds' asks what a "
    "model of this recipe would do: each has a seed of its own, and most of what it "
    "measures is that seed."
)


@dataclass(frozen=True)
class SameSeed:
    """What the models that share all draws measured.

    Attributes:
        measured: As `Evidence.measured`; `fraction` of the images is left out, `subset`
            is -1 in the full model of a seed.
        masks: Columns `fraction`, `subset` and `kept`, a bool array (N,).
        scores: What the scores of the full model of seed 0 predict: columns `method`,
            `measurement`, `damping` and `relative_damping` (NaN: the method's own),
            `sample_id`, `mean` (of the scores before they are centred) and `predicted`,
            a change for each row of `masks`. None where they were not computed.
    """

    measured: pd.DataFrame
    masks: pd.DataFrame
    scores: pd.DataFrame | None = None

    def changes(self, measurement: str, fraction: float, seed: int) -> pd.DataFrame:
        """Return measured changes against the full model of the same seed, (Q, M)."""
        rows = self.measured[self.measured["seed"] == seed]
        full = costs(rows[rows["subset"] < 0], measurement)
        removed = (rows["fraction"] == fraction) & (rows["subset"] >= 0)
        part = costs(rows[removed], measurement)
        if full.empty or part.empty:
            return part.iloc[:, :0]
        return part.sub(full.iloc[:, 0], axis=0)

    def lenses(self, measurement: str) -> Iterator[tuple[dict, pd.DataFrame]]:
        """Yield facts and rows of each lens of the full model's scores."""
        if self.scores is None:
            return
        wanted = (PREDICTED_BY.get(measurement, measurement), OWN)
        rows = self.scores[self.scores["measurement"].isin(wanted)]
        key = ["method", "damping"]
        for (method, damping), part in rows.groupby(key, sort=False, dropna=False):
            relative = float(part["relative_damping"].iloc[0])
            facts = {"method": method, "relative_damping": relative}
            yield facts | {"default": bool(np.isnan(damping))}, part

    def predicted(self, rows: pd.DataFrame, change: pd.DataFrame, fraction: float):
        """Return the predicted change (Q, M) in the order of a measured one."""
        by_sample = rows.set_index("sample_id")["predicted"].loc[change.index]
        values = np.stack(list(by_sample)).astype(np.float64)
        return values[:, self.places(fraction, change.columns)]

    def places(self, fraction: float, subsets) -> list[int]:
        """Return which rows of `masks` hold some subsets of a size, in that order."""
        index = pd.MultiIndex.from_frame(self.masks[["fraction", "subset"]])
        return index.get_indexer([(fraction, subset) for subset in subsets]).tolist()


def read_same_seed(folder: Path) -> SameSeed:
    """Return what these models measured.

    Args:
        folder: Of the evidence.

    Raises:
        LookupError: If there is none; the message says how to make it. A damaged table
            raises a ValueError.
    """
    own = folder / SAME_SEED
    paths = sorted(own.glob("*-[0-9].parquet"))
    if not paths:
        name = folder.name.split("-evidence-")[0]
        raise LookupError(
            f"No models of '{name}' that share all draws were trained yet. Train them "
            f"with `python -m precompute retrain --collection {name} --same-seed`."
        )
    measured = pd.concat([_read(path) for path in paths], ignore_index=True)
    path, masks = own / SCORE_FILE, read_masks(own)
    scores = _read(path) if path.exists() else None
    path = own / UNROLLED_FILE
    if path.exists():
        unrolled = unrolled_rows(_read(path), masks)
        scores = unrolled if scores is None else pd.concat([scores, unrolled])
    return SameSeed(measured, masks, scores)


def unrolled_rows(exact: pd.DataFrame, masks: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `SameSeed.scores` for the derivatives of the training itself."""
    rows = np.stack(list(exact["scores"])).astype(np.float64)
    kept = np.stack(list(masks["kept"]))[:, : rows.shape[1]]
    changes = predicted_changes(rows, kept).astype(np.float32)
    facts = {"method": UNROLLED, "damping": np.nan, "relative_damping": np.nan}
    kept = exact[["measurement", "sample_id", "mean"]]
    return kept.assign(**facts, predicted=list(changes))


def read_masks(own: Path) -> pd.DataFrame:
    """Return `SameSeed.masks` of the folder of its tables; up to 7 more bits a row."""
    masks = _read(own / MASK_FILE)
    bits = [np.unpackbits(np.frombuffer(row, np.uint8)) for row in masks["kept"]]
    return masks.assign(kept=[row.astype(bool) for row in bits])


def _read(path: Path) -> pd.DataFrame:
    try:
        return read_table(path)
    except Damaged as error:
        raise ValueError(
            f"'{path.name}' in '{path.parent.parent.name}/{SAME_SEED}' is damaged. "
            "Remove it and run `retrain --same-seed` again."
        ) from error


def costs(rows: pd.DataFrame, measurement: str) -> pd.DataFrame:
    """Return the costs over all timesteps, a row per sample and a column per subset."""
    rows = rows[(rows["measurement"] == measurement) & (rows["low"] < 0)]
    return rows.pivot_table("value", "sample_id", "subset")


def compared(predicted: np.ndarray, measured: np.ndarray) -> dict:
    """Return LDS and slope with their errors, and the LDS on two sets of subsets.

    Args:
        predicted: Changes, shape (Q, M).
        measured: The same, by retraining.
    """
    count = measured.shape[1]
    row = {name: np.nan for name in COLUMNS[6:-2]} | {"subsets": count}
    if count < FEWEST:
        return row
    found = figures(predicted, measured)
    row |= {name: found[name] for name in ("lds", "standard_error", "subset_error")}
    row["slope"] = size_of_changes(predicted, measured)
    row["slope_error"] = slope_error(predicted, measured)
    half = count // 2
    if half >= FEWEST:
        for name, part in (
            ("first_half", slice(0, half)),
            ("second_half", slice(half, None)),
        ):
            row[name] = float(np.mean(lds(predicted[:, part], measured[:, part])))
    return row


def same_seed_table(
    truth: SameSeed, evidence: Evidence, measurement: str
) -> pd.DataFrame:
    """Return LDS and slope of every method on both truths, by share removed.

    A row per truth, share removed, method and damping. `scores` says whose scores
    predict: those of the full model that the retrained ones share all draws with, or
    those of the shipped one, which has weights of its own. `slope` is how many times a
    predicted change was measured. `first_half` and `second_half` are the LDS on two
    different sets of the subsets. The method "retraining" is one more model, with
    another seed, as the prediction. `change` is the root mean square of the measured
    change, relative to the sample's cost in the full model.

    Args:
        truth: What the models measured, and what is predicted of them.
        evidence: Of the shipped model.
        measurement: What was measured.

    Raises:
        LookupError: If no model was measured so.
    """
    known = sorted(set(truth.measured["measurement"]))
    if measurement not in known:
        raise LookupError(
            f"No model was measured by '{measurement}'. Measured: {', '.join(known)}."
        )
    rows = []
    full = truth.measured[truth.measured["subset"] < 0]
    full = costs(full[full["seed"] == 0], measurement)
    for fraction in sorted(set(truth.measured["fraction"]) - {0.0}):
        change = truth.changes(measurement, fraction, 0)
        if change.empty:
            continue
        relative = change.div(full.iloc[:, 0], axis=0).to_numpy()
        size = {"change": float(np.sqrt(np.mean(relative**2)))}
        for facts, found in _same_rows(truth, evidence, measurement, fraction, change):
            named = {"truth": SAME, "removed": f"{fraction:.0%}"}
            rows.append(named | facts | found | size)
    rows += list(_fresh_rows(evidence, measurement))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"default": bool})


def _same_rows(truth, evidence, measurement, fraction, change) -> Iterator[tuple]:
    """Yield facts and figures of every prediction of the models of one size."""
    measured = change.to_numpy()
    for facts, part in truth.lenses(measurement):
        predicted = truth.predicted(part, change, fraction)
        yield facts | {"scores": OWN_MODEL}, compared(predicted, measured)
    kept = truth.masks["kept"].iloc[truth.places(fraction, change.columns)]
    masks = np.stack(list(kept))[:, : evidence.masks.shape[1]]
    for method, _ in default_rows(evidence, measurement):
        scores = evidence.default_scores(method, measurement).loc[change.index]
        predicted = predicted_changes(np.stack(list(scores)).astype(float), masks)
        facts = {"method": method, "scores": SHIPPED, "default": True}
        yield facts, compared(predicted, measured)
    for seed in sorted(set(truth.measured["seed"]) - {0}):
        other = truth.changes(measurement, fraction, seed)
        common = sorted(set(change.columns) & set(other.columns))
        pair = (other[common].to_numpy(), change[common].to_numpy())
        facts = {"method": CEILING, "scores": f"seed {seed}", "default": True}
        yield facts, compared(*pair)


def _fresh_rows(evidence: Evidence, measurement: str) -> Iterator[dict]:
    """Yield the rows of the random halves that have a seed each."""
    target = evidence.target(measurement)
    fresh = {"truth": FRESH, "removed": "50%", "default": True, "change": np.nan}
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            facts = {"method": method, "scores": SHIPPED}
            yield fresh | facts | compared(predicted, target.to_numpy())
    halves = evidence.measured[evidence.measured["kind"] == "half"]
    one, two = (costs(halves[halves["seed"] == seed], measurement) for seed in (0, 1))
    common = sorted(set(one.columns) & set(two.columns))
    if common:
        facts = {"method": CEILING, "scores": "seed 1"}
        yield fresh | facts | compared(two[common].to_numpy(), one[common].to_numpy())
