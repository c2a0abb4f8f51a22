"""Where images lie on a map: those whose embeddings are alike lie near each other.

t-SNE (van der Maaten and Hinton 2008) of the first principal components. However many
images there are, at most `LANDMARKS` of them are arranged by it; each other one lies
between the landmarks that it is most like, so that a large map takes hardly longer than
a small one. Nothing here depends on chance. Knows neither models nor pages.
"""

import sys
import warnings

import numpy as np

from core.answers import Progress
from core.explorer.page_first import let_pages_go_first, standing_back

LANDMARKS = 2000
COMPONENTS = 50  # principal components that are compared
PERPLEXITY = 30  # of t-SNE: about how many neighbours an image keeps
ITERATIONS = 500  # of t-SNE, after 250 that gather the images
NEAREST = 5  # landmarks that place another image
BLOCK = 4096  # images placed at a time


def principal_components(vectors: np.ndarray, count: int) -> np.ndarray:
    """Return the first principal components of vectors (N, D), shape (N, count).

    Of the two signs each could have, the one that makes its largest weight positive.
    """
    away = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, axes = np.linalg.eigh(away.T @ away)  # ascending
    first = axes[:, : -count - 1 : -1]
    largest = np.take_along_axis(first, np.abs(first).argmax(0)[None], 0)
    return away @ (first * np.sign(largest))


def arranged(vectors: np.ndarray, progress: Progress | None = None) -> np.ndarray:
    """Return where images lie on a map, shape (N, 2).

    Args:
        vectors: Their embeddings, shape (N, D).
        progress: Called now and then; may raise to stop.
    """
    components = principal_components(vectors, COMPONENTS)
    if len(vectors) < 4 * PERPLEXITY:  # too few for t-SNE: the plane itself
        return components[:, :2]
    rows = np.linspace(0, len(vectors) - 1, min(len(vectors), LANDMARKS)).astype(int)
    landmarks = components[rows]
    arranged = _tsne(landmarks, progress)
    positions = np.empty((len(vectors), 2))
    for start in range(0, len(vectors), BLOCK):
        block = slice(start, start + BLOCK)
        positions[block] = _between(components[block], landmarks, arranged)
    positions[rows] = arranged
    return positions


def _tsne(components: np.ndarray, progress: Progress | None) -> np.ndarray:
    """Return t-SNE's positions of principal components."""
    # Imported here because it takes a second and few pages have a map.
    if progress is not None and "openTSNE" not in sys.modules:
        let_pages_go_first(progress, "Arranging the map")
    with standing_back():
        from openTSNE import TSNE

    gathering, done = 250, 0

    def tell(*_) -> None:
        nonlocal done
        done += 10
        if progress is not None:
            progress(done, gathering + ITERATIONS, "Arranging the map")

    plane = components[:, :2]
    tsne = TSNE(
        perplexity=PERPLEXITY,
        n_iter=ITERATIONS,
        early_exaggeration_iter=gathering,
        initialization=plane / plane[:, 0].std() * 1e-4,
        neighbors="exact",  # the approximate ones depend on chance
        negative_gradient_method="bh",
        n_jobs=1,
        random_state=0,
        callbacks=tell,
        callbacks_every_iters=10,
    )
    with warnings.catch_warnings(action="ignore"):
        return np.asarray(tsne.fit(components), np.float64)


def place(positions: np.ndarray, likeness: np.ndarray) -> np.ndarray:
    """Return where another image would lie, shape (2,).

    In the middle (the median, which one far away cannot move) of the images that it
    is most like; where one is the same image, there.

    Args:
        positions: Of the images of the map, shape (N, 2).
        likeness: How like each of them it is, 1 for the same, shape (N,).
    """
    nearest = np.argsort(-likeness, kind="stable")[:NEAREST]
    if likeness[nearest[0]] > 1 - 1e-6:
        return positions[nearest[0]]
    return np.median(positions[nearest], axis=0)


def _between(
    components: np.ndarray, landmarks: np.ndarray, arranged: np.ndarray
) -> np.ndarray:
    """Return where images lie between the landmarks that they are most like."""
    squares = (
        np.square(components).sum(1)[:, None]
        - 2 * components @ landmarks.T
        + np.square(landmarks).sum(1)
    )
    nearest = np.argpartition(squares, NEAREST - 1)[:, :NEAREST]
    distance = np.take_along_axis(squares, nearest, 1).clip(1e-12)
    weight = 1 / distance
    weight /= weight.sum(1, keepdims=True)
    return (weight[..., None] * arranged[nearest]).sum(1)
