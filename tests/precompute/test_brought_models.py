"""Models that a lab trained again: measured like ours, and beside ours."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from core.evidence.lds import lds_table
from core.evidence.stored import (
    LENS,
    evidence_folder,
    read_evidence,
    write_evidence,
)
from core.measure.draws import subset_masks
from core.presets import collection_config
from precompute.retraining.brought_models import bring_models, read_masks
from precompute.retraining.evidence import score_again
from precompute.retraining.jobs import model_path, retrain_folder
from tests.conftest import linked_copy
from tests.precompute.test_evidence_pipeline import (  # noqa: F401  (a fixture)
    MEASURED,
    NUM_SUBSETS,
    made,
    workplace,
)

CONFIG = collection_config("glyphs", "tiny")
KEY = ["subset", "sample_id", "measurement", "low"]


@pytest.fixture
def lab(made, tiny_collection, workplace, tmp_path):  # noqa: F811
    """Return collections without evidence, work without models, and the lab's files."""
    root = linked_copy(tiny_collection, tmp_path)
    work, ours = tmp_path / "work", retrain_folder(CONFIG, workplace)
    ignored = shutil.ignore_patterns("retrain-*")
    shutil.copytree(tiny_collection / "work", work, ignore=ignored)
    models = tmp_path / "theirs"
    models.mkdir()
    for number in range(NUM_SUBSETS):
        shutil.copy(model_path(ours, number, 0), models / f"lab-{number}.safetensors")
    count = made[0].recipe["num_examples"]
    masks = subset_masks(count, NUM_SUBSETS, CONFIG.seed, 0.5)
    np.save(tmp_path / "masks.npy", masks.astype(np.uint8))
    return root, work, models, tmp_path / "masks.npy"


def brought(lab):
    """Return the evidence after the lab's models were measured."""
    root, work, *given = lab
    return read_evidence(bring_models(CONFIG, root, work, "cpu", *given, MEASURED))


def halves(evidence) -> pd.DataFrame:
    """Return the costs in models of random halves, in order."""
    rows = evidence.measured.query("kind == 'half'")
    return rows.sort_values(KEY).reset_index(drop=True)


def test_our_own_models_brought_by_others_give_our_evidence(made, lab):  # noqa: F811
    """Costs, masks, and what every lens predicts; nothing of ours was there."""
    evidence = brought(lab)
    pd.testing.assert_frame_equal(halves(evidence), halves(made[0]), check_exact=True)
    np.testing.assert_array_equal(evidence.masks, made[0].masks)
    for name in ("scores", "predicted"):
        old, new = (
            table.sort_values([*LENS, "sample_id"])[name].dropna()
            for table in (made[0].scores, evidence.scores)
        )
        assert [v.tobytes() for v in old] == [v.tobytes() for v in new]
    assert set(evidence.measured["kind"]) == {"half", "full"}
    tables = [lds_table(one, "loss") for one in (made[0], evidence)]
    pd.testing.assert_frame_equal(*tables)


def test_brought_models_stand_beside_ours(made, lab, tmp_path):  # noqa: F811
    """Five are ours and three the lab's: together they are the eight.

    Also when all is scored again; who brings one twice is told.
    """
    root, work, models, masks = lab
    first = replace(
        made[0],
        masks=made[0].masks[:5],
        measured=made[0].measured.query("kind != 'half' or subset < 5"),
        scores=made[0].scores.assign(
            predicted=[p if p is None else p[:5] for p in made[0].scores["predicted"]]
        ),
    )
    folder = evidence_folder(root, CONFIG)
    write_evidence(folder, first)
    for number in range(5):
        (models / f"lab-{number}.safetensors").unlink()
    np.save(masks, np.load(masks)[5:].astype(bool))
    evidence = brought(lab)
    pd.testing.assert_frame_equal(halves(evidence), halves(made[0]), check_exact=True)
    np.testing.assert_array_equal(evidence.masks, made[0].masks)
    assert (evidence.measured["kind"] == "disjoint").any()
    expected = lds_table(made[0], "loss")
    pd.testing.assert_frame_equal(lds_table(evidence, "loss"), expected)
    names = [model["file"] for model in evidence.recipe["brought_models"]]
    assert names == [f"lab-{number}.safetensors" for number in (5, 6, 7)]
    with pytest.raises(ValueError, match="'lab-5.safetensors' is in the evidence alr"):
        brought(lab)
    again = read_evidence(score_again(CONFIG, root, work, "cpu"))
    np.testing.assert_array_equal(again.masks, made[0].masks)
    pd.testing.assert_frame_equal(lds_table(again, "loss"), expected)
    assert again.recipe["brought_models"] == evidence.recipe["brought_models"]


def test_what_does_not_fit_is_one_sentence(lab, tmp_path):
    """Masks of another shape, a model of another kind, and no model at all."""
    *_, models, masks = lab
    whole = np.load(masks)
    (models / "lab-9.safetensors").write_bytes(b"none")
    np.save(masks, np.concatenate([whole, whole[:1]]))
    with pytest.raises(ValueError, match="'lab-9.safetensors' is not a model that"):
        brought(lab)
    np.save(masks, whole)
    with pytest.raises(ValueError, match=r"'masks.npy' holds uint8 of shape \(8,"):
        brought(lab)
    for wrong, said in (
        (whole * 2, "holds other numbers than 0 and 1"),
        (np.ones_like(whole), "Row 0 of 'masks.npy' keeps all images or none"),
    ):
        np.save(masks, wrong)
        with pytest.raises(ValueError, match=said):
            read_masks(masks, *whole.shape)
    masks.write_text("text")
    with pytest.raises(ValueError, match="^'[^\n]*masks.npy' holds no masks. Expected"):
        read_masks(masks, *whole.shape)
