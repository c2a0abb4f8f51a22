"""How well a model of houses and concepts draws: does CLIP name what was asked for?

Images of pairs that training saw, and of pairs that it never saw, from fixed seeds. An
image's concept is the one whose drawings by the other houses have the nearest mean
embedding, so that a copy of its own drawing gains nothing. Its house is what a ridge
regression on colours and edges says, fitted to the drawings of other concepts (on the
embeddings it tells 58% of real drawings, on these 93%). Real drawings go through the
same tests, for reference. The grid is the mean difference of pixels
across borders of patches over that inside them: 1 shows none.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from core.config import DATA_DIR, CollectionConfig
from core.data.datasets import Dataset, load_dataset
from core.drawing import Drawing
from core.engine.clip import load_clip
from core.measure.draws import keyed_generator
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser, to_pixels
from core.model.sampling import sample
from core.recipes import named_config
from precompute.stages.stages import shipped_weights

SEEN, UNSEEN = 200, 87  # images; held-out pairs are drawn once each
STEPS, GUIDANCE, BATCH = 50, 3.0, 32
FOLDS, RIDGE = 5, 0.1  # parts of the concepts; relative to the number of drawings
EDGES = (0, 1, 4, 8, 16, 32, 64, 96, 128, 192, 256)  # steps from pixel to pixel
SHEET = 20  # images a row


def asked_pairs(dataset: Dataset) -> tuple[list[int], list[bool]]:
    """Return the labels drawn, seeds in order, and which of them training never saw."""
    g = keyed_generator(0, "looks")
    known = np.unique(dataset.labels)
    seen = known[torch.randperm(len(known), generator=g)[:SEEN].numpy()].tolist()
    unseen = dataset.held_out[:UNSEEN]
    return [*seen, *unseen], [False] * len(seen) + [True] * len(unseen)


def drawn(
    denoiser: Denoiser, config: CollectionConfig, labels: list[int]
) -> np.ndarray:
    """Return an image of each label, its place being its seed, uint8 (B, C, H, W)."""
    parts = []
    for first in range(0, len(labels), BATCH):
        some = labels[first : first + BATCH]
        seeds = range(first, first + len(some))
        drawings = [
            Drawing(label, seed, "ddim", STEPS, GUIDANCE)
            for label, seed in zip(some, seeds, strict=True)
        ]
        trajectories = sample(denoiser, drawings, config.seed)
        x_0 = torch.stack([one.states[-1] for one in trajectories])
        parts.append(to_pixels(denoiser.decode(x_0)))
    return np.concatenate(parts)


def concept_ranks(
    found: np.ndarray, labels: np.ndarray, real: np.ndarray
) -> np.ndarray:
    """Return how many concepts are nearer to each image than the one asked for, (B,).

    Args:
        found: Embeddings of the images, (B, D).
        labels: Of them: house times concepts plus concept.
        real: Embeddings of all drawings by label, (houses, concepts, D).
    """
    ranks = []
    for embedding, label in zip(found, labels, strict=True):
        house, concept = divmod(int(label), real.shape[1])
        means = np.delete(real, house, 0).mean(0)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        likeness = means @ embedding
        ranks.append((likeness > likeness[concept]).sum())
    return np.array(ranks)


def manner(pixels: np.ndarray) -> np.ndarray:
    """Return roots of the shares of 512 colours and of steps between pixels, (B, F)."""
    count, size = len(pixels), pixels[0, 0].size
    levels = (pixels // 32).reshape(count, 3, -1).astype(int)
    colours = levels[:, 0] * 64 + levels[:, 1] * 8 + levels[:, 2]
    steps = np.abs(np.diff(pixels.astype(float), axis=3)).max(1).reshape(count, -1)
    shares = [
        [*np.bincount(c, minlength=512), *np.histogram(step, EDGES)[0]]
        for c, step in zip(colours, steps, strict=True)
    ]
    return np.sqrt(np.array(shares) / size)


def right_houses(found: np.ndarray, labels: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Return whether each image's house is told from drawings of other concepts.

    Args:
        found: What `manner` says of the images, (B, F).
        labels: Of them.
        real: The same of all drawings by label, (houses, concepts, F).
    """
    houses, concepts = real.shape[:2]
    mean, spread = real.mean((0, 1)), real.std((0, 1)) + 1e-9
    found, real = (found - mean) / spread, (real - mean) / spread
    g = keyed_generator(0, "folds")
    fold = torch.randperm(concepts, generator=g).numpy() % FOLDS
    asked_house, asked_concept = np.divmod(labels, concepts)
    right = np.zeros(len(found), dtype=bool)
    for number in range(FOLDS):
        kept = real[:, fold != number]
        x = kept.reshape(-1, kept.shape[-1])
        x = np.concatenate([x, np.ones((len(x), 1))], 1)
        y = np.repeat(np.eye(houses), kept.shape[1], 0)
        damped = x.T @ x + RIDGE * len(x) * np.eye(x.shape[1])
        weights = np.linalg.solve(damped, x.T @ y)
        here = fold[asked_concept] == number
        given = np.concatenate([found[here], np.ones((here.sum(), 1))], 1)
        right[here] = (given @ weights).argmax(1) == asked_house[here]
    return right


def grid(pixels: np.ndarray, side: int) -> float:
    """Return the differences across borders of patches over those inside them."""
    values = pixels.astype(np.float64)
    ratios = []
    for axis in (2, 3):
        steps = np.moveaxis(np.abs(np.diff(values, axis=axis)), axis, 0).reshape(
            values.shape[axis] - 1, -1
        )
        border = np.arange(len(steps)) % side == side - 1
        ratios.append(steps[border].mean() / steps[~border].mean())
    return float(np.mean(ratios))


def sheet(images: np.ndarray, real: np.ndarray, scale: int = 1) -> Image.Image:
    """Return rows in turn of images and of the real drawings of the same pairs."""
    rows = []
    for first in range(0, len(images), SHEET):
        for part in (images, real):
            row = part[first : first + SHEET]
            blank = np.full((SHEET - len(row), *row.shape[1:]), 255, np.uint8)
            rows.append(np.concatenate([*row, *blank], axis=2))
    whole = np.concatenate(rows, axis=1).transpose(1, 2, 0)
    size = whole.shape[1] * scale, whole.shape[0] * scale
    return Image.fromarray(whole).resize(size, Image.Resampling.NEAREST)


def looks(denoiser: Denoiser, config: CollectionConfig) -> tuple[dict, Image.Image]:
    """Return the figures of a model, and a sheet of all images drawn for them."""
    dataset = load_dataset(config.data)
    every = load_dataset(replace(config.data, held_out=0.0))
    sizes = denoiser.conditions.sizes
    pixels = np.empty_like(every.pixels)
    pixels[every.labels] = every.pixels
    clip = load_clip()
    real = clip.embed_images(pixels).reshape(*sizes, -1)
    labels, unseen = map(np.array, asked_pairs(dataset))
    images = drawn(denoiser, config, labels.tolist())
    found = clip.embed_images(images)
    side = denoiser.autoencoder.patch_size
    kinds = {
        "seen": (found[~unseen], labels[~unseen], images[~unseen]),
        "held out": (found[unseen], labels[unseen], images[unseen]),
        "real": (real.reshape(len(pixels), -1), np.arange(len(pixels)), pixels),
    }
    figures = {"clip": clip.name, "steps": STEPS, "guidance": GUIDANCE}
    style = manner(pixels).reshape(*sizes, -1)
    for name, (embeddings, asked, shown) in kinds.items():
        ranks = concept_ranks(embeddings, asked, real)
        figures[name] = {
            "images": len(asked),
            "concept": float((ranks == 0).mean()),
            "among five": float((ranks < 5).mean()),
            "house": float(right_houses(manner(shown), asked, style).mean()),
            "grid": grid(shown, side),
        }
    return figures, sheet(images, pixels[labels])


def run(collection: str, root: Path | None = None) -> dict:
    """Return the figures of a shipped model; the sheet goes beside its results.

    Raises:
        LookupError: If the model was not trained.
    """
    config = named_config(collection)
    weights = shipped_weights(config)
    if weights is None:
        raise LookupError(
            f"'{collection}' has no model in {DATA_DIR / 'models'}. Train it: `python "
            f"-m precompute train --collection {collection}`."
        )
    figures, image = looks(denoiser_from_bytes(weights), config)
    path = (root or DATA_DIR / "work") / f"looks-{collection}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return figures | {"sheet": str(path)}
