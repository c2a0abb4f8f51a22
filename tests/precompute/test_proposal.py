"""How often timesteps are drawn: the measured proposal against what it should be."""

import torch

from core.curvature.basis import Curvature
from core.curvature.fit import eigenbasis, fit_factors
from core.measure.draws import keyed_generator, make_draws
from core.model.parameters import parameter_layout
from precompute.stages.proposal import (
    NUM_BANDS,
    NUM_IMAGES,
    NUM_QUERIES,
    UNIFORM_SHARE,
    proposal_of_scores,
    timestep_proposal,
)
from tests.helpers.exact import loop_gradient
from tests.helpers.toys import linear_denoiser, random_samples

PROFILE = torch.linspace(-2, 2, 40).exp().double()  # noise of each of 40 bands


def noisy_scores(pictures=200, queries=6):
    """Return scores (images, 40, queries), their signal common to all bands."""
    g = keyed_generator(0, "proposal scores")
    signal = 10 * torch.randn(pictures, 1, queries, generator=g)
    noise = torch.randn(pictures, 40, queries, generator=g).double()
    return signal + PROFILE[:, None] * noise


def test_proposal_is_the_standard_deviation_of_the_noise():
    """Neyman allocation, but for the uniform share; the signal does not matter."""
    proposal = proposal_of_scores(noisy_scores(), 400)
    expected = PROFILE.repeat_interleave(10) / (10 * PROFILE.sum())
    expected = (1 - UNIFORM_SHARE) * expected + UNIFORM_SHARE / 400
    inside = slice(30, 370)  # smoothing is one-sided at the ends
    torch.testing.assert_close(proposal[inside], expected[inside], rtol=0.12, atol=0)
    assert abs(proposal.sum() - 1) < 1e-12
    assert proposal.min() >= UNIFORM_SHARE / 400


def test_proposal_is_nearly_optimal():
    """The variance it leaves is within 15% of the optimum, uniform draws' is not."""
    proposal = proposal_of_scores(noisy_scores(16, 8), 40)
    best = PROFILE.mean() ** 2
    assert (PROFILE**2 / (40 * proposal)).mean() < 1.15 * best
    assert (PROFILE**2).mean() > 1.5 * best


def test_proposal_ignores_what_rankings_ignore():
    """The scale of a query and an error that all images share change nothing."""
    scores = noisy_scores()
    g = keyed_generator(0, "shared error")
    changed = scores * torch.tensor([1, 2, 5, 0.1, 3, 7.0])
    changed = changed + 100 * torch.randn(1, 40, 6, generator=g)
    torch.testing.assert_close(
        proposal_of_scores(changed, 400), proposal_of_scores(scores, 400)
    )


def test_pilot_scores_match_a_dense_solve():
    """Each band's score is grad m (H + damping)^-1 grad l of two draws, by a loop."""
    denoiser = linear_denoiser(2, (3,))
    # In a linear model opposite noise cancels at equal timesteps, and nothing is left.
    denoiser.unet.net.insert(1, torch.nn.Tanh())
    layout = parameter_layout(denoiser.unet)
    basis, eigenvalues = eigenbasis(
        fit_factors(denoiser, layout, [random_samples(denoiser, 30)])
    )
    curvature = Curvature(basis, eigenvalues)
    g = keyed_generator(0, "pilot toy")
    x_0 = torch.randn(30, 1, 2, 2, generator=g).double()
    labels = torch.zeros(30, dtype=torch.int64)
    proposal = timestep_proposal(denoiser, curvature, 0.1, x_0, labels, seed=3)

    def gradient(position, draws):
        def costs():
            for i in range(len(draws)):
                t, noise = draws.timesteps[i], draws.noise[i]
                alpha = denoiser.scheduler.alphas_cumprod.double()[t]
                x_t = alpha.sqrt() * x_0[position] + (1 - alpha).sqrt() * noise
                yield ((denoiser.unet(x_t[None], t).sample[0] - noise) ** 2).sum()

        return loop_gradient(lambda: list(costs()), denoiser, layout)

    order = torch.randperm(30, generator=keyed_generator(3, "pilot pictures")).tolist()
    queries, pictures = order[:NUM_QUERIES], order[NUM_QUERIES:]
    of_query, draws = (
        make_draws(2 * NUM_BANDS, (1, 2, 2), 20, keyed_generator(3, purpose))
        for purpose in ("pilot query draws", "pilot draws")
    )
    identity = torch.eye(layout.num_params, dtype=torch.float64)
    damped = curvature.multiply(identity) + 0.1 * identity
    solved = torch.linalg.solve(
        damped, torch.stack([gradient(q, of_query) for q in queries]).T
    )
    scores = torch.stack([
        torch.stack([
            gradient(j, draws[2 * band : 2 * band + 2]) @ solved
            for band in range(NUM_BANDS)
        ])
        for j in pictures[:NUM_IMAGES]
    ])
    torch.testing.assert_close(
        proposal, proposal_of_scores(scores, 20), rtol=1e-6, atol=0
    )
