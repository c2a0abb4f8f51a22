"""Random projections: the same in one piece and in parts, unbiased for products."""

import pytest
import torch

from core.index.projection import (
    PROJECTIONS,
    SignProjection,
    checksum,
    make_projection,
    project_columns,
)
from core.measure.draws import keyed_generator


def normal(*shape):
    """Return standard normal numbers in float32, in which features are made."""
    return torch.randn(*shape, generator=keyed_generator(0, "test"))


def matrix(projection, num_params):
    """Return the projection as a matrix (P, k): what it does to unit vectors."""
    return projection.apply(torch.eye(num_params))


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_parts_add_up_to_the_whole(kind, monkeypatch):
    """Made block by block, cut anywhere, it is one linear map of equal entries."""
    vectors, projection = normal(3, 50), make_projection(kind, 50, 7, seed=0)
    dense = matrix(projection, 50)
    torch.testing.assert_close(projection.apply(vectors), vectors @ dense)
    parts = [
        project_columns(projection, vectors[:, first:stop], first)
        for first, stop in ((0, 13), (13, 14), (14, 50))
    ]
    torch.testing.assert_close(sum(parts), vectors @ dense)
    monkeypatch.setattr("core.index.projection.ENTRIES", 20)
    torch.testing.assert_close(projection.apply(vectors), vectors @ dense)
    sizes = dense[dense != 0].abs()
    expected = 1.0 if kind == "sketch" else 7**-0.5
    torch.testing.assert_close(sizes, torch.full_like(sizes, expected))


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_inner_products_are_unbiased(kind):
    """The mean over many seeds is the product itself, within five standard errors."""
    a, b = normal(2, 40)
    products = torch.tensor([
        float(p.apply(a[None])[0] @ p.apply(b[None])[0])
        for p in (make_projection(kind, 40, 8, seed) for seed in range(400))
    ])
    error = products.std() / len(products) ** 0.5
    assert abs(products.mean() - a @ b) < 5 * error


def test_signs_are_balanced_and_independent():
    """Columns and rows of the counter's signs are nearly orthogonal."""
    signs = SignProjection(64, 3).signs(0, 1024, torch.device("cpu"))
    assert abs(float(signs.mean())) < 5 / signs.numel() ** 0.5
    correlations = signs.T @ signs / len(signs) - torch.eye(64)
    assert float(correlations.abs().max()) < 6 / len(signs) ** 0.5


def test_another_seed_is_another_projection():
    """The checksum tells them apart; an unknown kind or size is refused."""
    for kind in PROJECTIONS:
        sums = {checksum(make_projection(kind, 30, 4, seed)) for seed in (0, 0, 1)}
        assert len(sums) == 2
    with pytest.raises(ValueError, match="no projection 'gauss'. Choose one of sketch"):
        make_projection("gauss", 30, 4, 0)
    with pytest.raises(ValueError, match="40000 features were asked for. Choose 1 to"):
        make_projection("signs", 30, 40_000, 0)
