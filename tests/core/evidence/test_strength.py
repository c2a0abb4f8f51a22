"""What each method is worth at its default and at its best, against plain loops."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence.evaluation import predicted_changes
from core.evidence.lds import lds_table
from core.evidence.stored import Evidence
from core.evidence.strength import strength_finding, strength_table
from core.measure.draws import subset_masks
from tests.helpers.toy_evidence import RECIPE, cost_rows, scored

N, M, Q = 60, 16, 4
DAMPINGS = (1e-4, 1e-1, 1.0, 10.0)
NOISE = {  # of the scores at the own damping and at each of `DAMPINGS`
    "ekfac": (1, 2, 0.2, 3, 4),
    "trak": (3, 4, 2, 1, 0.2),
}


@pytest.fixture(scope="module")
def made() -> tuple[Evidence, dict]:
    """Return evidence whose noise by damping is known, and each LDS by scipy."""
    g, masks = np.random.default_rng(0), subset_masks(N, M, 0)
    true = g.normal(size=(Q, N))
    costs = predicted_changes(true, masks)
    tables, known = [], {}

    def add(method, noise, damping, variant="") -> None:
        values = true + noise * g.normal(size=true.shape)
        predicted = predicted_changes(values.astype(np.float32), masks)
        pairs = zip(predicted, costs, strict=True)
        found = np.mean([spearmanr(*pair).statistic for pair in pairs])
        known[method, variant, damping] = found
        changed = {"damping": np.nan if damping is None else damping}
        tables.append(scored(method, values, variant=variant, **changed))

    for method, noises in NOISE.items():
        for noise, damping in zip(noises, (None, *DAMPINGS), strict=True):
            add(method, noise, damping)
    add("trak", 0.5, None, "2,048 features, 64 draws")
    add("clip", 5, None)
    features = {
        "": {"features": 512, "draws": 16, "halves_agree": 0.5, "own": 1e-3},
        "2,048 features, 64 draws": {"features": 2048, "draws": 64, "own": 2e-3},
    }
    for facts in features.values():
        facts["mean_eigenvalue"] = 1.0
    recipe = RECIPE | {"num_examples": N, "features": {"trak": features}}
    scores = pd.concat(tables, ignore_index=True)
    return Evidence(recipe, masks, cost_rows(costs, "half"), scores), known


def test_best_and_own_damping_are_found(made):
    """Against scipy; a variant of more features has a row of its own."""
    evidence, known = made
    table = strength_table(evidence, "loss")
    (ekfac,) = table.query("method == 'ekfac'").to_dict("records")
    trak = table[table["method"] == "trak"].sort_values("features")
    few, many = trak.to_dict("records")
    assert len(table) == 4 and np.isnan(ekfac["features"])
    assert ekfac["lds"] == pytest.approx(known["ekfac", "", None])
    assert ekfac["relative_damping"] == pytest.approx(1e-2)
    assert ekfac["best_lds"] == pytest.approx(known["ekfac", "", 0.1])
    assert ekfac["best_damping"] == pytest.approx(1.0)
    assert ekfac["falls"] == "both"
    assert few["best_lds"] == pytest.approx(known["trak", "", 10.0])
    assert (few["falls"], few["draws"]) == ("below", 16)
    assert few["whole_agrees"] == pytest.approx(2 * 0.5 / 1.5)
    variant = "2,048 features, 64 draws"
    assert many["lds"] == pytest.approx(known["trak", variant, None])
    assert many["relative_damping"] == pytest.approx(2e-3)
    assert np.isnan(many["best_lds"]) and many["falls"] == ""


def test_the_lds_table_has_the_best_beside_the_own(made):
    """And the slope of each, with an error."""
    evidence, known = made
    table = lds_table(evidence, "loss").set_index("method")
    assert table.at["ekfac", "best_lds"] == pytest.approx(known["ekfac", "", 0.1])
    assert np.isnan(table.at["clip", "best_lds"])
    own = evidence.scores.query("method == 'ekfac'")
    own = np.stack(list(own[own["damping"].isna()]["scores"])).astype(float)
    predicted = predicted_changes(own, evidence.masks)
    measured = evidence.target("loss").to_numpy()
    x, y = (v - v.mean(1, keepdims=True) for v in (predicted, measured))
    slope = np.polyfit(x.ravel(), y.ravel(), 1)[0]
    assert table.at["ekfac", "slope"] == pytest.approx(slope)
    assert 0 < table.at["ekfac", "slope_error"] < slope


def test_what_gains_most_is_named(made):
    """TRAK's best is far above its own; without a sweep nothing is said."""
    table = strength_table(made[0], "loss")
    assert strength_finding(table).startswith("TRAK gains most from another damping")
    assert "more than one damping" in strength_finding(table.assign(best_lds=np.nan))
