"""Dense references: written differently from the code they check, exact, slow, tiny."""

import numpy as np
import torch
from torch import Tensor

from core.curvature.fit import Samples
from core.model.denoiser import Denoiser
from core.model.parameters import Layout, attributed_parameters, flatten_gradients


def loop_gradient(costs_of, denoiser: Denoiser, layout: Layout) -> Tensor:
    """Return the gradient of `costs_of().mean()` by one backward pass per cost."""
    parameters = attributed_parameters(denoiser.unet, layout)
    costs = costs_of()
    rows = [
        flatten_gradients(
            list(torch.autograd.grad(cost, parameters, retain_graph=True)), layout
        )
        for cost in costs
    ]
    return torch.stack(rows).mean(0)


def output_jacobian(denoiser: Denoiser, layout: Layout, samples: Samples) -> Tensor:
    """Return the Jacobian of every output entry, shape (B, C H W, P)."""
    parameters = attributed_parameters(denoiser.unet, layout)
    prediction = denoiser.predict(samples.x_t, samples.timesteps, samples.labels)
    rows = [
        flatten_gradients(
            list(torch.autograd.grad(entry, parameters, retain_graph=True)), layout
        )
        for entry in prediction.flatten()
    ]
    return torch.stack(rows).unflatten(0, (len(samples.x_t), -1))


def dense_ggn(denoiser: Denoiser, layout: Layout, samples: Samples) -> Tensor:
    """Return GGN^model of Eq. 9, the mean over samples of 2 J^T J, shape (P, P)."""
    jacobian = output_jacobian(denoiser, layout, samples)
    return 2 * torch.einsum("bop,boq->pq", jacobian, jacobian) / len(samples.x_t)


def dense_empirical_fisher(
    denoiser: Denoiser, layout: Layout, samples: Samples
) -> Tensor:
    """Return the mean of g g^T over samples, g the gradient of the loss (Eq. 11)."""
    parameters = attributed_parameters(denoiser.unet, layout)
    prediction = denoiser.predict(samples.x_t, samples.timesteps, samples.labels)
    losses = (samples.targets - prediction).square().sum((1, 2, 3))
    rows = torch.stack([
        flatten_gradients(
            list(torch.autograd.grad(loss, parameters, retain_graph=True)), layout
        )
        for loss in losses
    ])
    return rows.T @ rows / len(rows)


def block_diagonal(matrix: Tensor, layout: Layout) -> Tensor:
    """Return a matrix (P, P) with everything between different layers set to zero."""
    owner = torch.repeat_interleave(
        torch.arange(len(layout.layers)), torch.tensor([x.size for x in layout.layers])
    )
    return matrix * (owner[:, None] == owner[None, :])


def dense_matrix(multiply, num_params: int) -> Tensor:
    """Return the matrix of a linear map on vectors (..., P)."""
    return multiply(torch.eye(num_params, dtype=torch.float64)).T


def unpacked(packed: np.ndarray, num_params: int, block: int, bits: int) -> np.ndarray:
    """Return the codes (N, P) of packed vectors, looked up one coordinate at a time."""
    codes = np.empty((len(packed), num_params))
    for i in range(num_params):
        first = i - i % block
        width = -(-min(block, num_params - first) * bits // 8)
        field, byte = divmod(i % block, width)
        value = packed[:, first * bits // 8 + byte] >> (bits * field)
        value = (value & (2**bits - 1)).astype(int)
        codes[:, i] = {8: value - 256 * (value > 127), 4: value - 8, 1: 2 * value - 1}[
            bits
        ]
    return codes
