"""EK-FAC against the dense GGN and against curvlinops."""

import pytest
import torch
from curvlinops import EKFACLinearOperator, KFACLinearOperator
from torch import nn

from core.curvature import (
    Curvature,
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.parameters import (
    attributed_parameters,
    flatten_gradients,
    parameter_layout,
)
from tests.exact import block_diagonal, dense_ggn, dense_matrix
from tests.toys import exact_samples, linear_denoiser, random_samples, tiny_denoiser


def part(samples: Samples, first: int, stop: int) -> Samples:
    """Return samples [first, stop)."""
    labels = samples.labels
    return Samples(
        samples.x_t[first:stop],
        samples.timesteps[first:stop],
        None if labels is None else labels[first:stop],
        samples.probes[first:stop],
    )


def fit(denoiser, samples, batches=None):
    """Return (K-FAC, EK-FAC) of the samples."""
    layout = parameter_layout(denoiser.unet)
    batches = [samples] if batches is None else batches
    basis, kfac = eigenbasis(fit_factors(denoiser, layout, batches))
    corrected = fit_corrected_eigenvalues(denoiser, basis, batches)
    return Curvature(basis, kfac), Curvature(basis, corrected)


@pytest.mark.parametrize("widths", [(), (3,), (3, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_ekfac_equals_the_dense_ggn_of_a_deep_linear_denoiser(widths, bias):
    """For deep linear networks K-FAC and EK-FAC are the block-diagonal GGN (Eq. 9)."""
    denoiser = linear_denoiser(2, widths, bias)
    samples = random_samples(denoiser, 7)
    layout = parameter_layout(denoiser.unet)
    expected = block_diagonal(dense_ggn(denoiser, layout, samples), layout)
    for curvature in fit(denoiser, exact_samples(denoiser, samples)):
        matrix = dense_matrix(curvature.multiply, layout.num_params)
        torch.testing.assert_close(matrix, expected, rtol=1e-9, atol=1e-9)


def test_solve_equals_dense_solve():
    """`solve` is (H + damping I)^-1 v."""
    denoiser = linear_denoiser()
    samples = random_samples(denoiser, 7)
    layout = parameter_layout(denoiser.unet)
    hessian = block_diagonal(dense_ggn(denoiser, layout, samples), layout)
    _, ekfac = fit(denoiser, exact_samples(denoiser, samples))
    g = torch.Generator().manual_seed(0)
    vectors = torch.randn(3, layout.num_params, generator=g).double()
    damped = hessian + 0.1 * torch.eye(layout.num_params, dtype=torch.float64)
    expected = torch.linalg.solve(damped, vectors.T).T
    torch.testing.assert_close(ekfac.solve(vectors, 0.1), expected)


def test_corrected_eigenvalues_are_the_ggn_diagonal_in_the_eigenbasis():
    """On a UNet with attention, eigenvalues equal diag(Q^T GGN Q), factor two included.

    The reference is the dense Jacobian; it knows neither hooks nor patches.
    """
    denoiser = tiny_denoiser()
    samples = random_samples(denoiser, 2)
    layout = parameter_layout(denoiser.unet)
    _, ekfac = fit(denoiser, exact_samples(denoiser, samples))
    ggn = dense_ggn(denoiser, layout, samples)
    rotated = ekfac.basis.rotate(ekfac.basis.rotate(ggn).T)
    torch.testing.assert_close(
        ekfac.eigenvalues, rotated.diagonal(), rtol=1e-8, atol=1e-9
    )


def test_ekfac_is_nearer_the_ggn_than_kfac():
    """The eigenvalue correction is the best diagonal in its basis."""
    denoiser = tiny_denoiser()
    samples = random_samples(denoiser, 3)
    layout = parameter_layout(denoiser.unet)
    kfac, ekfac = fit(denoiser, exact_samples(denoiser, samples))
    ggn = block_diagonal(dense_ggn(denoiser, layout, samples), layout)
    kfac_error, ekfac_error = (
        (dense_matrix(c.multiply, layout.num_params) - ggn).norm() / ggn.norm()
        for c in (kfac, ekfac)
    )
    assert ekfac_error < kfac_error < 1, (ekfac_error, kfac_error)


class Flattened(nn.Module):
    """A denoiser as curvlinops wants it: one input tensor, 2-D output."""

    def __init__(self, denoiser):
        super().__init__()
        self.denoiser = denoiser

    def forward(self, packed):
        """Return predictions (B, C H W) from x_t, timestep and label in one row."""
        x_t, timesteps, labels = packed[:, :-2], packed[:, -2], packed[:, -1]
        x_t = x_t.unflatten(1, self.denoiser.shape)
        return self.denoiser.predict(x_t, timesteps.long(), labels.long()).flatten(1)


@pytest.mark.parametrize("operator", [KFACLinearOperator, EKFACLinearOperator])
def test_products_equal_curvlinops(operator):
    """K-FAC-expand and EK-FAC agree with curvlinops on a conditional attention UNet."""
    denoiser = tiny_denoiser(label_dropout=0.1)
    samples = random_samples(denoiser, 4)
    layout = parameter_layout(denoiser.unet)
    packed = torch.cat(
        [samples.x_t.flatten(1), samples.timesteps[:, None], samples.labels[:, None]], 1
    )
    parameters = attributed_parameters(denoiser.unet, layout)
    reference = operator(
        Flattened(denoiser),
        nn.MSELoss(reduction="sum"),  # draws with std sqrt(1/2): Eq. 9, not Eq. 10
        parameters,
        [(packed, torch.zeros(len(packed), 16, dtype=torch.float64))],
        fisher_type="type-2",
        kfac_approx="expand",
        separate_weight_and_bias=False,
        check_deterministic=False,
    )
    kfac, ekfac = fit(denoiser, exact_samples(denoiser, samples))
    ours = ekfac if operator is EKFACLinearOperator else kfac
    g = torch.Generator().manual_seed(1)
    vector = [torch.randn(p.shape, generator=g).double() for p in parameters]
    expected = flatten_gradients(reference @ vector, layout) / len(packed)
    result = ours.multiply(flatten_gradients(vector, layout))
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-8)


def test_random_probes_are_unbiased_with_factor_two():
    """Random probes average to Eq. 9; Eq. 10 would be twice as large."""
    denoiser = linear_denoiser(2, ())
    samples = random_samples(denoiser, 1)
    layout = parameter_layout(denoiser.unet)
    repeats = 20_000
    probes = torch.randn(
        repeats, *denoiser.shape, generator=torch.Generator().manual_seed(2)
    )
    many = Samples(
        samples.x_t.expand(repeats, -1, -1, -1),
        samples.timesteps.expand(repeats),
        None,
        probes.double(),
    )
    basis = fit(denoiser, exact_samples(denoiser, samples))[1].basis
    estimate = fit_corrected_eigenvalues(denoiser, basis, [many])
    ggn = dense_ggn(denoiser, layout, samples)
    exact = basis.rotate(basis.rotate(ggn).T).diagonal()
    # The square of a normal variable has standard deviation sqrt(2) times its mean.
    tolerance = 5 * (2 / repeats) ** 0.5
    torch.testing.assert_close(estimate, exact, rtol=tolerance, atol=1e-9)


def test_curvature_does_not_depend_on_batches_or_interruption():
    """One batch, many batches and a run that went on from saved sums agree."""
    denoiser = tiny_denoiser()
    samples = random_samples(denoiser, 6)
    parts = [part(samples, i, i + 2) for i in range(0, 6, 2)]
    _, whole = fit(denoiser, samples)
    _, batched = fit(denoiser, samples, parts)
    torch.testing.assert_close(whole.eigenvalues, batched.eigenvalues)

    layout, saved = whole.basis.layout, {}

    def stop_after_first(sums):
        saved.update({name: value.clone() for name, value in sums.items()})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_corrected_eigenvalues(
            denoiser, whole.basis, parts, on_batch=stop_after_first
        )
    resumed = fit_corrected_eigenvalues(denoiser, whole.basis, parts[1:], saved)
    straight = fit_corrected_eigenvalues(denoiser, whole.basis, parts)
    assert torch.equal(resumed, straight)
    assert layout.num_params == len(resumed)


def test_rotation_preserves_inner_products():
    """Q is orthogonal, and `rotate_back` undoes `rotate`."""
    denoiser = tiny_denoiser()
    kfac, _ = fit(denoiser, random_samples(denoiser, 3))
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, kfac.basis.layout.num_params, generator=g).double()
    torch.testing.assert_close(kfac.basis.rotate(a) @ kfac.basis.rotate(b), a @ b)
    torch.testing.assert_close(kfac.basis.rotate_back(kfac.basis.rotate(a)), a)


def test_a_layer_used_twice_is_refused():
    """EK-FAC does not cover shared layers, and says so."""
    denoiser = linear_denoiser(2, ())
    inner = denoiser.unet.net
    denoiser.unet.net = nn.Sequential(inner[0], inner[0])
    layout = parameter_layout(denoiser.unet)
    with pytest.raises(ValueError, match="'net.0' is used twice in one pass"):
        fit_factors(denoiser, layout, [random_samples(denoiser, 2)])


def test_a_grouped_convolution_is_refused():
    """A grouped convolution is not one matrix, and the message names it."""
    with pytest.raises(ValueError, match="convolution '0' has 2 groups"):
        parameter_layout(nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)))
