"""The map: deterministic, neighbours stay neighbours, and a large one is as quick."""

import numpy as np
import pytest

from core.answers import Cancelled
from core.explorer import layout

RNG = np.random.default_rng(0)


def clusters(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors in well separated clusters, and the cluster of each."""
    centres = RNG.normal(size=(count, 32))
    which = np.repeat(np.arange(count), size)
    vectors = centres[which] + 0.05 * RNG.normal(size=(count * size, 32))
    order = RNG.permutation(len(vectors))
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[order].astype(np.float32), which[order]


def nearest(positions: np.ndarray) -> np.ndarray:
    """Return the place of each point's nearest neighbour."""
    squares = np.square(positions[:, None] - positions[None]).sum(-1)
    np.fill_diagonal(squares, np.inf)
    return squares.argmin(1)


def test_plane_is_the_two_directions_of_largest_spread():
    """Against numpy's singular values; turning the vectors leaves the map as it is."""
    vectors = RNG.normal(size=(40, 6)) * [5, 1, 3, 0.5, 0.2, 0.1] + 7
    plane = layout.principal_components(vectors, 2)
    left, sizes, _ = np.linalg.svd(vectors - vectors.mean(0))
    expected = left[:, :2] * sizes[:2]
    np.testing.assert_allclose(np.abs(plane), np.abs(expected), atol=1e-9)
    turn, _ = np.linalg.qr(RNG.normal(size=(6, 6)))
    turned = layout.principal_components(vectors @ turn, 2)
    np.testing.assert_allclose(np.abs(turned), np.abs(plane), atol=1e-9)
    np.testing.assert_array_equal(layout.principal_components(vectors, 2), plane)


@pytest.fixture(scope="module")
def arranged() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vectors, their clusters, and a map that has more images than landmarks.

    The smaller number of landmarks makes both parts of the map small enough to test.
    """
    vectors, which = clusters(8, 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LANDMARKS", 200)
        return vectors, which, layout.arranged(vectors)


def test_neighbours_on_the_map_are_of_one_kind(arranged):
    _, which, positions = arranged
    assert np.isfinite(positions).all()
    assert (which[nearest(positions)] == which).mean() > 0.99


def test_map_does_not_depend_on_chance(arranged, monkeypatch):
    vectors, _, positions = arranged
    monkeypatch.setattr(layout, "LANDMARKS", 200)
    np.random.seed(5)
    np.testing.assert_array_equal(layout.arranged(vectors), positions)


def test_few_pictures_lie_in_their_principal_plane():
    vectors = RNG.normal(size=(50, 8))
    plane = layout.principal_components(vectors, 2)
    np.testing.assert_array_equal(layout.arranged(vectors), plane)


def test_arranging_tells_how_far_it_is_and_can_be_stopped():
    """The progress function's own exception comes out, which is how a job is left."""
    vectors, _ = clusters(4, 40)
    seen = []

    def progress(done: int, total: int, doing: str) -> None:
        seen.append(done)
        assert done <= total and "map" in doing
        if len(seen) == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        layout.arranged(vectors, progress)
    assert seen == sorted(seen) and len(set(seen)) == 3


def test_a_picture_lies_among_those_it_is_most_like():
    """A training image lies at its own place; one far away moves no median."""
    positions = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [90, 90], [50, 50.0]])
    same = np.array([0.1, 1.0, 0.2, 0.3, 0.4, 0.5])
    np.testing.assert_array_equal(layout.place(positions, same), [1, 0])
    alike = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.1])
    np.testing.assert_array_equal(layout.place(positions, alike), [1, 1])
