"""Measurements against closed forms: normal data have a linear optimal denoiser."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.distributions import MultivariateNormal

from core.drawing import Drawing
from core.measure.costs import (
    PIXEL,
    elbo,
    elbo_constant,
    elbo_weights,
    last_step_cost,
    loss,
    noise_loss,
)
from core.measure.draws import Draws, keyed_generator, make_draws
from core.measure.region import region_mask
from core.measure.trajectory import path_costs, path_steps
from core.model.patch_autoencoder import PatchAutoencoder
from core.model.sampling import Subject, Trajectory, invert, reverse_conditional, sample
from tests.helpers.toys import gaussian_denoiser, linear_denoiser, tiny_denoiser

TYPES = ["epsilon", "v_prediction", "sample"]
EYE = torch.eye(4).double()


def picture(denoiser):
    """Return a keyed clean example in float64."""
    g = keyed_generator(0, "measured picture")
    return torch.randn(denoiser.shape, generator=g).double() / 2


def exact_draws(denoiser, timesteps):
    """Return draws whose mean of any quadratic of the noise is its expectation.

    At each timestep the noise is +-sqrt(D) along every axis: mean 0, covariance I.
    """
    size = torch.tensor(denoiser.shape).prod().item()
    points = size**0.5 * torch.eye(size).double()
    points = torch.cat([points, -points]).view(-1, *denoiser.shape)
    count = len(timesteps) * len(points)
    no = torch.zeros(count, dtype=torch.bool)
    return Draws(
        timesteps.repeat_interleave(len(points)),
        points.repeat(len(timesteps), 1, 1, 1),
        no,
        no,
        torch.ones(count),
    )


def optimum(denoiser, t):
    """Return (W, c): the optimal prediction of x_0 is W x_t + c (Gaussian posterior).

    Together with the cumulative alpha of the timestep.
    """
    unet, a = denoiser.unet, denoiser.alphas_cumprod[t]
    gain = (
        a.sqrt()
        * unet.covariance
        @ torch.linalg.inv(a * unet.covariance + (1 - a) * EYE)
    )
    return gain, unet.mean - a.sqrt() * gain @ unet.mean, a


@pytest.mark.parametrize("prediction_type", TYPES)
def test_loss_of_every_timestep_has_its_closed_form(prediction_type):
    """Squared bias plus variance of the optimal prediction, per prediction type."""
    denoiser = gaussian_denoiser(prediction_type)
    x_0, every = picture(denoiser), torch.arange(20)
    draws = exact_draws(denoiser, every)
    found, found_noise = (
        measure(denoiser, x_0, None, draws).view(20, -1).mean(1)
        for measure in (loss, noise_loss)
    )
    for t in every:
        gain, offset, a = optimum(denoiser, t)
        bias = (a.sqrt() * gain - EYE) @ x_0.flatten() + offset
        clean = bias.square().sum() + (1 - a) * gain.square().sum()
        # x_0 = (x_t - sqrt(1-a) noise) / sqrt(a) = sqrt(a) x_t - sqrt(1-a) velocity
        noise = clean * a / (1 - a)
        expected = {
            "epsilon": noise,
            "sample": clean,
            "v_prediction": clean / (1 - a),
        }[prediction_type]
        torch.testing.assert_close(found[t], expected)
        torch.testing.assert_close(found_noise[t], noise)


def reverse_maps(denoiser):
    """Return (M, b, beta) per timestep: x_{t-1} ~ N(M x_t + b, beta I), large variance.

    By eq. 7 of Ho et al.
    """
    maps = []
    for t in range(denoiser.num_train_timesteps):
        gain, offset, a = optimum(denoiser, t)
        before = denoiser.alphas_cumprod[t - 1] if t else torch.ones(()).double()
        beta = 1 - a / before
        on_clean = before.sqrt() * beta / (1 - a)
        on_noisy = (1 - beta).sqrt() * (1 - before) / (1 - a)
        maps.append((on_clean * gain + on_noisy * EYE, on_clean * offset, beta))
    return maps


def expected_elbo(denoiser, x_0):
    """Return E_q[log q(x_1..T | x_0) - log p(x_0..T)] from the joint covariance of q.

    No divergence between posteriors, no schedule weight: the entropy of q as a whole,
    and second moments of each reverse step's residual.
    """
    a = denoiser.alphas_cumprod
    num = len(a)
    means = a.sqrt()[:, None] * x_0.flatten()
    later = torch.maximum(torch.arange(num)[:, None], torch.arange(num))
    earlier = torch.minimum(torch.arange(num)[:, None], torch.arange(num))
    scalar = (a[later] / a[earlier]).sqrt() * (1 - a[earlier])  # Cov(x_s, x_t) / I
    joint = MultivariateNormal(means.flatten(), torch.kron(scalar, EYE))
    value = -joint.entropy()
    for t, (matrix, offset, beta) in enumerate(reverse_maps(denoiser)):
        target = means[t - 1] if t else x_0.flatten()
        residual = target - matrix @ means[t] - offset
        spread = scalar[t, t] * matrix @ matrix.T
        if t:
            spread = spread + scalar[t - 1, t - 1] * EYE
            spread = spread - 2 * scalar[t - 1, t] * matrix
        square = residual.square().sum() + spread.trace()
        value = value + 2 * (2 * torch.pi * beta).log() + square / beta / 2
    square = means[-1].square().sum() + 4 * (1 - a[-1])
    return value + 2 * np.log(2 * np.pi) + square / 2


@pytest.mark.parametrize("prediction_type", TYPES)
def test_elbo_is_the_expected_log_ratio_and_a_bound(prediction_type):
    """The mean over timesteps is E_q[log q - log p], above the exact -log p(x_0).

    The exact one: with linear steps the reverse process stays normal to the end.
    """
    denoiser = gaussian_denoiser(prediction_type)
    x_0 = picture(denoiser)
    found = elbo(denoiser, x_0, None, exact_draws(denoiser, torch.arange(20))).mean()
    found = found + elbo_constant(denoiser, x_0)
    torch.testing.assert_close(
        found, expected_elbo(denoiser, x_0), rtol=1e-5, atol=1e-5
    )
    mean, covariance = torch.zeros(4).double(), EYE
    for matrix, offset, beta in reversed(reverse_maps(denoiser)):
        mean = matrix @ mean + offset
        covariance = matrix @ covariance @ matrix.T + beta * EYE
    exact = -MultivariateNormal(mean, covariance).log_prob(x_0.flatten())
    assert exact < found < exact + 5


@pytest.mark.parametrize("latent", [True, False])
@pytest.mark.parametrize("prediction_type", TYPES)
def test_elbo_is_the_weighted_noise_loss_and_a_constant(prediction_type, latent):
    """Between two models the terms differ by T w_t times the noise losses (eq. 12).

    The weights are written out from the scheduler's betas, which its float32 products
    keep to one in a thousand. A pixel model's last step is another distribution.
    """
    first = tiny_denoiser(prediction_type=prediction_type)
    second = tiny_denoiser(prediction_type=prediction_type)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(1.1)
    if latent:
        first.autoencoder = second.autoencoder = torch.nn.Identity()
    x_0 = (picture(first).tanh() * 127).round() / 127.5 + 1 / 255  # an 8-bit value
    draws = make_draws(40, first.shape, 20, keyed_generator(0, "elbo draws"))
    draws = draws[draws.timesteps >= (0 if latent else 1)]
    difference = elbo(first, x_0, None, draws) - elbo(second, x_0, None, draws)
    losses = noise_loss(first, x_0, None, draws) - noise_loss(second, x_0, None, draws)
    betas = first.scheduler.betas.double()[draws.timesteps]
    alphas = first.scheduler.alphas_cumprod.double()[draws.timesteps]
    weights = betas / (2 * (1 - betas) * (1 - alphas))
    torch.testing.assert_close(difference, 20 * weights * losses, rtol=1e-3, atol=0)
    torch.testing.assert_close(
        elbo_weights(first)[draws.timesteps], weights, rtol=1e-3, atol=0
    )


def test_last_step_is_a_distribution_over_8_bit_values():
    """The 256 probabilities are scipy's, sum to one, and stay finite far away."""
    denoiser = linear_denoiser()
    clean = (torch.arange(256).double() / 127.5 - 1).view(-1, 1, 1, 1)
    alpha = denoiser.alphas_cumprod[0]
    sigma = float((1 - alpha).sqrt())
    for predicted in (-1.02, -0.3, 0.0, 0.999):
        errors = (clean - predicted) * alpha.sqrt() / sigma
        errors.requires_grad_()
        costs = last_step_cost(denoiser, clean, errors)
        torch.testing.assert_close((-costs).exp().sum(), torch.ones(()).double())
        edges = np.arange(-1, 256) / 127.5 - 1 + PIXEL
        edges[[0, -1]] = -np.inf, np.inf
        expected = np.diff(norm.cdf(edges, predicted, sigma))
        likely = expected > 1e-9  # where scipy's difference keeps digits
        np.testing.assert_allclose(
            (-costs).exp().flatten().detach()[likely], expected[likely], rtol=1e-6
        )
        slopes = torch.autograd.grad(costs.sum(), errors)[0]
        assert torch.isfinite(costs).all() and torch.isfinite(slopes).all()
        assert (slopes.abs() > 0).sum() > 250  # the far values still pull


def test_pixel_elbo_is_the_latent_one_in_narrow_bins():
    """Where the noise of the last step is wide, both densities agree.

    Then the probability of an 8-bit value is the density times its width.
    """
    bound = []
    for latent in (True, False):
        denoiser = gaussian_denoiser(latent=latent, beta_start=0.05)
        x_0 = (picture(denoiser).tanh() * 127).round() / 127.5 + 1 / 255
        draws = exact_draws(denoiser, torch.arange(20))
        mean = elbo(denoiser, x_0, None, draws).mean()
        bound.append(float(mean.detach()) + elbo_constant(denoiser, x_0))
    assert bound[1] == pytest.approx(bound[0] - 4 * np.log(2 / 255), abs=1e-3)


def sampled(denoiser, sampler, num_steps, guidance_scale=1.0, label=None):
    """Return a sample of keyed noise as a subject."""
    drawing = Drawing(label, 0, sampler, num_steps, guidance_scale)
    (trajectory,) = sample(denoiser, [drawing], 0)
    clean = trajectory.states[-1]
    return Subject(clean, label, trajectory, sampler, guidance_scale)


@pytest.mark.parametrize("prediction_type", TYPES)
def test_trajectory_has_the_density_of_the_whole_chain(prediction_type):
    """A respaced DDPM chain of linear steps is one normal vector; so is its density.

    The steps' means and variances are those of x_s given x_t and x_0, conditioned
    numerically, with the optimal x_0 put in.
    """
    denoiser = gaussian_denoiser(prediction_type)
    subject = sampled(denoiser, "ddpm", 6)
    found = path_costs(denoiser, subject, path_steps(denoiser, subject)).sum()

    times, states = subject.trajectory.timesteps, subject.trajectory.states
    a = denoiser.alphas_cumprod
    mean, covariance = torch.zeros(4).double(), EYE
    for t, s in zip(times[:-1], times[1:], strict=True):
        cross = (a[t] / a[s]).sqrt() * (1 - a[s])
        regression = cross / (1 - a[t])
        gain, offset, _ = optimum(denoiser, t)
        on_clean = a[s].sqrt() - regression * a[t].sqrt()
        matrix = on_clean * gain + regression * EYE
        variance = 1 - a[s] - cross * regression
        last = covariance[-4:, :]
        mean = torch.cat([mean, matrix @ mean[-4:] + on_clean * offset])
        corner = matrix @ covariance[-4:, -4:] @ matrix.T + variance * EYE
        covariance = torch.cat([
            torch.cat([covariance, (matrix @ last).T], 1),
            torch.cat([matrix @ last, corner], 1),
        ])
    exact = -MultivariateNormal(mean, covariance).log_prob(states[:-1].flatten())
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("prediction_type", TYPES)
@pytest.mark.parametrize("num_steps", [5, 7])
def test_steps_are_the_samplers_own(prediction_type, num_steps):
    """Mean and variance of each step give back exactly the noise that was drawn.

    With guidance, with clipping, and with steps that do not divide T.
    """
    denoiser = tiny_denoiser(
        prediction_type=prediction_type, label_dropout=0.1, clip_sample=True
    ).float()
    subject = sampled(denoiser, "ddpm", num_steps, 2.0, 1)
    steps = path_steps(denoiser, subject)
    assert len(steps) == num_steps - 1
    with torch.no_grad():
        mean, variance = reverse_conditional(
            denoiser,
            steps.before,
            steps.timesteps,
            steps.previous,
            torch.ones(len(steps), dtype=torch.int64),
            2.0,
        )
    g = keyed_generator(0, "sample", 0)
    drawn = torch.cat([
        torch.randn(1, *denoiser.shape, generator=g) for _ in range(num_steps + 1)
    ])
    found = (steps.after - mean) / variance.sqrt()
    torch.testing.assert_close(found, drawn[1 : len(steps) + 1], rtol=1e-3, atol=1e-3)


def test_trajectories_without_a_probability_are_refused():
    """No trajectory, no noise, one step: each says why."""
    denoiser = gaussian_denoiser()
    with pytest.raises(ValueError, match="has no sampling trajectory"):
        path_steps(denoiser, Subject(picture(denoiser), None))
    with pytest.raises(ValueError, match="DDIM is deterministic"):
        path_steps(denoiser, sampled(denoiser, "ddim", 5))
    with pytest.raises(ValueError, match="one step draws no noise"):
        path_steps(denoiser, sampled(denoiser, "ddpm", 1))


def test_inversion_leads_back_to_the_picture():
    """Deterministic DDIM from the inverted start returns the image, nearly.

    The more steps, the nearer.
    """
    from diffusers import DDIMScheduler

    denoiser = gaussian_denoiser("v_prediction", num_train_timesteps=200, beta_end=0.05)
    subject = Subject(picture(denoiser), None)
    distances = []
    for num_steps in (20, 200):
        path = invert(denoiser, subject, num_steps)
        assert isinstance(path, Trajectory)
        torch.testing.assert_close(path.states[-1], subject.x_0)
        scheduler = DDIMScheduler.from_config(
            denoiser.scheduler.config, timestep_spacing="trailing"
        )
        scheduler.set_timesteps(num_steps)
        assert scheduler.timesteps.tolist() == path.timesteps.tolist()
        state = path.states[:1]
        with torch.no_grad():
            for t in scheduler.timesteps:
                output = denoiser.predict(state, t[None], None)
                state = scheduler.step(output, t, state).prev_sample
        distances.append(float((state[0] - subject.x_0).norm()))
    assert distances[1] < distances[0] / 3
    assert distances[1] < 0.02 * subject.x_0.norm()


def test_a_box_becomes_the_latent_cells_it_touches():
    """Pixels are kept one by one, latent cells where any of their pixels is inside."""
    pixels = tiny_denoiser()
    mask, sentence = region_mask(pixels, (1, 0, 3, 1))
    assert mask.nonzero().tolist() == [[0, 1], [0, 2]]
    assert sentence == "Measured inside the box of 2 x 1 pixels."
    latent = tiny_denoiser(channels=2)
    latent.autoencoder = PatchAutoencoder(3, 8, 2)
    mask, sentence = region_mask(latent, (7, 16, 17, 32))
    assert mask.nonzero().tolist() == [[r, c] for r in (2, 3) for c in (0, 1, 2)]
    assert sentence == (
        "Measured on the 3 x 2 latent cells that the box touches: pixels 0 to 24 "
        "across and 16 to 32 down."
    )
    with pytest.raises(ValueError, match="3,0,3,1 is not a box .* of 4x4 pixels"):
        region_mask(pixels, (3, 0, 3, 1))
