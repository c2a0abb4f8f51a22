"""An image of one's own is cut, put on the collection's ground, or left as it came."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from core.explorer.own_images import prepare
from core.files import images


def collection(ground, channels: int = 3):
    """Return what `prepare` asks of a collection."""
    return SimpleNamespace(ground=ground, image_shape=(channels, 16, 16))


def file(image: Image.Image) -> bytes:
    """Return an image as a PNG."""
    kept = io.BytesIO()
    image.save(kept, "PNG")
    return kept.getvalue()


def banner(ground) -> bytes:
    """Return a red half beside a blue one, 128 x 64 pixels, on a ground."""
    image = Image.new("RGB", (128, 64), ground)
    image.paste((255, 0, 0), (16, 16, 64, 48))
    image.paste((0, 0, 255), (64, 16, 112, 48))
    return file(image)


@pytest.mark.parametrize("ground", [(255, 255, 255), (0, 0, 0)])
def test_the_ground_becomes_the_collections(ground):
    ready = prepare(collection(ground), banner((230, 240, 235)), 0.0)
    drawn_there = prepare(collection(None), banner(ground), 0.0)
    assert ready.changes and ready.size == (128, 64)
    np.testing.assert_allclose(
        ready.evened.astype(int), drawn_there.plain.astype(int), atol=3
    )
    assert not prepare(collection(ground), banner(ground), 0.0).changes


def test_transparent_parts_become_the_ground_and_the_subject_stays():
    """A white disc on nothing is white on black, which it was never before."""
    image = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    image.paste((255, 255, 255, 255), (16, 16, 48, 48))
    ready = prepare(collection((0, 0, 0)), file(image), 0.5)
    assert ready.evened[:, 8, 8].tolist() == [255] * 3
    assert ready.evened[:, 0, 0].tolist() == [0] * 3
    assert (ready.plain > 250).all()


def test_a_whole_image_has_ground_at_its_sides():
    ready = prepare(collection((0, 0, 0)), banner((255, 255, 255)), None)
    assert (ready.evened[:, 0] == 0).all() and (ready.plain[:, 0] == 255).all()
    ends = [ready.evened[:, 8, column].argmax() for column in (4, 11)]
    assert ends == [0, 2]


def test_a_grey_collection_gets_one_channel_and_a_square_is_as_decoded():
    square = np.random.default_rng(0).integers(0, 256, (3, 40, 40), dtype=np.uint8)
    data = images.png(square)
    ready = prepare(collection((0, 0, 0), channels=1), data, 0.5)
    np.testing.assert_array_equal(ready.plain, images.decode_image(data, (1, 16, 16)))
    assert not ready.changes  # noise has no ground
