"""The log-probability of the flow against its closed form for normal data."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from core.measure.draws import keyed_generator
from core.measure.likelihood import log_probability
from core.model.sampling import Subject
from tests.core.measure.test_measurements import TYPES, expected_elbo, picture
from tests.helpers.toys import gaussian_denoiser

LONG = {"num_train_timesteps": 200, "beta_end": 0.12}


def flow_density(denoiser, x_0):
    """Return log p(x_0) of the flow of normal data, along the covariance's axes.

    The flow keeps every standardised coordinate; its growth is the ratio of the spreads
    at the two ends. With data noise sigma^2 / alpha of timestep 0, as documented.
    """
    values, axes = torch.linalg.eigh(denoiser.unet.covariance)
    mean = axes.T @ denoiser.unet.mean
    first, last = denoiser.alphas_cumprod[0], denoiser.alphas_cumprod[-1]
    spreads = [(a * values + 1 - a).sqrt() for a in (first, last)]
    score = first.sqrt() * (axes.T @ x_0.flatten() - mean) / spreads[0]
    end = last.sqrt() * mean + spreads[1] * score
    normal = -(end.square().sum() + len(mean) * np.log(2 * np.pi)) / 2
    growth = (spreads[1] / spreads[0]).log().sum()
    return normal + growth + len(mean) / 2 * first.log()


@pytest.mark.parametrize("prediction_type", TYPES)
def test_log_probability_has_its_closed_form(prediction_type):
    """Exact where the Jacobian is diagonal: every random sign gives its trace."""
    denoiser = gaussian_denoiser(prediction_type, diagonal=True, **LONG)
    x_0 = picture(denoiser)
    value, error = log_probability(denoiser, Subject(x_0, None), 0, 2, 1e-8)
    assert value == pytest.approx(float(flow_density(denoiser, x_0)), abs=1e-5)
    assert error < 1e-5


def test_trace_estimate_is_unbiased():
    """With a full covariance 64 draws are within four standard errors."""
    denoiser = gaussian_denoiser(**LONG)
    x_0 = picture(denoiser)
    value, error = log_probability(denoiser, Subject(x_0, None), 0, 64)
    assert 0 < error < 0.2
    assert abs(value - float(flow_density(denoiser, x_0))) < 4 * error


def test_elbo_is_below_the_log_probability_of_the_data():
    """Flow and data agree where the schedule ends in noise; the bound is below both.

    The data's density is that of N(mean, covariance + noise of timestep 0).
    """
    denoiser = gaussian_denoiser(diagonal=True, **LONG)
    unet, a = denoiser.unet, denoiser.alphas_cumprod[0]
    covariance = unet.covariance + (1 - a) / a * torch.eye(4).double()
    data = MultivariateNormal(unet.mean, covariance)
    g = keyed_generator(0, "data")
    for _ in range(3):
        noise = torch.randn(4, generator=g).double()
        x_0 = unet.mean + torch.linalg.cholesky(unet.covariance) @ noise
        value, _ = log_probability(denoiser, Subject(x_0.view(1, 2, 2), None), 0, 2)
        assert value == pytest.approx(float(data.log_prob(x_0)), abs=0.01)
        bound = -float(expected_elbo(denoiser, x_0))
        assert value - 2 < bound < value


def test_pixels_are_dequantised_over_their_own_value():
    """The result is the mean log-density of jittered copies, times the bins' volume.

    Rounding: every image inside one 8-bit step has the probability of the step.
    """
    denoiser = gaussian_denoiser(latent=False, diagonal=True, **LONG)
    stored = (picture(denoiser).tanh() * 127).round() / 127.5 + 1 / 255
    value, error = log_probability(denoiser, Subject(stored, None), 3, 16)
    inside, _ = log_probability(denoiser, Subject(stored + 0.003, None), 3, 16)
    assert value == pytest.approx(inside, abs=1e-9)
    centre = float(flow_density(denoiser, stored)) + 4 * np.log(2 / 255)
    # The log-density curves by less than this over a bin.
    assert abs(value - centre) < 4 * error + 1e-3


def test_a_schedule_without_an_end_is_refused():
    """Pure noise at the last timestep has no finite level."""
    denoiser = gaussian_denoiser()
    denoiser.alphas_cumprod[-1] = 0
    with pytest.raises(ValueError, match="ends in pure noise.*Ask for the ELBO"):
        log_probability(denoiser, Subject(picture(denoiser), None), 0)
