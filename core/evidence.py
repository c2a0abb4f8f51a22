"""The evidence beside a collection: what retrained models measured, and the tables.

A folder `NAME-evidence-FINGERPRINT` beside the collection file holds everything that a
table needs, so that anyone can make it again without training:

- `recipe.json`: settings, samples, draws, versions, seconds;
- `masks.parquet`: which pictures each random subset holds, packed bits;
- `measured.parquet`: costs of the samples in every retrained model;
- `scores.parquet`: scores of all pictures for the samples, a row per lens and sample.

Knows numpy and pandas; no model.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from core.config import CollectionConfig
from core.evaluation import (
    Calibration,
    calibrate,
    lds,
    mean_and_error,
    predicted_changes,
    subset_error,
)

# What names a column of scores besides the sample: the lens, and what else was varied.
LENS = ("method", "measurement", "low", "high", "damping", "num_draws", "variant")
FIGURES = ("lds", "standard_error", "subset_error", "num_samples", "num_subsets")
CEILING = "retraining"  # in place of a method: the same subsets, another seed
RANDOM = "random"  # in place of a method: scores, or a removal, that knows nothing
OWN = ""  # in place of a measurement: the method's own, or none
# A value without scores of its own is predicted by the scores for its bound.
PREDICTED_BY = {"log-probability": "elbo"}


@dataclass(frozen=True)
class Evidence:
    """What is stored about the trust in a collection's scores.

    Attributes:
        recipe: How it was made: plain values.
        masks: Which pictures each random subset holds, bool, shape (M, N).
        measured: Columns `kind` ("full", "half", "removed"), `subset`, `seed`,
            `sample_id`, `measurement`, `low`, `high`, `value` and `standard_error` (of
            the shared draws). `low` and `high` are a half-open range of timesteps, -1
            for all. A removal also has its `method`, `fraction` and the sample it is
            `about`.
        scores: Columns of `LENS`, `sample_id`, `source` and `scores` (N numbers). NaN
            as damping is the collection's own; `variant` is empty for the lens as
            the app asks it.
    """

    recipe: dict
    masks: np.ndarray
    measured: pd.DataFrame
    scores: pd.DataFrame

    def target(
        self, measurement: str, low: int = -1, high: int = -1, seed: int | None = None
    ) -> pd.DataFrame:
        """Return the measured costs, a row per sample and a column per subset.

        Args:
            measurement: What was measured.
            low: First timestep of the range; -1 for all.
            high: Its end; -1 for all.
            seed: Which seed's models; None for the mean over the seeds that every
                subset has.

        Raises:
            LookupError: If no retrained model was measured so.
        """
        rows = self.measured[
            (self.measured["kind"] == "half")
            & (self.measured["measurement"] == measurement)
            & (self.measured["low"] == low)
            & (self.measured["high"] == high)
        ]
        if seed is None:
            per_seed = rows.groupby("seed")["subset"].nunique()
            complete = per_seed.index[per_seed == per_seed.max()]
            rows = rows[rows["seed"].isin(complete)]
        else:
            rows = rows[rows["seed"] == seed]
        if rows.empty:
            known = ", ".join(sorted(self.measured["measurement"].unique()))
            raise LookupError(
                f"No retrained model was measured by '{measurement}'"
                f"{'' if low < 0 else f' at timesteps {low}:{high}'}. "
                f"Measured: {known or 'nothing yet'}."
            )
        return rows.pivot_table("value", "sample_id", "subset", "mean")

    def predicted(self, lens: dict, target: pd.DataFrame) -> np.ndarray | None:
        """Return predicted changes (Q, M) in the order of `target`, or None.

        Args:
            lens: A value for each column of `LENS`.
            target: Rows are samples, columns subsets.
        """
        rows = self.by_lens.get(_key(lens))
        if rows is None or not set(target.index) <= set(rows.index):
            return None
        scores = np.stack(list(rows.loc[target.index])).astype(np.float64)
        return predicted_changes(scores, self.masks[target.columns])

    def own_scores(self, method: str, measurement: str) -> pd.Series | None:
        """Return the scores (N,) by sample under a method as the app asks it."""
        for name, lens in default_rows(self, measurement):
            if name == method:
                return self.by_lens[_key(lens)]
        return None

    @cached_property
    def by_lens(self) -> dict[tuple, pd.Series]:
        """The scores (N,) by sample, of each lens."""
        groups = self.scores.groupby(list(LENS), dropna=False, sort=False)
        return {
            _key(dict(zip(LENS, values, strict=True))): part.set_index("sample_id")[
                "scores"
            ]
            for values, part in groups
        }

    def lenses(self) -> list[dict]:
        """Return every lens there are scores of, as stored, once."""
        return self.scores[list(LENS)].drop_duplicates().to_dict("records")


def evidence_folder(root: Path, config: CollectionConfig) -> Path:
    """Return where the evidence about a collection's model lies, beside its file."""
    fingerprint = config.fingerprint("data", "model", "train")
    return root / f"{config.name}-evidence-{fingerprint}"


def read_evidence(folder: Path) -> Evidence:
    """Return the evidence in a folder.

    Raises:
        LookupError: If there is none; the message says how to make it.
    """
    if not (folder / "recipe.json").exists():
        name = folder.name.split("-evidence-")[0]
        raise LookupError(
            f"Nothing was retrained to check '{name}' yet. Do it with `python -m "
            f"precompute retrain --collection {name}`, then `python -m precompute "
            f"evidence --collection {name}`."
        )
    recipe = json.loads((folder / "recipe.json").read_text())
    packed = pd.read_parquet(folder / "masks.parquet").sort_values("subset")["kept"]
    bits = np.stack([np.frombuffer(row, np.uint8) for row in packed])
    masks = np.unpackbits(bits, axis=1, count=recipe["num_examples"]).astype(bool)
    return Evidence(
        recipe,
        masks,
        pd.read_parquet(folder / "measured.parquet"),
        pd.read_parquet(folder / "scores.parquet"),
    )


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Write the evidence; the recipe comes last, so that it names whole files."""
    folder.mkdir(parents=True, exist_ok=True)
    packed = [np.packbits(mask).tobytes() for mask in evidence.masks]
    masks = pd.DataFrame({"subset": range(len(packed)), "kept": packed})
    for name, table in {
        "masks": masks,
        "measured": evidence.measured,
        "scores": evidence.scores,
    }.items():
        part = folder / f"{name}.parquet.part"
        table.to_parquet(part, index=False, compression="zstd")
        part.replace(folder / f"{name}.parquet")
    text = json.dumps(evidence.recipe, indent=1, sort_keys=True)
    part = folder / "recipe.json.part"
    part.write_text(text + "\n")
    part.replace(folder / "recipe.json")


def default_lens(evidence: Evidence, method: str, measurement: str) -> dict:
    """Return the lens of a method as the app asks it, a value per column of `LENS`."""
    return {
        "method": method,
        "measurement": measurement,
        "low": -1,
        "high": -1,
        "damping": float("nan"),
        "num_draws": evidence.recipe["num_draws"],
        "variant": "",
    }


def figures(predicted: np.ndarray, measured: np.ndarray) -> dict:
    """Return the LDS with both of its errors, and how much it rests on."""
    mean, error = mean_and_error(lds(predicted, measured))
    return {
        "lds": mean,
        "standard_error": error,
        "subset_error": subset_error(predicted, measured),
        "num_samples": len(measured),
        "num_subsets": measured.shape[1],
    }


def default_rows(evidence: Evidence, measurement: str) -> Iterator[tuple[str, dict]]:
    """Yield (method, lens) for each method as it would be asked about a measurement."""
    own = PREDICTED_BY.get(measurement, measurement)
    for method in evidence.scores["method"].unique():
        for scored in (own, OWN):
            lens = default_lens(evidence, method, scored)
            if _key(lens) in evidence.by_lens:
                yield method, lens
                break


def lds_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method: how well it ranks subsets by a measured cost (Eq. 13).

    `standard_error` is that of the mean over samples, as in the paper; `subset_error`
    is that of having few subsets; `scored` is the measurement that was scored, "own"
    for a method that knows only one. The last row, "retraining", is the ceiling:
    another seed's models on the same subsets as the prediction.
    """
    target = evidence.target(measurement)
    rows = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            scored = {"scored": lens["measurement"] or "own"}
            found = figures(predicted, target.to_numpy())
            rows.append({"method": method} | found | scored)
    rows.sort(key=lambda row: -row["lds"])
    held_out = ceiling(evidence, measurement)
    if held_out is not None:
        rows.append({"method": CEILING, "scored": measurement} | held_out)
    return pd.DataFrame(rows, columns=["method", *FIGURES, "scored"])


def ceiling(evidence: Evidence, measurement: str) -> dict | None:
    """Return the LDS of exact retraining with a held-out seed, or None without one.

    The last seed predicts the mean of the others, on the subsets that have all.
    """
    seeds = sorted(evidence.measured.query("kind == 'half'")["seed"].unique())
    if len(seeds) < 2:
        return None
    parts = [evidence.target(measurement, seed=seed) for seed in seeds]
    common = sorted(set.intersection(*(set(part.columns) for part in parts)))
    if len(common) < 3:
        return None
    values = [part[common].to_numpy() for part in parts]
    return figures(values[-1], np.mean(values[:-1], 0))


def damping_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method and damping; `default` marks the method's own.

    `relative` is the damping over the mean eigenvalue of what is inverted.
    """
    target, rows = evidence.target(measurement), []
    swept = evidence.scores[evidence.scores["damping"].notna()]["method"].unique()
    for lens in evidence.lenses():
        scored = lens["measurement"] and PREDICTED_BY.get(measurement, measurement)
        plain = default_lens(evidence, lens["method"], scored)
        if lens["method"] not in swept or not _same(lens, plain, "damping"):
            continue
        predicted = evidence.predicted(lens, target)
        if predicted is None:
            continue
        default = bool(np.isnan(lens["damping"]))
        known = evidence.recipe["dampings"][lens["method"]]
        damping = known["own"] if default else lens["damping"]
        facts = {
            "method": lens["method"],
            "damping": damping,
            "relative": damping / known["mean_eigenvalue"],
            "default": default,
        }
        rows.append(facts | figures(predicted, target.to_numpy()))
    columns = ["method", "damping", "relative", "default", *FIGURES]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["method", "damping"], ignore_index=True)


def ablation_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return what EK-FAC's LDS becomes when one thing about the question is changed.

    `changed` is "query draws", "scored" (another measurement's scores in its place) or
    a variant of the index; `setting` its value, `bytes` the size per training picture
    where that is what changed.
    """
    target, rows = evidence.target(measurement), []
    plain = default_lens(evidence, "ekfac", PREDICTED_BY.get(measurement, measurement))
    sizes = evidence.recipe.get("bytes_per_example", {})
    for lens in evidence.lenses():
        for column, changed in {
            "num_draws": "query draws",
            "measurement": "scored",
            "variant": "gradients",
        }.items():
            # Gradients that are kept otherwise were asked with more draws.
            free = ("variant", "num_draws") if lens["variant"] else (column,)
            if column not in free[:1] or not _same(lens, plain, *free):
                continue
            predicted = evidence.predicted(lens, target)
            if predicted is None:
                continue
            setting = lens[column] or "as asked"
            facts = {
                "changed": changed,
                "setting": setting,
                "default": lens[column] == plain[column],
                "bytes": sizes.get(setting, float("nan")),
            }
            rows.append(facts | figures(predicted, target.to_numpy()))
    columns = ["changed", "setting", "default", "bytes", *FIGURES]
    return pd.DataFrame(rows, columns=columns).sort_values(
        ["changed", "default", "lds"], ascending=[True, False, False], ignore_index=True
    )


def calibration(evidence: Evidence, method: str, measurement: str) -> Calibration:
    """Return the map from a method's predicted changes to measured ones.

    Raises:
        LookupError: If there are no scores of this method for this measurement.
    """
    target = evidence.target(measurement)
    for name, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target) if name == method else None
        if predicted is not None:
            return calibrate(predicted, target.to_numpy())
    raise LookupError(
        f"There are no scores of '{method}' for '{measurement}' to calibrate. Compute "
        "them with `python -m precompute evidence`."
    )


def calibration_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how well a monotone map of each method's scores predicts the change.

    `error` is the root mean square left on subsets that were held out, `spread` that of
    the changes themselves, `half_width` half of the interval that covers nine of ten.
    """
    columns = ["method", "error", "spread", "explained", "half_width", "knots"]
    rows = []
    for method, _ in default_rows(evidence, measurement):
        found = calibration(evidence, method, measurement)
        facts = {name: getattr(found, name) for name in columns[1:-1]}
        rows.append({"method": method} | facts | {"knots": len(found.knots)})
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("error", ignore_index=True)


def timestep_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return which timesteps' scores predict which timesteps' cost, by EK-FAC.

    A row per pair of bands; the band -1:-1 is the whole.
    """
    bands = evidence.measured[evidence.measured["measurement"] == measurement]
    bands = bands[["low", "high"]].drop_duplicates().sort_values(["low", "high"])
    plain = default_lens(evidence, "ekfac", measurement)
    rows = []
    for low, high in bands.itertuples(index=False):
        target = evidence.target(measurement, low, high)
        for lens in evidence.lenses():
            if _same(lens, plain, "low", "high"):
                predicted = evidence.predicted(lens, target)
                if predicted is not None:
                    scored = {"scored_low": lens["low"], "scored_high": lens["high"]}
                    measured = {"low": low, "high": high}
                    facts = figures(predicted, target.to_numpy())
                    rows.append(scored | measured | facts)
    columns = ["scored_low", "scored_high", "low", "high", *FIGURES]
    return pd.DataFrame(rows, columns=columns)


def changes_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return predicted and measured change of each sample in each retrained model.

    Measured is against the model that was trained on everything; predicted is relative
    to an average subset.
    """
    target = evidence.target(measurement)
    full = evidence.measured[
        (evidence.measured["kind"] == "full")
        & (evidence.measured["measurement"] == measurement)
        & (evidence.measured["low"] == -1)
    ].set_index("sample_id")["value"]
    measured = target.sub(full.loc[target.index], axis=0)
    parts = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            table = pd.DataFrame(predicted, target.index, target.columns)
            both = {"predicted": table.stack(), "measured": measured.stack()}
            parts.append(pd.DataFrame(both).reset_index().assign(method=method))
    columns = ["method", "sample_id", "subset", "predicted", "measured"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


def observations_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return what the paper observed, as found here: a figure per row, with its error.

    "share of rises": of the measured changes after half of the pictures were left out,
    how many are positive; its error is that over subsets.
    """
    target = evidence.target(measurement)
    full = evidence.measured.query(
        "kind == 'full' and measurement == @measurement and low == -1"
    ).set_index("sample_id")["value"]
    rise = target.sub(full.loc[target.index], axis=0) > 0
    mean, error = mean_and_error(rise.mean(axis=0).to_numpy())
    rows = [("share of rises", mean, error, target.shape[1])]
    for band in timestep_table(evidence, measurement).to_dict("records"):
        same = (band["scored_low"], band["scored_high"]) == (band["low"], band["high"])
        if same and band["low"] >= 0:
            name = f"timesteps {band['low']}:{band['high']} predict themselves"
            rows.append((name, band["lds"], band["subset_error"], band["num_subsets"]))
    columns = ["observation", "figure", "standard_error", "num_subsets"]
    return pd.DataFrame(rows, columns=columns)


def removal_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how each cost changed when what matters most for a sample was left out.

    A row per method, fraction and sample; sample -1 is the mean over samples. `change`
    is against the model without removal, `random` that of as many random pictures,
    `excess` the difference. The error of one sample is the spread over random removals,
    that of the mean the spread over samples.
    """
    removed = evidence.measured.query(
        "kind == 'removed' and measurement == @measurement and low == -1"
    )
    columns = ["method", "fraction", "sample_id", "change", "random", "excess"]
    columns += ["standard_error"]
    if removed.empty:
        return pd.DataFrame(columns=columns)
    before = removed[removed["method"] == "none"].set_index(["seed", "sample_id"])
    keys = pd.MultiIndex.from_frame(removed[["seed", "sample_id"]])
    change = removed["value"].to_numpy() - before["value"].reindex(keys).to_numpy()
    removed = removed.assign(change=change)
    chance = removed[removed["method"] == RANDOM].groupby(["fraction", "sample_id"])
    chance = chance["change"].agg(["mean", "std", "count"])
    about = removed[removed["about"] == removed["sample_id"]]
    about = about[~about["method"].isin([RANDOM, "none"])]
    rows = []
    for key, part in about.groupby(["method", "fraction", "sample_id"]):
        mean, spread, count = chance.loc[key[1:]]
        value = part["change"].mean()
        error = spread * (1 / len(part) + 1 / count) ** 0.5
        rows.append((*key, value, mean, value - mean, error))
    table = pd.DataFrame(rows, columns=columns)
    for key, part in table.groupby(["method", "fraction"]):
        excess = mean_and_error(part["excess"].to_numpy())
        means = part[["change", "random"]].mean()
        table.loc[len(table)] = (*key, -1, *means, *excess)
    return table.sort_values(["fraction", "method", "sample_id"], ignore_index=True)


TABLES: dict[str, Callable[[Evidence, str], pd.DataFrame]] = {
    "lds": lds_table,
    "damping": damping_table,
    "ablation": ablation_table,
    "calibration": calibration_table,
    "timesteps": timestep_table,
    "changes": changes_table,
    "removal": removal_table,
    "observations": observations_table,
}


def make_table(evidence: Evidence, table: str, measurement: str) -> pd.DataFrame:
    """Return a table by its name.

    Raises:
        LookupError: If there is no such table; the message lists those there are.
    """
    if table not in TABLES:
        raise LookupError(
            f"There is no table '{table}'. Choose one of {', '.join(TABLES)}."
        )
    return TABLES[table](evidence, measurement)


def _key(lens: dict, but: tuple[str, ...] = ()) -> tuple:
    """Return a lens's values without the named ones, equal for equal lenses."""
    return tuple(
        None if pd.isna(lens[name]) else lens[name] for name in LENS if name not in but
    )


def _same(lens: dict, other: dict, *but: str) -> bool:
    """Return whether two lenses agree in all columns but the named ones."""
    return _key(lens, but) == _key(other, but)
