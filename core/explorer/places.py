"""What stands on a map: names of its neighbourhoods, images beside their dots.

Plain arrays; knows neither models nor pages.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

NEIGHBOURS = 20  # images nearest on the map that make a neighbourhood
DOMINATES = 0.5  # share of them that a label needs to name it
FEWEST = 8  # images in such neighbourhoods that are worth a name
WIDE, HIGH = 0.16, 0.06  # room of a name, as shares of the map
NEAR = 0.08  # radius of the place that a name stands on, as a share of the map
LETTER, LINE = 7.5, 17.0  # pixels of the screen: a letter's width, a name's height
ROUNDS = 300  # of pushing boxes apart


@dataclass(frozen=True)
class Place:
    """A neighbourhood of a map that one label dominates.

    Attributes:
        name: The label.
        x: Where it lies.
        y: Where it lies.
        images: How many images of the label have a neighbourhood that it dominates.
    """

    name: str
    x: float
    y: float
    images: int


def named_places(positions: np.ndarray, labels: pd.DataFrame, most: int) -> list[Place]:
    """Return the neighbourhoods that a label dominates, the largest first.

    A label dominates where at least half of the nearest images have it. Its name
    stands where that is most true; a name that would cover a larger one is left out.

    Args:
        positions: Of the images on the map, shape (N, 2).
        labels: Of the images, a column for each kind of label, shape (N, L).
        most: Names at most.
    """
    # Imported here: few pages have a map, which loads scipy anyway.
    from scipy.spatial import cKDTree

    count = min(NEIGHBOURS, len(positions) - 1)
    if count < 1:
        return []
    distances, nearest = cKDTree(positions).query(positions, count + 1)
    nearest = nearest[:, 1:]  # the first is the image itself
    extent = np.ptp(positions, axis=0).max()
    found = []
    for column in labels:
        codes, values = pd.factorize(labels[column].astype(str))
        for code, value in enumerate(values):
            own = codes == code
            if own.sum() < FEWEST:
                continue
            share = own[nearest].mean(1)
            core = np.flatnonzero(own & (share >= DOMINATES))
            if len(core) < FEWEST:
                continue
            best = core[np.lexsort((distances[core, -1], -share[core]))[0]]
            away = np.linalg.norm(positions[core] - positions[best], axis=1)
            x, y = positions[core[away <= NEAR * extent]].mean(0)
            found.append(Place(value, float(x), float(y), len(core)))
    found.sort(key=lambda place: (-place.images, place.name))
    kept = []
    room = np.ptp(positions, axis=0) * [WIDE, HIGH]
    for place in found:
        gaps = [np.abs([place.x - one.x, place.y - one.y]) for one in kept]
        if all((gap > room).any() for gap in gaps):
            kept.append(place)
    return kept[:most]


def readable(
    places: list[Place], pixels: np.ndarray, pictures: np.ndarray, side: np.ndarray
) -> list[int]:
    """Return which names can be read on a map of some size: they cover nothing.

    Names are taken in order; one that would cover an earlier one or a picture is left
    out.

    Args:
        places: The names.
        pixels: How many pixels of the screen a unit of the map has, shape (2,).
        pictures: Middles of the pictures on the map, shape (I, 2).
        side: Width and height of a picture, shape (2,).

    Returns:
        Their positions in the list.
    """
    middles = [pixels * [place.x, place.y] for place in places]
    sizes = [np.array([LETTER * len(place.name), LINE]) for place in places]
    taken = [(pixels * picture, pixels * side) for picture in pictures]
    kept = []
    for i, (middle, size) in enumerate(zip(middles, sizes, strict=True)):
        if all((np.abs(middle - m) >= (size + s) / 2).any() for m, s in taken):
            taken.append((middle, size))
            kept.append(i)
    return kept


def apart(
    anchors: np.ndarray,
    size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    free: np.ndarray,
) -> np.ndarray:
    """Return centres of boxes near their anchors that do not cover each other.

    Args:
        anchors: What each box belongs to, shape (B, 2).
        size: Width and height of a box, shape (2,).
        low: Least coordinates of a box's side, shape (2,).
        high: Largest ones.
        free: Middles of places as large as a box that none may cover, shape (F, 2).
    """
    scale = np.asarray(size, np.float64)
    # Above their anchors, fanned out a little: equal anchors would stay together.
    turn = 2.4 * np.arange(len(anchors))
    centres = anchors / scale + [0.0, 0.9]
    centres += 0.05 * np.stack([np.cos(turn), np.sin(turn)], 1)
    centres = np.concatenate([centres, free / scale])
    turn = 2.4 * np.arange(len(centres))
    for _ in range(ROUNDS):
        gaps = centres[:, None] - centres
        overlap = 1.02 - np.abs(gaps)
        np.einsum("iij->ij", overlap)[:] = 0.0
        both = (overlap > 0).all(-1)
        if not both.any():
            break
        along = overlap.argmin(-1)  # the shorter way out
        for axis in (0, 1):
            push = np.where(both & (along == axis), overlap[..., axis], 0.0)
            side = np.where(gaps[..., axis] >= 0, 1.0, -1.0)
            side = np.where(
                gaps[..., axis] == 0, np.sign(np.subtract.outer(turn, turn)), side
            )
            centres[:, axis] += 0.5 * (push * side).sum(1).clip(-0.5, 0.5)
        centres = centres.clip(low / scale + 0.5, high / scale - 0.5)
        centres[len(anchors) :] = free / scale
    return centres[: len(anchors)] * scale
