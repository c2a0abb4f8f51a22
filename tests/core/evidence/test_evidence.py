"""The tables of evidence, on linear problems whose answers are known."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence.changes import calibration
from core.evidence.collapse import collapse_table
from core.evidence.damping import damping_table
from core.evidence.evaluation import predicted_changes
from core.evidence.groups import group_summary, group_table
from core.evidence.lds import lds_table
from core.evidence.left_out import group_members
from core.evidence.stored import (
    GROUP_COLUMNS,
    LENS,
    OWN,
    PICTURE_COLUMNS,
    Evidence,
    ceiling,
    evidence_folder,
    evidence_of,
    num_target_seeds,
    reachable_figures,
    read_evidence,
    write_evidence,
)
from core.evidence.tables import TABLES, make_table
from core.evidence.timesteps import observations_table, timestep_table
from core.measure.draws import subset_masks
from core.presets import collection_config
from precompute.__main__ import main
from tests.helpers.toy_evidence import RECIPE, cost_rows, full_evidence, scored

N, M, Q = 60, 16, 4


@pytest.fixture(scope="module")
def linear() -> Evidence:
    """Return evidence about costs that are sums over the images kept.

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
    return Evidence(RECIPE | {"num_examples": N}, masks, *both)


def test_lds_of_exact_terms_is_one_and_of_noise_is_not(linear):
    """Sorted from best to worst, ceilings last; each method under its own lens."""
    table = lds_table(linear, "loss").set_index("method")
    assert list(table.index) == ["ekfac", "clip", "retraining", "reachable"]
    single, most = table.loc["retraining"], table.loc["reachable"]
    assert most["lds"] == pytest.approx(single["lds"] ** 0.5)
    slope = 1 / (2 * most["lds"])
    for error in ("standard_error", "subset_error"):
        assert most[error] == pytest.approx(slope * single[error])
    reached = table.loc[["ekfac", "clip"], "lds"] / most["lds"]
    assert table.loc[reached.index, "reached"].tolist() == pytest.approx(list(reached))
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
    assert ceiling(one, "loss") is None and reachable_figures(one, "loss") is None


def test_targets_of_two_seeds_can_be_reached_further(linear):
    """Spearman and Brown: the mean of two trainings holds less noise than one."""
    common = linear.target("loss", seed=1).columns
    measured = linear.measured[
        (linear.measured["kind"] != "half") | linear.measured["subset"].isin(common)
    ]
    both = replace(linear, measured=measured)
    single = ceiling(both, "loss")["lds"]
    assert num_target_seeds(linear, "loss") == 1
    assert num_target_seeds(both, "loss") == 2
    expected = (2 * single / (1 + single)) ** 0.5
    assert reachable_figures(both, "loss")["lds"] == pytest.approx(expected)


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
    np.testing.assert_allclose(table.loc[(table["method"] == "ekfac") & same, "lds"], 1)
    own = table["method"] == "ekfac"
    assert own.sum() == 9 and table.loc[own & ~same, "lds"].max() < 0.95


def test_every_method_is_asked_about_each_band(linear):
    """By scipy: what it says of the whole, against the cost in a band."""
    low, high = max(zip(linear.measured["low"], linear.measured["high"], strict=True))
    target = linear.target("loss", low, high)
    rows = linear.scores.query("method == 'clip'").sort_values("sample_id")
    predicted = predicted_changes(np.stack(list(rows["scores"])), linear.masks)
    pairs = zip(predicted, target.to_numpy(), strict=True)
    expected = np.mean([spearmanr(*pair).statistic for pair in pairs])
    table = timestep_table(linear, "loss").query("method == 'clip' and low == @low")
    assert table["lds"].tolist() == [pytest.approx(expected)]


def test_samples_have_the_lds_that_the_table_averages(linear):
    """Per method, the same mean and standard error."""
    each = make_table(linear, "samples", "loss").groupby("method")["lds"]
    table = lds_table(linear, "loss").set_index("method").loc[list(each.groups)]
    np.testing.assert_allclose(table["lds"], each.mean())
    np.testing.assert_allclose(table["standard_error"], each.std() / Q**0.5)


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
    for name in ("", ", predicted by centred scores"):
        found = table.at[f"share of rises{name}", "figure"]
        assert found == pytest.approx(rises.mean())
    assert "share of rises, predicted" not in table.index  # the means are not stored
    assert "share of rises, trained again" not in table.index
    again = cost_rows(np.full((Q, 1), 1e3), "removed").assign(method="none")
    measured = pd.concat([linear.measured, again])
    table = observations_table(replace(linear, measured=measured), "loss")
    table = table.set_index("observation")
    assert table.at["share of rises, trained again", "figure"] == 0


def test_rises_are_predicted_by_scores_before_they_were_centred(linear):
    """Centred scores and their means give what the plain scores would."""
    raw = np.stack(list(scored_rows(linear, "ekfac"))) + np.array([[2, 0.5, 0, -1]]).T
    means = raw.mean(1)
    rest = linear.scores.index.difference(scored_rows(linear, "ekfac").index)
    own = scored("ekfac", raw - means[:, None]).assign(mean=means)
    scores = pd.concat([own, linear.scores.loc[rest]], ignore_index=True)
    table = observations_table(replace(linear, scores=scores), "loss")
    found = table.set_index("observation").at["share of rises, predicted", "figure"]
    wanted = (predicted_changes(raw.astype(float), linear.masks) > 0).mean()
    assert found == pytest.approx(wanted) and 0.2 < found < 0.9


def test_timesteps_that_stand_in_for_others_are_averaged(linear):
    """Against a loop over the table of timesteps, and over halves left out."""

    def by_loop(evidence):
        table = timestep_table(evidence, "loss").query("low >= 0 and scored_low >= 0")
        gap = table["scored_low"] - table["low"]
        means = [table.loc[rows, "lds"].mean() for rows in (gap == 0, gap > 0, gap < 0)]
        return np.array([*means, means[1] - means[2]])

    table = observations_table(linear, "loss").set_index("observation")
    names = ["own timesteps", "higher timesteps", "lower timesteps"]
    table = table.loc[[*names, "higher less lower"]]
    np.testing.assert_allclose(table["figure"], by_loop(linear))
    parts = [
        by_loop(replace(linear, measured=linear.measured.query("subset != @m")))
        for m in range(M)
    ]
    expected = np.sqrt((M - 1) * np.var(parts, axis=0))
    np.testing.assert_allclose(table["standard_error"], expected)


def test_a_seed_of_few_halves_does_not_take_the_ceiling_away():
    """A third seed that has only begun leaves the ceiling of the two others."""
    evidence = full_evidence({}, 40)
    before = ceiling(evidence, "loss")
    begun = evidence.measured.query("kind == 'half' and seed == 1 and subset < 2")
    measured = pd.concat([evidence.measured, begun.assign(seed=2)])
    assert before and ceiling(replace(evidence, measured=measured), "loss") == before


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


@pytest.fixture
def beside(tmp_path):
    """Return settings, and the folder with whole evidence about them."""
    config = collection_config("fashion2")
    evidence = full_evidence(config.to_dict(), num_examples=20)
    write_evidence(evidence_folder(tmp_path, config), evidence)
    return config, evidence_folder(tmp_path, config)


def test_evidence_is_found_beside_its_collection(beside):
    """By the settings that make the model; a renamed collection is another."""
    config, folder = beside
    assert len(evidence_of(folder.parent, config).masks) == 16
    with pytest.raises(LookupError, match="Nothing was retrained to check 'mine' yet"):
        evidence_of(folder.parent, replace(config, name="mine"))


def test_evidence_of_other_scores_is_refused(beside):
    """Settings of the scores that differ are named; a title changes no score."""
    config, folder = beside
    assert evidence_of(folder.parent, replace(config, title="Shoes"))
    other = replace(
        config,
        samples=replace(config.samples, num_steps=7),
        gradients=replace(config.gradients, num_draws=7),
    )
    with pytest.raises(ValueError, match="settings of gradients and samples differ"):
        evidence_of(folder.parent, other)


@pytest.mark.parametrize("name", ["recipe.json", "masks.parquet", "scores.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_damaged_evidence_is_refused_with_one_sentence(beside, name, content):
    """A file that is missing, cut off or something else; without a recipe, none."""
    config, folder = beside
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    none_yet = name == "recipe.json" and content is None
    said = "Nothing was retrained" if none_yet else "is damaged. Put it together again"
    with pytest.raises((LookupError, ValueError), match=said):
        read_evidence(folder)


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
        "method,lds,standard_error,subset_error,num_samples,num_subsets,scored,"
        "reached,slope,slope_error,best_lds,best_damping"
    )
    assert lines[1].startswith("ekfac,1,")


def test_a_table_of_nothing_is_refused(tmp_path, monkeypatch, capsys):
    """Exit status 1 and one sentence that says what to do."""
    assert ask(monkeypatch, "--root", str(tmp_path), "--table", "lds") == 1
    said = capsys.readouterr().err
    assert "Nothing was retrained to check 'fashion2' yet" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--table", "magic"], "--table cannot be 'magic'. Expected: lds, samples, "),
        (["--measurement", "x"], "--measurement cannot be 'x'. Expected: loss, "),
    ],
)
def test_values_that_no_table_has_are_refused_at_once(
    monkeypatch, capsys, arguments, sentence
):
    with pytest.raises(SystemExit, match="2"):
        ask(monkeypatch, *arguments)
    assert sentence in capsys.readouterr().err.replace("`", "")


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
    # While others are still being measured: what has nothing beside it is left out.
    for missing in ("none", "random"):
        part = evidence.measured[evidence.measured["method"] != missing]
        assert make_table(replace(evidence, measured=part), "removal", "loss").empty


def drawn(pixels, fraction, side) -> pd.DataFrame:
    """Return rows of images (Q, P) that one of two disjoint models drew."""
    rows = [
        ("disjoint", side, 0, "", fraction, -1, i, row.astype(np.uint8).tobytes(), [1])
        for i, row in enumerate(pixels)
    ]
    return pd.DataFrame(rows, columns=PICTURE_COLUMNS)


def test_two_models_that_became_one_are_seen_to(linear):
    """Two sizes by hand: opposite costs and exchanged images, then equal ones."""
    costs, pixels = np.array([1.0, 2.0, 4.0]), np.array([[0, 0], [10, 20], [30, 0]])
    measured, pictures = [], []
    for fraction, other, exchanged in (
        (0.1, 7 - costs, pixels[[1, 0, 2]]),
        (0.5, costs, pixels),
    ):
        for side, (values, drawing) in enumerate(((costs, pixels), (other, exchanged))):
            table = cost_rows(values[:, None], "disjoint")
            measured.append(table.assign(fraction=fraction, subset=side))
            pictures.append(drawn(drawing, fraction, side))
    recipe = RECIPE | {"num_examples": N}
    evidence = Evidence(recipe, None, pd.concat(measured), None, pd.concat(pictures))
    table = collapse_table(evidence, "loss").set_index("num_pictures")
    assert list(table.index) == [6, 30]
    np.testing.assert_allclose(table["correlation"], [-1, 1])
    np.testing.assert_allclose(table["difference"], [(5 + 3 + 1) / 3, 0])
    # Squared distances between the images, over two pixels: 250, 450 and 400.
    apart = ((250 + 250 + 0) / 3) / ((0 + 0 + 2 * 450 + 2 * 400) / 6)
    np.testing.assert_allclose(table["drawn"], [apart**0.5, 0])
    assert collapse_table(linear, "loss").empty


def left_out(costs: dict[str, list[float]], rows: list[tuple]) -> Evidence:
    """Return evidence about groups: costs by what was left out, and predictions."""
    measured = [
        cost_rows(np.array(values)[:, None], "removed").assign(method=name)
        for name, values in costs.items()
    ]
    groups = pd.DataFrame(rows, columns=GROUP_COLUMNS)
    return Evidence(RECIPE, None, pd.concat(measured), None, groups=groups)


def test_a_group_left_out_is_compared_with_what_was_predicted():
    """Two samples and three groups by hand, against scipy."""
    costs = {"none": [5.0, 7.0], "s=a": [6.0, 7.5], "s=b": [5.5, 9.0], "s=c": [5, 7]}
    predicted = {"s=a": [0.6, 0.4], "s=b": [0.1, 0.9], "s=c": [0.2, -0.2]}
    rows = [
        (name, sample, float(name == "s=a"), "ekfac", "loss", change, 0.1)
        for name, changes in predicted.items()
        for sample, change in enumerate(changes)
    ]
    rows += [(*row[:3], "clip", OWN, -row[5], np.nan) for row in rows]
    rows += [(*row[:3], "trak", "elbo", 0.0, 0.1) for row in rows[:6]]
    table = group_table(left_out(costs, rows), "loss")
    assert len(table) == 12 and set(table["method"]) == {"ekfac", "clip"}
    keys = ["method", "group", "sample_id"]
    assert table.set_index(keys)["measured"]["ekfac", "s=b", 1] == 2.0
    found = group_summary(table).set_index("method").loc["ekfac"]
    predicted, measured = np.array([[0.6, 0.1, 0.2], [0.4, 0.9, -0.2]]), [1, 0.5, 0]
    measured = np.array([measured, [0.5, 2, 0]])
    expected = spearmanr(predicted.ravel(), measured.ravel()).statistic
    assert found["correlation"] == pytest.approx(expected)
    each = [
        spearmanr(*pair).statistic for pair in zip(predicted, measured, strict=True)
    ]
    assert found["within"] == pytest.approx(np.mean(each))
    assert found["first"] == 1 and found["chance"] == pytest.approx(1 / 3)
    assert found["own"] == 0.5
    slope = np.linalg.lstsq(predicted.reshape(-1, 1), measured.ravel(), rcond=None)
    assert found["size"] == pytest.approx(slope[0][0])
    other = group_summary(table).set_index("method").loc["clip"]
    assert other["correlation"] == pytest.approx(-expected) and other["first"] == 0


def test_a_group_is_compared_with_as_many_random_pictures():
    """By hand: those of its size to two digits; without any, the change itself."""
    rows = [(name, 0, 1.0, "ekfac", "loss", 0.5, 0.1) for name in ("s=a", "s=b")]
    evidence = left_out({"s=a": [6.0], "s=b": [8.0], "none": [5.0]}, rows)
    shares = {"s=a": 0.2508, "s=b": 0.31}
    measured = evidence.measured
    measured["fraction"] = measured["method"].map(shares).fillna(0.0)
    random = [
        cost_rows(np.array([[cost]]), "removed").assign(
            method="random", fraction=fraction, about=number
        )
        for number, (fraction, cost) in enumerate([(0.25, 5.2), (0.25, 5.6), (0.1, 9)])
    ]
    evidence = replace(evidence, measured=pd.concat([measured, *random]))
    table = group_table(evidence, "loss").set_index("group")
    columns = ["change", "random", "measured", "controls"]
    np.testing.assert_allclose(table.loc["s=a", columns].tolist(), [1, 0.4, 0.6, 2])
    np.testing.assert_allclose(table.loc["s=b", columns].tolist(), [3, np.nan, 3, 0])
    assert group_summary(table.reset_index()).at[0, "controls"] == 0


def test_without_the_model_of_every_picture_there_is_no_change_yet():
    """As while others are still being measured: no row, and no error."""
    rows = [("s=a", 0, 1.0, "ekfac", "loss", 0.5, 0.1)]
    assert group_table(left_out({"s=a": [6.0]}, rows), "loss").empty
    assert len(group_table(left_out({"s=a": [6.0], "none": [5.0]}, rows), "loss")) == 1


def test_groups_are_named_by_a_column_and_a_value():
    """What is not there is refused with what is."""
    table = pd.DataFrame({"style": ["a=1", "b", "a=1"], "size": [3, 4, 3]})
    assert group_members("style=a=1", table).tolist() == [True, False, True]
    assert group_members("size=4", table).tolist() == [False, True, False]
    with pytest.raises(LookupError, match="no column 'house'. They have style, size"):
        group_members("house=a", table)
    with pytest.raises(LookupError, match="has 'c' as its style. There are a=1, b"):
        group_members("style=c", table)
