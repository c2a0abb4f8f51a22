"""Gradients of measurements, and what the build keeps of them, against loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.curvature.basis import Curvature
from core.curvature.fit import eigenbasis, fit_factors
from core.data.datasets import load_dataset
from core.measure.costs import loss
from core.measure.draws import Augmentation, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.parameters import parameter_layout
from core.presets import collection_config
from precompute.machinery.workspace import open_workspace
from precompute.stages.curvature import CurvatureStage
from precompute.stages.gradients import GradientStage, compute_gradients
from precompute.stages.train import encode_all, new_denoiser
from tests.helpers.exact import loop_gradient
from tests.helpers.toys import tiny_denoiser


def toy(**settings):
    """Return (denoiser, layout, x_0, draws in two folds), all in float64."""
    denoiser = tiny_denoiser(**settings)
    g = keyed_generator(0, "gradient toy")
    x_0 = torch.randn(*denoiser.shape, generator=g).double()
    draws = make_draws(8, denoiser.shape, 20, g, Augmentation(0.4, True), num_folds=2)
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
        denoiser.most_at_once = size
        parts, _ = fold_gradients(loss, denoiser, layout, x_0, 0, draws, 1)
        torch.testing.assert_close(parts, whole)


def test_no_label_means_the_null_label():
    """An image without a label is measured as the unconditional model sees it."""
    denoiser, _, x_0, draws = toy(label_dropout=0.4)
    null = loss(denoiser, x_0, denoiser.null_label, draws)
    torch.testing.assert_close(loss(denoiser, x_0, None, draws), null)


def test_monte_carlo_gradient_tends_to_the_exact_mean():
    """Stratified draws are unbiased: many give the mean over all timesteps.

    The denoiser is linear in x_t, so the mean over noise has a closed form per
    timestep.
    """
    from tests.helpers.toys import linear_denoiser

    denoiser = linear_denoiser(2, ())
    layout = parameter_layout(denoiser.unet)
    g = keyed_generator(0, "unbiased")
    x_0 = torch.randn(1, 2, 2, generator=g).double()
    draws = make_draws(40_000, (1, 2, 2), 20, g)
    draws.__dict__["noise"] = draws.noise.double()
    denoiser.most_at_once = 4000
    estimate, _ = fold_gradients(loss, denoiser, layout, x_0, None, draws, 1)

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


@pytest.fixture(scope="module")
def stage():
    """Return an untrained tiny model with 12 examples, all of them in the slice."""
    config = collection_config("glyphs", "tiny")
    config = replace(
        config,
        data=replace(config.data, limit=12),
        gradients=replace(config.gradients, slice_examples=12, chunk=8),
    )
    dataset = load_dataset(config.data)
    denoiser = new_denoiser(config, dataset)
    x_0 = encode_all(denoiser, dataset)
    curvature = CurvatureStage(config, dataset, denoiser, x_0)
    samples = curvature.samples("test", 1, 16, range(1))
    factors = fit_factors(denoiser, parameter_layout(denoiser.unet), samples)
    basis, eigenvalues = eigenbasis(factors)
    draws = make_draws(
        config.gradients.num_draws,
        denoiser.shape,
        denoiser.num_train_timesteps,
        keyed_generator(0, "test draws"),
        Augmentation(config.model.label_dropout),
        num_folds=config.gradients.num_folds,
    )
    curvature = Curvature(basis.to("cpu"), eigenvalues.float())
    return GradientStage(config, dataset, denoiser, curvature, draws, x_0)


def kept(stage, folder, parts=((0, 1),)):
    """Return (rotated queries, rows, index) of a pass over the parts in their order."""
    g = keyed_generator(0, "test queries")
    queries = torch.randn(3, 4, stage.curvature.basis.layout.num_params, generator=g)
    workspace = open_workspace(stage.config, folder)
    for part in parts:
        rows, index, _ = compute_gradients(
            stage, queries, workspace, folder / "index", part
        )
    return queries, rows.arrays, index


@pytest.fixture(scope="module")
def whole(stage, tmp_path_factory):
    """Return what one pass over all examples keeps."""
    return kept(stage, tmp_path_factory.mktemp("whole"))


def test_what_is_kept_equals_a_loop_over_rotated_folds(stage, whole):
    """Rotating a mean, or a query back, changes nothing but the rounding."""
    queries, rows, index = whole
    basis = stage.curvature.basis.to("cpu", torch.float64)
    damped = stage.curvature.eigenvalues.double() + stage.damping
    weighted = queries.double() / damped
    spreads = []
    for position in range(len(stage.dataset)):
        folds = basis.rotate(stage.folds(position).double())
        mean = folds.mean(0)
        spreads.append(sum((fold - mean).norm() ** 2 for fold in folds))
        for name, vectors, others in (
            ("panel_train", weighted.mean(1), [folds] * len(queries)),
            ("panel_query", mean[None], weighted),
        ):
            expected = torch.stack([
                o @ v
                for o, v in zip(others, vectors.expand(len(queries), -1), strict=True)
            ])
            found = torch.from_numpy(rows[name][position]).double()
            off = (found - expected).norm() / expected.norm()
            assert off < 1e-4, (name, position, off)
        norm = (mean.square() / damped).sum().sqrt()
        assert rows["norm"][position] == pytest.approx(float(norm), rel=1e-4)
    spreads = torch.stack(spreads)
    np.testing.assert_allclose(rows["level"], spreads / spreads.mean(), rtol=1e-3)
    from_index = index.scores(weighted.mean(1).float() * rms(index))
    exact = rows["panel_train"].mean(2).T
    assert np.corrcoef(from_index.ravel(), exact.ravel())[0, 1] > 0.999


def rms(index) -> torch.Tensor:
    """Return the divisors of the index, 1 where nothing varies."""
    values = torch.from_numpy(np.fromfile(index.folder / "rms.bin", "<f4"))
    return torch.where(values > 0, values, 1.0)


def test_level_is_one_on_average_and_zero_without_noise(stage, whole, tmp_path):
    """Over the slice, here all examples, levels average to 1; equal folds give 0."""
    _, rows, _ = whole
    assert rows["level"].mean() == pytest.approx(1, rel=1e-4)
    assert rows["level"].min() < 0.9 < 1.1 < rows["level"].max()
    half = torch.arange(len(stage.draws)) % (len(stage.draws) // 2)
    _, rows, _ = kept(replace(stage, draws=stage.draws[half]), tmp_path)
    assert (rows["level"] == 0).all()


def test_parts_and_threads_change_no_bit_of_one_pass(stage, whole, tmp_path):
    """A chunk depends on its own examples alone, and an example on its own worker."""
    _, straight, index = whole
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 2)
    try:
        _, divided, other = kept(stage, tmp_path, ((1, 2), (0, 2)))
        assert torch.get_num_threads() == threads + 2
    finally:
        torch.set_num_threads(threads)
    for name in straight.keys() - {"seconds"}:
        np.testing.assert_array_equal(straight[name], divided[name])
    for name in index.shard_names():
        assert (index.folder / name).read_bytes() == (other.folder / name).read_bytes()
