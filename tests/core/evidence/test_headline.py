"""The one line that says how far a lens was tested, against the shipped evidence."""

import pytest

from core.evidence.groups import group_changes
from core.evidence.headline import UNTESTED, first_group, headline
from core.evidence.trust import Trust, lens_trust
from core.explorer.explorer import Lens, open_explorer


@pytest.fixture(scope="module")
def evidence():
    """Return what was measured of the shipped collections, by name."""
    return {name: open_explorer(name).evidence() for name in ("glyphs", "fashion2")}


@pytest.mark.parametrize("measurement", ["loss", "elbo"])
def test_share_of_right_groups_is_that_of_a_count_by_hand(evidence, measurement):
    """Sample by sample: is the largest prediction where the largest change was?"""
    glyphs = evidence["glyphs"]
    rows = glyphs.groups.query("method == 'ekfac' and measurement == @measurement")
    measured = group_changes(glyphs, measurement)["measured"]
    right = 0
    for sample, predicted in rows.groupby("sample_id"):
        named = predicted.loc[predicted["predicted"].idxmax(), "group"]
        right += named == measured.xs(sample, level="sample_id").idxmax()
    column, share, chance = first_group(Lens("ekfac", measurement), glyphs)
    assert (column, chance) == ("style", 0.25)
    assert share == pytest.approx(right / rows["sample_id"].nunique())
    said = headline(Lens("ekfac", measurement), None, glyphs, lambda name: "house")
    assert said == f"Tested: right house in {share:.0%} of images, chance 25%."


def test_random_halves_come_first(evidence):
    tested = lens_trust(evidence["fashion2"], "ekfac", "loss")
    said = headline(Lens(), tested, evidence["fashion2"])
    assert said == "Tested: LDS 0.27 ± 0.04, chance 0, at most 0.61."
    alone = Trust(0.2, float("nan"), float("nan"), float("nan"), 1, 8)
    assert headline(Lens(), alone, None) == "Tested: LDS 0.20, chance 0."


@pytest.mark.parametrize(
    "lens",
    [
        Lens("kfac"),
        Lens(timesteps=(0, 500)),
        Lens(region=(0, 0, 8, 8)),
        Lens(damping=0.5),
        Lens(measurement="trajectory"),
    ],
)
def test_a_lens_that_nobody_tested_is_untested(evidence, lens):
    assert headline(lens, None, evidence["glyphs"]) == UNTESTED
    assert headline(Lens(), None, None) == UNTESTED
