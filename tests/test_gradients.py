"""Gradients of measurements against a loop of autograd."""

import pytest
import torch

from core.draws import keyed_generator, make_draws
from core.gradients import fold_gradients
from core.measurements import loss
from core.parameters import parameter_layout
from tests.exact import loop_gradient
from tests.toys import tiny_denoiser


def toy(**settings):
    """Return (denoiser, layout, x_0, draws in two folds), all in float64."""
    denoiser = tiny_denoiser(**settings)
    g = keyed_generator(0, "gradient toy")
    x_0 = torch.randn(*denoiser.shape, generator=g).double()
    draws = make_draws(8, denoiser.shape, 20, g, 0.4, True, num_folds=2)
    draws.__dict__["noise"] = draws.noise.double()
    return denoiser, parameter_layout(denoiser.unet), x_0, draws


def by_hand(denoiser, x_0, label, draws):
    """Yield the cost of each draw, written out from Eqs. 1 and 2."""
    alphas = denoiser.scheduler.alphas_cumprod.double()
    prediction_type = denoiser.scheduler.config.prediction_type
    for i in range(len(draws)):
        t = draws.timesteps[i]
        clean = x_0.flip(-1) if draws.flip[i] else x_0
        signal, sigma = alphas[t] ** 0.5, (1 - alphas[t]) ** 0.5
        noise = draws.noise[i]
        target = {
            "epsilon": noise,
            "sample": clean,
            "v_prediction": signal * noise - sigma * clean,
        }[prediction_type]
        extra = {}
        if denoiser.null_label is not None:
            given = denoiser.null_label if draws.drop_label[i] else label
            extra["class_labels"] = torch.tensor([given])
        x_t = (signal * clean + sigma * noise)[None]
        yield ((denoiser.unet(x_t, t, **extra).sample[0] - target) ** 2).sum()


@pytest.mark.parametrize("prediction_type", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("label_dropout", [0.0, 0.4])
def test_fold_gradients_equal_a_loop_of_autograd(prediction_type, label_dropout):
    """Every prediction type has its own loss; mirrors and labels count too."""
    denoiser, layout, x_0, draws = toy(
        prediction_type=prediction_type, label_dropout=label_dropout
    )
    gradients, costs = fold_gradients(loss, denoiser, layout, x_0, 1, draws, 2)
    for fold in range(2):
        own = draws[4 * fold : 4 * fold + 4]
        expected = loop_gradient(
            lambda own=own: list(by_hand(denoiser, x_0, 1, own)), denoiser, layout
        )
        torch.testing.assert_close(gradients[fold], expected, rtol=1e-8, atol=1e-9)
        value = torch.stack(list(by_hand(denoiser, x_0, 1, own))).mean()
        torch.testing.assert_close(costs[fold], value)


def test_gradient_does_not_depend_on_batch_size():
    """Passes of 1, 3 or all draws give the same gradient."""
    denoiser, layout, x_0, draws = toy(label_dropout=0.4)
    whole, _ = fold_gradients(loss, denoiser, layout, x_0, 0, draws, 1)
    for size in (1, 3):
        parts, _ = fold_gradients(loss, denoiser, layout, x_0, 0, draws, 1, size)
        torch.testing.assert_close(parts, whole)


def test_no_label_means_the_null_label():
    """A picture without a label is measured as the unconditional model sees it."""
    denoiser, _, x_0, draws = toy(label_dropout=0.4)
    null = loss(denoiser, x_0, denoiser.null_label, draws)
    torch.testing.assert_close(loss(denoiser, x_0, None, draws), null)


def test_monte_carlo_gradient_tends_to_the_exact_mean():
    """Stratified draws are unbiased: many give the mean over all timesteps.

    The denoiser is linear in x_t, so the mean over noise has a closed form per
    timestep.
    """
    from tests.toys import linear_denoiser

    denoiser = linear_denoiser(2, ())
    layout = parameter_layout(denoiser.unet)
    g = keyed_generator(0, "unbiased")
    x_0 = torch.randn(1, 2, 2, generator=g).double()
    draws = make_draws(40_000, (1, 2, 2), 20, g)
    draws.__dict__["noise"] = draws.noise.double()
    estimate, _ = fold_gradients(loss, denoiser, layout, x_0, None, draws, 1, 4000)

    linear = denoiser.unet.net[0]
    weight, bias, x = linear.weight.detach(), linear.bias.detach(), x_0.flatten()
    expected = torch.zeros(4, 5, dtype=torch.float64)
    for alpha in denoiser.scheduler.alphas_cumprod.double():
        signal, sigma = alpha**0.5, (1 - alpha) ** 0.5
        # E[(W x_t + b - noise) x_t^T] and its mean, with x_t = signal x + sigma noise
        second = alpha * torch.outer(x, x) + sigma**2 * torch.eye(4)
        mean = signal * (weight @ x) + bias
        of_weight = weight @ second + signal * torch.outer(bias, x)
        of_weight = of_weight - sigma * torch.eye(4)
        expected += 2 * torch.cat([of_weight, mean[:, None]], 1) / 20
    error = (estimate[0].view(4, 5) - expected).norm() / expected.norm()
    assert error < 0.02, error
