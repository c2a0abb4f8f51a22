"""What is said of an image of one's own holds for noise and for known values."""

from types import SimpleNamespace

import numpy as np
import pytest

from core.explorer.explorer import Answer, Lens
from core.report import own_image


def answer(scores: np.ndarray, error: float = 1.0, value: float = 5.0) -> Answer:
    """Return an answer with equal errors."""
    errors = np.full(len(scores), error)
    return Answer(Lens(), np.arange(len(scores)), scores, errors, "sketch", value)


def test_noise_alone_is_called_clear_of_noise_once_in_twenty():
    """The largest of N scores, of 2,000 draws."""
    draws = np.random.default_rng(0).standard_normal((2000, 500))
    counts = np.array([own_image.beyond_noise(answer(row)) for row in draws])
    assert abs((counts > 0).mean() - 0.05) < 0.02
    assert own_image.beyond_noise(answer(draws[0], np.nan)) is None


@pytest.mark.parametrize(
    ("strong", "begins"),
    [
        (10, "Clear answer: all 10 of the strongest stand higher"),
        (7, "Fairly clear answer: 7 of the 10"),
        (1, "Weak answer: 1 of the 10 strongest stands"),
        (0, "No clear answer: none of the 10"),
    ],
)
def test_the_words_follow_how_many_stand_out(strong, begins):
    scores = np.zeros(400)
    scores[:strong] = 9.0
    words = own_image.strength_words(answer(scores))
    assert words.startswith(begins) and "any of 400." in words
    assert own_image.strength_words(answer(scores, np.nan)) == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (50.0, "All 8 images of the gallery are easier"),
        (6.5, "harder for the model than 7 of its 8"),
        (0.5, "7 of its 8 own are harder"),
        (np.nan, ""),
    ],
)
def test_the_loss_is_held_against_that_of_the_models_own(value, said):
    explorer = SimpleNamespace(gallery_values=lambda lens: np.arange(8.0))
    found = own_image.familiar_words(explorer, answer(np.zeros(4), value=value))
    assert said in found and bool(said) == bool(found)
    none = SimpleNamespace(gallery_values=lambda lens: np.array([]))
    assert own_image.familiar_words(none, answer(np.zeros(4))) == ""
