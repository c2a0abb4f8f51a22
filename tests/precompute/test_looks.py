"""The figures of looks: right where the answer is known, chance where there is none."""

from dataclasses import replace

import numpy as np

from core.data.datasets import load_dataset
from core.presets import collection_config
from tests.benchmarks.looks import (
    SEEN,
    UNSEEN,
    asked_pairs,
    concept_ranks,
    grid,
    manner,
    right_houses,
    sheet,
)

HOUSES, CONCEPTS = 4, 40


def drawings() -> np.ndarray:
    """Return images of which the house is the colour and the concept the column."""
    g = np.random.default_rng(0)
    pixels = np.full((HOUSES, CONCEPTS, 3, 8, 8), 255, np.uint8)
    for house in range(HOUSES):
        for concept in range(CONCEPTS):
            pixels[house, concept, house % 3, concept % 8] = 40 + 60 * house
            pixels[house, concept, :, :, concept // 8] = g.integers(0, 30, (3, 8))
    return pixels.reshape(-1, 3, 8, 8)


def test_a_concept_is_known_from_the_other_houses_alone():
    """One whose own drawing is unlike all others is not; a copy of it gains nothing."""
    g = np.random.default_rng(0)
    concepts = g.normal(size=(CONCEPTS, 64))
    real = concepts + 0.1 * g.normal(size=(HOUSES, CONCEPTS, 64))
    real[2, 5] = concepts[9]
    real /= np.linalg.norm(real, axis=-1, keepdims=True)
    labels = np.arange(HOUSES * CONCEPTS)
    ranks = concept_ranks(real.reshape(-1, 64), labels, real)
    wrong = labels[ranks > 0]
    assert wrong.tolist() == [2 * CONCEPTS + 5]
    other = concept_ranks(g.normal(size=(len(labels), 64)), labels, real)
    assert 0.35 < other.mean() / (CONCEPTS - 1) < 0.65


def test_a_house_is_known_by_its_colours_whatever_the_concept():
    """All of the drawings, asked of other concepts; none where houses are swapped."""
    pixels = drawings()
    real = manner(pixels).reshape(HOUSES, CONCEPTS, -1)
    labels = np.arange(len(pixels))
    assert right_houses(manner(pixels), labels, real).mean() > 0.95
    swapped = (labels + CONCEPTS) % len(labels)
    assert right_houses(manner(pixels), swapped, real).mean() < 0.05


def test_only_steps_at_borders_are_a_grid():
    """Tiles of one colour have nothing else; noise has none."""
    g = np.random.default_rng(0)
    noise = g.integers(0, 256, (8, 3, 32, 32)).astype(np.uint8)
    assert abs(grid(noise, 4) - 1) < 0.05
    tiles = np.kron(noise[..., :8, :8], np.ones((4, 4))) + noise % 4
    assert grid(tiles.clip(0, 255).astype(np.uint8), 4) > 10


def test_pairs_and_seeds_are_fixed():
    """200 pairs of those that training saw, every one that it did not."""
    config = collection_config("glyphs-pairs")
    dataset = load_dataset(config.data)
    labels, unseen = asked_pairs(dataset)
    assert len(labels) == SEEN + UNSEEN == 287 and sum(unseen) == 87
    assert set(labels[:SEEN]) <= set(dataset.labels.tolist())
    assert tuple(labels[SEEN:]) == dataset.held_out
    again = load_dataset(replace(config.data))
    assert asked_pairs(again)[0] == labels


def test_the_sheet_shows_every_image_above_its_drawing():
    """Rows in turn, as many as it takes."""
    pixels = drawings()[:25]
    image = np.asarray(sheet(pixels, 255 - pixels)).transpose(2, 0, 1)
    assert image.shape == (3, 4 * 8, 20 * 8)
    np.testing.assert_array_equal(image[:, 16:24, 32:40], pixels[24])
    np.testing.assert_array_equal(image[:, 24:, 32:40], 255 - pixels[24])
