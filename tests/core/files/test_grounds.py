"""A ground is found, and another put there as if the subject was drawn on it."""

import numpy as np
import pytest
from PIL import Image

from core.files import grounds

RED = np.array([200.0, 30.0, 40.0])


def disc(ground, size: int = 96) -> np.ndarray:
    """Return a red disc on a ground, its rim mixed by the share that it covers."""
    axis = (np.arange(8 * size) + 0.5) / 8 - size / 2
    inside = (np.square(axis[:, None]) + np.square(axis)) < (size / 3) ** 2
    share = inside.reshape(size, 8, size, 8).mean((1, 3))[..., None]
    return (share * RED + (1 - share) * ground).round().astype(np.uint8)


@pytest.mark.parametrize("old", [(255, 255, 255), (240, 236, 230), (20, 60, 30)])
@pytest.mark.parametrize("new", [(255, 255, 255), (0, 0, 0)])
def test_a_disc_moved_to_a_ground_is_the_disc_drawn_there(old, new):
    moved = grounds.on_ground(disc(old), grounds.ground_of(disc(old)), new)
    expected = disc(new)
    far = np.abs(moved.astype(int) - expected).max(-1)
    assert far.max() <= 30 and far.mean() < 0.5
    assert (moved[0, 0] == new).all()


def test_a_hole_keeps_its_colour_and_a_subject_is_not_touched():
    pixels = np.full((40, 40, 3), 250, np.uint8)
    pixels[8:32, 8:32] = 90
    pixels[16:24, 16:24] = 250
    moved = grounds.on_ground(pixels, grounds.ground_of(pixels), (0, 0, 0))
    assert (moved[16:24, 16:24] == 250).all()
    assert (moved[9:15, 9:31] == 90).all() and (moved[:8] == 0).all()


def test_photographs_have_no_ground():
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    assert grounds.ground_of(noise) is None
    assert grounds.shared_ground([noise] * 3 + [disc((255, 255, 255))]) is None
    assert grounds.shared_ground([]) is None


def test_what_most_share_is_the_ground_of_all():
    white, black = disc((254, 255, 255)), disc((0, 0, 0))
    assert grounds.shared_ground([white, white, black]) == (254, 255, 255)
    assert grounds.hex_words((254, 0, 10)) == "#fe000a"


@pytest.mark.parametrize(("place", "left"), [(0.0, 0), (0.5, 20), (1.0, 40)])
def test_a_square_is_cut_out_along_the_longer_side(place, left):
    wide = np.arange(60 * 100 * 3, dtype=np.uint32).reshape(60, 100, 3) % 251
    image = Image.fromarray(wide.astype(np.uint8))
    cut = np.asarray(grounds.cropped(image, place))
    np.testing.assert_array_equal(cut, wide[:, left : left + 60])
    tall = np.asarray(
        grounds.cropped(image.transpose(Image.Transpose.TRANSPOSE), place)
    )
    np.testing.assert_array_equal(tall, wide[:, left : left + 60].transpose(1, 0, 2))
