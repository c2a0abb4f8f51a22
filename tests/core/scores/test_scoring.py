"""Scores of toy gradients: each form is the dense product, with an honest error."""

import numpy as np
import pytest
import torch

from core.index.full import GradientIndex, balance
from core.index.projection import make_projection
from core.index.sketch import make_sketch, pack_signs
from core.measure.draws import keyed_generator
from core.scores.errors import ErrorModel, Law
from core.scores.influence import centred
from core.scores.method_files import MethodFile
from core.scores.scoring import linear_scores
from core.scores.stored import FromFeatures, FromIndex, FromSketch, Noise

N, P = 40, 600
GENERATOR = keyed_generator(0, "scoring")
SCALE = torch.logspace(0, -2, P)
GRADIENTS = torch.randn(N, P, generator=GENERATOR) * SCALE
QUERIES = [
    torch.randn(4, P, generator=GENERATOR),
    torch.randn(1, P, generator=GENERATOR),
]
LENGTHS = GRADIENTS.norm(dim=1).double().numpy()
NO_NOISE = Noise(
    torch.zeros(P),
    torch.ones(P),
    np.ones(N),
    LENGTHS,
    ErrorModel(Law(1.0), Law(1.0)),
)


@pytest.fixture
def indexed(tmp_path):
    """Return the gradients in an index of eight bits."""
    index = GradientIndex(tmp_path, N, P)
    index.create()
    rms = GRADIENTS.square().mean(0).sqrt()
    rms.numpy().astype("<f4").tofile(tmp_path / "rms.bin")
    index.write(0, GRADIENTS / balance(rms))
    return FromIndex(index, torch.device("cpu"))


def sketched(dim: int, number: int) -> FromSketch:
    """Return the gradients in a sketch, whitened by their scale."""
    sketch = make_sketch(P, dim, keyed_generator(number, "sketch"))
    bits, scales = pack_signs(sketch.apply(GRADIENTS / SCALE))
    norms = (GRADIENTS / SCALE).norm(dim=1).double().numpy()
    return FromSketch(sketch, bits, scales, SCALE, norms)


def projected(dim: int, number: int) -> FromFeatures:
    """Return the gradients in random projections."""
    projection = make_projection("sketch", P, dim, number)
    file = MethodFile(None, {}, {"norm": GRADIENTS.norm(dim=1)})
    file.__dict__["projection"] = projection
    file.__dict__["features"] = projection.apply(GRADIENTS)
    return FromFeatures(file)


def test_scores_are_the_dense_product_however_many_at_once(indexed):
    """Queries of several and of one fold, together and alone; centred or not."""
    together = linear_scores(QUERIES, indexed, NO_NOISE)
    for query, found in zip(QUERIES, together, strict=True):
        exact = (query.mean(0) @ GRADIENTS.T).double().numpy()
        size = np.abs(exact).max()
        np.testing.assert_allclose(found.scores, centred(exact), atol=0.01 * size)
        (alone,) = linear_scores([query], indexed, NO_NOISE)
        np.testing.assert_array_equal(alone.scores, found.scores)
        np.testing.assert_array_equal(alone.standard_errors, found.standard_errors)
        (plain,) = linear_scores([query], indexed, NO_NOISE, about_mean=False)
        np.testing.assert_allclose(plain.scores, exact, atol=0.01 * size)


def test_the_error_adds_what_there_is(indexed):
    """No draws, no error; noise of images and of folds add, and grow with the score."""
    folds, single = QUERIES
    model = ErrorModel(Law(1.5, 0.3, 0.01), Law(2.0, 0.0, 0.5))
    noise = Noise(
        torch.full((P,), 0.1), 1 / SCALE, np.linspace(1, 2, N), LENGTHS, model
    )
    (quiet,) = linear_scores([single], indexed, NO_NOISE)
    assert (quiet.standard_errors == 0).all()
    (trained,) = linear_scores([single], indexed, noise)
    s = np.abs(trained.scores)
    x = 0.01 * float(single.square().sum()) * noise.level
    expected = 1.5 * x + 0.3 * s * x**0.5 + 0.01 * s**2
    np.testing.assert_allclose(trained.standard_errors**2, expected, rtol=1e-5)

    (both,) = linear_scores([folds], indexed, noise)
    mean, s = folds.mean(0), np.abs(both.scores)
    x = 0.01 * float(mean.square().sum()) * noise.level
    expected = 1.5 * x + 0.3 * s * x**0.5 + 0.01 * s**2
    whitened = folds / SCALE
    apart = sum(float((one - whitened.mean(0)).square().sum()) for one in whitened)
    apart /= 4 * 3
    length = float(whitened.mean(0).square().sum())
    expected += 2 * apart / P * LENGTHS**2
    expected += 0.5 * s**2 * apart / max(length - apart, apart)
    np.testing.assert_allclose(both.standard_errors**2, expected, rtol=1e-5)


@pytest.mark.parametrize("make", [sketched, projected])
def test_short_forms_are_off_by_what_they_say(make):
    """Over 200 random short forms the mean is exact and the spread as predicted."""
    vector = QUERIES[1]
    exact = (vector @ GRADIENTS.T)[0].double().numpy()
    forms = [make(64, number) for number in range(200)]
    errors = np.stack([form.products(vector)[0] - exact for form in forms])
    predicted = forms[0].variance(vector[0], exact)
    assert np.mean(errors**2) == pytest.approx(predicted.mean(), rel=0.2)
    standard = errors.std(0) / len(forms) ** 0.5
    assert np.mean(np.abs(errors.mean(0)) < 3 * standard) > 0.9
