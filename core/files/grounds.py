"""The ground of an image: its colour, an image put on another one, and squares.

The ground is what lies around the subject: one colour along the edge. A photograph has
none. Knows neither files nor collections.
"""

from collections.abc import Iterable

import numpy as np
from PIL import Image

NEAR = 24  # of 255 in any channel: still the same ground
UNIFORM = 0.85  # share of the edge that has to be near one colour
SHARED = 0.5  # share of images whose grounds have to be near one colour
RIM = 2  # pixels around a subject that may hold a mixture of it and its ground

Colour = tuple[int, int, int]


def ground_of(pixels: np.ndarray) -> Colour | None:
    """Return the colour of an image's ground, None where its edge has several.

    Args:
        pixels: uint8, shape (H, W, 3).
    """
    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    colour = np.median(edge, 0).round().astype(np.int16)
    near = np.abs(edge - colour).max(-1) <= NEAR
    return tuple(map(int, colour)) if near.mean() >= UNIFORM else None


def shared_ground(images: Iterable[np.ndarray]) -> Colour | None:
    """Return the colour of the ground that images share, None where few share one.

    Args:
        images: uint8, each of shape (H, W, 3).
    """
    grounds = [ground_of(pixels) for pixels in images]
    known = np.array([ground for ground in grounds if ground is not None])
    if len(known) < SHARED * len(grounds) or not len(known):
        return None
    colour = np.median(known, 0).round().astype(int)
    near = (np.abs(known - colour).max(-1) <= NEAR).sum()
    return tuple(map(int, colour)) if near >= SHARED * len(grounds) else None


def on_ground(pixels: np.ndarray, old: Colour, colour: Colour) -> np.ndarray:
    """Return an image whose ground has another colour.

    The ground is what is near its colour and connected to the edge. Pixels just inside
    the subject are mixtures: their share of the old ground is replaced, too.

    Args:
        pixels: uint8, shape (H, W, 3).
        old: The colour of its ground.
        colour: That of the new ground.

    Returns:
        uint8, same shape.
    """
    from scipy import ndimage  # slow to load, and no image of a gallery needs it

    distance = np.abs(pixels.astype(np.int16) - np.array(old, np.int16)).max(-1)
    pieces, _ = ndimage.label(distance <= NEAR)
    edge = np.concatenate([pieces[0], pieces[-1], pieces[:, 0], pieces[:, -1]])
    ground = np.isin(pieces, edge[edge > 0])
    # A mixture stands as far from the ground as its share of the subject says.
    subject = ndimage.maximum_filter(distance, 2 * RIM + 1).clip(1)
    rim = ndimage.binary_dilation(ground, iterations=RIM) & ~ground
    share = np.where(rim, 1 - distance / subject, ground)[..., None]
    moved = pixels + share * (np.array(colour, float) - old)
    moved[ground] = colour
    return moved.round().clip(0, 255).astype(np.uint8)


def cropped(image: Image.Image, place: float) -> Image.Image:
    """Return the largest square of an image, as large as its shorter side.

    Args:
        image: The image.
        place: Where along its longer side, from 0 (left, top) to 1 (right, bottom).
    """
    side = min(image.size)
    left, top = (round((length - side) * place) for length in image.size)
    return image.crop((left, top, left + side, top + side))


def hex_words(colour: Colour) -> str:
    """Return a colour as a style sheet writes it."""
    return "#" + "".join(f"{value:02x}" for value in colour)
