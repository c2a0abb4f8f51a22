"""Networks of somebody's own, as the file that `AFTERIMAGE_MODELS` names has them."""

from pathlib import Path  # something imported is no model

import torch
from torch import Tensor, nn

FILE = Path(__file__).resolve()


class TinyMLP(nn.Module):
    """Two layers on 4x4 grey pixels and the time."""

    def __init__(self, num_classes: int | None = None):
        super().__init__()
        self.classes = num_classes
        self.first, self.last = nn.Linear(17 + (num_classes or 0), 6), nn.Linear(6, 16)

    def forward(self, x_t: Tensor, timesteps: Tensor, *labels: Tensor) -> Tensor:
        """Return the predicted noise."""
        parts = [x_t.flatten(1), timesteps[:, None].to(x_t.dtype) / 1000]
        if self.classes:
            one_hot = nn.functional.one_hot(labels[0], self.classes + 1)
            parts.append(one_hot[:, : self.classes].to(x_t.dtype))
        return self.last(torch.tanh(self.first(torch.cat(parts, 1)))).view_as(x_t)


class WideMLP(nn.Module):
    """Another network, whose weights are others."""

    def __init__(self):
        super().__init__()
        self.only = nn.Linear(16, 16)


def with_two_classes() -> TinyMLP:
    """Return a network that takes labels 0 and 1, and 2 for none."""
    return TinyMLP(2)
