"""On a card that is not there: no tensor is left on the CPU, and results are the same.

Questions go through the whole engine, so that model, measurements, sampling, curvature,
index and scores run as on a card (`tests.helpers.pretend_card`). What the card's own
kernels, streams and memory do is for the tests that are marked `gpu`.
"""

from dataclasses import replace
from pkgutil import resolve_name

import numpy as np
import pytest
import torch

from core.curvature.basis import Curvature
from core.curvature.fit import eigenbasis, fit_corrected_eigenvalues, fit_factors
from core.drawing import Drawing
from core.explorer.explorer import Explorer, open_explorer
from core.index import gpu
from core.index.projection import PROJECTIONS, make_projection
from core.lenses import Lens
from core.measure.draws import keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.measurements import MEASUREMENTS
from core.model.parameters import parameter_layout
from tests.helpers.pretend_card import OnCard, pretend_card, values
from tests.helpers.toys import random_samples, tiny_denoiser

DRAWS = 8
DRAWN = Drawing(1, 3, "ddpm", 4, 2.0)
LENSES = {
    "loss": Lens(num_draws=DRAWS),
    "elbo": Lens(measurement="elbo", num_draws=DRAWS),
    "noise-loss": Lens(measurement="noise-loss", num_draws=DRAWS),
    "part": Lens(timesteps=(0, 500), region=(8, 8, 24, 24), num_draws=DRAWS),
    "kfac": Lens("kfac", num_draws=DRAWS),
    "relatif": Lens("relatif", num_draws=DRAWS),
    "damped": Lens(damping=0.1, num_draws=DRAWS),
    "full": Lens(num_draws=DRAWS, form="full"),
    "gradient": Lens("gradient", num_draws=DRAWS, form="full"),
    "trajectory": Lens(measurement="trajectory", num_draws=DRAWS),
    "clip": Lens("clip"),
    "latent": Lens("latent"),
}


@pytest.fixture(scope="module")
def on_cpu(tiny_collection) -> Explorer:
    """Return the tiny collection on the CPU."""
    return open_explorer("glyphs", tiny_collection)


@pytest.fixture(scope="module")
def on_card(tiny_collection) -> Explorer:
    """Return it on the card; the index is read without streams."""
    explorer = open_explorer("glyphs", tiny_collection)
    explorer.engine.device = torch.device("cuda")
    return explorer


@pytest.fixture(autouse=True)
def without_streams(monkeypatch):
    """Let an index lie on the card whole, copied piece by piece."""

    def streamed(index: gpu.DeviceIndex):
        for piece in index.index.pieces(gpu.PIECE_BYTES):
            yield tuple(part.to(index.device) for part in gpu._to_tensors(piece))

    monkeypatch.setattr(gpu.DeviceIndex, "_fits", lambda index: True)
    monkeypatch.setattr(gpu.DeviceIndex, "_streamed", streamed)


def asked_by(explorer: Explorer, question):
    """Return what a question gives about an image that the model drew."""
    return question(explorer, explorer.generate(DRAWN))


def close(first, second) -> None:
    """Check that two arrays agree but for the order of sums; pixels may round."""
    steps = 1 if np.asarray(first).dtype == np.uint8 else 0
    first, second = np.asarray(first, float), np.asarray(second, float)
    most = np.nanmax(np.abs(first), initial=1e-30)
    np.testing.assert_allclose(second, first, atol=steps + 1e-4 * most, rtol=1e-4)


@pytest.mark.parametrize("name", LENSES)
def test_an_answer_is_that_of_the_cpu(on_cpu, on_card, name):
    """Scores and errors; the model, its image and its gradients lie on the card."""

    def question(explorer, query):
        return explorer.answer(query, LENSES[name])

    expected = asked_by(on_cpu, question)
    with pretend_card():
        found = asked_by(on_card, question)
        weight = next(on_card.engine.denoiser.parameters())
        assert isinstance(weight, OnCard) and weight.device.type == "cuda"
    close(expected.scores, found.scores)
    close(expected.standard_errors, found.standard_errors)
    assert expected.scores.std() > 0


QUESTIONS = {
    "pixels": lambda e, q: [q.pixels, q.x_0],
    "log-probability": lambda e, q: [
        e.measure(q, "log-probability", num_draws=DRAWS).value
    ],
    "value": lambda e, q: [e.measure(q, "elbo", num_draws=DRAWS).value],
    "timesteps": lambda e, q: [e.timestep_losses(q, num_draws=32, num_bands=4)["cost"]],
    "steps": lambda e, q: [e.timestep_losses(q, "trajectory")["cost"]],
    "bands": lambda e, q: [
        e.band_answers(q, Lens(num_draws=32), 2).scores,
    ],
    "forming": lambda e, q: [e.forming(q, 3).expected],
    "weights": lambda e, q: [e.measurement_weights()["weight"]],
    "inverted": lambda e, q: [
        e.answer(
            e.inverted(e.query_from_example(int(e.examples.table.index[0]))),
            Lens(measurement="trajectory"),
        ).scores
    ],
    "uncertainty": lambda e, q: [
        e.uncertainty(q, e.answer(q, Lens(num_draws=32))).unshared
    ],
}


SLOW = {"log-probability"}  # hundreds of passes, each checked on the card: long


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in SLOW else ())
        for name in QUESTIONS
    ],
)
def test_whatever_is_asked_is_as_on_the_cpu(on_cpu, on_card, name):
    """Drawing, values, steps, bands, the forming image, its inversion, sums' errors."""
    expected = asked_by(on_cpu, QUESTIONS[name])
    with pretend_card():
        found = asked_by(on_card, QUESTIONS[name])
    for one, other in zip(expected, found, strict=True):
        close(one, other)


@pytest.mark.parametrize("targets", [False, True], ids=["model", "loss"])
@pytest.mark.parametrize("approximation", ["expand", "reduce"])
def test_curvature_is_fitted_as_on_the_cpu(approximation, targets):
    """Factors, their basis, corrected eigenvalues, and a damped solve."""

    def fitted(move):
        denoiser = tiny_denoiser().to(move)
        layout, samples = parameter_layout(denoiser.unet), random_samples(denoiser, 6)
        if targets:
            samples = replace(samples, targets=torch.ones_like(samples.x_t))
        samples = samples.to(move)
        factors = fit_factors(denoiser, layout, [samples], approximation)
        basis, kfac = eigenbasis(factors)
        corrected = fit_corrected_eigenvalues(denoiser, basis, [samples], 2)
        vector = torch.linspace(-1, 1, layout.num_params, dtype=torch.float64).to(move)
        curvature = Curvature(basis, corrected)
        solved = curvature.solve(vector[None], 0.1)
        return values([*factors.input_covariance, kfac, solved])

    expected = fitted("cpu")
    with pretend_card():
        found = fitted("cuda")
    for one, other in zip(expected[:-1], found[:-1], strict=True):
        close(one, other)
    # Vectors of equal eigenvalues are anyone's choice, so the solve is only near.
    assert found[-1].isfinite().all()


@pytest.mark.parametrize(
    "name", [name for name, facts in MEASUREMENTS.items() if facts.over == "draws"]
)
def test_gradients_of_every_measurement_are_those_of_the_cpu(name):
    """In float64, by folds, on a model with classes and attention."""
    cost = resolve_name(MEASUREMENTS[name].costs)

    def gradients(move):
        denoiser = tiny_denoiser().to(move)
        layout = parameter_layout(denoiser.unet)
        draws = make_draws(
            DRAWS, denoiser.shape, 20, keyed_generator(0, "card"), num_folds=2
        )
        draws = draws._each(lambda v: v.double() if v.is_floating_point() else v)
        x_0 = torch.ones(denoiser.shape, dtype=torch.float64).to(move)
        folds = fold_gradients(cost, denoiser, layout, x_0, 0, draws.to(move), 2)
        return values(folds[0])

    expected = gradients("cpu")
    with pretend_card():
        found = gradients("cuda")
    close(expected, found)


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_projections_are_those_of_the_cpu(kind):
    projection = make_projection(kind, 300, 16, 0)
    vectors = torch.randn(3, 300, generator=torch.manual_seed(0))
    with pretend_card():
        found = values(projection.apply(vectors.to("cuda")))
    close(projection.apply(vectors), found)


def test_a_tensor_left_on_the_cpu_is_found():
    """Beside one on the card, as an index of the CPU's, and a generator of the CPU."""
    with pretend_card():
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        assert (there + 1).device.type == "cuda"
        assert values(there + torch.tensor(1.0)).tolist() == [2, 2, 2]
        assert values(there[torch.tensor([0, 2])]).tolist() == [1, 1]
        with pytest.raises(RuntimeError, match="shape .3,. is on the CPU"):
            there + here
        with pytest.raises(RuntimeError, match="is on the CPU"):
            here[torch.tensor([0], device="cuda")]
        with pytest.raises(RuntimeError, match="a generator of the CPU"):
            torch.randn(3, device="cuda", generator=torch.manual_seed(0))
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
            there.numpy()
