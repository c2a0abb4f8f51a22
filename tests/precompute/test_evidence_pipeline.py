"""From a built collection to the tables, by retraining, at the tiny size."""

import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.config import DisjointConfig, RemovalConfig, RetrainConfig
from core.data.datasets import load_dataset
from core.evidence.stored import (
    LENS,
    MODEL,
    Evidence,
    evidence_folder,
    read_evidence,
    write_evidence,
)
from core.evidence.tables import TABLES, make_table
from core.lenses import Lens
from core.measure.draws import subset_masks
from core.model.checkpoint import denoiser_from_bytes
from core.presets import collection_config
from precompute.machinery.config import MeasureConfig
from precompute.machinery.workspace import open_workspace
from precompute.retraining.evidence import (
    check_extends,
    lean,
    make_evidence,
    score_again,
)
from precompute.retraining.jobs import (
    disjoint_jobs,
    group_jobs,
    missing_jobs,
    removal_jobs,
    retrain_folder,
    subset_jobs,
)
from precompute.retraining.measure import measure_models
from precompute.retraining.ready import Gallery
from precompute.retraining.train import retrain_jobs
from precompute.stages.samples import make_samples
from precompute.stages.stages import trained_weights
from tests.conftest import linked_copy

MEASURED = {
    "num_samples": 2,
    "num_draws": 8,
    "num_bands": 2,
    "num_pictures": 2,
    "probability_draws": 0,
}
NUM_SUBSETS = 8
GROUPS = ["subgroup=face-affection", "subgroup=face-smiling"]
CONTROLS = RemovalConfig(num_group_controls=1)
LATE = {"removal", "groups", "own-group"}


@pytest.fixture(scope="module")
def workplace(tiny_collection, tmp_path_factory) -> Path:
    """Return a folder of unfinished work of one's own, with no retrained model yet."""
    work = tmp_path_factory.mktemp("workplace") / "work"
    ignored = shutil.ignore_patterns("retrain-*")
    return shutil.copytree(tiny_collection / "work", work, ignore=ignored)


@pytest.fixture(scope="module")
def made(tiny_collection, workplace, tmp_path_factory):
    """Return the evidence after each of two rounds of retraining."""
    config, work = collection_config("glyphs", "tiny"), workplace
    root = linked_copy(tiny_collection, tmp_path_factory.mktemp("retrained"))
    dataset, folder = load_dataset(config.data), retrain_folder(config, work)

    def measured(jobs):
        retrain_jobs(config, dataset, jobs)
        found = make_evidence(config, root, work, wanted=MEASURED)
        return read_evidence(found)

    halves = RetrainConfig(num_subsets=NUM_SUBSETS)
    jobs = subset_jobs(config, halves, len(dataset), folder)
    jobs += disjoint_jobs(config, DisjointConfig((0.25,)), len(dataset), folder)
    first = measured(jobs)
    settings = RemovalConfig(("ekfac",), (0.25,), num_samples=1, num_random=2)
    jobs = removal_jobs(config, settings, first, folder)
    jobs += group_jobs(config, CONTROLS, GROUPS, dataset, folder)
    return first, measured(jobs)


def test_every_table_is_made(made):
    """No table is empty, and removals are seen only after they were done."""
    first, evidence = made
    for name in TABLES:
        table = make_table(evidence, name, "loss")
        assert len(table) > 0, name
        assert (len(make_table(first, name, "loss")) == 0) == (name in LATE)
    removed = evidence.measured.query("kind == 'removed'")
    assert set(removed["method"]) == {"none", "random", "ekfac", *GROUPS}
    assert evidence.masks.shape == (NUM_SUBSETS, evidence.recipe["num_examples"])


def test_the_same_draws_measure_every_model(made):
    """Scores do not change by measuring more models, nor do costs measured before."""
    first, second = made
    kinds = first.measured["kind"].unique()
    again = second.measured[second.measured["kind"].isin(kinds)]
    key = ["kind", "subset", "seed", "fraction", "sample_id", "measurement", "low"]
    before, after = (
        table.set_index(key)["value"].sort_index() for table in (first.measured, again)
    )
    assert before.equals(after)
    for name in ("scores", "predicted"):
        rows = [
            e.scores[name].dropna().map(np.ndarray.tobytes) for e in (first, second)
        ]
        assert len(rows[0]) > 0 and rows[0].equals(rows[1])


@pytest.fixture
def first_round(made, tiny_collection, workplace, tmp_path):
    """Return a folder with the evidence of the first round, and what adds to it."""
    config = collection_config("glyphs", "tiny")
    root = linked_copy(tiny_collection, tmp_path)
    write_evidence(evidence_folder(root, config), made[0])
    return root, partial(make_evidence, config, root, workplace, add=True)


def test_models_added_to_evidence_are_those_measured_at_once(made, first_round):
    """The same rows as of one round over all models; what was stored stays."""
    root, add = first_round
    found = read_evidence(add())  # in the way that the stored evidence was measured
    pd.testing.assert_frame_equal(found.groups, made[1].groups)
    for name, key in (
        ("measured", [*MODEL, "sample_id", "measurement", "low"]),
        ("pictures", [*MODEL, "sample_id"]),
    ):
        added, at_once = (
            getattr(evidence, name).sort_values(key).reset_index(drop=True)
            for evidence in (found, made[1])
        )
        pd.testing.assert_frame_equal(added, at_once, check_exact=True)
    pd.testing.assert_frame_equal(found.scores, made[0].scores)
    again = read_evidence(add(wanted=MEASURED))
    pd.testing.assert_frame_equal(again.measured, found.measured)


def test_scoring_again_keeps_what_was_measured(made, tiny_collection, tmp_path):
    """No retrained model is asked; the app's lenses give the same scores."""
    config = collection_config("glyphs", "tiny")
    root = linked_copy(tiny_collection, tmp_path)
    old = made[1].scores.iloc[:1].assign(variant="another index", method="ekfac")
    absent = old.assign(variant="", method="ekfac-fisher")  # no file of it is there
    values = {"own": 2.0, "mean_eigenvalue": 3.0}
    dampings = made[1].recipe["dampings"] | {"ekfac-fisher": values}
    stored = replace(
        made[1],
        recipe=made[1].recipe | {"dampings": dampings},
        scores=pd.concat([made[1].scores[5:], old, absent]),
    )
    folder = evidence_folder(root, config)
    write_evidence(folder, stored)
    work = tmp_path / "work"
    shutil.copytree(
        tiny_collection / "work", work, ignore=shutil.ignore_patterns("retrain-*")
    )
    found = read_evidence(score_again(config, root, work, "cpu"))
    pd.testing.assert_frame_equal(found.measured, stored.measured)
    pd.testing.assert_frame_equal(found.pictures, stored.pictures)
    assert found.scores["variant"].tolist().count("another index") == 1
    assert found.scores["method"].tolist().count("ekfac-fisher") == 1
    assert found.recipe["dampings"]["ekfac-fisher"] == values
    again = found.scores[found.scores["variant"] != "another index"]
    again = again[again["method"] != "ekfac-fisher"]
    key = [*LENS, "sample_id"]
    for name in ("scores", "predicted"):
        before, after = (
            table.sort_values(key)[name].dropna().map(np.ndarray.tobytes).tolist()
            for table in (made[1].scores, again)
        )
        assert before == after
    means = again[(again["method"] == "ekfac") & again["damping"].isna()]["mean"]
    assert means.notna().any()


def test_what_does_not_fit_the_stored_evidence_is_not_added(first_round):
    """Other draws, or a subset that the stored scores say nothing of."""
    root, add = first_round
    with pytest.raises(ValueError, match="num_draws 8, not 16"):
        add(wanted={"num_draws": 16})
    folder = evidence_folder(root, collection_config("glyphs", "tiny"))
    stored = read_evidence(folder)
    fewer = replace(
        stored,
        masks=stored.masks[:-1],
        measured=stored.measured.query(f"subset != {NUM_SUBSETS - 1}"),
    )
    write_evidence(folder, fewer)
    with pytest.raises(ValueError, match="7 random subsets.*number 7.*without --add"):
        add()
    assert len(read_evidence(folder).measured) == len(fewer.measured)


def test_costs_are_those_of_the_gallery_that_is_asked_about(tiny_collection, tmp_path):
    """Kept costs of other samples are not taken for them, nor added to."""
    config = collection_config("glyphs", "tiny")
    dataset, settings = load_dataset(config.data), MeasureConfig(**MEASURED)
    work = tmp_path / "work"
    shutil.copytree(tiny_collection / "work", work)
    other = replace(config, samples=replace(config.samples, num_steps=6))
    found = []
    for one in (config, other, config):
        workspace = open_workspace(one, work)
        weights = trained_weights(one, dataset, workspace, "cpu")
        samples = make_samples(one, denoiser_from_bytes(weights), dataset, workspace)
        folder = tmp_path / "models"
        gallery = Gallery(weights, dataset, workspace, samples)
        measured, _ = measure_models(one, settings, gallery, folder)
        found.append(measured["value"].tolist())
    assert found[0] == found[2] != found[1]
    recipe = {"settings": config.to_dict(), "measure": asdict(settings)}
    stored = Evidence(recipe, None, None, None)
    check_extends(stored, config, settings)
    with pytest.raises(ValueError, match="the gallery of other settings"):
        check_extends(stored, other, settings)


def test_only_missing_models_are_trained(made):
    """A job is missing until evidence holds its costs, whatever its kind."""
    first, second = made
    config = collection_config("glyphs", "tiny")
    count, folder = first.recipe["num_examples"], Path("unused")
    settings = RemovalConfig(("ekfac",), (0.25,), num_samples=1, num_random=2)
    removed = removal_jobs(config, settings, first, folder)
    dataset = load_dataset(config.data)
    removed += group_jobs(config, CONTROLS, GROUPS, dataset, folder)[1:]
    more = subset_jobs(config, RetrainConfig(NUM_SUBSETS + 1), count, folder)
    halves = more[:-1]
    disjoint = disjoint_jobs(config, DisjointConfig((0.25,)), count, folder)
    for evidence, missing in ((first, removed), (second, [])):
        found = missing_jobs([*halves, *disjoint, *removed], config, evidence)
        assert found == missing
        with pytest.raises(ValueError, match="scores 8 random halves.*half 9"):
            missing_jobs(more, config, evidence)


def test_groups_are_predicted_as_the_app_predicts_them(made, tiny_explorer):
    """The sum of the scores over N, its error, and the share of the sample's class."""
    rows = made[1].groups
    assert set(rows["method"]) >= {"ekfac", "clip"} and set(rows["group"]) == set(
        GROUPS
    )
    table = tiny_explorer.examples.table
    for sample_id in (0, 1):
        query = tiny_explorer.query_from_gallery(sample_id)
        lens = Lens("ekfac", "elbo")
        own = tiny_explorer.class_of(query.label)["subgroup"]
        answer = tiny_explorer.answer(query, lens)
        uncertainty = tiny_explorer.uncertainty(query, answer)
        for name in GROUPS:
            members = (table["subgroup"] == name.partition("=")[2]).to_numpy()
            row = rows.query(
                "sample_id == @sample_id and group == @name and method == 'ekfac' "
                "and measurement == 'elbo'"
            ).iloc[0]
            change = answer.scores[members].sum() / len(table)
            assert row["predicted"] == pytest.approx(change)
            error = uncertainty.of_groups(members[None])[0]
            assert row["standard_error"] == pytest.approx(error)
            assert row["share"] == float(own in name)


def test_groups_alone_are_evidence(made, tiny_collection, tmp_path):
    """Without any random half their table is made, and nothing is scored for halves."""
    config = collection_config("glyphs", "tiny")
    root, work = linked_copy(tiny_collection, tmp_path), tmp_path / "work"
    ignored = shutil.ignore_patterns("retrain-*")
    shutil.copytree(tiny_collection / "work", work, ignore=ignored)
    folder = retrain_folder(config, work)
    dataset = load_dataset(config.data)
    jobs = group_jobs(config, CONTROLS, GROUPS, dataset, folder)
    retrain_jobs(config, dataset, jobs)
    found = read_evidence(make_evidence(config, root, work, wanted=MEASURED))
    assert found.scores.empty and found.num_halves == 0
    for measurement in ("loss", "elbo"):
        table = make_table(found, "groups", measurement)
        pd.testing.assert_frame_equal(table, make_table(made[1], "groups", measurement))


def test_the_full_model_draws_the_gallery_again(made, tiny_explorer):
    """From the same seed the same image; another model draws another one."""
    pictures = made[1].pictures
    for row in pictures[pictures["kind"] == "full"].to_dict("records"):
        drawn = np.frombuffer(row["pixels"], np.uint8).reshape(row["shape"])
        shown = tiny_explorer.query_from_gallery(row["sample_id"]).pixels
        np.testing.assert_array_equal(drawn, shown)
    apart = pictures[(pictures["sample_id"] == 0) & (pictures["kind"] != "removed")]
    assert len(set(apart["pixels"])) == len(apart) == 3


def test_what_is_kept_predicts_what_all_scores_do():
    """Rounded or summed up, a lens says the same of each subset."""
    rng, masks = np.random.default_rng(0), subset_masks(50, 12, 0)
    scores = rng.normal(size=(2, 50)).astype(np.float32)
    asked = dict(zip(LENS, ("ekfac", "loss", -1, -1, np.nan, 64, ""), strict=True))
    rows = [
        asked | {"damping": damping, "sample_id": 0, "scores": values}
        for damping, values in zip((np.nan, 1e-3), scores, strict=True)
    ]
    kept = lean(pd.DataFrame(rows), masks, 64)
    assert kept["scores"].isna().tolist() == [False, True]
    assert kept["predicted"].isna().tolist() == [True, False]
    np.testing.assert_allclose(kept["scores"][0], scores[0], rtol=2**-12)
    evidence = Evidence({"num_draws": 64}, masks, None, kept)
    target = pd.DataFrame(np.zeros((1, 12)))
    for row, values in zip(rows, scores, strict=True):
        found = evidence.predicted(row, target)[0]
        expected = [values[~mask].astype(float).sum() / 50 for mask in masks]
        np.testing.assert_allclose(found, expected, atol=1e-4)
