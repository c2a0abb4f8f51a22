"""An image of one's own, made ready: the square of it, on the collection's ground."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from core.explorer.facts import Facts
from core.files import grounds, images


@dataclass(frozen=True)
class Prepared:
    """An image as the model would see it.

    Attributes:
        size: Width and height that it came with, in pixels; of a large one, after it
            was made smaller.
        plain: With the ground that it came with, uint8, shape (C, H, W).
        evened: On the collection's ground; the same pixels where nothing changes.
        frames: Which of several images in the file it is, "" where there is one.
    """

    size: tuple[int, int]
    plain: np.ndarray
    evened: np.ndarray
    frames: str

    @property
    def changes(self) -> bool:
        """Whether its ground is another one than the collection's."""
        return not np.array_equal(self.plain, self.evened)


def prepare(facts: Facts, data: bytes, place: float | None) -> Prepared:
    """Return an image of one's own as the collection's model would see it.

    Args:
        facts: The collection.
        data: The file; one that cannot be read raises the ValueError of
            `core.files.images`.
        place: Where along its longer side the square is cut out, from 0 to 1; None
            takes the whole image, with ground beside it.
    """
    image = images.open_image(data)
    plain = evened = seen(facts, image, place)
    if facts.ground is not None:
        on_paper = images.open_image(data, facts.ground)
        evened = seen(facts, even(on_paper, place, facts.ground), place, facts.ground)
    return Prepared(image.size, plain, evened, images.frames_note(data))


def even(
    image: Image.Image, place: float | None, ground: grounds.Colour
) -> Image.Image:
    """Return an image in RGB on another ground, as it is where it has none itself.

    The ground is looked for along the edge of the whole image, and along that of its
    square: a subject may reach the one and not the other.
    """
    pixels = np.asarray(image)
    old = grounds.ground_of(pixels)
    if old is None and place is not None:
        old = grounds.ground_of(np.asarray(grounds.cropped(image, place)))
    if old is None:
        return image
    return Image.fromarray(grounds.on_ground(pixels, old, ground))


def seen(
    facts: Facts,
    image: Image.Image,
    place: float | None,
    paper: grounds.Colour = images.WHITE,
) -> np.ndarray:
    """Return an image in RGB as the model's pixels (C, H, W), paper beside it."""
    channels, side, _ = facts.image_shape
    if place is not None:
        image = grounds.cropped(image, place)
    fitted = images.fit_square(image, side, paper)
    pixels = np.asarray(fitted.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(side, side, channels).transpose(2, 0, 1)
