"""Scores of the full model whose retrained ones share all of its draws.

It has the shipped model's recipe and weights of its own: with `train.common_draws` it
saw other noise in another order. What leaving images out of *this* model does is
predicted by the gradients and the curvature of *this* model. So a collection of it is
built in the folder of its retrained models, the shipped model's samples are asked about
there as images that it did not draw, and what the scores predict of every removal is
kept beside the evidence.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from core.config import CollectionConfig
from core.evidence.evaluation import predicted_changes
from core.evidence.same_seed import SAME_SEED, SCORE_FILE, read_masks
from core.evidence.stored import evidence_folder
from core.explorer.explorer import (
    Explorer,
    Query,
    list_collections,
    open_explorer,
)
from core.files.table_files import write_table
from core.lenses import Lens
from core.methods import METHODS, parts
from precompute.machinery.config import MeasureConfig, SameSeedConfig
from precompute.machinery.workspace import open_workspace, write_atomically
from precompute.retraining.asked import Asked, asked_lenses, dampings
from precompute.retraining.jobs import retrain_folder
from precompute.retraining.ready import Gallery, open_gallery
from precompute.retraining.same_seed import common_config, same_seed_jobs
from precompute.retraining.scores import by_sample, raw_mean
from precompute.retraining.strength import USUAL, feature_rows
from precompute.stages.methods import compute_methods
from precompute.stages.publish import publish
from precompute.stages.stages import compute

COLUMNS = ("method", "measurement", "damping", "relative_damping", "sample_id", "mean")
COLUMNS += ("predicted",)
OWN_SAMPLES = 8


@dataclass(frozen=True)
class OwnModel:
    """The full model of seed 0, as a collection in a folder of its own."""

    config: CollectionConfig
    folder: Path

    @property
    def root(self) -> Path:
        """Folder of its collection."""
        return self.folder / "collections"

    @property
    def work(self) -> Path:
        """Folder of its unfinished work."""
        return self.folder / "work"


def score_own_model(
    config: CollectionConfig, root: Path, work: Path | None, device: str
) -> Path:
    """Store how the full model of the same seed scores the samples.

    A model that is not trained yet raises the LookupError of `built`.

    Args:
        config: The shipped model's settings.
        root: Folder of the published collections.
        work: Folder of unfinished work; None for `data/work`.
        device: Where to compute.

    Returns:
        The file of scores.
    """
    results = evidence_folder(root, config) / SAME_SEED
    gallery = open_gallery(config, work, device)
    own = built(config, work, len(gallery.dataset), device)
    explorer = open_explorer(config.name, own.root)
    kept = np.stack(list(read_masks(results)["kept"]))[:, : len(gallery.dataset)]
    settings = gallery.at_most(MeasureConfig())
    usual, lenses = Lens().num_draws, []
    for one in asked_lenses(explorer):
        steps = METHODS[one.lens.method].reads == "steps"  # it did not draw the sample
        if not steps and not one.variant and one.lens.num_draws == usual:
            lenses.append(one)
    key = json.dumps([one.record() for one in lenses]) + explorer.fingerprint
    queries = [foreign_query(explorer, gallery, i) for i in range(settings.num_samples)]

    def predicted(sample_id: int) -> pd.DataFrame:
        rows = predicted_rows(explorer, queries[sample_id], lenses, kept)
        return rows.assign(sample_id=sample_id)[list(COLUMNS)]

    one_by_one = by_sample(predicted, "predicted", key, settings, own.folder)
    together = from_features(explorer, queries, kept)
    tables = [one_by_one, together]
    write_table(results / SCORE_FILE, pd.concat(tables, ignore_index=True))
    return results / SCORE_FILE


def built(
    config: CollectionConfig, work: Path | None, num_examples: int, device: str
) -> OwnModel:
    """Return the collection of the full model of seed 0, making what is missing.

    Raises:
        LookupError: If that model is not trained yet.
    """
    common = common_config(config)
    folder = retrain_folder(common, work)
    job = same_seed_jobs(common, SameSeedConfig(), num_examples, folder)[0]
    if not job.path.exists():
        raise LookupError(
            f"The full model that shares all draws is not trained yet. Run `python -m "
            f"precompute retrain --collection {config.name} --same-seed` first."
        )
    # Nobody asks about what it draws itself, so a few samples do.
    few = replace(common.samples, num_samples=OWN_SAMPLES)
    common = replace(common, samples=few)
    own = OwnModel(common, folder / job.path.stem)
    own.root.mkdir(parents=True, exist_ok=True)
    path = open_workspace(common, own.work).path("train", "denoiser.safetensors")
    if not path.exists():
        write_atomically(path, job.path.read_bytes())
    if config.name not in list_collections(own.root):
        publish(common, own.root, compute(common, own.root, own.work, device))
    compute_methods(own.root, common.name, own.work, device, parts())
    return own


def foreign_query(explorer: Explorer, gallery: Gallery, sample_id: int) -> Query:
    """Return a sample of the shipped model as an image that another did not draw."""
    samples = gallery.samples
    conditional = explorer.gallery["label"].notna().any()
    label = int(samples["labels"][sample_id]) if conditional else None
    return Query(
        "upload",
        f"foreign-{sample_id}",
        samples["pixels"][sample_id].numpy(),
        samples["x_0"][sample_id].numpy(),
        label,
        f"Sample {sample_id} of the shipped model",
        {},
    )


def predicted_rows(
    explorer: Explorer, query: Query, lenses: list[Asked], kept: np.ndarray
) -> pd.DataFrame:
    """Return what each lens predicts of each removal, a row per lens.

    Args:
        explorer: Of the model that is asked.
        query: The sample.
        lenses: As the app asks, and other dampings.
        kept: What each removal keeps, bool, shape (M, N).
    """
    means = {
        method: dampings(explorer, method)["mean_eigenvalue"]
        for method in {one.lens.method for one in lenses if one.lens.damping}
    }
    rows = []
    for one in lenses:
        scores = explorer.answer(query, one.lens).scores
        record, damping = one.record(), one.lens.damping
        row = {name: record[name] for name in ("method", "measurement", "damping")}
        row["relative_damping"] = (
            damping / means[one.lens.method] if damping else np.nan
        )
        row["mean"] = raw_mean(explorer, query, one.lens)
        change = predicted_changes(scores[None], kept)[0]
        rows.append(row | {"predicted": change.astype(np.float32)})
    return pd.DataFrame(rows)


def from_features(
    explorer: Explorer, queries: list[Query], kept: np.ndarray
) -> pd.DataFrame:
    """Return the same of methods that read features, at every other damping."""
    table, known = feature_rows(explorer, queries)
    table = table[table["variant"] == USUAL]
    if table.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    means = table["method"].map(lambda name: known[name][USUAL]["mean_eigenvalue"])
    changes = predicted_changes(np.stack(list(table["scores"])).astype(float), kept)
    table = table.assign(
        relative_damping=table["damping"] / means,
        predicted=list(changes.astype(np.float32)),
    )
    return table[list(COLUMNS)]
