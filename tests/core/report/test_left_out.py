"""What removing a group would change, and did, as sentences."""

import numpy as np
import pytest

from core.answers import Answer
from core.explorer.groups import Calibrated
from core.lenses import Lens
from core.report.left_out import (
    against_words,
    change_words,
    growth,
    images_of,
    measured_words,
    percent,
    twins_words,
)


def answer_of(value: float = 4.0, **lens) -> Answer:
    """Return an answer about ten images."""
    numbers = np.arange(10.0)
    return Answer(Lens(**lens), np.arange(10), numbers, numbers, "exact", value, 0.1)


def said(change, error, below, sized=None, whose="Noto", **lens) -> str:
    """Return what is said of removing 547 images."""
    answer = answer_of(**lens)
    return change_words(answer, whose, 547, (change, error), below, sized)


def test_an_effect_that_random_removals_have_too_is_not_clear():
    assert said(1.76, 1.08, 0.91) == (
        "Predicted: no clear effect. Removing Noto’s 547 images changes the loss by "
        "+44% ± 27% (+1.76); random removals of that size change it as much."
    )


def test_a_clear_effect_says_which_way_and_how_much():
    """Unusual among random removals, and beyond two of its standard errors."""
    assert said(-1.2, 0.2, 0.01, whose="") == (
        "Predicted: the loss falls. Removing these 547 images lowers the loss by "
        "30% ± 5% (1.20)."
    )
    noisy = said(1.2, 0.7, 0.99)
    assert noisy.startswith("Predicted: no clear effect.")
    assert noisy.endswith(
        "changes the loss by +30% ± 18% (+1.20); that is within noise."
    )
    region = said(2.0, np.nan, 0.99, measurement="elbo", region=(0, 0, 2, 2))
    assert region.startswith("Predicted: the negative ELBO of the region rises.")
    assert "raises the negative ELBO of the region by 50% (2.00)." in region


def test_a_change_larger_than_the_value_is_no_share_of_it():
    """Influence is linear: it can predict that more than all of a loss goes."""
    text = said(-5.1, 3.6, 0.25)
    assert "by −5.10 ± 3.60; random removals" in text and "than all of it" in text
    unknown = said(-5.1, 3.6, 0.25, value=np.nan)
    assert "by −5.10 ± 3.60" in unknown and "than all of it" not in unknown


@pytest.mark.parametrize(("low", "unsure"), [(-0.2, True), (0.2, False)])
def test_a_calibrated_change_takes_the_place_of_the_raw_one(low, unsure):
    """Its direction is its own, whatever the prediction's."""
    text = said(-70.0, 0.5, 0.99, Calibrated(0.48, low, 1.2, True, 0.1))
    assert "70" not in text
    ends = "by +12% (in 90% of cases −5% to +30%)"
    if not unsure:
        ends = "by 12% (in 90% of cases +5% to +30%)"
    assert ends in text
    assert text.startswith("Predicted: no clear effect.") == unsure
    assert ("the loss rises" in text) != unsure


def test_a_prediction_larger_than_was_tested_is_a_bound():
    """Its interval was never seen to hold, so it is not printed."""
    text = said(40.0, 0.5, 0.99, Calibrated(0.48, 0.2, 0.8, False, 0.1))
    assert "raises the loss by 12% or more: no change as large was tested" in text
    assert "90%" not in text


def test_an_attribution_is_no_change():
    text = change_words(answer_of(method="relatif"), "", 3, (2.0, np.nan), 0.5)
    assert text == "RelatIF gives these 3 images a score of +2.00 together."


def test_the_place_among_random_removals_is_told():
    assert against_words(0.91) == (
        "More than 91% of random removals of the same size. Not unusual."
    )
    assert against_words(0.02).startswith("Less than 98% of random removals")
    assert against_words(0.02).endswith(" Unusual.")
    assert against_words(0.0).startswith("Less than every random removal tried of the")
    assert against_words(1.0).startswith("More than every random removal tried of the")


def test_what_was_measured_is_told_against_a_random_removal():
    assert measured_words("loss", 621.0, 698.0, 24.0) == (
        "The loss more than doubled (+698, against +24 for a random removal)."
    )
    assert (
        measured_words("elbo", -5.0, 2.0, np.nan) == "The negative ELBO rose (+2.00)."
    )


def test_the_group_that_is_missed_most_is_told_against_random_ones():
    costs = {"Noto": 130.0, "Fluent": 101.0}
    assert twins_words("loss", 100.0, costs, [104.0, 102.0]) == (
        "Noto is missed most: without it the loss rose by 30%. After a random removal "
        "of the size it rose by 4.0% at most."
    )
    assert twins_words("loss", 100.0, costs, [104.0, 131.0]) == (
        "No group is missed more than a random one: without Noto the loss rose by 30%; "
        "after a random removal of the size it rose by 31% at most."
    )
    assert twins_words("loss", 100.0, costs, []) == (
        "Without Noto, the loss rose by 30%: the most of all."
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (250, "more than tripled"),
        (100, "more than doubled"),
        (57, "rose by 57%"),
        (-3.2, "fell by 3.2%"),
        (0.1, "hardly changed"),
    ],
)
def test_growth_is_told_in_words(change, words):
    assert growth(100.0, change) == words


def test_a_group_is_named_by_what_its_images_share():
    assert images_of(1, "Noto") == "Noto’s image"
    assert images_of(1234) == "these 1,234 images"
    assert percent(0.0521, 0.003) == "+5.2% ± 0.3%" and percent(-1e-5) == "+0.00%"
