"""What each timestep counts for in each measurement."""

import pytest
import torch

from core.measure.costs import loss, noise_loss, noise_weights
from core.measure.draws import keyed_generator, make_draws
from tests.helpers.toys import tiny_denoiser


@pytest.mark.parametrize("prediction_type", ["epsilon", "sample", "v_prediction"])
def test_loss_is_the_noise_loss_times_the_ratio_of_their_weights(prediction_type):
    """At every draw, up to one factor: only ratios of weights count."""
    denoiser = tiny_denoiser(prediction_type=prediction_type)
    generator = keyed_generator(0, "weights")
    draws = make_draws(16, denoiser.shape, 20, generator)
    x_0 = torch.rand(denoiser.shape, generator=generator).double()
    weights = noise_weights(denoiser)
    ratio = (weights["loss"] / weights["noise-loss"])[draws.timesteps]
    costs = [measure(denoiser, x_0, 0, draws) for measure in (loss, noise_loss)]
    factors = costs[0] / costs[1] / ratio
    torch.testing.assert_close(factors, factors[:1].expand(16), rtol=1e-4, atol=0)


def test_the_elbo_weighs_detail_most():
    weights = noise_weights(tiny_denoiser())
    low = weights["elbo"][:5].sum() / weights["elbo"].sum()  # of 20
    assert low > 0.3
    assert len(weights["noise-loss"].unique()) == 1
