"""Random numbers depend on what they are for, and on nothing else."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from core.measure.costs import loss
from core.measure.draws import (
    Augmentation,
    Draws,
    keyed_generator,
    make_draws,
    orthogonal_noise,
)
from core.measure.gradients import fold_gradients
from core.model.parameters import parameter_layout
from tests.helpers.toys import linear_denoiser


def numbers(*key):
    """Return the first numbers of a keyed generator."""
    return torch.rand(4, generator=keyed_generator(*key)).tolist()


def test_equal_keys_give_equal_numbers_and_other_keys_others():
    """Seed, purpose and every key count, and their boundaries too."""
    assert numbers(0, "a", 1) == numbers(0, "a", 1)
    others = [
        (1, "a", 1),
        (0, "b", 1),
        (0, "a", 2),
        (0, "a"),
        (0, "a1"),
        (0, "a", 1, 1),
    ]
    assert all(numbers(0, "a", 1) != numbers(*key) for key in others)


def test_global_state_is_neither_read_nor_changed():
    """A keyed generator stands apart from torch's own."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = numbers(0, "a")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert numbers(0, "a") == first


def test_each_fold_has_one_pair_in_every_stratum():
    """16 draws in 2 folds over 20 timesteps: a pair in every quarter of every fold."""
    draws = make_draws(16, (1, 2, 2), 20, keyed_generator(0, "t"), num_folds=2)
    for timesteps in draws.timesteps.view(2, 8):
        assert (timesteps // 5).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("proposal", [None, torch.arange(1.0, 11.0)])
def test_each_draw_is_distributed_as_in_training(proposal):
    """Weighted, all cells of timestep, label and mirror are as frequent as they should.

    Five draws divide neither 10 timesteps nor pairs: the first, the last and the
    unpaired draw must be right too. Within a cell the noise stays standard normal.
    """
    g = keyed_generator(0, "law")
    d = make_draws(
        20_000,
        (1, 1, 1),
        10,
        g,
        Augmentation(0.3, True),
        num_folds=4000,
        proposal=proposal,
    )
    cell = (d.timesteps * 2 + d.drop_label) * 2 + d.flip

    def per_cell(values):
        return torch.bincount(cell, values.double(), 40).view(10, 2, 2)

    cells, count = per_cell(d.weights), per_cell(torch.ones(20_000))
    noise = [per_cell(d.noise.flatten() ** power) for power in (1, 2)]
    expected = torch.tensor([0.7, 0.3])[:, None] / 20  # of label; mirror and t alike
    weight = cells / count
    error = weight * count.sqrt() / 20_000
    assert ((cells / 20_000 - expected).abs() < 5 * error).all()
    assert ((noise[0] / count).abs() < 5 / count.sqrt()).all()
    assert ((noise[1] / count - 1).abs() < 5 * (2 / count).sqrt()).all()


def test_pairs_see_opposite_noise():
    """Draws 2i and 2i + 1 are antithetic and share all else; one of 7 is alone."""
    g = keyed_generator(0, "pairs")
    draws = make_draws(16, (1, 2, 2), 20, g, Augmentation(0.3, True), num_folds=2)
    assert torch.equal(draws.noise[::2], -draws.noise[1::2])
    assert len(draws.noise.abs().unique(dim=0)) == 8
    for name in ("timesteps", "drop_label", "flip", "weights"):
        values = getattr(draws, name)
        assert torch.equal(values[::2], values[1::2])
    seen = make_draws(7, (1, 2, 2), 20, g).noise.abs().unique(dim=0, return_counts=True)
    assert sorted(seen[1].tolist()) == [1, 2, 2, 2]


def test_noise_is_standard_normal_and_orthogonal():
    """Each image is white; coarse structure is orthogonal within a fold.

    Three draws of 2 x 3 x 2 pixels: the covariance of an image is the identity and its
    fourth moments are those of a normal; the means of the two channels and the first
    horizontal cosine of the first channel form one block, so they are orthogonal.
    """
    shape = (2, 3, 2)
    g = keyed_generator(0, "orthogonal")
    noise = torch.stack([orthogonal_noise(3, shape, g) for _ in range(4000)]).double()
    for draw in range(3):
        flat = noise[:, draw].flatten(1)
        assert (flat.T @ flat / 4000 - torch.eye(12)).abs().max() < 5 * (
            2 / 4000
        ) ** 0.5
        assert ((flat**4).mean(0) - 3).abs().max() < 5 * (96 / 4000) ** 0.5
    means = noise.mean((-2, -1)) * 6**0.5
    slope = (noise[:, :, 0, :, 0] - noise[:, :, 0, :, 1]).sum(-1) / 6**0.5
    block = torch.cat([means, slope[:, :, None]], -1)  # (4000, draws, coordinates)
    products = block @ block.mT
    products = products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))
    assert products.abs().max() < 1e-5
    assert orthogonal_noise(5, (1, 1, 1), g).shape == (5, 1, 1, 1)


def expected_gradient(denoiser, layout, x_0):
    """Return the exact expectation of the loss gradient, shape (P,), in float64.

    All timesteps, both mirrors, and a product Gauss-Hermite rule of 3 nodes per pixel,
    exact for the deep linear model, whose gradient is quadratic in the noise.
    """
    nodes, masses = np.polynomial.hermite_e.hermegauss(3)
    grid = np.array(list(itertools.product(range(3), repeat=x_0.numel())))
    mass = torch.from_numpy((masses / masses.sum())[grid].prod(1))
    noise = torch.from_numpy(nodes[grid]).view(-1, *x_0.shape)
    total = torch.zeros(layout.num_params, dtype=torch.float64)
    for t in range(20):
        for flip in (False, True):
            no, same = torch.zeros(len(grid), dtype=torch.bool), torch.ones(len(grid))
            draws = Draws(t * same.long(), noise, no, no | flip, len(grid) * mass / 40)
            total += fold_gradients(loss, denoiser, layout, x_0, None, draws, 1)[0][0]
    return total


def linear_toy():
    """Return a linear denoiser in float64, its layout and two images."""
    denoiser = linear_denoiser(2, (3,))
    x_0 = torch.randn(2, 1, 2, 2, generator=keyed_generator(0, "draws toy")).double()
    return denoiser, parameter_layout(denoiser.unet), x_0


def estimates(denoiser, layout, x_0, count, num_draws=5, **settings):
    """Return `count` gradients of one image by a few draws each, shape (count, P)."""
    g = keyed_generator(0, "estimates")
    draws = make_draws(
        num_draws * count,
        x_0.shape,
        20,
        g,
        Augmentation(flip=True),
        num_folds=count,
        **settings,
    )
    draws = replace(draws, noise=draws.noise.double())
    return fold_gradients(loss, denoiser, layout, x_0, None, draws, count)[0]


@pytest.mark.parametrize("proposal", [None, torch.linspace(0.2, 2, 20)])
def test_estimate_is_unbiased(proposal):
    """The mean of 1,500 small estimates is the exact gradient, within its error."""
    denoiser, layout, x_0 = linear_toy()
    folds = estimates(denoiser, layout, x_0[0], 1500, proposal=proposal)
    exact = expected_gradient(denoiser, layout, x_0[0])
    error = folds.std(0) / len(folds) ** 0.5
    assert ((folds.mean(0) - exact).abs() < 5 * error).all()
    assert (error.norm() / exact.norm()) < 0.05  # the check has teeth


def test_antithetic_noise_cancels_between_pictures():
    """The difference of two images' gradients has far less noise than if independent.

    In a linear model it is all odd in the noise, so what is left comes from the other
    variables.
    """
    denoiser, layout, x_0 = linear_toy()
    ours = [estimates(denoiser, layout, x, 300, 8) for x in x_0]
    g = keyed_generator(0, "independent")
    draws = make_draws(2400, x_0[0].shape, 20, g, Augmentation(flip=True))
    order = torch.randperm(2400, generator=g)
    noise = torch.randn(2400, 1, 2, 2, generator=g).double()
    draws = replace(draws[order], noise=noise)
    plain = [
        fold_gradients(loss, denoiser, layout, x, None, draws, 300)[0] for x in x_0
    ]
    ratio = (plain[0] - plain[1]).var(0).sum() / (ours[0] - ours[1]).var(0).sum()
    assert ratio > 4, ratio


def test_a_range_keeps_timesteps_inside():
    """Timesteps of a band lie in the band, the ends included."""
    draws = make_draws(64, (1, 1, 1), (10, 14), keyed_generator(0, "r"))
    assert set(draws.timesteps.tolist()) == {10, 11, 12, 13}


def test_bad_requests_say_what_to_do():
    """An empty range or uneven folds give a plain sentence."""
    g = keyed_generator(0, "bad")
    with pytest.raises(ValueError, match="timestep range 5:5 is empty"):
        make_draws(4, (1, 1, 1), (5, 5), g)
    with pytest.raises(ValueError, match="6 draws cannot be split into 4 equal folds"):
        make_draws(6, (1, 1, 1), 20, g, num_folds=4)
