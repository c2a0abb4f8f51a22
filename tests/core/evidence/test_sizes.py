"""How far predicted sizes are off, by what was varied, on costs of known size."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from core.evidence.evaluation import without_top
from core.evidence.groups import group_table
from core.evidence.removal import removal_table
from core.evidence.sizes import ratio, sizes_finding, sizes_table
from core.evidence.stored import Evidence
from tests.helpers.toy_evidence import RECIPE, cost_rows, full_evidence, scored


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return full_evidence({}, 40)


def test_scores_a_hundred_times_too_large_have_a_slope_of_a_hundredth():
    """By method, damping and draws; similarity predicts no size."""
    g = np.random.default_rng(0)
    true, masks = g.normal(size=(4, 50)), g.random((16, 50)) < 0.5
    costs = true @ (~masks).T / 50
    scores = [
        scored("ekfac", 100 * true),
        scored("ekfac", 10 * true, damping=1.0),
        scored("ekfac", 50 * true, num_draws=256),
        scored("datainf", 2 * true),
        scored("clip", true, ""),
    ]
    scores = pd.concat(scores, ignore_index=True)
    whole = Evidence(
        RECIPE | {"num_examples": 50}, masks, cost_rows(costs, "half"), scores
    )
    table = sizes_table(whole, "loss").set_index(["varied", "method", "setting"])
    assert "clip" not in table.index.get_level_values("method")
    for key, slope in (
        (("method", "ekfac", "own damping"), 0.01),
        (("damping", "ekfac", "0.01"), 0.01),  # the own one, of the mean eigenvalue
        (("damping", "ekfac", "10"), 0.1),
        (("draws", "ekfac", "256"), 0.02),
        (("group", "ekfac", "a random half"), 0.01),
        (("method", "datainf", "own damping"), 0.5),
    ):
        assert table.at[key, "slope"] == pytest.approx(slope, rel=1e-4), key
        assert table.at[key, "lds"] == pytest.approx(1)
    said = sizes_finding(table.reset_index())
    assert said.startswith("EK-FAC predicts 100 times too much. A damping of 10 times")


def test_groups_and_top_images_are_regressed_through_zero(evidence):
    """Against numpy, on what the tables of groups and removals say."""
    table = sizes_table(evidence, "loss").query("method == 'ekfac'")
    table = table.set_index("setting")
    groups = group_table(evidence, "loss").query("method == 'ekfac'")
    x, y = (groups[name].to_numpy() for name in ("predicted", "measured"))
    wanted = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]
    assert table.at["a whole group", "slope"] == pytest.approx(wanted)
    removed = removal_table(evidence, "loss").query("method == 'ekfac'")
    removed = removed[removed["sample_id"] >= 0]
    scores = evidence.default_scores("ekfac", "loss")
    for fraction, part in removed.groupby("fraction"):
        x = np.array([
            scores[i][~without_top(scores[i], fraction)].sum() / 40
            for i in part["sample_id"]
        ])
        wanted = np.linalg.lstsq(x[:, None], part["excess"].to_numpy(), rcond=None)
        row = table.loc[f"the {fraction:.0%} that matter most"]
        assert row["slope"] == pytest.approx(wanted[0][0])


def test_the_error_of_a_ratio_is_that_of_drawing_anew():
    """Pairs of a known law, drawn many times: the spread of the slope."""
    g, slopes, errors = np.random.default_rng(1), [], []
    for _ in range(400):
        x = g.normal(2, 1, size=12)
        slope, error = ratio(x, 0.3 * x + 0.2 * g.normal(size=12))
        slopes.append(slope)
        errors.append(error)
    assert 0.85 < np.median(errors) / np.std(slopes) < 1.2
    assert np.isnan(ratio(x[:2], x[:2])[1])


def test_nothing_is_said_without_the_method(evidence):
    """And sizes of the wrong sign are called so."""
    table = sizes_table(evidence, "loss")
    assert sizes_finding(table[table["method"] != "ekfac"]) == ""
    assert "wrong sign" in sizes_finding(table.assign(slope=-table["slope"].abs()))
    bare = replace(evidence, measured=evidence.measured.query("kind == 'half'"))
    assert set(sizes_table(bare, "loss")["varied"]) >= {"method", "damping", "group"}
