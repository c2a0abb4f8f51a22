"""Measure the retrained models, score the same samples, and store both as evidence.

Every retrained model measures the gallery's first samples with the same draws, so that
the costs of two models differ by the models alone. Scores come from `Explorer.answer`,
the code that answers in the app. A finished model or lens is never computed again.
"""

from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from core.checks import check_fields
from core.config import CollectionConfig, RetrainConfig, config_from_dict
from core.evidence.brought import BROUGHT, brought
from core.evidence.evaluation import predicted_changes
from core.evidence.left_out import groups_left_out
from core.evidence.stored import (
    LENS,
    Evidence,
    evidence_folder,
    read_evidence,
    write_evidence,
)
from core.explorer.explorer import Explorer, open_explorer
from core.lenses import Lens
from core.measure.draws import subset_masks
from core.methods import METHODS
from precompute.machinery.config import MEASURE_RULES, MeasureConfig
from precompute.retraining.ablations import gradient_bytes, gradient_variants
from precompute.retraining.asked import dampings, default_form
from precompute.retraining.jobs import retrain_folder
from precompute.retraining.measure import PACKAGES, gallery_fingerprint, measure_models
from precompute.retraining.ready import Gallery, check_evidence, open_gallery
from precompute.retraining.scores import (
    group_predictions,
    score_samples,
    variant_table,
)
from precompute.retraining.strength import feature_rows


def lean(scores: pd.DataFrame, masks: np.ndarray, num_draws: int) -> pd.DataFrame:
    """Return the scores with only as much kept as the tables and the app need.

    The scores of a lens as the app asks it are rounded to eleven bits, far below their
    errors, so that the file compresses. Of all other lenses, which ask about a part or
    vary a setting, `predicted` keeps what they say of each subset.
    """
    as_in_app = (
        scores["damping"].isna() & (scores["low"] < 0) & (scores["variant"] == "")
    )
    as_in_app &= scores["num_draws"] == num_draws
    kept, predicted = [], []
    for values, plain in zip(scores["scores"], as_in_app, strict=True):
        values = np.asarray(values, np.float32)
        if plain:
            bits = values.view(np.int32).astype(np.int64) + (1 << 11)
            kept.append((bits & -(1 << 12)).astype(np.int32).view(np.float32))
            predicted.append(None)
        else:
            change = predicted_changes(values.astype(np.float64), masks)
            kept.append(None)
            predicted.append(change.astype(np.float32))
    return scores.assign(scores=kept, predicted=predicted)


def assemble(
    config: CollectionConfig,
    settings: MeasureConfig,
    explorer: Explorer,
    tables: tuple[pd.DataFrame, ...],
    features: dict,
    masks: np.ndarray | None = None,
) -> Evidence:
    """Return the evidence, with the recipe that made it.

    Args:
        config: The full model's settings.
        settings: What was measured.
        explorer: The collection.
        tables: The evidence's `measured`, `scores`, `images` and `groups`.
        features: How strong each method is that reads features, as `feature_rows`.
        masks: Of the random halves, where they are not those of our own jobs alone.
    """
    (measured, scores, *others), share = tables, RetrainConfig.share
    halves = measured[measured["kind"] == "half"]
    num_subsets = count_subsets(measured)
    seeds = int(halves["seed"].nunique())  # of some of the halves, perhaps
    recipe = {
        "settings": config.to_dict(),
        "retrain": {"num_subsets": num_subsets, "num_seeds": seeds, "share": share},
        "measure": asdict(settings),
        "num_examples": explorer.num_examples,
        "num_draws": Lens().num_draws,
        "form": default_form(explorer),
        "dampings": {
            method: dampings(explorer, method)
            for method, facts in METHODS.items()
            if facts.damped and method in set(scores["method"])
        },
        "features": features,
        "bytes_per_example": gradient_bytes(explorer),
        "collection": explorer.fingerprint,
        "versions": {name: version(name) for name in PACKAGES},
    }
    if masks is None or not len(masks):
        masks = subset_masks(
            explorer.num_examples, max(num_subsets, 1), config.seed, share
        )
    scores = lean(scores, masks, recipe["num_draws"])
    return Evidence(recipe, masks, measured, scores, *others)


def count_subsets(measured: pd.DataFrame) -> int:
    """Return how many random halves there are in measured costs."""
    halves = measured[measured["kind"] == "half"]
    return 0 if halves.empty else int(halves["subset"].max()) + 1


def own_masks(
    config: CollectionConfig, measured: pd.DataFrame, num_examples: int
) -> np.ndarray:
    """Return which images our own random halves keep, (M, N), bool."""
    count = count_subsets(measured)
    return subset_masks(num_examples, max(count, 1), config.seed, RetrainConfig.share)[
        :count
    ]


def check_samples(explorer: Explorer, samples: dict[str, torch.Tensor]) -> None:
    """Refuse a collection whose gallery is not what was measured.

    Raises:
        ValueError: If the images differ.
    """
    for sample_id, x_0 in enumerate(samples["x_0"].numpy()):
        query = explorer.query_from_gallery(sample_id)
        if not np.allclose(explorer.engine.x_0(query), x_0, atol=1e-3):
            raise ValueError(
                f"Sample {sample_id} of the collection '{explorer.name}' is not the "
                "image that the retrained models measured. Build the collection "
                "with the same --work folder."
            )


def all_scores(
    explorer: Explorer, settings: MeasureConfig, gallery: Gallery, folder: Path
) -> tuple[pd.DataFrame, dict]:
    """Return the scores of the samples under every lens and every variant.

    And how strong each file of features is that gave some, as `feature_rows`.
    """
    queries = [explorer.query_from_gallery(i) for i in range(settings.num_samples)]
    rows, features = feature_rows(explorer, queries)
    tables = [score_samples(explorer, settings, folder), rows]
    tables += [
        variant_table(variant, draws, scores[: settings.num_samples])
        for variant, draws, scores in gradient_variants(
            explorer, gallery.workspace, folder
        )
    ]
    return pd.concat(tables, ignore_index=True), features


def score_again(
    config: CollectionConfig, root: Path, work: Path | None, device: str
) -> Path:
    """Score the samples anew and store that beside what was measured.

    For new methods and dampings: no retrained model needs to be here, only the
    collection with its full index. What cannot be scored here stays as it was: methods
    whose files are not there, and what only the workspace of the build can vary.

    Args:
        config: The collection.
        root: Folder of the published collections.
        work: Folder of unfinished work.
        device: Where to compute.

    Returns:
        The folder of the evidence.
    """
    check_evidence(config, root, work, add=True)
    gallery, models = open_gallery(config, work, device), retrain_folder(config, work)
    models.mkdir(parents=True, exist_ok=True)
    folder = evidence_folder(root, config)
    stored = read_evidence(folder)
    settings = MeasureConfig(**stored.recipe["measure"])
    check_extends(stored, config, settings)
    explorer = open_explorer(config.name, root)
    check_samples(explorer, gallery.samples)
    scores, features = all_scores(explorer, settings, gallery, models)
    names = groups_left_out(stored.measured)
    groups = group_predictions(explorer, names, settings, models)
    tables = (stored.measured, scores, stored.pictures, groups)
    made = assemble(config, settings, explorer, tables, features, stored.masks)
    write_evidence(folder, keeping(stored, made))
    return folder


def keeping(stored: Evidence, made: Evidence) -> Evidence:
    """Return evidence scored anew, with the stored rows of what was not scored now."""
    pairs = ["method", "variant"]
    scored = pd.MultiIndex.from_frame(made.scores[pairs])
    old = stored.scores[~pd.MultiIndex.from_frame(stored.scores[pairs]).isin(scored)]
    old = old[old["method"].isin(METHODS) | (old["source"] == BROUGHT)]
    known = {
        name: values
        for name, values in stored.recipe["dampings"].items()
        if name in set(old["method"])
    }
    recipe = stored.recipe | made.recipe
    recipe |= {"dampings": known | made.recipe["dampings"]}
    scores = pd.concat([made.scores, old], ignore_index=True)
    return replace(made, recipe=recipe, scores=scores)


def check_extends(
    stored: Evidence, config: CollectionConfig, settings: MeasureConfig
) -> None:
    """Refuse to add to evidence that was measured in another way.

    Raises:
        ValueError: If the draws or the samples differ; the message says which.
    """
    other = gallery_fingerprint(config_from_dict(stored.recipe["settings"]))
    if other != gallery_fingerprint(config):
        raise ValueError(
            f"The stored evidence of '{config.name}' was measured on the gallery of "
            "other settings. Ask with those, or measure all models anew without --add."
        )
    measured, wanted = stored.recipe["measure"], asdict(settings)
    for name, value in wanted.items():
        if measured[name] != value:
            raise ValueError(
                f"The stored evidence of '{config.name}' was measured with {name} "
                f"{measured[name]}, not {value}. Ask for the same, or measure all "
                "models anew without --add."
            )


def extended(
    stored: Evidence,
    measured: pd.DataFrame,
    pictures: pd.DataFrame,
    groups: pd.DataFrame,
) -> Evidence:
    """Return stored evidence and what more models measured; scores stay as they are.

    Raises:
        ValueError: If there are random subsets that the stored scores say nothing of.
    """
    halves = measured[measured["kind"] == "half"]["subset"]
    if not halves.empty and halves.max() >= len(stored.masks):
        raise ValueError(
            f"The stored evidence has {len(stored.masks)} random subsets and there is "
            f"a model of number {halves.max()}, counted from 0. Score them all anew "
            "without --add."
        )
    return replace(
        stored,
        measured=pd.concat([stored.measured, measured], ignore_index=True),
        pictures=pd.concat([stored.pictures, pictures], ignore_index=True),
        groups=groups,
    )


def make_evidence(
    config: CollectionConfig,
    root: Path,
    work: Path | None = None,
    part: tuple[int, int] = (0, 1),
    device: str = "cpu",
    wanted: dict | None = None,
    add: bool = False,
) -> Path | None:
    """Measure and score what is missing, and store the evidence beside the collection.

    Args:
        config: The collection.
        root: Folder of the published collections.
        work: Folder of unfinished work, where the retrained models lie.
        part: (number of this process, number of processes): of several, each measures
            its share and stores nothing; a last call alone puts all together.
        device: Where to compute.
        wanted: Values of `MeasureConfig`; the others are as stored where that is added
            to. There are fewer samples where the gallery has fewer.
        add: Whether to keep the stored evidence and add the models it has not measured:
            neither those models nor the index that gave its scores need to be here.

    Returns:
        The folder of the evidence, or None after a share.
    """
    if part[1] == 1:
        check_evidence(config, root, work, add)
    gallery = open_gallery(config, work, device)
    models, folder = retrain_folder(config, work), evidence_folder(root, config)
    stored = read_evidence(folder) if add else None
    usual = {} if stored is None else stored.recipe["measure"]
    settings = MeasureConfig(**(usual | (wanted or {})))
    check_fields(settings, "", MEASURE_RULES)
    settings = gallery.at_most(settings)
    if stored is not None:
        check_extends(stored, config, settings)
    known = None if stored is None else stored.measured
    measured, pictures = measure_models(
        config, settings, gallery, models, part, device, known
    )
    if part[1] > 1:
        return None
    explorer = open_explorer(config.name, root)
    check_samples(explorer, gallery.samples)
    every = measured if known is None else pd.concat([known, measured])
    groups = group_predictions(explorer, groups_left_out(every), settings, models)
    if stored is not None:
        write_evidence(folder, extended(stored, measured, pictures, groups))
        return folder
    scores, features = (
        pd.DataFrame(columns=[*LENS, "sample_id", "source", "scores"]),
        {},
    )
    if "half" in set(measured["kind"]):  # without them there is nothing to rank
        scores, features = all_scores(explorer, settings, gallery, models)
    tables = (measured, scores, pictures, groups)
    made = assemble(config, settings, explorer, tables, features)
    write_evidence(folder, with_brought(folder, made))
    return folder


def with_brought(folder: Path, made: Evidence) -> Evidence:
    """Return new evidence with the scores that somebody brought to the old one.

    What cannot be read, or is of other samples, is as good as not there.
    """
    try:
        old = read_evidence(folder)
    except (LookupError, ValueError):
        return made
    same = ("measure", "num_examples", "collection")
    if any(old.recipe.get(name) != made.recipe[name] for name in same):
        return made
    scores = pd.concat([made.scores, brought(old)], ignore_index=True)
    return replace(made, scores=scores)
