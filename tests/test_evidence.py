"""The tables of evidence, on linear problems whose answers are known."""

import sys

import numpy as np
import pandas as pd
import pytest

from core.config import collection_config
from core.draws import subset_masks
from core.evaluation import predicted_changes
from core.evidence import (
    LENS,
    OWN,
    TABLES,
    Evidence,
    calibration,
    ceiling,
    damping_table,
    default_lens,
    evidence_folder,
    lds_table,
    make_table,
    observations_table,
    read_evidence,
    timestep_table,
    write_evidence,
)
from precompute.__main__ import main

N, M, Q = 60, 16, 4
RECIPE = {
    "num_examples": N,
    "num_draws": 64,
    "dampings": {"ekfac": {"own": 1e-3, "mean_eigenvalue": 0.1}},
    "bytes_per_example": {"sketch": 12},
}


def scored(method, scores, measurement="loss", **changed) -> pd.DataFrame:
    """Return rows of scores (Q, N) under one lens."""
    lens = default_lens(Evidence(RECIPE, None, None, None), method, measurement)
    rows = [
        lens | changed | {"sample_id": i, "source": "exact", "scores": row}
        for i, row in enumerate(scores.astype(np.float32))
    ]
    return pd.DataFrame(rows)


def cost_rows(costs, kind, seed=0, measurement="loss", low=-1, high=-1):
    """Return rows of measured costs (Q, M); of the full model if M is one."""
    rows = [
        (kind, m if kind == "half" else -1, seed, i, measurement, low, high, cost, 0.1)
        for i, row in enumerate(costs)
        for m, cost in enumerate(row)
    ]
    columns = ["kind", "subset", "seed", "sample_id", "measurement", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "value", "standard_error"])


@pytest.fixture(scope="module")
def linear() -> Evidence:
    """Return evidence about costs that are sums over the pictures kept.

    "ekfac" knows the terms; at another damping it knows them with noise; "clip" knows
    nothing. Seeds 1 are noisy repetitions of the first eight subsets. Two bands of
    timesteps have terms of their own.
    """
    rng, masks = np.random.default_rng(0), subset_masks(N, M, 0)
    bands = rng.normal(size=(2, Q, N))
    true = bands.sum(0)
    costs = 3 + predicted_changes(true, masks)
    noisy = costs[:, :8] + 0.1 * rng.normal(size=(Q, 8))
    measured = [
        cost_rows(np.full((Q, 1), 3.0), "full"),
        cost_rows(costs, "half"),
        cost_rows(noisy, "half", seed=1),
    ]
    scores = [
        scored("ekfac", true),
        scored("ekfac", true + rng.normal(size=true.shape), damping=1e-1),
        scored("ekfac", true + 0.1 * rng.normal(size=true.shape), num_draws=256),
        scored("ekfac", rng.normal(size=(Q, N)), "elbo"),
        scored("clip", rng.normal(size=(Q, N)), OWN),
    ]
    for band, (low, high) in zip(bands, ((0, 10), (10, 20)), strict=True):
        costs = predicted_changes(band, masks)
        measured.append(cost_rows(costs, "half", low=low, high=high))
        scores.append(scored("ekfac", band, low=low, high=high))
    both = (pd.concat(parts, ignore_index=True) for parts in (measured, scores))
    return Evidence(RECIPE, masks, *both)


def test_lds_of_exact_terms_is_one_and_of_noise_is_not(linear):
    """Sorted from best to worst, the ceiling last; each method under its own lens."""
    table = lds_table(linear, "loss").set_index("method")
    assert list(table.index) == ["ekfac", "clip", "retraining"]
    assert table.at["ekfac", "lds"] == pytest.approx(1)
    assert abs(table.at["clip", "lds"]) < 4 * table.at["clip", "subset_error"]
    assert table.at["clip", "scored"] == "own"
    assert (table.loc[["ekfac", "clip"], "num_subsets"] == M).all()


def test_the_ceiling_is_the_agreement_of_two_seeds(linear):
    """Only on subsets that both have, so not more than eight here."""
    found = ceiling(linear, "loss")
    assert found["num_subsets"] == 8
    assert 0.5 < found["lds"] < 1
    alone = linear.measured[linear.measured["seed"] == 0]
    one = Evidence(RECIPE, linear.masks, alone, linear.scores)
    assert ceiling(one, "loss") is None


def test_extra_seeds_of_some_subsets_do_not_change_the_target(linear):
    """The target is the mean over seeds that every subset has."""
    alone = linear.measured[linear.measured["seed"] == 0]
    one = Evidence(RECIPE, linear.masks, alone, linear.scores)
    pd.testing.assert_frame_equal(linear.target("loss"), one.target("loss"))


def test_a_damping_sweep_marks_the_default(linear):
    """The collection's own damping stands among those swept, in order."""
    table = damping_table(linear, "loss")
    assert table["damping"].tolist() == [1e-3, 1e-1]
    assert table["relative"].tolist() == pytest.approx([1e-2, 1])
    assert table["default"].tolist() == [True, False]
    assert table["lds"][0] > table["lds"][1]


def test_ablations_change_one_thing(linear):
    """More draws of the query and another measurement's scores, one at a time."""
    table = make_table(linear, "ablation", "loss")
    table = table.set_index(["changed", "setting"])
    assert table.at[("query draws", 64), "lds"] == pytest.approx(1)
    assert 0.9 < table.at[("query draws", 256), "lds"] < 1
    assert table.at[("scored", "elbo"), "lds"] < 0.9


def test_bands_predict_themselves(linear):
    """Each band's scores are exact for its own cost and unrelated to the other's."""
    table = timestep_table(linear, "loss")
    same = (table["scored_low"] == table["low"]) & (
        table["scored_high"] == table["high"]
    )
    np.testing.assert_allclose(table.loc[same, "lds"], 1)
    assert len(table) == 9 and table.loc[~same, "lds"].max() < 0.95


def test_exact_predictions_are_calibrated_to_themselves(linear):
    """The monotone map of exact predictions is the identity, within its steps."""
    found = calibration(linear, "ekfac", "loss")
    np.testing.assert_allclose(found(found.knots), found.knots, atol=1e-6)
    assert found.explained > 0.95
    with pytest.raises(LookupError, match="no scores of 'trak' for 'loss'"):
        calibration(linear, "trak", "loss")


def test_the_share_of_rises_is_counted(linear):
    """Of costs that differ from the full model's by the predicted changes."""
    table = observations_table(linear, "loss").set_index("observation")
    scores = np.stack(list(scored_rows(linear, "ekfac")))
    rises = predicted_changes(scores.astype(float), linear.masks) > 0
    assert table.at["share of rises", "figure"] == pytest.approx(rises.mean())


def scored_rows(evidence, method):
    """Return the scores of a method's default lens."""
    rows = evidence.scores.query("method == @method and num_draws == 64 and low == -1")
    return rows[rows["damping"].isna() & (rows["measurement"] == "loss")]["scores"]


def test_evidence_survives_the_disk(linear, tmp_path):
    """Written and read, every table is the same."""
    write_evidence(tmp_path / "e", linear)
    again = read_evidence(tmp_path / "e")
    np.testing.assert_array_equal(again.masks, linear.masks)
    for name in TABLES:
        pd.testing.assert_frame_equal(
            make_table(again, name, "loss"), make_table(linear, name, "loss")
        )


def ask(monkeypatch, *arguments) -> int:
    """Run the command in this process."""
    command = ["precompute", "evidence", "--collection", "fashion2", *arguments]
    monkeypatch.setattr(sys, "argv", command)
    return main()


def test_the_command_prints_csv(linear, tmp_path, monkeypatch, capsys):
    """`--table lds`: method, lds, standard_error and what they rest on."""
    config = collection_config("fashion2")
    folder = evidence_folder(tmp_path, config)
    write_evidence(folder, linear)
    assert ask(monkeypatch, "--root", str(tmp_path), "--table", "lds") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "method,lds,standard_error,subset_error,num_samples,num_subsets,scored"
    )
    assert lines[1].startswith("ekfac,1,")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--table", "lds"], "Nothing was retrained to check 'fashion2' yet"),
        (["--table", "magic"], "There is no table 'magic'. Choose one of lds, "),
        (["--table", "lds", "--measurement", "x"], "was measured by 'x'. Measured: l"),
    ],
)
def test_mistakes_on_the_command_line(
    linear, tmp_path, monkeypatch, capsys, arguments, sentence
):
    """Exit status 1 and one sentence that says what to do."""
    if "yet" not in sentence:
        config = collection_config("fashion2")
        write_evidence(evidence_folder(tmp_path, config), linear)
    assert ask(monkeypatch, "--root", str(tmp_path), *arguments) == 1
    assert sentence in capsys.readouterr().err


def test_lenses_are_told_apart_by_every_column(linear):
    """A stored lens has a value for each column, NaN for the collection's damping."""
    lenses = linear.lenses()
    assert all(set(lens) == set(LENS) for lens in lenses)
    assert len(lenses) == 7


def test_removal_is_compared_with_random_removal():
    """By hand: one sample, three random removals, the error their spread."""
    models = [("none", 0.0, -1, 5.0), ("ekfac", 0.1, 0, 9.0), ("clip", 0.1, 0, 6.0)]
    models += [("random", 0.1, i, 6.0 + i) for i in range(3)]
    rows = []
    for method, fraction, about, value in models:
        table = cost_rows([[value], [value - 1]], "removed")
        rows.append(table.assign(method=method, fraction=fraction, about=about))
    evidence = Evidence(RECIPE, None, pd.concat(rows), None)
    table = make_table(evidence, "removal", "loss").set_index(["method", "sample_id"])
    assert table.at[("ekfac", 0), "change"] == 4
    assert table.at[("ekfac", 0), "random"] == 2
    assert table.at[("clip", 0), "excess"] == -1
    assert table.at[("ekfac", 0), "standard_error"] == pytest.approx((4 / 3) ** 0.5)
    assert table.at[("ekfac", -1), "excess"] == 2
    assert len(table) == 4
