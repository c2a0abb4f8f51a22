"""Samples that are nothing like the training images are told from those that are."""

import io
from dataclasses import asdict

import numpy as np
import pytest
import torch
from PIL import Image

from core.collection.schema import StoredAnswer
from core.collection.store import Collection, find_collection
from core.config import DATA_DIR
from core.drawing import Drawing
from core.engine.clip import load_clip
from core.explorer import resemblance as measured
from core.explorer.explorer import Lens, open_explorer
from core.explorer.resemblance import (
    LIMIT,
    Resemblance,
    compared,
    excess,
    resemblance,
    unit_samples,
)
from core.files.images import png
from core.measure.draws import keyed_generator
from core.model.build import make_denoiser
from core.model.denoiser import to_pixels
from core.model.sampling import sample
from tests.core.report.test_report import made

SHIPPED = ("glyphs", "fashion2")
FEW = 12  # samples


def normal(count: int, size: int, seed: int, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1, (count, size))


def test_the_excess_equals_loops_over_pairs():
    """The mean over pairs, one at a time, without a point and itself."""
    first, second = normal(7, 3, 0), normal(9, 3, 1, shift=0.7)

    def mean(one, other, same):
        return np.mean([
            np.sqrt(((a - b) ** 2).sum())
            for i, a in enumerate(one)
            for j, b in enumerate(other)
            if not (same and i == j)
        ])

    between = mean(first, second, False)
    within = mean(first, first, True) + mean(second, second, True)
    found, _ = compared(first, second)
    assert found == pytest.approx((2 * between - within) / (2 * between), rel=1e-9)


def test_the_excess_does_not_depend_on_order_unit_or_direction():
    first, second = normal(20, 5, 2), normal(30, 5, 3, shift=1.0)
    turn = np.linalg.qr(normal(5, 5, 4))[0]
    order = np.random.default_rng(0).permutation(30)
    found, _ = compared(first, second)
    again, _ = compared(3 * first @ turn + 2, 3 * second[order] @ turn + 2)
    assert again == pytest.approx(found, rel=1e-9)


def test_one_kind_has_no_excess_and_two_have_almost_all():
    same = [compared(normal(40, 8, i), normal(200, 8, 100 + i))[0] for i in range(20)]
    assert abs(np.mean(same)) < 0.003 and np.max(same) < 0.02
    far, others = compared(normal(40, 8, 0), normal(200, 8, 1, shift=100.0))
    assert far > 0.95 and abs(others) < 0.02
    assert excess(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2))) == 0.0


def units(count: int, size: int, seed: int) -> np.ndarray:
    points = normal(count, size, seed)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_samples_are_recovered_from_their_similarities():
    """Exactly where there are as many training images as numbers in an embedding."""
    embeddings, samples = units(30, 8, 0), units(5, 8, 1)
    found = unit_samples(samples @ embeddings.T, embeddings)
    np.testing.assert_allclose(found[:, :8], samples, atol=1e-9)
    np.testing.assert_allclose(found[:, 8:], 0, atol=1e-7)


def test_what_similarities_do_not_tell_is_never_counted_against_a_model():
    """With fewer training images, samples are at least as far apart as they are."""
    embeddings, samples = units(4, 8, 0), np.abs(units(5, 8, 1))
    samples /= np.linalg.norm(samples, axis=1, keepdims=True)
    cosines = samples @ embeddings.T
    found = unit_samples(cosines, embeddings)
    wide = np.pad(embeddings, ((0, 0), (0, 5)))
    np.testing.assert_allclose(found @ wide.T, cosines, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    assert compared(found, wide)[0] <= compared(samples, embeddings)[0]


class Redrawn(Collection):
    """A shipped collection whose samples are others."""

    def __init__(self, name: str, draw):
        super().__init__(find_collection(DATA_DIR / "collections", name))
        settings = self.meta("settings")
        pixels = draw(
            self, settings["data"]["channels"], settings["data"]["image_size"]
        )
        self.drawn = dict(zip(range(FEW), pixels, strict=True))
        self.seen = load_clip().embed_images(pixels) @ self.array("clip").T

    def meta(self, key: str):
        """Return what is recorded, but for what was found when it was built."""
        if key == "resemblance":
            raise LookupError(key)
        return super().meta(key)

    def samples(self):
        """Return the first few."""
        return super().samples()[:FEW]

    def sample_images(self) -> dict[int, bytes]:
        """Return what was drawn instead."""
        return {sample: png(pixels) for sample, pixels in self.drawn.items()}

    def answers(self, lens: dict) -> dict[int, StoredAnswer]:
        """Return what CLIP says of it."""
        return {
            sample: StoredAnswer(scores, None, "exact", 0.0)
            for sample, scores in enumerate(self.seen)
        }


def untrained(collection: Collection, channels: int, size: int) -> np.ndarray:
    """Return samples of the collection's model before its training."""
    config = open_explorer(collection.name).config
    generator = keyed_generator(1, "untrained")
    model = make_denoiser(config.model, size, channels, 8, generator).eval()
    if hasattr(model.autoencoder, "fit"):
        ids = collection.examples().index[:200]
        files = [Image.open(io.BytesIO(file)) for file in collection.images(ids)]
        images = np.stack([np.asarray(image.convert("RGB")) for image in files])
        model.autoencoder.fit(torch.from_numpy(images).movedim(-1, 1) / 127.5 - 1)
    drawings = [Drawing(None, i, num_steps=10) for i in range(FEW)]
    drawn = torch.stack([t.states[-1] for t in sample(model, drawings, 0)])
    return to_pixels(model.decode(drawn))


def noise(_, channels: int, size: int) -> np.ndarray:
    """Return white noise."""
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (FEW, channels, size, size), dtype=np.uint8)


def grey(_, channels: int, size: int) -> np.ndarray:
    """Return one grey image again and again."""
    return np.full((FEW, channels, size, size), 128, np.uint8)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_draw_what_they_were_trained_on(name):
    found = resemblance(Collection(find_collection(DATA_DIR / "collections", name)))
    assert max(found.clip, found.pixels) < 0.05 < LIMIT
    assert abs(found.other_clip) < 0.02 and abs(found.other_pixels) < 0.02
    assert found.sentence == ""


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("draw", [untrained, noise, grey])
def test_a_model_that_draws_anything_else_says_so(name, draw):
    found = resemblance(Redrawn(name, draw))
    assert found.clip > LIMIT + 0.08
    assert found.sentence.startswith(
        "This model's samples are unlike its training images: they stand apart by "
        f"{found.clip:.0%} by the small CLIP and {found.pixels:.0%} by "
        "pixels. Other training "
    )


def test_what_a_build_stores_is_what_its_collection_says(tiny_collection):
    """The build has the images at hand; a collection built before is read again."""

    class Before(Collection):
        def meta(self, key: str):
            if key == "resemblance":
                raise LookupError(key)
            return super().meta(key)

    path = find_collection(tiny_collection, "glyphs")
    with Before(path) as before, Collection(path) as now:
        assert asdict(resemblance(before)) == pytest.approx(now.meta("resemblance"))
        assert resemblance(now) == Resemblance(**now.meta("resemblance"))


def test_the_sentence_says_what_is_known():
    assert Resemblance().sentence == Resemblance(0.1, LIMIT, 0.0, 0.0).sentence == ""
    assert (
        "stand apart by 61% by pixels. Other training images stand apart by 0%. Scores "
        in Resemblance(pixels=0.61, other_pixels=-0.01).sentence
    )


def test_the_report_says_so_before_any_score(monkeypatch):
    explorer = open_explorer("fashion2")
    said = "samples are unlike its training images"
    assert said not in made(explorer, [Lens("pixel")])[0]
    monkeypatch.setattr(measured, "LIMIT", -1.0)
    page = made(explorer, [Lens("pixel")])[0]
    assert page.index(said) < page.index('class="said"') < page.index("<figure>")
    explorer.close()
