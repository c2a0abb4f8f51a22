"""Other methods: each equals the formula of its paper, written out densely."""

import logging

import numpy as np
import pytest
import torch

from core.curvature.basis import Curvature
from core.curvature.fit import eigenbasis, fit_factors
from core.evidence.evaluation import predicted_changes
from core.measure.costs import loss
from core.measure.draws import keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.measure.outputs import output_size, square_norm
from core.model.parameters import parameter_layout
from core.scores.baselines import (
    cosine_scores,
    das_scores,
    datainf_damping,
    datainf_mixing,
    fisher_products,
    latent_similarity,
    leverage,
    mean_eigenvalue,
    per_coordinate,
    pixel_similarity,
    relative,
    trak_damping,
)
from core.scores.by_method import datainf, trak
from core.scores.method_files import MethodFile
from tests.helpers.exact import dense_matrix, loop_gradient
from tests.helpers.toys import linear_denoiser, random_samples, tiny_denoiser

NUM_EXAMPLES = 6


def normal(*shape, seed=0):
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=keyed_generator(seed, "test")).double()


def with_features(features):
    """Return an open file of features."""
    file = MethodFile(None, {}, {})
    file.__dict__["features"] = features
    return file


def toy_gradients(measurement=loss, count=NUM_EXAMPLES):
    """Return gradients (count, P) of a small model, and its layout."""
    denoiser = linear_denoiser()
    layout = parameter_layout(denoiser.unet)
    generator = keyed_generator(1, "toy pictures")
    draws = make_draws(4, denoiser.shape, denoiser.num_train_timesteps, generator)
    draws = draws._each(lambda v: v.double() if v.is_floating_point() else v)
    rows = [
        fold_gradients(measurement, denoiser, layout, x_0, None, draws, 1)[0][0]
        for x_0 in torch.randn(count, *denoiser.shape, generator=generator).double()
    ]
    return torch.stack(rows), layout


@pytest.mark.parametrize("dim", [3, 40])
def test_trak_equals_the_dense_formula(dim):
    """In the space of the features and in that of the examples."""
    gradients, layout = toy_gradients()
    projection = normal(layout.num_params, dim) / dim**0.5
    features, query = gradients @ projection, gradients[:2] @ projection
    fisher = projection.T @ gradients.T @ gradients @ projection / len(gradients)
    damping = trak_damping(features)
    inverse = torch.linalg.inv(fisher + damping * torch.eye(dim, dtype=torch.float64))
    expected = gradients[:2] @ projection @ inverse @ projection.T @ gradients.T
    file = with_features(features)
    torch.testing.assert_close(trak(query, file, None), expected)
    torch.testing.assert_close(trak(query, file, damping), expected)
    eigenvalues = torch.linalg.eigvalsh(fisher)
    most = min(features.shape)  # eigenvalues that are not zero by rank
    assert most == dim or eigenvalues[:-most].abs().max() < 1e-12
    torch.testing.assert_close(damping, 0.1 * float(eigenvalues[-most:].mean()))


def test_an_inverse_that_does_not_exist_is_refused():
    """Half precision and a damping of zero end in a sentence."""
    with pytest.raises(ValueError, match="leaves the projected Fisher without an inv"):
        fisher_products(normal(1, 3), normal(4, 3), 0.0)
    with pytest.raises(ValueError, match="torch.float16 are too coarse"):
        fisher_products(normal(1, 3), normal(4, 3).half(), 0.1)


def test_d_trak_replaces_the_loss_and_nothing_else():
    """Where the noise to predict is zero, square norm and loss are one cost."""
    denoiser = linear_denoiser()
    layout = parameter_layout(denoiser.unet)
    draws = make_draws(6, denoiser.shape, 20, keyed_generator(0, "draws"))
    draws = draws._each(lambda v: v.double() if v.is_floating_point() else v)
    x_0 = normal(*denoiser.shape)
    d_trak = square_norm(denoiser, x_0, None, draws)
    predicted = denoiser.predict(
        denoiser.add_noise(x_0.expand(6, -1, -1, -1), draws.noise, draws.timesteps),
        draws.timesteps,
        None,
    )
    torch.testing.assert_close(d_trak, predicted.square().sum((1, 2, 3)))
    # |e|^2 = |e - n|^2 + 2 <e, n> - |n|^2: D-TRAK's cost differs by the last two alone.
    inner = (predicted * draws.noise).sum((1, 2, 3))
    own = loss(denoiser, x_0, None, draws)
    torch.testing.assert_close(
        d_trak, own + 2 * inner - draws.noise.square().sum((1, 2, 3))
    )
    gradient, _ = fold_gradients(square_norm, denoiser, layout, x_0, None, draws, 1)
    expected = loop_gradient(
        lambda: square_norm(denoiser, x_0, None, draws), denoiser, layout
    )
    torch.testing.assert_close(gradient[0], expected)


def test_datainf_equals_its_closed_form():
    """The mean over examples of (g g^T + damping I)^-1, inverted one by one."""
    gradients, layout = toy_gradients()
    query = toy_gradients(count=NUM_EXAMPLES + 2)[0][-2:]
    expected, squares = torch.zeros(2, len(gradients), dtype=torch.float64), []
    for g, q in zip(layout.split(gradients), layout.split(query), strict=True):
        g, q = g.flatten(1), q.flatten(1)
        damping = g.square().mean() / 10
        inverses = [
            torch.linalg.inv(
                torch.outer(row, row) + damping * torch.eye(len(row)).double()
            )
            for row in g
        ]
        expected += q @ torch.stack(inverses).mean(0) @ g.T
        squares.append(g.square().sum(1))
    dampings = datainf_damping(torch.stack(squares, 1), layout)
    features = [
        damping.sqrt()
        * datainf_mixing(
            g.flatten(1) @ g.flatten(1).T, g.flatten(1).square().sum(1), damping
        )
        @ g.flatten(1)
        for g, damping in zip(layout.split(gradients), dampings, strict=True)
    ]
    scaled = query / per_coordinate(dampings, layout).sqrt()
    file = with_features(torch.cat(features, 1))
    torch.testing.assert_close(datainf(scaled, file, None), expected)


@pytest.mark.parametrize("dim", [3, 20])
def test_das_is_the_leave_one_out_of_ridge_regression(dim):
    """Each row of a regression is left out and the rest solved again."""
    num_rows, damping = 9, 0.05
    inputs, targets, query = (
        normal(num_rows, dim),
        normal(num_rows),
        normal(2, dim, seed=1),
    )

    def weights(rows):
        gram = inputs[rows].T @ inputs[rows]
        gram = gram + num_rows * damping * torch.eye(dim).double()
        return torch.linalg.solve(gram, inputs[rows].T @ targets[rows])

    everything = torch.arange(num_rows)
    whole = weights(everything)
    expected = torch.stack([
        (query @ (whole - weights(everything[everything != j]))).square()
        for j in range(num_rows)
    ])
    residuals = (inputs @ whole - targets).abs()
    torch.testing.assert_close(
        das_scores(query, inputs, residuals, damping), expected.T
    )
    assert (leverage(inputs, damping) < 1).all()


def test_relatif_does_not_depend_on_the_size_of_a_gradient():
    """An image that counts twice has twice the influence and the same RelatIF."""
    hessian_root, query, gradients = normal(4, 4), normal(1, 4), normal(5, 4, seed=1)
    inverse = torch.linalg.inv(hessian_root @ hessian_root.T)

    def scores(rows):
        influence = (query @ inverse @ rows.T).numpy()
        norms = torch.einsum("np,pq,nq->n", rows, inverse, rows).sqrt().numpy()
        return relative(influence, norms)

    scales = torch.tensor([1.0, 2.0, 5.0, 0.1, 3.0]).double()
    np.testing.assert_allclose(scores(gradients), scores(gradients * scales[:, None]))
    own = relative(
        (gradients @ inverse @ gradients.T).numpy(),
        torch.einsum("np,pq,nq->n", gradients, inverse, gradients).sqrt().numpy(),
    )
    assert (own.argmax(1) == np.arange(5)).all()  # Cauchy and Schwarz


def test_cosine_is_blind_to_length_and_to_rotation():
    """1 with itself; the same in any orthonormal basis; 0 for no gradient."""
    gradients = normal(5, 4)
    gradients[3] = 0
    rotation = torch.linalg.qr(normal(4, 4, seed=1))[0]

    def cosines(query, rows):
        norms = [v.norm(dim=1).numpy() for v in (query, rows)]
        return cosine_scores((query @ rows.T).numpy(), *norms)

    expected = cosines(gradients[:2], gradients)
    np.testing.assert_allclose(expected[[0, 1], [0, 1]], 1)
    np.testing.assert_allclose(expected[:, 3], 0)
    np.testing.assert_allclose(
        expected,
        cosines(3 * gradients[:2] @ rotation, gradients @ rotation),
        atol=1e-12,
    )


def test_another_curvature_acts_on_the_query_alone():
    """Preconditioned in its own basis, compared in the main one: the dense solve."""
    denoiser = linear_denoiser()
    layout = parameter_layout(denoiser.unet)
    main, other = (
        eigenbasis(fit_factors(denoiser, layout, [random_samples(denoiser, 20, seed)]))
        for seed in (0, 1)
    )
    curvature, gradients = Curvature(*other), normal(3, layout.num_params)
    dense = dense_matrix(curvature.multiply, layout.num_params)
    damped = dense + 0.1 * torch.eye(len(dense)).double()
    query = normal(2, layout.num_params, seed=1)
    ready = curvature.solve_in(main[0], main[0].rotate(query), 0.1)
    torch.testing.assert_close(
        ready @ main[0].rotate(gradients).T,
        query @ torch.linalg.solve(damped, gradients.T),
    )


def test_the_nearest_picture_is_the_picture():
    """1 for the same; the order of pixels is that of Euclidean distances."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 4), np.uint8)
    scores = pixel_similarity(pixels[:2], pixels)
    assert scores[0, 0] == scores[1, 1] == 1
    flat = pixels.reshape(6, -1).astype(float)
    distances = np.linalg.norm(flat[:2, None] - flat[None], axis=2)
    assert (np.argsort(-scores) == np.argsort(distances)).all()
    opposite = np.full((1, 3, 4, 4), 255, np.uint8)
    assert pixel_similarity(opposite, 255 - opposite) == pytest.approx(0)
    latents = normal(6, 2, 3, 3).numpy()
    cosines = latent_similarity(2 * latents[:1], latents)
    assert cosines[0, 0] == pytest.approx(1)
    assert cosines[0].argmax() == 0


def test_the_size_of_the_output_is_that_of_the_predicted_noise():
    """DAS's scalar output, from the noise that a noise model predicts."""
    denoiser = tiny_denoiser()
    draws = make_draws(2, denoiser.shape, 20, keyed_generator(0, "draws"))
    draws = draws._each(lambda v: v.double() if v.is_floating_point() else v)
    x_0 = normal(*denoiser.shape)
    x_t = denoiser.add_noise(x_0.expand(2, -1, -1, -1), draws.noise, draws.timesteps)
    expected = denoiser.predict(x_t, draws.timesteps, None).abs().sum((1, 2, 3))
    torch.testing.assert_close(output_size(denoiser, x_0, None, draws), expected)


def test_a_group_of_trak_scores_predicts_like_influence():
    """Scores are times N, as Eq. 6's: one ridge step without a row."""
    inputs = normal(200, 3)
    targets = inputs @ normal(3, seed=1) + 0.1 * normal(200, seed=2)
    query, damping = normal(1, 3, seed=3), 1e-3

    def solve(rows):
        gram = 2 * inputs[rows].T @ inputs[rows] + 2 * 200 * damping * torch.eye(3)
        return torch.linalg.solve(gram.double(), 2 * inputs[rows].T @ targets[rows])

    kept = torch.arange(200) != 7
    whole = solve(torch.arange(200))
    measured = float(query[0] @ (solve(kept) - whole))
    # The Gauss-Newton Hessian of the squared error: features scaled by sqrt(2).
    residual = inputs @ whole - targets
    gradients = 2 * residual[:, None] * inputs
    hessian = 2 * inputs.T @ inputs / 200 + 2 * damping * torch.eye(3).double()
    scores = (query @ torch.linalg.solve(hessian, gradients.T)).numpy()
    same = fisher_products(query, 2**0.5 * inputs, 2 * damping) * 2**0.5 * residual
    np.testing.assert_allclose(same.numpy(), scores)
    predicted = predicted_changes(scores, kept.numpy()[None])
    assert predicted[0, 0] == pytest.approx(measured, rel=0.05)


def test_traker_ranks_alike_from_the_same_projected_gradients(tmp_path):
    """The authors' package, end to end on a small model, orders as we do."""
    trak = pytest.importorskip("trak", reason="traker is a test-only dependency")
    from trak.modelout_functions import AbstractModelOutput
    from trak.projectors import AbstractProjector
    from trak.utils import vectorize

    from core.index.projection import SignProjection

    logging.disable(logging.CRITICAL)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)
    )
    generator = keyed_generator(0, "traker")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    inputs = torch.randn(20, 4, generator=generator)
    targets = torch.randn(20, 2, generator=generator)
    dim, damping = 8, 0.01
    projection = SignProjection(dim, 5)

    class Loss(AbstractModelOutput):
        def __init__(self):
            pass

        def get_output(self, model, weights, buffers, x, y):
            out = torch.func.functional_call(model, (weights, buffers), (x[None],))
            return (out - y).square().sum()

        def get_out_to_loss_grad(self, model, weights, buffers, batch):
            return torch.ones(len(batch[0]), 1)

    class Projector(AbstractProjector):
        def __init__(self, *settings):
            super().__init__(*settings)

        def project(self, grads, model_id):
            return projection.apply(vectorize(grads, device="cpu"))

    num_params = sum(p.numel() for p in model.parameters())
    traker = trak.TRAKer(
        model,
        Loss(),
        train_set_size=15,
        save_dir=str(tmp_path),
        device="cpu",
        projector=Projector(num_params, dim, 0, "rademacher", "cpu"),
        use_half_precision=False,
        logging_level=logging.CRITICAL,
        lambda_reg=15 * damping / num_params,
    )
    state = model.state_dict()
    traker.load_checkpoint(state, model_id=0)
    traker.featurize((inputs[:15], targets[:15]), num_samples=15)
    traker.finalize_features()
    traker.start_scoring_checkpoint("queries", state, 0, num_targets=5)
    traker.score((inputs[15:], targets[15:]), num_samples=5)
    theirs = np.array(traker.finalize_scores("queries")).T
    logging.disable(logging.NOTSET)

    rows = []
    for x, y in zip(inputs, targets, strict=True):
        cost = (model(x) - y).square().sum()
        parts = torch.autograd.grad(cost, list(model.parameters()))
        rows.append(torch.cat([part.flatten() for part in parts]))
    features = projection.apply(torch.stack(rows))
    ours = fisher_products(features[15:], features[:15], damping).numpy()
    assert (np.argsort(ours) == np.argsort(theirs)).all()
    factor = np.median(ours / theirs)  # theirs are scaled by the mean of the inverse
    np.testing.assert_allclose(ours, factor * theirs, atol=1e-4 * np.abs(ours).max())


@pytest.mark.parametrize("dim", [50, 90])
def test_a_tiny_damping_is_solved_in_double_precision(dim):
    """Eigenvalues over fourteen decades: float32 alone has no Cholesky factor."""
    generator = torch.Generator().manual_seed(0)
    scales, mixed = (
        torch.logspace(3, -4, dim),
        torch.randn(dim, dim, generator=generator),
    )
    mixing = torch.linalg.qr(mixed).Q  # or Cholesky would do: it does not see scales
    features = torch.randn(60, dim, generator=generator) * scales @ mixing
    query = torch.randn(2, dim, generator=generator) * scales @ mixing
    damping = 1e-7
    gram = (features.T @ features if dim < 60 else features @ features.T) / 60
    gram.diagonal().add_(damping)
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(gram)
    wide = features.double()
    fisher = wide.T @ wide / 60 + damping * torch.eye(dim, dtype=torch.float64)
    solved = torch.linalg.solve(fisher, wide.T)
    found = fisher_products(query, features, damping)
    assert found.dtype == torch.float32
    expected = query.double() @ solved
    assert (found - expected).norm() < 1e-3 * expected.norm()
    expected = (wide.T * solved).sum(0) / 60
    torch.testing.assert_close(
        leverage(features, damping).double(), expected, rtol=0, atol=1e-4
    )
    with pytest.raises(ValueError, match="too small to invert"):
        fisher_products(torch.ones(1, 90), torch.ones(60, 90), 1e-30)


def test_mean_eigenvalue_is_the_exact_sum_whatever_the_threads():
    """To the last bit with one thread and with four; the Fisher's trace over its rank.

    So it is that of the inner products of examples, however many the features.
    """
    features = torch.randn(400, 3000, generator=keyed_generator(0, "mean eigenvalue"))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            found.append(mean_eigenvalue(features))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]
    gram = features.double() @ features.double().T / len(features)
    assert found[0] == pytest.approx(float(gram.diagonal().mean()), rel=1e-12)
