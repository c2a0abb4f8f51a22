"""The evidence beside a collection: what retrained models measured, and the scores.

A folder `NAME-evidence-FINGERPRINT` beside the collection file holds everything that a
table needs, so that anyone can make it again without training:

- `recipe.json`: settings, samples, draws, versions, seconds; checksums of the tables
  and of itself;
- `masks.parquet`: which images each random subset holds, packed bits;
- `measured.parquet`: costs of the samples in every retrained model;
- `scores.parquet`: a row per lens and sample: scores of all images for the lenses as
  the app asks them, and for those that only differ in a setting what they predict for
  the subsets, which is a thirtieth of the room;
- `pictures.parquet`: samples that models without some images drew again;
- `groups.parquet`: what is predicted where a whole group was left out.

Knows numpy and pandas; no model.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from core.collection.schema import bytes_sha256, file_sha256
from core.config import CollectionConfig, config_from_dict
from core.evidence.evaluation import (
    lds,
    mean_and_error,
    predicted_changes,
    reachable,
    subset_error,
)
from core.files.table_files import DAMAGE
from core.files.whole import written_whole

# What names a column of scores besides the sample: the lens, and what else was varied.
LENS = ("method", "measurement", "low", "high", "damping", "num_draws", "variant")
FIGURES = ("lds", "standard_error", "subset_error", "num_samples", "num_subsets")
CEILING = "retraining"  # in place of a method: the same subsets, another seed
REACHABLE = "reachable"  # in place of a method: the best that any predictor could do
RANDOM = "random"  # in place of a method: scores, or a removal, that knows nothing
NOTHING = "none"  # in place of a method: the removal of no image
FEWEST = 3  # subsets that can be ranked at all
OWN = ""  # in place of a measurement: the method's own, or none
# What says which retrained model a row is about.
MODEL = ("kind", "subset", "seed", "method", "fraction", "about")
PICTURE_COLUMNS = (*MODEL, "sample_id", "pixels", "shape")
GROUP_COLUMNS = ("group", "sample_id", "share", "method", "measurement")
GROUP_COLUMNS += ("predicted", "standard_error")
# Columns of numbers that hardly repeat. Sorting their bytes by place saves a third.
NUMBERS = ("value", "standard_error", "predicted", "scores.list.element")
NUMBERS += ("predicted.list.element",)
UNREADABLE = (*DAMAGE, AttributeError)  # what reading damaged evidence may end in
TABLE_FILES = ("masks", "measured", "scores", "pictures", "groups")
# A value without scores of its own is predicted by the scores for its bound.
PREDICTED_BY = {"log-probability": "elbo"}


@dataclass(frozen=True)
class Evidence:
    """What is stored about the trust in a collection's scores.

    Attributes:
        recipe: How it was made: plain values.
        masks: Which images each random subset holds, bool, shape (M, N).
        measured: Columns of `MODEL`, `sample_id`, `measurement`, `low`, `high`, `value`
            and `standard_error` (of the shared draws). `kind` is "full", "half" (of
            the images, with number `subset` and `seed`), "removed" (by a `method`, a
            `fraction` of them, for the sample it is `about`) or "disjoint" (`fraction`
            of them, `subset` 0 or 1 of a pair that shares none). Without a whole group
            the kind is "removed" too, `method` names the group (`group_name`) and
            `about` is -1. `low` and `high` are a half-open range of timesteps, -1 for
            all.
        scores: Columns of `LENS`, `sample_id`, `source`, `scores` (N numbers) and
            `predicted` (M numbers), one of which is None. NaN as damping is the
            collection's own; `variant` is empty for the lens as the app asks it. `mean`
            is that of influences before they were centred, NaN or missing if unknown.
        images: `PICTURE_COLUMNS`: what models drew from the samples' seeds, `pixels`
            as uint8 in the order of `shape`, (C, H, W).
        groups: `GROUP_COLUMNS`: the change predicted for a sample by a lens as the app
            asks it, with its error, when a group is left out; `share` is how much of
            the sample's class is in the group, NaN for a sample of none.
    """

    recipe: dict
    masks: np.ndarray
    measured: pd.DataFrame
    scores: pd.DataFrame
    pictures: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=PICTURE_COLUMNS)
    )
    groups: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=GROUP_COLUMNS)
    )

    @cached_property
    def num_halves(self) -> int:
        """Return how many random subsets there are retrained models of."""
        return self.measured.query("kind == 'half'")["subset"].nunique()

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
            rows = rows[rows["seed"].isin(complete_seeds(rows))]
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
        rows = rows.loc[target.index]
        if rows["scores"].isna().any():
            predicted = np.stack(list(rows["predicted"]))
            return predicted[:, target.columns].astype(np.float64)
        scores = np.stack(list(rows["scores"])).astype(np.float64)
        return predicted_changes(scores, self.masks[target.columns])

    def uncentred(self, lens: dict, target: pd.DataFrame) -> np.ndarray | None:
        """Return what `predicted` does, from scores that were not centred, or None.

        Half of what centred scores predict are rises by construction. With their mean
        they predict whether a cost rises at all.
        """
        predicted, rows = self.predicted(lens, target), self.by_lens.get(_key(lens))
        if predicted is None or "mean" not in rows:
            return None
        means = rows.loc[target.index, "mean"].to_numpy(dtype=float)
        if not np.isfinite(means).all():
            return None
        removed = (~self.masks[target.columns]).mean(1)  # shares of the images
        return predicted + means[:, None] * removed

    def default_scores(self, method: str, measurement: str) -> pd.Series | None:
        """Return the scores (N,) by sample under a method as the app asks it."""
        for name, lens in default_rows(self, measurement):
            if name == method:
                return self.by_lens[_key(lens)]["scores"]
        return None

    @cached_property
    def by_lens(self) -> dict[tuple, pd.DataFrame]:
        """The `scores` and the `predicted` by sample, of each lens."""
        groups = self.scores.groupby(list(LENS), dropna=False, sort=False)
        known = [c for c in ("scores", "predicted", "mean") if c in self.scores]
        return {
            _key(dict(zip(LENS, values, strict=True))): rows.set_index("sample_id")[
                known
            ]
            for values, rows in groups
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
        ValueError: If it is damaged.
    """
    name = folder.name.split("-evidence-")[0]
    if not (folder / "recipe.json").exists():
        raise LookupError(
            f"Nothing was retrained to check '{name}' yet. Do it with `python -m "
            f"precompute retrain --collection {name}`, then `python -m precompute "
            f"evidence --collection {name}`."
        )
    reading, tables = "recipe.json", {}
    try:
        recipe, checksums = unsealed(json.loads((folder / reading).read_text()))
        for table in TABLE_FILES:
            reading = f"{table}.parquet"
            if checksums and file_sha256(folder / reading) != checksums[table]:
                raise ValueError(reading)
            with open(folder / reading, "rb") as file:
                # Evidence of before it had checksums has them in its pages, or none.
                tables[table] = pd.read_parquet(file, page_checksum_verification=True)
        reading = "masks.parquet"
        packed = tables.pop("masks").sort_values("subset")["kept"]
        bits = np.stack([np.frombuffer(row, np.uint8) for row in packed])
        masks = np.unpackbits(bits, axis=1, count=recipe["num_examples"]).astype(bool)
    except UNREADABLE as error:
        raise ValueError(
            f"'{reading}' of the evidence in '{folder.name}' is damaged. Put it "
            f"together again with `python -m precompute evidence --collection {name}`; "
            "nothing is trained again for it."
        ) from error
    return Evidence(recipe, masks, **tables)


def evidence_of(root: Path, config: CollectionConfig) -> Evidence:
    """Return the evidence about the scores of a collection.

    Args:
        root: The folder of its file.
        config: Its settings.

    Raises:
        ValueError: If what is there tested scores that were made with other settings.
            Missing or damaged evidence raises the errors of `read_evidence`.
    """
    evidence = read_evidence(evidence_folder(root, config))
    tested = config_from_dict(evidence.recipe["settings"])
    stages = ("curvature", "gradients", "samples")
    other = [name for name in stages if getattr(tested, name) != getattr(config, name)]
    if other:
        raise ValueError(
            f"The evidence beside '{config.name}' tested scores of another build: the "
            f"settings of {' and '.join(other)} differ. Test these with `python -m "
            f"precompute evidence --collection {config.name}`."
        )
    return evidence


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Write the evidence; the recipe comes last, so that it names whole files."""
    folder.mkdir(parents=True, exist_ok=True)
    packed = [np.packbits(mask).tobytes() for mask in evidence.masks]
    masks = pd.DataFrame({"subset": range(len(packed)), "kept": packed})
    for name, table in {
        "masks": masks,
        "measured": evidence.measured,
        "scores": evidence.scores,
        "pictures": evidence.pictures,
        "groups": evidence.groups,
    }.items():
        with written_whole(folder / f"{name}.parquet") as file:
            table.to_parquet(
                file,
                index=False,
                compression="zstd",
                compression_level=19,  # written once, shipped often
                write_page_checksum=True,
                use_byte_stream_split=list(NUMBERS),
                use_dictionary=[name for name in table if name not in NUMBERS],
            )
    files = {name: file_sha256(folder / f"{name}.parquet") for name in TABLE_FILES}
    text = json.dumps(sealed(evidence.recipe, files), indent=1, sort_keys=True)
    with written_whole(folder / "recipe.json") as file:
        file.write(f"{text}\n".encode())


def sealed(recipe: dict, files: dict[str, str]) -> dict:
    """Return a recipe with the checksums of its tables and of itself."""
    whole = json.loads(json.dumps(recipe | {"files": files}))  # as it will be read
    return whole | {"sha256": bytes_sha256(json.dumps(whole, sort_keys=True).encode())}


def unsealed(recipe: dict) -> tuple[dict, dict[str, str]]:
    """Return the recipe and the checksums of its tables, none where it is older.

    Raises:
        ValueError: If it is not what `sealed` returned.
    """
    if not {"files", "sha256"} & set(recipe):
        return recipe, {}
    plain = {k: v for k, v in recipe.items() if k not in ("files", "sha256")}
    if sealed(plain, recipe["files"])["sha256"] != recipe["sha256"]:
        raise ValueError("the recipe is not as it was written")
    return plain, recipe["files"]


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
    predicting = PREDICTED_BY.get(measurement, measurement)
    for method in evidence.scores["method"].unique():
        for scored in (predicting, OWN):
            lens = default_lens(evidence, method, scored)
            if _key(lens) in evidence.by_lens:
                yield method, lens
                break


def ceiling(evidence: Evidence, measurement: str) -> dict | None:
    """Return the LDS of exact retraining with a held-out seed, or None without one.

    The second seed predicts the first, on the subsets that have both. Seeds that too
    few subsets have yet do not count.
    """
    halves = evidence.measured.query("kind == 'half'")
    per_seed = halves.groupby("seed")["subset"].nunique()
    seeds = sorted(per_seed.index[per_seed >= FEWEST])
    if len(seeds) < 2:
        return None
    targets = [evidence.target(measurement, seed=seed) for seed in seeds]
    common = sorted(set.intersection(*(set(target.columns) for target in targets)))
    if len(common) < FEWEST:
        return None
    values = [target[common].to_numpy() for target in targets]
    return figures(values[1], values[0])


def num_target_seeds(evidence: Evidence, measurement: str) -> int:
    """Return over how many seeds `Evidence.target` is the mean, of all timesteps."""
    rows = evidence.measured.query("kind == 'half' and measurement == @measurement")
    return len(complete_seeds(rows[rows["low"] == -1]))


def complete_seeds(rows: pd.DataFrame) -> pd.Index:
    """Return the seeds that no other has more subsets than."""
    per_seed = rows.groupby("seed")["subset"].nunique()
    return per_seed.index[per_seed == per_seed.max()]


def reachable_figures(evidence: Evidence, measurement: str) -> dict | None:
    """Return the most that a predictor can reach with both errors, or None."""
    one = ceiling(evidence, measurement)
    if one is None:
        return None
    seeds = num_target_seeds(evidence, measurement)
    pairs = {
        name: reachable(one["lds"], one[name], seeds)
        for name in ("standard_error", "subset_error")
    }
    errors = {name: error for name, (_, error) in pairs.items()}
    return one | errors | {"lds": pairs["subset_error"][0]}


def _key(lens: dict, but: tuple[str, ...] = ()) -> tuple:
    """Return a lens's values without the named ones, equal for equal lenses."""
    return tuple(
        None if pd.isna(lens[name]) else lens[name] for name in LENS if name not in but
    )


def same_lens(lens: dict, other: dict, *but: str) -> bool:
    """Return whether two lenses agree in all columns but the named ones."""
    return _key(lens, but) == _key(other, but)
