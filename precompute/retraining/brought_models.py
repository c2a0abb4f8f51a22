"""Models that others trained again: measured, and put into the evidence beside ours.

A mask says which images each was trained on. What the full model's recipe is for a part
of the images, its maker has to know: files of another network are refused, but nobody
can tell from weights how they were trained.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from core.checks import check_fields
from core.collection.schema import file_sha256
from core.config import CollectionConfig
from core.evidence.left_out import groups_left_out
from core.evidence.stored import (
    Evidence,
    evidence_folder,
    read_evidence,
    write_evidence,
)
from core.explorer.explorer import open_explorer
from core.files.table_files import DAMAGE
from core.files.whole import Damaged
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from precompute.machinery.config import MEASURE_RULES, MeasureConfig
from precompute.machinery.progress import Bar
from precompute.retraining.evidence import (
    all_scores,
    assemble,
    check_extends,
    check_samples,
    keeping,
    own_masks,
)
from precompute.retraining.jobs import identity_of, retrain_folder
from precompute.retraining.measure import (
    gallery_fingerprint,
    measure_model,
    measure_models,
)
from precompute.retraining.ready import check_evidence, open_gallery
from precompute.retraining.scores import group_predictions

MODELS = "brought_models"  # of a recipe: file, sha256 and subset of each


def read_masks(path: Path, num_models: int, num_examples: int) -> np.ndarray:
    """Return which images each model was trained on, (M, N), bool.

    Args:
        path: An array of zeros and ones or of booleans, .npy.
        num_models: M.
        num_examples: N; images in order of their ids.

    Raises:
        ValueError: If it is not that; the message says what was expected.
    """
    expected = (
        f"Expected: a .npy file of shape ({num_models}, {num_examples}), a row for "
        "each model in order of file names, 1 where it saw the image and 0 where not."
    )
    try:
        masks = np.load(path, allow_pickle=False)
    except DAMAGE as error:
        raise ValueError(f"'{path}' holds no masks. {expected}") from error
    if masks.shape != (num_models, num_examples) or masks.dtype.kind not in "biuf":
        raise ValueError(
            f"'{path.name}' holds {masks.dtype} of shape {masks.shape}. {expected}"
        )
    if not np.isin(masks, (0, 1)).all():
        raise ValueError(f"'{path.name}' holds other numbers than 0 and 1. {expected}")
    masks = masks.astype(bool)
    whole = masks.all(1) | ~masks.any(1)
    if whole.any():
        raise ValueError(
            f"Row {int(whole.argmax())} of '{path.name}' keeps all images or none, so "
            "it says nothing. Leave that model out."
        )
    return masks


def model_files(folder: Path) -> list[Path]:
    """Return the models of a folder, in order of their names.

    Raises:
        ValueError: If there are none.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise ValueError(
            f"'{folder}' holds no models. Expected: a folder of files that end in "
            ".safetensors, as `retrain` writes them."
        )
    return files


def check_alike(path: Path, full: Denoiser) -> None:
    """Refuse a model whose weights are not of the full model's kind.

    Raises:
        ValueError: If it is another network, or no model.
    """
    try:
        denoiser = denoiser_from_bytes(path.read_bytes())
    except (ValueError, KeyError, RuntimeError, Damaged) as error:
        raise ValueError(
            f"'{path.name}' is not a model that this program can read. Write it as "
            "`precompute train` does: weights with the description of their model."
        ) from error
    shapes = [
        {name: value.shape for name, value in model.state_dict().items()}
        for model in (denoiser, full)
    ]
    schedules = [dict(model.scheduler.config) for model in (denoiser, full)]
    keys = ("prediction_type", "num_train_timesteps", "beta_schedule", "beta_end")
    same = all(schedules[0][key] == schedules[1][key] for key in keys)
    if shapes[0] != shapes[1] or not same:
        raise ValueError(
            f"'{path.name}' is another network than the collection's model, or has "
            "another noise schedule. Only models of one kind can be compared."
        )


def bring_models(
    config: CollectionConfig,
    root: Path,
    work: Path | None,
    device: str,
    models: Path,
    masks: Path,
    wanted: dict,
) -> Path:
    """Measure models that others trained again, and store them with all scores.

    What is measured already stays; halves of ours keep their numbers, the new ones come
    after them. Scores are computed anew, which takes the collection's full index.

    Args:
        config: The collection.
        root: Folder of the published collections.
        work: Folder of unfinished work.
        device: Where to compute.
        models: Folder of the models, in our format.
        masks: As for `read_masks`, a row for each model.
        wanted: Values of `MeasureConfig`; the others are as stored, if any are.

    Returns:
        The folder of the evidence.

    Raises:
        ValueError: If there are no masks, or what the parts refuse.
    """
    if not masks.is_file():
        raise ValueError(
            f"There is no file '{masks}' of masks. Give a .npy file with a row for "
            "each model, 1 where it saw the image and 0 where not."
        )
    files = model_files(models)
    check_evidence(config, root, work, add=True)
    gallery, ours = open_gallery(config, work, device), retrain_folder(config, work)
    kept = read_masks(masks, len(files), len(gallery.dataset))
    full = denoiser_from_bytes(gallery.weights)
    for path in files:
        check_alike(path, full)
    folder = evidence_folder(root, config)
    try:
        stored = read_evidence(folder)
    except LookupError:
        stored = None
    sums = [file_sha256(path) for path in files]
    check_new(stored, files, sums)
    usual = {} if stored is None else stored.recipe["measure"]
    settings = MeasureConfig(**(usual | wanted))
    check_fields(settings, "", MEASURE_RULES)
    settings = gallery.at_most(settings)
    if stored is None:
        measured, pictures = measure_models(config, settings, gallery, ours)
        before = own_masks(config, measured, len(gallery.dataset))
    else:
        check_extends(stored, config, settings)
        measured, pictures = stored.measured, stored.pictures
        before = stored.masks if stored.num_halves else stored.masks[:0]

    ours.mkdir(parents=True, exist_ok=True)
    how, tables, ours_too = settings.fingerprint(), [measured], len(before)
    how = f"{how}-{gallery_fingerprint(config)}"
    for number, path in enumerate(Bar(files, "measurements")):
        result = ours / f"measured-{how}-brought-{sums[number][:12]}.parquet"
        costs = measure_model(
            path.read_bytes(), gallery.samples, settings, config.seed, result, device
        )
        which = identity_of({"keys": [ours_too + number, 0]})
        tables.append(costs.assign(**which))
    measured = pd.concat(tables, ignore_index=True)
    explorer = open_explorer(config.name, root)
    check_samples(explorer, gallery.samples)
    scores, features = all_scores(explorer, settings, gallery, ours)
    groups = group_predictions(explorer, groups_left_out(measured), settings, ours)
    every = np.concatenate([before, kept])
    parts = (measured, scores, pictures, groups)
    made = assemble(config, settings, explorer, parts, features, every)
    if stored is not None:
        made = keeping(stored, made)
        scored = made.scores["predicted"].map(
            lambda p: p is None or len(p) == len(every)
        )
        made = replace(made, scores=made.scores[scored])
    new = [
        {"file": path.name, "sha256": digest, "subset": ours_too + number}
        for number, (path, digest) in enumerate(zip(files, sums, strict=True))
    ]
    made.recipe[MODELS] = [*made.recipe.get(MODELS, []), *new]
    write_evidence(folder, made)
    return folder


def check_new(stored: Evidence | None, files: list[Path], sums: list[str]) -> None:
    """Refuse models that were brought before: they would count twice.

    Raises:
        ValueError: If one was, or two files are the same.
    """
    known = (
        {}
        if stored is None
        else {model["sha256"]: model["file"] for model in stored.recipe.get(MODELS, [])}
    )
    for path, digest in zip(files, sums, strict=True):
        if digest in known:
            raise ValueError(
                f"'{path.name}' is in the evidence already, as '{known[digest]}'. "
                "Leave it and its row of the masks out."
            )
        known[digest] = path.name
