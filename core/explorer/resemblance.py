"""Do a model's samples look like its training images at all?

Scores explain why a model draws what it draws. If it draws noise, or one grey image
again and again, they explain that, and nothing of the training images' art. So the
samples of the gallery are held against the training images, by CLIP and by pixels:
how far a sample is from a training image, beyond how far two samples, and two training
images, are from each other. Of that distance the share that is such an excess is 0 for
images of one kind, and 1 where the two kinds have nothing in common (the coefficient of
the energy distance: Szekely and Rizzo, 2013). As few other training images, held
against the rest, say how much is chance.

Found without the diffusion model and without CLIP: from what a collection stores.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from core.collection import store
from core.config import DataConfig, config_from_dict
from core.files.images import decode_image
from core.lenses import Lens, stored_key

# Above it samples are said to be unlike. Shipped are 0.01 and 0.02 by CLIP, 0.00 and
# 0.04 by pixels; galleries of a single class, of 48, reach 0.28. Those models untrained
# are at 0.47 and 0.68 by CLIP, and noise, grey or other images at 0.44 and above.
LIMIT = 0.35
IMAGES = 256  # training images that are decoded, and compared
SIDE = 32  # pixels that images are reduced to
FEWEST = 4  # samples, and training images, that can be compared


@dataclass(frozen=True)
class Resemblance:
    """How far samples are from the training images, as shares of 0 to 1.

    Attributes:
        clip: By the small CLIP; None where the collection does not store it.
        pixels: By pixels; None where there are too few images.
        other_clip: Of as many other training images, by CLIP.
        other_pixels: The same by pixels.
    """

    clip: float | None = None
    pixels: float | None = None
    other_clip: float | None = None
    other_pixels: float | None = None

    @property
    def sentence(self) -> str:
        """What a person should know before any score; "" where samples are alike."""
        shares = [(self.clip, self.other_clip, "by the small CLIP"),
                 (self.pixels, self.other_pixels, "by pixels")]  # fmt: skip
        shares = [
            (share, other, by) for share, other, by in shares if share is not None
        ]
        if not any(share > LIMIT for share, _, _ in shares):
            return ""
        apart = " and ".join(f"{share:.0%} {by}" for share, _, by in shares)
        others = " and ".join(f"{max(0.0, other):.0%}" for _, other, _ in shares)
        return (
            "This model's samples are unlike its training images: they stand apart by "
            f"{apart}. Other training images stand apart by {others}. Scores explain "
            "the model as it is; check that it was trained, and on these images."
        )


def excess(between: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return the share of the distance between two kinds that is more than within each.

    Args:
        between: Distances of each point of one kind to each of the other, shape (S, N).
        first: Distances within one kind, shape (S, S).
        second: Distances within the other, shape (N, N).

    Returns:
        At most 1; about 0, and by chance below, for points of one distribution.
    """
    mean = between.mean()
    if mean == 0:
        return 0.0
    return float((2 * mean - _within(first) - _within(second)) / (2 * mean))


def _within(distances: np.ndarray) -> float:
    """Return the mean distance of two different points, from distances (N, N)."""
    count = len(distances)
    return (distances.sum() - np.trace(distances)) / (count * (count - 1))


def distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return Euclidean distances, shape (S, N), of points (S, D) and (N, D)."""
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1) - 2 * first @ second.T
    return np.sqrt(np.maximum(squares, 0))


def compared(samples: np.ndarray, training: np.ndarray) -> tuple[float, float]:
    """Return the excess of samples, and of as many training images against the rest.

    Args:
        samples: Points, shape (S, D).
        training: Points in no order, shape (N, D).
    """
    within = distances(training, training)
    of_samples = excess(
        distances(samples, training), distances(samples, samples), within
    )
    held = min(len(samples), len(training) // 2)
    held_out = excess(within[:held, held:], within[:held, :held], within[held:, held:])
    return of_samples, held_out


def unit_samples(cosines: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """Return samples' embeddings from their similarity to every training image.

    What of a sample no training image has a share in cannot be known from them: it is
    taken to be its own, in directions that no other sample shares, which makes samples
    differ among themselves rather than from the training images.

    Args:
        cosines: Shape (S, N).
        embeddings: Of the training images, unit vectors, shape (N, D).

    Returns:
        Unit vectors, shape (S, D + S).
    """
    # Least squares by the Gram matrix, ten times faster than from the embeddings
    # themselves. Directions shorter than 1e-4 of the longest are left out.
    squares, directions = np.linalg.eigh(embeddings.T @ embeddings)
    kept = squares > 1e-8 * squares[-1]
    directions = directions[:, kept]
    known = cosines @ embeddings @ (directions / squares[kept]) @ directions.T
    rest = np.sqrt(np.maximum(1 - (known**2).sum(1), 0))
    return np.hstack([known, np.diag(rest)])


def resemblance(collection: store.Collection) -> Resemblance:
    """Return how far a collection's samples are from its training images.

    A build stores it; for collections built before, it is found anew.
    """
    with suppress(LookupError):
        return Resemblance(**collection.meta("resemblance"))
    ids = collection.examples().index.to_numpy()
    samples = [sample.sample_id for sample in collection.samples()]
    drawn = collection.sample_images()
    images = (
        [drawn[i] for i in samples],
        collection.images(ids[compared_with(len(ids))]),
    )
    answers = collection.answers(stored_key(Lens("clip")))
    data = config_from_dict(collection.meta("settings")).data
    if "clip" not in collection.arrays() or not answers.keys() >= set(samples):
        return of_images(*images, data)
    cosines = np.stack([answers[i].scores for i in samples]) if samples else None
    return of_images(*images, data, cosines, collection.array("clip"))


def compared_with(num_examples: int) -> np.ndarray:
    """Return the places of the training images that samples are compared with."""
    return np.random.default_rng(0).permutation(num_examples)[:IMAGES]


def of_images(
    drawn: Sequence[bytes],
    training: Sequence[bytes],
    data: DataConfig,
    cosines: np.ndarray | None = None,
    embeddings: np.ndarray | None = None,
) -> Resemblance:
    """Return how far samples are from training images.

    Args:
        drawn: Files of the S samples.
        training: Files of the training images at `compared_with`.
        data: How large images are.
        cosines: Of the samples to all training images by CLIP, shape (S, N), if known.
        embeddings: Of all training images, shape (N, D).
    """
    if len(drawn) < FEWEST or len(training) < FEWEST:
        return Resemblance()
    side = min(SIDE, data.image_size)
    size = data.channels, side, side
    by_pixels = compared(_points(drawn, size), _points(training, size))
    if cosines is None or embeddings is None:
        return Resemblance(pixels=by_pixels[0], other_pixels=by_pixels[1])
    embeddings = embeddings.astype(np.float64)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    known = unit_samples(cosines.astype(np.float64), embeddings)
    chosen = embeddings[compared_with(len(embeddings))]
    by_clip = compared(known, np.pad(chosen, ((0, 0), (0, len(drawn)))))
    return Resemblance(by_clip[0], by_pixels[0], by_clip[1], by_pixels[1])


def _points(files: Sequence[bytes], size: tuple[int, int, int]) -> np.ndarray:
    """Return images, decoded into a size (C, H, W), as points of shape (N, C H W)."""
    return np.stack([decode_image(file, size).ravel() for file in files]) / 255
