"""K-FAC and EK-FAC of both GGNs against dense matrices and against curvlinops."""

import itertools
from dataclasses import replace

import pytest
import torch
from curvlinops import EKFACLinearOperator, KFACLinearOperator
from torch import nn

from core.curvature.basis import Curvature, factor_eigenvalues, kfac_eigenvalues
from core.curvature.fit import (
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.model.parameters import (
    attributed_parameters,
    flatten_gradients,
    parameter_layout,
)
from tests.helpers.exact import (
    block_diagonal,
    dense_empirical_fisher,
    dense_ggn,
    dense_matrix,
)
from tests.helpers.toys import (
    exact_samples,
    linear_denoiser,
    random_samples,
    tiny_denoiser,
)


def with_targets(samples: Samples, seed: int = 3) -> Samples:
    """Return the samples for GGN^loss: random targets, random signs."""
    g = torch.Generator().manual_seed(seed)
    targets = torch.randn(samples.x_t.shape, generator=g).double()
    signs = torch.randint(2, (len(samples.x_t), 1, 1, 1), generator=g) * 2.0 - 1
    return replace(samples, probes=signs.double(), targets=targets)


def fit(denoiser, samples, **settings):
    """Return (K-FAC, EK-FAC) of the samples; eigenvalues sample by sample."""
    layout = parameter_layout(denoiser.unet)
    basis, kfac = eigenbasis(fit_factors(denoiser, layout, [samples], **settings))
    corrected = fit_corrected_eigenvalues(denoiser, basis, [samples], 1)
    return Curvature(basis, kfac), Curvature(basis, corrected)


def error(curvature: Curvature, matrix: torch.Tensor) -> float:
    """Return the relative error in Frobenius norm against a dense matrix."""
    found = dense_matrix(curvature.multiply, len(matrix))
    return float((found - matrix).norm() / matrix.norm())


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


def test_ekfac_is_nearer_than_kfac_and_expand_nearer_than_reduce():
    """The eigenvalue correction helps, and so does expand on a denoiser (App. C)."""
    denoiser = tiny_denoiser()
    samples = random_samples(denoiser, 3)
    layout = parameter_layout(denoiser.unet)
    ggn = block_diagonal(dense_ggn(denoiser, layout, samples), layout)
    samples = exact_samples(denoiser, samples)
    kfac, ekfac = (error(c, ggn) for c in fit(denoiser, samples))
    reduced = Curvature(*eigenbasis(fit_factors(denoiser, layout, [samples], "reduce")))
    assert ekfac < kfac < error(reduced, ggn) < 1.5, (ekfac, kfac)


def test_ekfac_is_nearer_the_empirical_fisher_than_kfac():
    """The eigenvalue correction is the best diagonal in its basis, for GGN^loss too."""
    denoiser = tiny_denoiser()
    samples = with_targets(random_samples(denoiser, 4))
    layout = parameter_layout(denoiser.unet)
    fisher = dense_empirical_fisher(denoiser, layout, samples)
    kfac, ekfac = (
        error(c, block_diagonal(fisher, layout)) for c in fit(denoiser, samples)
    )
    assert ekfac < kfac < 1, (ekfac, kfac)


def test_empirical_eigenvalues_are_the_fisher_diagonal_in_the_eigenbasis():
    """EK-FAC of GGN^loss has the diagonal of Q^T F Q for eigenvalues (Eq. 11)."""
    denoiser = tiny_denoiser(label_dropout=0.1)
    samples = with_targets(random_samples(denoiser, 5))
    layout = parameter_layout(denoiser.unet)
    _, ekfac = fit(denoiser, samples)
    fisher = dense_empirical_fisher(denoiser, layout, samples)
    rotated = ekfac.basis.rotate(ekfac.basis.rotate(fisher).T)
    torch.testing.assert_close(
        ekfac.eigenvalues, rotated.diagonal(), rtol=1e-8, atol=1e-9
    )


@pytest.mark.parametrize("empirical", [False, True])
def test_reduce_equals_a_loop_over_examples(empirical):
    """Reduce sums over positions and, for GGN^loss, averages an example's draws first.

    The reference reads a and b of one sample at a time off the layer itself.
    """
    denoiser, draws = tiny_denoiser(), 2
    samples = random_samples(denoiser, 6)
    if empirical:
        samples = replace(with_targets(samples), probes=torch.ones(6, 1, 1, 1).double())
    layout = parameter_layout(denoiser.unet)
    number = [layer.name for layer in layout.layers].index("conv_in")
    conv, rows = denoiser.unet.conv_in, []
    for one in samples.split(1):
        seen = []
        handle = conv.register_forward_hook(lambda m, i, o, s=seen: s.extend((i[0], o)))
        prediction = denoiser.predict(one.x_t, one.timesteps, one.labels)
        handle.remove()
        b = torch.autograd.grad(one.objective(prediction), seen[1])[0]
        padded = torch.nn.functional.pad(seen[0].detach(), (1, 1, 1, 1))[0]
        patches = [
            [*padded[:, i : i + 3, j : j + 3].flatten().tolist(), 1.0]
            for i in range(4)
            for j in range(4)
        ]
        a = torch.tensor(patches, dtype=torch.float64).mean(0)
        rows.append((a, b[0].sum((1, 2))))
    if empirical:
        rows = [
            tuple((x + y) / 2 for x, y in zip(rows[i], rows[i + 1], strict=True))
            for i in range(0, 6, draws)
        ]
    expected = [
        sum(torch.outer(row[k], row[k]) for row in rows) / len(rows) for k in (0, 1)
    ]
    factors = fit_factors(denoiser, layout, [samples], "reduce", draws)
    torch.testing.assert_close(factors.input_covariance[number], expected[0])
    torch.testing.assert_close(factors.gradient_covariance[number], expected[1])


def test_summed_batches_have_the_expectation_of_single_samples():
    """Over all sign patterns, the square of the sum averages to the sum of squares."""
    denoiser = tiny_denoiser()
    samples = with_targets(random_samples(denoiser, 3))
    basis = fit(denoiser, samples)[1].basis
    alone = fit_corrected_eigenvalues(denoiser, basis, [samples], 1)
    patterns = [
        replace(samples, probes=torch.tensor(signs).double().view(3, 1, 1, 1))
        for signs in itertools.product((-1.0, 1.0), repeat=3)
    ]
    together = fit_corrected_eigenvalues(denoiser, basis, patterns, 3)
    torch.testing.assert_close(together, alone)


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


@pytest.mark.parametrize("fisher_type", ["type-2", "empirical"])
@pytest.mark.parametrize(
    ("operator", "kfac_approx"),
    [
        (KFACLinearOperator, "expand"),
        (KFACLinearOperator, "reduce"),
        (EKFACLinearOperator, "expand"),
    ],
)
def test_products_equal_curvlinops(operator, fisher_type, kfac_approx):
    """Both GGNs, expand and reduce, agree with curvlinops on an attention UNet.

    curvlinops averages no draws before the outer product, so neither does this test.
    EK-FAC with reduce is left out: curvlinops corrects the eigenvalues of the reduced
    gradients there, this project those of the gradients themselves.
    """
    denoiser = tiny_denoiser(label_dropout=0.1)
    samples = random_samples(denoiser, 4)
    targets = torch.zeros(4, 16, dtype=torch.float64)
    if fisher_type == "empirical":
        samples = with_targets(samples)
        targets = samples.targets.flatten(1)
    layout = parameter_layout(denoiser.unet)
    packed = torch.cat(
        [samples.x_t.flatten(1), samples.timesteps[:, None], samples.labels[:, None]], 1
    )
    parameters = attributed_parameters(denoiser.unet, layout)
    reference = operator(
        Flattened(denoiser),
        nn.MSELoss(reduction="sum"),  # draws with std sqrt(1/2): Eq. 9, not Eq. 10
        parameters,
        [(packed, targets)],
        fisher_type=fisher_type,
        kfac_approx=kfac_approx,
        separate_weight_and_bias=False,
        check_deterministic=False,
    )
    if fisher_type == "type-2":
        samples = exact_samples(denoiser, samples)
    kfac, ekfac = fit(denoiser, samples, kfac_approx=kfac_approx)
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
    repeats = 6_000
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
    estimate = fit_corrected_eigenvalues(denoiser, basis, many.split(30), 3)
    ggn = dense_ggn(denoiser, layout, samples)
    exact = basis.rotate(basis.rotate(ggn).T).diagonal()
    # The square of a normal variable has standard deviation sqrt(2) times its mean, and
    # each group gives one.
    tolerance = 5 * (2 * 3 / repeats) ** 0.5
    torch.testing.assert_close(estimate, exact, rtol=tolerance, atol=1e-9)


@pytest.mark.parametrize("kfac_approx", ["expand", "reduce"])
def test_factors_do_not_depend_on_batches(kfac_approx):
    """One batch and many give the same factors."""
    denoiser = tiny_denoiser()
    samples = with_targets(random_samples(denoiser, 6))
    layout = parameter_layout(denoiser.unet)
    whole = fit_factors(denoiser, layout, [samples], kfac_approx, 2)
    batched = fit_factors(denoiser, layout, samples.split(2), kfac_approx, 2)
    torch.testing.assert_close(whole.input_covariance, batched.input_covariance)
    torch.testing.assert_close(whole.gradient_covariance, batched.gradient_covariance)


def test_thinning_takes_every_kth_sample():
    """Layers of 16 positions use every fourth sample when four are allowed."""
    denoiser = tiny_denoiser()
    samples = random_samples(denoiser, 8)
    layout = parameter_layout(denoiser.unet)
    thinned = fit_factors(denoiser, layout, [samples], max_positions=4)
    all_of = fit_factors(denoiser, layout, [samples])
    of_kept = fit_factors(denoiser, layout, [samples[::4]])
    for i, layer in enumerate(layout.layers):
        # Those of the timestep have one position: nothing to leave out.
        expected = all_of if "time_emb" in layer.name else of_kept
        if layer.name == "conv_in" or "time_emb" in layer.name:
            for kind in ("input_covariance", "gradient_covariance"):
                torch.testing.assert_close(
                    getattr(thinned, kind)[i], getattr(expected, kind)[i]
                )


def test_thinning_is_unbiased():
    """Over all rotations of a batch, the thinned factors average to the full ones."""
    denoiser = tiny_denoiser()
    samples = random_samples(denoiser, 4)
    layout = parameter_layout(denoiser.unet)
    rotated = [samples[torch.arange(4).roll(shift)] for shift in range(4)]
    thinned = [fit_factors(denoiser, layout, [r], max_positions=4) for r in rotated]
    full = fit_factors(denoiser, layout, [samples])
    for kind in ("input_covariance", "gradient_covariance"):
        for i, expected in enumerate(getattr(full, kind)):
            found = sum(getattr(factors, kind)[i] for factors in thinned) / 4
            torch.testing.assert_close(found, expected)
    number = [layer.name for layer in layout.layers].index("conv_in")
    assert len({float(f.gradient_covariance[number].norm()) for f in thinned}) == 4


def test_groups_do_not_depend_on_batches():
    """Groups that are rotated together give what each gives in a batch of its own."""
    denoiser = tiny_denoiser()
    samples = random_samples(denoiser, 7)
    basis = fit(denoiser, samples)[1].basis
    together = fit_corrected_eigenvalues(denoiser, basis, [samples], 2)
    apart = fit_corrected_eigenvalues(denoiser, basis, samples.split(2), 2)
    torch.testing.assert_close(together, apart)


def test_interrupted_passes_go_on_to_the_same_bits():
    """A run that goes on from saved sums equals one that was never stopped."""
    denoiser = tiny_denoiser()
    layout = parameter_layout(denoiser.unet)
    batches = random_samples(denoiser, 6).split(2)
    basis = fit(denoiser, random_samples(denoiser, 6))[1].basis

    def eigenvalues(batches, **resume):
        return fit_corrected_eigenvalues(denoiser, basis, batches, 2, **resume)

    def factors(batches, **resume):
        found = fit_factors(denoiser, layout, batches, **resume)
        return found.input_covariance + found.gradient_covariance

    for run in (eigenvalues, factors):
        sums, saved = {}, {}

        def stopping(sums=sums, saved=saved):
            yield batches[0]
            saved.update({name: value.clone() for name, value in sums.items()})
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(stopping(), sums=sums)
        resumed, straight = run(batches[1:], sums=saved), run(batches)
        assert all(map(torch.equal, resumed, straight))


def test_an_unknown_approximation_is_refused():
    """The message lists those there are."""
    denoiser = linear_denoiser()
    layout = parameter_layout(denoiser.unet)
    with pytest.raises(ValueError, match="no K-FAC approximation 'exact'.*expand"):
        fit_factors(denoiser, layout, [random_samples(denoiser, 2)], "exact")


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


def test_kfac_eigenvalues_survive_being_kept_per_factor():
    """Products of what is kept are the eigenvalues, also where a factor is zero."""
    denoiser = tiny_denoiser()
    layout = parameter_layout(denoiser.unet)
    factors = fit_factors(denoiser, layout, [random_samples(denoiser, 8)])
    _, eigenvalues = eigenbasis(factors)
    eigenvalues[: layout.layers[0].size] = 0
    kept = factor_eigenvalues(layout, eigenvalues)
    torch.testing.assert_close(kfac_eigenvalues(layout, *kept), eigenvalues)
