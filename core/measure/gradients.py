"""Monte Carlo gradients of a measurement: what Eq. 6 calls grad m and grad l."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from core.measure.draws import Draws
from core.model.denoiser import Denoiser
from core.model.parameters import Layout, attributed_parameters, flatten_gradients

Costs = Callable[[Denoiser, Tensor, int | None, Draws], Tensor]


def fold_gradients(
    measurement: Costs,
    denoiser: Denoiser,
    layout: Layout,
    x_0: Tensor,
    label: int | None,
    draws: Draws,
    num_folds: int,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of one example's mean cost over each fold of the draws.

    A batch holds one example at several draws, so the gradient of the batch's mean is
    the Monte Carlo average itself: no per-sample gradient is formed, and the cost is
    that of one forward and backward pass.

    Args:
        measurement: Costs of one example at every draw.
        denoiser: The model.
        layout: The layers of `denoiser.unet` that count.
        x_0: Clean example, shape (C, H, W).
        label: Class index, or None.
        draws: S draws, whose weights multiply the costs; fold f is the f-th of
            `num_folds` equal parts.
        num_folds: F.

    Returns:
        Gradients of shape (F, P), float32, and mean costs of shape (F,).
    """
    per_fold, most = len(draws) // num_folds, denoiser.most_at_once
    weight = next(denoiser.unet.parameters())
    gradients = weight.new_empty(num_folds, layout.num_params)
    costs = []
    for fold in range(num_folds):
        parts = draws[fold * per_fold : (fold + 1) * per_fold].split(most)
        summands = (
            (part.weights * measurement(denoiser, x_0, label, part)).sum() / per_fold
            for part in parts
        )
        _, cost = summed_gradient(summands, denoiser, layout, out=gradients[fold])
        costs.append(cost)
    return gradients, torch.stack(costs)


@torch.enable_grad()
def summed_gradient(
    costs: Iterator[Tensor],
    denoiser: Denoiser,
    layout: Layout,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the gradient (P,) of a sum of costs, and the sum.

    Args:
        costs: Scalars. Each is asked for after the gradient of the one before is taken,
            so that only one graph is in memory.
        denoiser: The model.
        layout: The layers of `denoiser.unet` that count.
        out: Where the gradient goes, shape (P,); None makes a new vector.
    """
    parameters = attributed_parameters(denoiser.unet, layout)
    total, value = None, 0.0
    for cost in costs:
        parts = torch.autograd.grad(cost, parameters)
        total = parts if total is None else torch._foreach_add(total, parts)
        value = value + cost.detach()
    return flatten_gradients(list(total), layout, out=out), value
