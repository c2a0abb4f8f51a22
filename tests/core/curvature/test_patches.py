"""Second moments of a layer's rows against unrolled patches."""

import pytest
import torch
from torch import nn

from core.curvature.patches import input_covariance, input_moments, layer_inputs
from core.model.parameters import parameter_layout

LAYERS = {
    "3x3": lambda bias: nn.Conv2d(3, 2, 3, padding=1, bias=bias),
    "3x3, stride 2": lambda bias: nn.Conv2d(3, 2, 3, stride=2, padding=1, bias=bias),
    "3x3, no border": lambda bias: nn.Conv2d(3, 2, 3, bias=bias),
    "3x3, wider": lambda bias: nn.Conv2d(3, 2, 3, padding=2, dilation=2, bias=bias),
    "1x1": lambda bias: nn.Conv2d(3, 2, 1, bias=bias),
}


def moments_and_rows(module, x):
    """Return (covariance from two half batches, rows) of a layer's input."""
    layer = parameter_layout(nn.Sequential(module)).layers[0]
    halves = [input_moments(module, half) for half in (x[:2], x[2:])]
    total = {name: halves[0][name] + halves[1][name] for name in halves[0]}
    rows = layer_inputs(module, x).flatten(0, 1)
    if layer.has_bias:
        rows = torch.cat([rows, torch.ones(len(rows), 1)], 1)
    return input_covariance(layer, total), rows


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_equals_its_unrolled_patches(kind, bias):
    """The covariance is the mean of a a^T over examples and positions."""
    x = torch.randn(5, 3, 4, 6, generator=torch.Generator().manual_seed(0)).double()
    found, rows = moments_and_rows(LAYERS[kind](bias).double(), x)
    torch.testing.assert_close(found, rows.T @ rows / len(rows))


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (2, 2), (2, 1), (3, 3), (5, 2)])
def test_small_pictures_where_borders_meet(size):
    """Windows overlap the border on both sides at once, down to a single pixel."""
    x = torch.randn(5, 3, *size, generator=torch.Generator().manual_seed(1)).double()
    found, rows = moments_and_rows(LAYERS["3x3"](True).double(), x)
    torch.testing.assert_close(found, rows.T @ rows / len(rows))


def test_a_linear_layer_with_and_without_positions():
    """Tokens are positions; a plain vector is one position."""
    g = torch.Generator().manual_seed(2)
    for shape in ((5, 3), (5, 7, 3)):
        x = torch.randn(*shape, generator=g).double()
        found, rows = moments_and_rows(nn.Linear(3, 2), x)
        expected = torch.cat([x.reshape(-1, 3), torch.ones(len(rows), 1)], 1)
        torch.testing.assert_close(found, expected.T @ expected / len(expected))
