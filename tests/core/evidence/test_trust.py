"""The mark beside a score: the LDS of that lens, or none."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence.evaluation import predicted_changes
from core.evidence.lds import lds_table
from core.evidence.stored import Evidence, ceiling
from core.evidence.trust import Trust, lens_trust, reliability, size_note
from core.lenses import Lens
from core.numbers import number, plus_minus
from tests.helpers.toy_evidence import full_evidence


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """Return evidence with a row in every table."""
    return full_evidence({}, num_examples=60)


def spearman(evidence: Evidence, target: pd.DataFrame, **lens) -> np.ndarray:
    """Return each sample's LDS by scipy, from the stored rows of one lens."""
    rows = evidence.scores
    for name, value in lens.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    assert len(rows) == len(target)
    predicted = predicted_changes(np.stack(list(rows["scores"])), evidence.masks)
    pairs = zip(predicted, target.to_numpy(), strict=True)
    return np.array([spearmanr(*pair).statistic for pair in pairs])


PLAIN = {"low": -1, "damping": None, "num_draws": 64, "variant": ""}


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ({}, {}),
        ({"method": "trak"}, {"method": "trak"}),
        ({"method": "clip"}, {"method": "clip", "measurement": ""}),
        ({"damping": 1e-2}, {"damping": 1e-2}),
        ({"damping": 1.0000001e-2}, {"damping": 1e-2}),
        ({"damping": 1e-3}, {}),  # the method's own
        ({"timesteps": (250, 500)}, {"low": 250}),
        ({"source": "sketch"}, {"variant": "sketch"}),
        ({"source": "full index"}, {}),
        ({"measurement": "elbo"}, {"measurement": "elbo"}),
    ],
)
def test_trust_is_the_spearman_correlation_of_that_lens(evidence, asked, stored):
    """By scipy, from the one stored lens that was asked about."""
    asked = {"method": "ekfac", "measurement": "loss"} | asked
    low, high = asked.get("timesteps", (-1, -1))
    target = evidence.target(asked["measurement"], low, high)
    method = {"method": "ekfac", "measurement": "loss"}
    expected = spearman(evidence, target, **(method | PLAIN | stored))
    found = lens_trust(evidence, **asked)
    assert found.lds == pytest.approx(expected.mean())
    error = expected.std(ddof=1) / len(expected) ** 0.5
    assert found.standard_error == pytest.approx(error)


def test_trust_is_the_row_of_the_table(evidence):
    """The mark and the page Evidence never disagree; order on disk changes nothing."""
    mixed = [
        table.sample(frac=1, random_state=0, ignore_index=True)
        for table in (evidence.measured, evidence.scores)
    ]
    mixed = Evidence(evidence.recipe, evidence.masks, *mixed)
    for measurement in ("loss", "elbo", "log-probability"):
        table = lds_table(evidence, measurement).set_index("method")
        best = ceiling(evidence, measurement)["lds"]
        for method in ("ekfac", "d-trak", "clip"):
            for one in (evidence, mixed):
                found = lens_trust(one, method, measurement)
                row = table.loc[method]
                assert found.lds == pytest.approx(row["lds"], abs=1e-12)
                assert found.subset_error == pytest.approx(row["subset_error"])
                assert found.ceiling == pytest.approx(best)
                assert found.most == pytest.approx(best**0.5)  # of one seed's models


@pytest.mark.parametrize(
    "asked",
    [
        {"measurement": "trajectory"},
        {"method": "journey-trak"},
        {"damping": 0.5},
        {"timesteps": (0, 500)},
        {"method": "kfac", "measurement": "elbo"},
    ],
)
def test_what_was_not_tested_has_no_trust(evidence, asked):
    assert lens_trust(
        evidence, **{"method": "ekfac", "measurement": "loss"} | asked
    ) is (None)


def test_scores_that_rank_nothing_have_no_trust(evidence):
    """A constant score, or one that is no number, has no rank correlation."""
    for value in (1.0, np.nan):
        scores = evidence.scores.assign(
            scores=[np.full(60, value, np.float32)] * len(evidence.scores)
        )
        flat = Evidence(evidence.recipe, evidence.masks, evidence.measured, scores)
        assert lens_trust(flat, "ekfac", "loss") is None


def test_the_sketch_of_a_method_that_was_tested_in_full_is_said_so(evidence):
    found = lens_trust(evidence, "kfac", "loss", source="sketch")
    assert found.lds == lens_trust(evidence, "kfac", "loss").lds
    assert "Tested with the full index." in found.meaning
    assert (
        "full index" not in lens_trust(evidence, "ekfac", "loss", source="sketch").note
    )


def test_the_words_carry_error_and_ceiling():
    found = Trust(0.2134, 0.0217, 0.04, 0.351, 20, 32, most=0.592)
    assert found.words == "LDS 0.21 ± 0.02 (at most 0.59)"
    assert "reaches 0.35" in found.meaning and "can reach is 0.59." in found.meaning
    assert "on 32 random halves" in found.meaning and "20 samples" in found.meaning
    assert "having only 32 halves adds 0.04" in found.meaning
    alone = Trust(-0.2134, float("nan"), float("nan"), float("nan"), 1, 32)
    assert alone.words == "LDS −0.21"
    assert "standard error" not in alone.meaning and "can reach" not in alone.meaning


def test_printed_correlations_have_no_negative_zero():
    assert [number(v) for v in (-0.001, 0.999, -0.5)] == ["0.00", "1.00", "−0.50"]
    assert plus_minus(0.5, float("nan")) == "0.50"


def test_sizes_are_the_slope_of_what_was_measured(evidence):
    """By least squares; only of scores that predict a change."""
    target = evidence.target("loss")
    rows = evidence.scores.query("method == 'ekfac' and measurement == 'loss'")
    rows = rows.query("low == -1 and num_draws == 64 and variant == ''")
    rows = rows[rows["damping"].isna()]
    x = predicted_changes(np.stack(list(rows["scores"])), evidence.masks)
    x, y = (v - v.mean(1, keepdims=True) for v in (x, target.to_numpy()))
    slope = np.linalg.lstsq(x.reshape(-1, 1), y.ravel(), rcond=None)[0][0]
    found = lens_trust(evidence, "ekfac", "loss")
    assert found.size == pytest.approx(slope)
    assert f"actual changes are {slope:.2g}" in found.words
    assert f"{slope:.2g} of predicted: trust" in found.meaning
    assert "actual" not in lens_trust(evidence, "clip", "loss").words


def test_a_few_halves_are_no_test():
    """Two of them can be ranked only right or wrong."""
    few = full_evidence({}, num_examples=60, num_subsets=7)
    assert lens_trust(few, "ekfac", "loss") is None
    assert lens_trust(full_evidence({}, 60, num_subsets=8), "ekfac", "loss")


def test_what_a_size_is_worth_is_said_of_influence_alone(evidence):
    """Tested or not; an attribution predicts no size."""
    found = lens_trust(evidence, "ekfac", "loss")
    said = size_note(Lens(), found)
    order = "trust the order more than the size"
    assert said == (f"T{order[1:]}: actual changes are {found.size:.2g} of predicted.")
    untested = size_note(Lens(), None)
    assert untested == f"Retraining has not tested this collection yet: {order}."
    groups = size_note(Lens(), None, groups=True)
    assert groups == f"Retraining has tested whole groups only: {order}."
    assert size_note(Lens("clip"), None) == size_note(Lens("relatif"), found) == ""


def test_agreement_is_what_a_visitor_gets_with_all_noise_new():
    """By the form that answered; where only the images' draws were new, it says so."""
    quality = {"reliability": 0.918, "sketch_agreement": 0.872, "index_agreement": 1.0}
    tested = {**quality, "exact_again": 0.887, "sketch_again": 0.714}
    lens = Lens()
    assert reliability(tested, lens, "exact") == (
        "Repeatable: a second run with fresh noise gives nearly the same order (0.89)."
    )
    assert reliability(tested, lens, "sketch") == (
        "Repeatable: a second run with fresh noise gives a similar order (0.71); exact "
        "scores give nearly the same order (0.87)."
    )
    assert reliability(quality, lens, "exact") == (
        "Repeatable: fresh training gradients give nearly the same order (0.92)."
    )
    assert reliability({}, lens, "exact") == ""
