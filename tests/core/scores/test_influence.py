"""Scores of Eq. 6 from first principles, and what is said about them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from core.curvature.basis import Curvature
from core.curvature.fit import Samples, eigenbasis, fit_factors
from core.curvature.fit import fit_corrected_eigenvalues as fit_eigenvalues
from core.measure.costs import loss
from core.measure.draws import Draws, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.parameters import attributed_parameters, parameter_layout
from core.scores.influence import (
    centred,
    draws_factor,
    fold_statistics,
    spearman_brown,
    split_reliability,
)
from tests.helpers.exact import dense_ggn
from tests.helpers.toys import exact_samples, linear_denoiser

DAMPING = 0.3


def double(draws: Draws) -> Draws:
    """Return the draws with noise in float64."""
    return replace(draws, noise=draws.noise.double())


class Ridge:
    """A convex problem: one linear layer, fixed draws, an L2 penalty as the damping.

    The loss of each example is quadratic in the weights, so a model without example j
    is one linear solve away.
    """

    def __init__(self, num_examples: int):
        self.num_examples = num_examples
        self.denoiser = linear_denoiser(2, ())
        self.layout = parameter_layout(self.denoiser.unet)
        g = keyed_generator(0, "ridge")
        self.x_0 = torch.randn(num_examples, 1, 2, 2, generator=g).double()
        self.draws = double(make_draws(8, (1, 2, 2), 20, g))
        self.query = torch.randn(1, 2, 2, generator=g).double()
        self.set_weights(self.optimum(torch.ones(num_examples).double()))

    def inputs(self, x_0):
        """Return x_t of an example at every draw with a one appended, (S, D + 1)."""
        timesteps = self.draws.timesteps
        clean = x_0.expand(len(self.draws), *x_0.shape)
        x_t = self.denoiser.add_noise(clean, self.draws.noise, timesteps).flatten(1)
        return torch.cat([x_t, torch.ones(len(x_t), 1)], 1)

    def optimum(self, weights):
        """Return argmin of (1/N) sum_n w_n loss_n + damping/2 |theta|^2, (D, D + 1)."""
        targets = self.draws.noise.flatten(1)
        matrix = DAMPING / 2 * torch.eye(5, dtype=torch.float64)
        right = torch.zeros(5, 4, dtype=torch.float64)
        for weight, x_0 in zip(weights, self.x_0, strict=True):
            a = self.inputs(x_0)
            matrix += weight * a.T @ a / (len(a) * self.num_examples)
            right += weight * a.T @ targets / (len(a) * self.num_examples)
        return torch.linalg.solve(matrix, right).T

    def set_weights(self, theta):
        """Put a solution into the denoiser."""
        with torch.no_grad():
            weight, bias = attributed_parameters(self.denoiser.unet, self.layout)
            weight.copy_(theta[:, :4])
            bias.copy_(theta[:, 4])

    def measured(self, theta):
        """Return the query's loss under given weights."""
        self.set_weights(theta)
        with torch.no_grad():
            return loss(self.denoiser, self.query, None, self.draws).mean().item()

    def gradient(self, x_0):
        """Return the gradient of an example's loss, (1, P)."""
        return fold_gradients(
            loss, self.denoiser, self.layout, x_0, None, self.draws, 1
        )[0]

    def samples(self) -> Samples:
        """Return every noisy example of the problem."""
        x_t = torch.cat([self.inputs(x)[:, :4].view(-1, 1, 2, 2) for x in self.x_0])
        timesteps = self.draws.timesteps.repeat(self.num_examples)
        return Samples(x_t, timesteps, None, torch.zeros_like(x_t))

    def scores(self):
        """Return the scores of Eq. 6 under EK-FAC, (N,)."""
        samples = exact_samples(self.denoiser, self.samples())
        basis, _ = eigenbasis(fit_factors(self.denoiser, self.layout, [samples]))
        ones = [
            Samples(x_t[None], timestep[None], None, probe[None])
            for x_t, timestep, probe in zip(
                samples.x_t, samples.timesteps, samples.probes, strict=True
            )
        ]
        curvature = Curvature(basis, fit_eigenvalues(self.denoiser, basis, ones, 1))
        training = torch.cat([self.gradient(x) for x in self.x_0])
        query = curvature.solve(self.gradient(self.query), DAMPING)
        return (query @ training.T)[0]


def test_scores_match_a_dense_solve():
    """Rotated, divided and multiplied, a score is grad m (H + damping)^-1 grad l."""
    ridge = Ridge(12)
    hessian = dense_ggn(ridge.denoiser, ridge.layout, ridge.samples())
    damped = hessian + DAMPING * torch.eye(len(hessian), dtype=torch.float64)
    solved = torch.linalg.solve(damped, ridge.gradient(ridge.query)[0])
    expected = torch.cat([ridge.gradient(x) for x in ridge.x_0]) @ solved
    torch.testing.assert_close(ridge.scores(), expected)


def test_scores_predict_retraining_without_an_example():
    """From first principles: train again without j; the loss moves by score / N.

    The sign is that of removal: a positive score means the loss rises. The remainder is
    of second order in the leverage, a few per cent at 100 examples.
    """
    ridge, num_examples = Ridge(100), 100
    predicted = ridge.scores() / num_examples
    full = ridge.optimum(torch.ones(num_examples).double())
    before = ridge.measured(full)
    actual = []
    for j in range(num_examples):
        weights = torch.ones(num_examples).double()
        weights[j] = 0
        actual.append(ridge.measured(ridge.optimum(weights)) - before)
    actual = torch.tensor(actual, dtype=torch.float64)
    assert (predicted > 0).any() and (predicted < 0).any()
    assert spearmanr(predicted, actual).statistic > 0.99
    assert (predicted - actual).norm() / actual.norm() < 0.1


def test_training_gradients_sum_to_zero_where_the_training_loss_is_least():
    """The reason why centring changes nothing but noise: no penalty, no sum."""
    ridge = Ridge(30)
    theta = ridge.optimum(torch.ones(30).double())
    total = torch.cat([ridge.gradient(x) for x in ridge.x_0]).mean(0)
    torch.testing.assert_close(total.view(4, 5), -DAMPING * theta)


def test_centring_removes_a_common_error_and_keeps_the_order():
    """Adding a constant to all scores changes nothing after centring."""
    scores = np.random.default_rng(0).normal(size=(3, 50))
    moved = centred(scores + np.array([[1.0], [-2.0], [7.0]]))
    np.testing.assert_allclose(moved, centred(scores), atol=1e-12)
    assert (moved.argsort(1) == scores.argsort(1)).all()


def test_fold_standard_error_is_the_spread_of_repeated_estimates():
    """Over many repetitions, the squared error of the mean equals the mean SE^2."""
    g = np.random.default_rng(1)
    folds = g.normal(size=(4, 100_000)) * 3 + 5
    mean, error = fold_statistics(folds)
    assert abs((mean - 5).var() - (error**2).mean()) < 0.03 * mean.var()
    with pytest.raises(ValueError, match="at least two folds"):
        fold_statistics(folds[:1])


def test_reliability_follows_spearman_brown():
    """Two noisy copies with r = 0.5 average to what four times the draws would give."""
    g = np.random.default_rng(2)
    truth = g.normal(size=20_000)
    one, other = (truth + g.normal(size=20_000) for _ in range(2))
    expected = split_reliability(one[None], other[None])
    four = [truth + g.normal(size=20_000) / 2 for _ in range(2)]
    measured = split_reliability(four[0][None], four[1][None])
    assert abs(spearman_brown(expected, 4) - measured) < 0.02


def test_draws_factor_undoes_spearman_brown():
    """So many times the draws reach the wanted reliability; more are never fewer."""
    for reliability in (0.2, 0.5, 0.95):
        factor = draws_factor(reliability, 0.9)
        assert spearman_brown(reliability, factor) == pytest.approx(0.9)
    assert draws_factor(0.0, 0.9) == float("inf")
