"""Names of a map's neighbourhoods, and images beside their dots."""

import numpy as np
import pandas as pd
import pytest

from core.explorer.places import (
    LETTER,
    LINE,
    NEIGHBOURS,
    Place,
    apart,
    named_places,
    readable,
)

RNG = np.random.default_rng(4)


def test_names_are_those_that_a_count_of_neighbours_finds():
    """Each image's nearest are counted one by one; each name stands in its cluster."""
    centres = np.array([[0.0, 0], [30, 0], [0, 40], [60, 60]])
    which = np.repeat(np.arange(4), 40)
    positions = centres[which] + RNG.normal(size=(160, 2))
    kinds = np.array(["heart", "face", "fruit", "none"])[which]
    mixed = RNG.choice(["a", "b", "c", "d"], 160)  # dominates nowhere
    kinds[which == 3] = [f"one {i}" for i in range(40)]
    labels = pd.DataFrame({"kind": kinds, "mixed": mixed})
    found = named_places(positions, labels, 9)
    assert sorted(place.name for place in found) == ["face", "fruit", "heart"]
    for place in found:
        members = np.flatnonzero(kinds == place.name)
        count = 0
        for member in members:
            away = np.square(positions - positions[member]).sum(1)
            near = np.argsort(away)[1 : NEIGHBOURS + 1]
            count += np.mean(kinds[near] == place.name) >= 0.5
        assert place.images == count
        middle = positions[members].mean(0)
        assert np.abs(middle - [place.x, place.y]).max() < 2
    assert len(named_places(positions, labels, 2)) == 2


def test_a_name_that_would_cover_a_larger_one_is_left_out():
    positions = RNG.normal(size=(100, 2))
    labels = pd.DataFrame({"kind": ["x"] * 100, "other": ["y"] * 99 + ["z"]})
    (place,) = named_places(positions, labels, 9)
    assert place.name == "x" and place.images == 100
    assert named_places(positions[:1], labels[:1], 9) == []


@pytest.mark.parametrize("spread", [0.0, 0.5, 20.0])
def test_boxes_keep_apart_and_inside(spread):
    """Also where all belong to one dot."""
    anchors = 50 + spread * RNG.normal(size=(10, 2))
    anchors = anchors.clip(0, 100)
    size = np.array([6.0, 9.0])
    low, high = np.zeros(2), np.full(2, 100.0)
    free = np.array([[51.0, 49.0]])
    centres = apart(anchors, size, low, high, free)
    assert (centres - size / 2 >= low - 1e-9).all()
    assert (centres + size / 2 <= high + 1e-9).all()
    kept = np.concatenate([centres, free])
    gaps = np.abs(kept[:, None] - kept)
    touching = (gaps < size - 1e-6).all(-1)
    np.fill_diagonal(touching, False)
    assert not touching.any()
    again = apart(anchors, size, low, high, free)
    np.testing.assert_array_equal(centres, again)


def test_names_that_are_read_cover_neither_each_other_nor_a_picture():
    """On every size of map, and none is left out that covers nothing."""
    rng = np.random.default_rng(0)
    names = [
        Place("n" * rng.integers(3, 14), *rng.uniform(size=2), 1) for _ in "a" * 30
    ]
    pictures, side = rng.uniform(size=(8, 2)), np.array([0.05, 0.08])
    counts = []
    for pixels in np.array([[250.0, 540.0], [800.0, 540.0], [1e5, 1e5]]):
        kept = readable(names, pixels, pictures, side)
        boxes = [
            np.array([[n.x * pixels[0], n.y * pixels[1]], [LETTER * len(n.name), LINE]])
            for n in names
        ]
        drawn = [np.array([p * pixels, side * pixels]) for p in pictures]

        def covers(first, second) -> bool:
            gap = np.abs(first[0] - second[0]) - (first[1] + second[1]) / 2
            return bool((gap < 0).all())

        for i, box in enumerate(boxes):
            others = [boxes[j] for j in kept if j < i] + drawn
            assert (i in kept) == (not any(covers(box, other) for other in others))
        counts.append(len(kept))
    assert counts == sorted(counts) and counts[0] < counts[-1]
