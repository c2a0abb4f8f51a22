"""Errors grow with the scores as repeating everything says, and cover what is shown."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from core.answers import Uncertainty
from core.collection.schema import StoredAnswer, lens_key
from core.presets import collection_config
from core.scores.error_files import StoredErrors, errors_path, read_model, write_model
from core.scores.errors import (
    Asked,
    ErrorModel,
    Law,
    fit_law,
    fit_sketch,
    held_out,
    typical_model,
)
from core.scores.group_errors import of_these_sizes
from core.scores.influence import centred, fold_statistics
from core.scores.stored import Noise

NORMAL_90 = 1.6449  # 90% of a normal distribution lie within so many deviations
N, M, BLOCKS, WIDTH = 240, 16, 12, 12
P = BLOCKS * WIDTH


# --- a world whose errors are known -------------------------------------------------


@dataclass(frozen=True)
class World:
    """Gradients of images and queries that share parts, and draws that share noise.

    A draw shows some parts (blocks of coordinates) of every gradient too strongly, the
    same ones for all images: noise that image and query share multiplies their product.
    Besides, each coordinate of each gradient has noise of its own.
    """

    images: np.ndarray  # (N, P)
    queries: np.ndarray  # (M, P)

    def folds(self, clean: np.ndarray, number: int, count: int, size: float):
        """Return estimates (count, ..., P) by independent folds of draws."""
        rng = np.random.default_rng(number)
        shared = rng.normal(size=(count, 1, BLOCKS, 1)) * np.ones((1, 1, 1, WIDTH))
        own = rng.normal(size=(count, *clean.shape))
        shared = shared.reshape(count, 1, P)
        return clean * (1 + size * shared) + size * own


def world() -> World:
    """Return images and queries, each mostly of a block or two."""
    rng = np.random.default_rng(0)

    def gradients(count: int) -> np.ndarray:
        strength = rng.pareto(1.5, size=(count, BLOCKS, 1)) * rng.choice(
            [-1, 1], (count, BLOCKS, 1), p=[0.3, 0.7]
        )
        common = np.random.default_rng(1).normal(size=(1, BLOCKS, WIDTH))
        own = rng.normal(size=(count, BLOCKS, WIDTH))
        return (strength * common + own).reshape(count, P)

    return World(gradients(N), gradients(M))


WORLD = world()


@dataclass(frozen=True)
class Shown:
    """Scores (M, N) of one build, with errors by the law and by a diagonal model."""

    scores: np.ndarray
    errors: np.ndarray
    diagonal: np.ndarray


def build(number: int) -> Shown:
    """Return a gallery's answers by one set of draws for images, one for queries."""
    images = WORLD.folds(WORLD.images, 2 * number, 8, 0.22)
    queries = WORLD.folds(WORLD.queries, 2 * number + 1, 8, 0.22)
    by_image = centred(queries.mean(0) @ images.transpose(0, 2, 1))
    by_query = centred(queries @ images.mean(0).T)
    scores = by_image.mean(0)
    _, own = fold_statistics(images)
    deviation = np.sqrt(np.square(own).mean(0))
    level = np.square(own).sum(1) / np.square(deviation).sum()
    lengths = np.linalg.norm(images.mean(0), axis=1)
    noise = Noise(torch.from_numpy(deviation), torch.ones(P), level, lengths, None)
    asked = [noise.asked(torch.from_numpy(queries[:, m])) for m in range(M)]
    base = np.outer([one.spread for one in asked], level)
    other = np.outer([one.noise for one in asked], lengths**2)
    relative = np.array([[one.relative] for one in asked])
    squares = [np.square(fold_statistics(f)[1]) for f in (by_image, by_query)]
    model = ErrorModel(
        fit_law(scores, base, squares[0]),
        fit_law(scores, other, squares[1], relative),
    )
    variance = [
        model.variance(own, one, level, lengths)
        for own, one in zip(scores, asked, strict=True)
    ]
    diagonal = base * squares[0].mean() / base.mean()
    diagonal += lengths**2 * squares[1].mean(1, keepdims=True) / np.mean(lengths**2)
    return Shown(scores, np.sqrt(variance), np.sqrt(diagonal))


@pytest.fixture(scope="module")
def builds() -> list[Shown]:
    """Return 12 builds, each with all draws new."""
    return [build(number) for number in range(12)]


def stood(builds: list[Shown], errors: str, count: int) -> tuple[float, float]:
    """Return coverage of 90% intervals, and real over printed, of the top as shown."""
    exact = centred(WORLD.queries @ WORLD.images.T)
    z = []
    for shown in builds:
        top = np.argsort(-shown.scores, 1)[:, :count]
        off, said = shown.scores - exact, getattr(shown, errors)
        z.append(np.take_along_axis(off / said, top, 1))
    z = np.stack(z)
    return np.mean(np.abs(z) < NORMAL_90), np.sqrt(np.mean(z**2))


def test_intervals_cover_the_ten_that_are_shown_and_all(builds):
    """Where the noise is shared, a model of separate coordinates covers 70%."""
    for count in (10, N):
        coverage, ratio = stood(builds, "errors", count)
        assert 0.85 <= coverage <= 0.95, (count, coverage)
        assert 0.8 <= ratio <= 1.2, (count, ratio)
    coverage, ratio = stood(builds, "diagonal", 10)
    assert coverage < 0.8 and ratio > 1.4


def test_errors_do_not_depend_on_the_unit_of_a_query(builds):
    model = ErrorModel(Law(3.0, 0.5, 0.01), Law(2.0, 0.1, 0.4))
    level, lengths = np.linspace(1, 2, N), np.linspace(2, 1, N)
    scores, asked = builds[0].scores[0], Asked(2.0, 0.3, 0.2)
    variance = model.variance(scores, asked, level, lengths)
    scaled = replace(asked, spread=9 * asked.spread, noise=9 * asked.noise)
    tripled = model.variance(-3 * scores, scaled, level, lengths)
    np.testing.assert_allclose(tripled, 9 * variance, rtol=1e-12)


# --- the fit ------------------------------------------------------------------------


@pytest.mark.parametrize("law", [Law(5.0, 1.0, 0.02), Law(2.0, 0.0, 0.1), Law(4.0)])
def test_law_is_found_again_in_contrasts_that_follow_it(law):
    rng = np.random.default_rng(0)
    base = rng.uniform(1, 3, size=(40, 2000))
    scores = 5 * rng.standard_t(2, size=base.shape)
    squares = law.variance(base, scores) * rng.normal(size=base.shape) ** 2
    found = fit_law(scores, base, squares)
    for size in (0.0, 3.0, 30.0, 300.0):
        expected = law.variance(np.array([2.0]), np.array([size]))
        at = found.variance(np.array([2.0]), np.array([size]))
        assert at == pytest.approx(expected, rel=0.15)


def test_held_out_samples_stand_a_law_that_others_follow():
    """Normal contrasts of two and of four folds; a sample of its own kind does not."""
    rng = np.random.default_rng(0)
    law, base = Law(5.0, 1.0, 0.02), rng.uniform(1, 3, size=(30, 800))
    scores = 5 * rng.standard_t(2, size=base.shape)
    size = np.sqrt(law.variance(base, scores))
    for folds in (2, 4):
        contrasts = rng.normal(size=(folds - 1, *base.shape)) * size
        contrasts /= (folds - 1) ** 0.5
        found = held_out(scores, base, contrasts)
        assert found["top"]["count"] == 30 * 10 * (folds - 1)
        for what in ("top", "all"):
            assert found[what]["coverage"] == pytest.approx(0.9, abs=0.04)
            assert found[what]["ratio"] == pytest.approx(1, abs=0.08)
    contrasts[:, ::2] *= 3
    assert held_out(scores, base, contrasts)["top"]["ratio"] > 1.5


def test_folds_that_agree_are_refused():
    with pytest.raises(ValueError, match="All folds agree to the last digit"):
        fit_law(np.ones((2, 3)), np.ones((2, 3)), np.zeros((2, 3)))


def test_size_and_scatter_of_a_sketch_are_found():
    """Products 4% low, by another half percent for each query."""
    rng = np.random.default_rng(0)
    scores = 5 * rng.standard_t(2, size=(60, 1000))
    base = np.full(scores.shape, 4.0)
    size = 0.96 + 0.05 * rng.normal(size=(60, 1))
    products = size * scores + 2 * rng.normal(size=scores.shape)
    found, law = fit_sketch(scores, products, base)
    assert found == pytest.approx(0.96, abs=0.02)
    assert law.partly == 0 and law.apart == pytest.approx(1 / 0.96**2, rel=0.1)
    assert law.alike**0.5 == pytest.approx(0.05, rel=0.5)


# --- groups -------------------------------------------------------------------------


def test_group_of_one_has_the_error_beside_the_image_and_all_together_none():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, N)) * rng.uniform(0.1, 4, size=N)
    rows[:, 1] = 3 * rows[:, 0]
    rows = centred(rows)
    variance = rng.uniform(1, 100, size=N)
    sized, own = of_these_sizes(rows, variance)
    errors = Uncertainty(sized, own).of_groups(np.eye(N, dtype=bool))
    np.testing.assert_allclose(errors * N, np.sqrt(variance), rtol=1e-9)
    everyone = Uncertainty(sized, own).of_groups(np.ones((1, N), bool))
    assert everyone < 1e-2 * np.sqrt(variance.sum()) / N
    # Images whose errors go the same way still do.
    assert sized[:, 0] @ sized[:, 1] / np.prod(np.sqrt(variance[:2])) > 0.95


def test_image_that_no_row_knows_keeps_its_error():
    rows = np.zeros((3, 4))
    sized, own = of_these_sizes(rows, np.arange(4.0))
    np.testing.assert_array_equal(own, np.arange(4.0))
    assert not sized.any()


# --- the file -----------------------------------------------------------------------


MODEL = ErrorModel(
    Law(10.0, 2.0, 0.01),
    Law(30.0, 0.0, 4.0),
    Law(1.03, 0.0, 0.0004),
    0.965,
    {"kinds": {"loss": {"top": {"coverage": 0.9}}}, "agreement": {"sketch": 0.7}},
    {lens_key({"method": "ekfac"}): {"3": Asked(2.0, 0.5, 0.1)}},
)


def test_laws_survive_the_file_and_a_damaged_one_is_refused(tmp_path):
    path = errors_path(tmp_path, collection_config("glyphs", "tiny"))
    assert read_model(path) is None
    write_model(path, MODEL)
    assert read_model(path) == MODEL
    flipped = path.read_text().replace("0.965", "0.865")
    for damaged in ("{", "[]", json.dumps({"training": {}}), flipped):
        path.write_text(damaged)
        with pytest.raises(ValueError, match="is damaged. Get it again"):
            read_model(path)


def test_large_scores_have_a_tenth_of_error_where_nothing_is_recorded():
    model = typical_model(2.0)
    scores = np.array([0.0, 1000.0])
    errors = np.sqrt(model.variance(scores, Asked(3.0), np.ones(2), np.ones(2)))
    assert errors[0] == pytest.approx(6**0.5)
    assert errors[1] == pytest.approx(100, rel=0.01)


class OneCollection:
    """What `StoredErrors` asks of a collection."""

    def __init__(self, path):
        """Take the path of the file that is not there."""
        self.path = path

    def meta(self, key):
        """Return the settings."""
        return collection_config("glyphs", "tiny").to_dict()

    def array(self, name):
        """Return level or length of three images."""
        return {"noise_level": np.ones(3), "whitened_norm": np.arange(3.0)}[name]


def test_errors_of_stored_answers_are_told_anew_where_the_file_says_so(tmp_path):
    """Of one sample under one lens; all others are as stored."""
    write_model(errors_path(tmp_path, collection_config("glyphs", "tiny")), MODEL)
    told = StoredErrors(OneCollection(tmp_path / "glyphs.duckdb"))
    assert told.coverage == {"loss": {"top": {"coverage": 0.9}}}
    assert told.agreement == {"sketch": 0.7}
    scores, old = np.array([0.0, 10.0, -100.0]), np.full(3, 7.0)
    answer = StoredAnswer(scores, old, 1.0, "exact")
    found = told.of(answer, 3, {"method": "ekfac"})
    s, x, y = np.abs(scores), 2.0, 0.5 * np.arange(3.0) ** 2
    training = 10 * x + 2 * s * x**0.5 + 0.01 * s**2
    query = 30 * y + 4 * 0.1 * s**2
    np.testing.assert_allclose(found**2, training + query, rtol=1e-12)
    for sample, method in ((4, "ekfac"), (3, "kfac")):
        assert (told.of(answer, sample, {"method": method}) == old).all()
    beyond = replace(
        MODEL,
        again={"loss": 2.0, "loss, sketch": 5.0},
        unseen={"loss": 0.04, "elbo": 9.0, "loss, sketch": 1.0},
    )  # twice as much, and a fifth of each score
    write_model(errors_path(tmp_path, collection_config("glyphs", "tiny")), beyond)
    told = StoredErrors(OneCollection(tmp_path / "glyphs.duckdb"))
    for sample, variance in ((3, found**2), (4, old**2)):
        again = told.of(answer, sample, {"method": "ekfac"})
        np.testing.assert_allclose(again**2, 2 * variance + 0.04 * s**2, rtol=1e-12)
    by_sketch = told.of(replace(answer, source="sketch"), 4, {"method": "ekfac"})
    np.testing.assert_allclose(by_sketch**2, 5 * old**2 + s**2, rtol=1e-12)
    (tmp_path / "empty").mkdir()
    untold = StoredErrors(OneCollection(tmp_path / "empty" / "glyphs.duckdb"))
    assert (untold.of(answer, 3, {"method": "ekfac"}) == old).all()
    assert untold.coverage == untold.agreement == {}
