"""What leaving out a group would change, as sentences."""

import numpy as np
import pytest

from core.answers import Answer
from core.explorer.groups import Calibrated
from core.lenses import Lens
from core.report.left_out import against_now, against_words, change_words


def answer_of(value: float = 4.0, **lens) -> Answer:
    """Return an answer about ten images."""
    numbers = np.arange(10.0)
    return Answer(Lens(**lens), np.arange(10), numbers, numbers, "exact", value, 0.1)


def test_a_raw_change_is_one_against_random_pictures():
    """With its error; within two of them nothing is sure."""
    said = change_words(answer_of(measurement="elbo"), 3, 2.0, 0.5)
    assert said == (
        "Without these 3 images the model would find it less likely than after a "
        "random removal as large: negative ELBO +2.00 ± 0.50. It is 4 now, so that is "
        "50% of it."
    )
    said = change_words(answer_of(), 1, -2.0, 1.5)
    assert said.startswith("Without this image the model would find it more likely")
    assert "within two standard errors of zero." in said
    region = change_words(answer_of(region=(0, 0, 2, 2)), 3, 2.0, np.nan)
    assert "find the marked part of it less likely" in region and "±" not in region


@pytest.mark.parametrize(
    ("low", "high", "unsure"), [(-0.2, 1.2, True), (0.2, 0.8, False)]
)
def test_a_calibrated_change_takes_the_place_of_the_raw_one(low, high, unsure):
    """Its direction is its own, whatever the prediction's."""
    sized = Calibrated(0.5, low, high, True, 0.1)
    said = change_words(answer_of(), 3, -70.0, 0.5, sized)
    assert "less likely" in said and "70" not in said
    numbers = "+0.50, in 90% of cases from −0.20 to +1.20"
    if not unsure:
        numbers = "+0.500, in 90% of cases from +0.200 to +0.800"
    assert f"training loss {numbers}" in said
    assert ("even the direction is not certain" in said) == unsure
    assert said.endswith("so that is 12% of it.")


def test_a_prediction_larger_than_was_tested_is_a_bound():
    """Its interval was never seen to hold, so it is not printed."""
    said = change_words(
        answer_of(), 3, 40.0, 0.5, Calibrated(0.5, 0.2, 0.8, False, 0.1)
    )
    assert "training loss +0.500 or further: no half of the images" in said
    assert "90%" not in said and "less likely" in said


def test_an_attribution_is_no_change():
    said = change_words(answer_of(method="relatif"), 3, 2.0, np.nan)
    assert said == "RelatIF gives these 3 images a score of +2.00 together."


def test_a_change_larger_than_the_value_is_no_size():
    assert "cannot be read as a size" in against_now(1.0, -3.0)
    assert "less than 0.1% of it" in against_now(1e6, 3.0)
    assert against_now(np.nan, 1.0) == against_now(-1.0, 1.0) == ""


def test_the_place_among_random_groups_is_told():
    assert against_words(0.97, 200, 1234) == (
        "That is more than for 97% of 200 random groups of 1,234 images."
    )
    assert against_words(0.5, 200, 1).endswith("random groups of one image.")
