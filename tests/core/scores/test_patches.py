"""What training images' patches weigh in the denoised query, against a plain loop."""

import numpy as np
import pytest
import torch

from core.scores.patches import OUTSIDE, patch_scores, patch_shares, patch_side


def by_hand(query, images, signal, noise, side) -> np.ndarray:
    """Return the shares, place by place: every pair of patches is compared."""
    count, channels, height, width = images.shape
    half = side // 2

    def patch(image, row, column) -> np.ndarray:
        entries = []
        for r in range(row - half, row + half + 1):
            for c in range(column - half, column + half + 1):
                inside = 0 <= r < height and 0 <= c < width
                values = image[:, r, c] if inside else np.zeros(channels)
                entries.append([*values, 0 if inside else OUTSIDE])
        return np.array(entries).ravel()

    places = [(r, c) for r in range(height) for c in range(width)]
    noisy = signal**0.5 * query + (1 - signal) ** 0.5 * noise
    others = [[patch(signal**0.5 * image, *at) for at in places] for image in images]
    shares = np.zeros(count)
    for at in places:
        own = patch(noisy, *at)
        squares = np.square(np.array(others) - own).sum(-1)  # (N, places)
        weights = np.exp(-(squares - squares.min()) / (2 * (1 - signal)))
        shares += weights.sum(1) / weights.sum()
    return shares / len(places)


@pytest.fixture
def problem():
    g = torch.Generator().manual_seed(0)
    query, noise = (torch.randn(2, 5, 4, generator=g).double() for _ in range(2))
    images = torch.randn(6, 2, 5, 4, generator=g).double()
    return query, images, noise


@pytest.mark.parametrize("side", [3, 5])
def test_shares_match_a_plain_loop(problem, side):
    """Borders included: outside is like outside alone."""
    query, images, noise = problem
    found = patch_shares(query, images, 0.4, noise, side)
    wanted = by_hand(query.numpy(), images.numpy(), 0.4, noise.numpy(), side)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_shares_sum_to_one_and_follow_their_images(problem):
    """Whatever the order of the images; twice the same image shares its weight."""
    query, images, noise = problem
    found = patch_shares(query, images, 0.7, noise, 3)
    assert found.sum() == pytest.approx(1)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    torch.testing.assert_close(
        patch_shares(query, images[order], 0.7, noise, 3), found[order]
    )
    twice = patch_shares(query, torch.cat([images, images[:1]]), 0.7, noise, 3)
    torch.testing.assert_close(twice[0], twice[-1])


def test_a_copy_takes_nearly_all_where_there_is_little_noise(problem):
    """And an image made of two others' halves is shared between them."""
    query, images, _ = problem
    levels, g = torch.linspace(0.9999, 0.001, 100), torch.Generator().manual_seed(1)
    levels = torch.where(torch.arange(100) < 20, 0.99, levels)
    copied = torch.cat([images, query[None]]).float()
    scores = patch_scores(query.float(), copied, levels, g)
    assert scores[-1] > 0.95
    half = torch.cat([images[0, :, :3], images[1, :, 3:]], 1).float()
    scores = patch_scores(half, images.float(), levels, g)
    assert set(scores.argsort()[-2:].tolist()) == {0, 1} and scores[0] > scores[1]


def test_patches_grow_with_the_image():
    """Always odd, never below three."""
    assert [patch_side(height) for height in (8, 16, 32, 64)] == [3, 3, 7, 15]
