"""Query gradients and values: loops, invariances, and parts that sum to the whole."""

from dataclasses import replace
from pkgutil import resolve_name

import pytest
import torch

from core.engine import query as query_module
from core.engine.query import Question, query_draws
from core.measure.costs import elbo, elbo_constant, loss, noise_loss
from core.measure.draws import keyed_generator
from core.measurements import MEASUREMENTS
from core.model.parameters import parameter_layout
from core.model.sampling import Subject, Trajectory
from tests.core.measure.test_measurements import TYPES, exact_draws, picture, sampled
from tests.helpers.exact import loop_gradient
from tests.helpers.toys import gaussian_denoiser, tiny_denoiser

EVERY = [name for name, facts in MEASUREMENTS.items() if facts.attributable]
DRAWN = [name for name, facts in MEASUREMENTS.items() if facts.over == "draws"]
SEED = 5


def toy(prediction_type="v_prediction"):
    """Return a denoiser with classes and an image it drew with guidance."""
    denoiser = tiny_denoiser(prediction_type=prediction_type, label_dropout=0.1)
    subject = sampled(denoiser.float(), "ddpm", 8, guidance_scale=2.0, label=1)
    path = subject.trajectory
    subject = replace(
        subject,
        x_0=subject.x_0.double(),
        trajectory=Trajectory(path.timesteps, path.states.double()),
    )
    return denoiser.double(), subject


def question(denoiser, subject, measurement, timesteps=None, mask=None):
    """Return a question of 16 draws, put to a model."""
    asked = Question(subject, MEASUREMENTS[measurement], 16, SEED, timesteps, mask)
    return asked.to(denoiser)


def ask(denoiser, subject, measurement, timesteps=None, mask=None, on_half=None):
    """Return the query gradient of 16 draws."""
    asked = question(denoiser, subject, measurement, timesteps, mask)
    return asked.gradient(None, on_half=on_half)


def constant(denoiser, subject, measurement):
    """Return what a measurement adds to the mean of its draws."""
    return elbo_constant(denoiser, subject.x_0) if measurement == "elbo" else 0.0


def costs_by_hand(denoiser, subject, measurement):
    """Return costs whose sum is the value, written out per draw or per step."""
    if measurement != "trajectory":
        draws = query_draws(denoiser, 16, SEED, MEASUREMENTS[measurement])
        measure = {"loss": loss, "noise-loss": noise_loss, "elbo": elbo}[measurement]
        return [
            (draws.weights[i] * measure(denoiser, subject.x_0, 1, draws[i : i + 1]))[0]
            / 16
            for i in range(16)
        ]
    times, states = subject.trajectory.timesteps, subject.trajectory.states
    a, costs = denoiser.alphas_cumprod, []
    for i, (t, s) in enumerate(zip(times[:-1], times[1:], strict=True)):
        x_t = states[i][None].to(a.dtype)
        outputs = [denoiser.predict(x_t, t[None], torch.tensor([k])) for k in (1, 2)]
        velocity = outputs[1] + 2.0 * (outputs[0] - outputs[1])
        clean = a[t].sqrt() * x_t - (1 - a[t]).sqrt() * velocity
        beta = 1 - a[t] / a[s]
        mean = a[s].sqrt() * beta / (1 - a[t]) * clean
        mean = mean + (a[t] / a[s]).sqrt() * (1 - a[s]) / (1 - a[t]) * x_t
        scale = ((1 - a[s]) / (1 - a[t]) * beta).sqrt()
        step = torch.distributions.Normal(mean, scale)
        costs.append(-step.log_prob(states[i + 1]).sum())
        if i == 0:
            costs[0] = costs[0] - torch.distributions.Normal(0, 1).log_prob(x_t).sum()
    return costs


@pytest.mark.parametrize("measurement", EVERY)
def test_gradient_and_value_equal_a_loop_of_autograd(measurement):
    """One backward pass per draw or step, summed; folds are averaged."""
    denoiser, subject = toy()
    found = ask(denoiser, subject, measurement)
    costs = costs_by_hand(denoiser, subject, measurement)
    layout = parameter_layout(denoiser.unet)
    expected = len(costs) * loop_gradient(lambda: costs, denoiser, layout)
    torch.testing.assert_close(found.folds.mean(0), expected, rtol=1e-4, atol=1e-4)
    expected = float(sum(costs).detach()) + constant(denoiser, subject, measurement)
    assert found.value == pytest.approx(expected, rel=1e-5)
    value, error = question(denoiser, subject, measurement).value()
    assert value == pytest.approx(found.value, rel=1e-9)
    assert error == pytest.approx(found.value_error, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("measurement", EVERY)
def test_bands_sum_to_the_whole(measurement):
    """Gradients, folds and values of disjoint bands, narrow ones too, add up."""
    denoiser, subject = toy()
    whole = ask(denoiser, subject, measurement)
    asked = question(denoiser, subject, measurement)
    bands = asked.band_gradients(None, [0, 1, 7, 13, 20])
    torch.testing.assert_close(sum(band.folds for band in bands), whole.folds)
    assert sum(band.value for band in bands) == pytest.approx(whole.value)
    part = ask(denoiser, subject, measurement, (7, 13))
    torch.testing.assert_close(part.folds, bands[2].folds)
    assert part.value == pytest.approx(bands[2].value)


@pytest.mark.parametrize("measurement", EVERY)
@pytest.mark.parametrize("prediction_type", TYPES)
def test_a_region_and_its_complement_sum_to_the_whole(measurement, prediction_type):
    """Any mask, not only a box."""
    denoiser, subject = toy(prediction_type)
    mask = torch.rand(4, 4, generator=keyed_generator(0, "mask")) > 0.4
    whole = ask(denoiser, subject, measurement)
    inside, outside = (
        ask(denoiser, subject, measurement, mask=m) for m in (mask, ~mask)
    )
    torch.testing.assert_close(inside.folds + outside.folds, whole.folds)
    assert inside.value + outside.value == pytest.approx(whole.value)
    assert inside.folds.abs().max() > 0 < outside.folds.abs().max()


@pytest.mark.parametrize("measurement", ["loss", "trajectory"])
def test_values_do_not_depend_on_batch_size(measurement, monkeypatch):
    """Passes of three draws or steps give what one pass gives."""
    denoiser, subject = toy()
    whole = ask(denoiser, subject, measurement)
    costs = question(denoiser, subject, measurement).costs()[1]
    monkeypatch.setattr(query_module, "MAX_BATCH", 3)
    monkeypatch.setattr(query_module, "PATH_BATCH", 3)
    parts = ask(denoiser, subject, measurement)
    torch.testing.assert_close(parts.folds, whole.folds)
    again = question(denoiser, subject, measurement).costs()[1]
    torch.testing.assert_close(again, costs)


@pytest.mark.parametrize("measurement", EVERY)
def test_costs_over_timesteps_average_to_the_value(measurement):
    """The mean of weight times cost is the value."""
    denoiser, subject = toy()
    timesteps, costs, weights = question(denoiser, subject, measurement).costs()
    assert timesteps.min() >= 0 and timesteps.max() < 20
    value, _ = question(denoiser, subject, measurement).value()
    value -= constant(denoiser, subject, measurement)
    assert float((weights * costs).mean()) == pytest.approx(value, rel=1e-6)


def test_draws_are_common_to_all_models():
    """Two models differ by less under common draws than their error says."""
    first, subject = toy("epsilon")
    second, _ = toy("epsilon")
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(1.01)
    asked = Question(subject, MEASUREMENTS["elbo"], 64, SEED)
    runs = [asked.to(model).costs() for model in (first, second)]
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][2], runs[1][2])
    difference = (runs[0][2] * (runs[0][1] - runs[1][1])).view(4, -1).mean(1)
    alone = (runs[0][2] * runs[0][1]).view(4, -1).mean(1)
    assert difference.std() < alone.std() / 5


@pytest.mark.parametrize("measurement", ["loss", "noise-loss", "elbo"])
@pytest.mark.parametrize("timesteps", [None, (0, 1), (3, 9), (19, 20)])
def test_values_are_within_their_error_of_the_expectation(measurement, timesteps):
    """Four standard errors, with a narrow range's own draws too.

    The expectation is exact: a quadratic over noise along the axes.
    """
    settings = {"num_train_timesteps": 64, "beta_end": 0.1}
    denoiser = gaussian_denoiser("v_prediction", **settings)
    subject = Subject(picture(denoiser), None)
    start, stop = timesteps or (0, 64)
    draws = exact_draws(denoiser, torch.arange(start, stop))
    costs = resolve_name(MEASUREMENTS[measurement].costs)(
        denoiser, subject.x_0, None, draws
    )
    expected = float(costs.detach().mean()) + constant(denoiser, subject, measurement)
    expected *= (stop - start) / 64
    asked = Question(subject, MEASUREMENTS[measurement], 2048, 1, timesteps).to(
        denoiser
    )
    value, error = asked.value()
    assert abs(value - expected) < 4 * error + 1e-9
    scale = float(costs.detach().abs().mean()) * (stop - start) / 64
    assert error < 0.05 * scale


def test_questions_that_make_no_sense_are_refused():
    """Impossible ranges, and ranges between the steps of a path."""
    denoiser, subject = toy()
    for measurement in ("loss", "trajectory"):
        with pytest.raises(ValueError, match="range 5:5 is not inside 0:20"):
            ask(denoiser, subject, measurement, (5, 5))
    with pytest.raises(ValueError, match="no noisy step in 18:19. It has 7, from"):
        ask(denoiser, subject, "trajectory", (18, 19))


@pytest.mark.parametrize("timesteps", [None, (5, 15)])
@pytest.mark.parametrize("measurement", DRAWN)
def test_half_of_the_draws_is_half_of_the_answer(measurement, timesteps):
    """Two whole folds, each balanced over timesteps; asking early changes no bit."""
    denoiser, subject = toy()
    halves = []
    whole = ask(denoiser, subject, measurement, timesteps, on_half=halves.append)
    (half,) = halves
    assert half.folds.equal(whole.folds[: len(whole.folds) // 2])
    assert half.value_error > 0
    assert ask(denoiser, subject, measurement, timesteps).folds.equal(whole.folds)
    draws = query_draws(denoiser, 16, SEED, MEASUREMENTS[measurement])
    size = denoiser.num_train_timesteps
    in_halves = [
        torch.histc(part.double(), bins=2, min=0, max=size)
        for part in draws.timesteps.split(8)
    ]
    assert (in_halves[0] - in_halves[1]).abs().max() <= 4
