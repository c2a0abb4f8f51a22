"""EK-FAC of GGN^model: factors, eigenbasis, corrected eigenvalues, damped solves.

Holds Eqs. 9 and 12. For each layer, GGN^model is approximated by Q diag(eigenvalues)
Q^T with Q the Kronecker product of the eigenvectors of the two K-FAC factors; the
corrected eigenvalues are the second moments of the gradient in that basis (George et
al. 2018).

Eq. 10's pseudo-gradients would give twice Eq. 9, so they are drawn as J^T (sqrt(2) u)
with u ~ N(0, I), whose second moment is exactly 2 J^T J. Weight sharing follows
K-FAC-expand (Eschenhagen et al. 2023), the paper's recommendation.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.diffusion import Denoiser
from core.parameters import Layer, Layout


@dataclass(frozen=True)
class Samples:
    """Noisy examples at which curvature is evaluated.

    Attributes:
        x_t: Shape (B, C, H, W).
        timesteps: Shape (B,), int64.
        labels: Shape (B,), int64, or None for a model without classes.
        probes: u of the module docstring, standard normal, shape (B, C, H, W).
    """

    x_t: Tensor
    timesteps: Tensor
    labels: Tensor | None
    probes: Tensor


@dataclass(frozen=True)
class Eigenbasis:
    """The Kronecker eigenbasis of every layer.

    Attributes:
        layout: The layers, in flattening order.
        input_eigenvectors: Per layer, columns, shape (D_in, D_in).
        gradient_eigenvectors: Per layer, columns, shape (D_out, D_out).
    """

    layout: Layout
    input_eigenvectors: tuple[Tensor, ...]
    gradient_eigenvectors: tuple[Tensor, ...]

    def rotate(self, vectors: Tensor) -> Tensor:
        """Return Q^T v for vectors of shape (..., P)."""
        return self.layout.join([
            q_g.T @ matrix @ q_a
            for matrix, q_a, q_g in zip(
                self.layout.split(vectors),
                self.input_eigenvectors,
                self.gradient_eigenvectors,
                strict=True,
            )
        ])

    def rotate_back(self, vectors: Tensor) -> Tensor:
        """Return Q v for vectors of shape (..., P)."""
        return self.layout.join([
            q_g @ matrix @ q_a.T
            for matrix, q_a, q_g in zip(
                self.layout.split(vectors),
                self.input_eigenvectors,
                self.gradient_eigenvectors,
                strict=True,
            )
        ])

    def to(
        self, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> "Eigenbasis":
        """Return the same basis on a device, in a floating point type."""
        return Eigenbasis(
            self.layout,
            tuple(q.to(device, dtype) for q in self.input_eigenvectors),
            tuple(q.to(device, dtype) for q in self.gradient_eigenvectors),
        )


@dataclass(frozen=True)
class Curvature:
    """A symmetric positive matrix Q diag(eigenvalues) Q^T of shape (P, P).

    Attributes:
        basis: The Kronecker eigenbasis Q.
        eigenvalues: Shape (P,): corrected for EK-FAC, products of factors' for K-FAC.
    """

    basis: Eigenbasis
    eigenvalues: Tensor

    def multiply(self, vectors: Tensor) -> Tensor:
        """Return the matrix times vectors of shape (..., P)."""
        return self.basis.rotate_back(self.basis.rotate(vectors) * self.eigenvalues)

    def solve(self, vectors: Tensor, damping: float) -> Tensor:
        """Return (matrix + damping I)^-1 times vectors of shape (..., P)."""
        rotated = self.basis.rotate(vectors)
        return self.basis.rotate_back(rotated / (self.eigenvalues + damping))


@dataclass(frozen=True)
class Factors:
    """The K-FAC factors of every layer (Eq. 12), as means over the samples.

    Attributes:
        layout: The layers, in flattening order.
        input_covariance: Per layer, mean over samples and positions of a a^T.
        gradient_covariance: Per layer, mean over samples, sum over positions of b b^T.
    """

    layout: Layout
    input_covariance: tuple[Tensor, ...]
    gradient_covariance: tuple[Tensor, ...]


@contextmanager
def recorded_layers(model: nn.Module, layout: Layout) -> Iterator[dict]:
    """Record each layer's input and output during a forward pass.

    The pass raises ValueError if a layer runs twice: its Jacobian would be a sum.

    Yields:
        Layer name -> (input, output), filled by the forward pass inside the block.
    """
    record: dict[str, tuple[Tensor, Tensor]] = {}
    handles = []

    def recorder(name: str):
        def hook(module, inputs, output):
            if name in record:
                raise ValueError(
                    f"The layer '{name}' is used twice in one pass, which EK-FAC does "
                    "not cover. Choose a model that uses each layer once."
                )
            record[name] = (inputs[0].detach(), output)

        return hook

    try:
        for layer in layout.layers:
            module = model.get_submodule(layer.name)
            handles.append(module.register_forward_hook(recorder(layer.name)))
        yield record
    finally:
        for handle in handles:
            handle.remove()


def layer_inputs(module: nn.Module, layer: Layer, a: Tensor) -> Tensor:
    """Return a layer's input as rows, shape (B, L, D_in): positions L, bias as ones.

    The columns of a convolution's rows are its unrolled patches.
    """
    if isinstance(module, nn.Conv2d):
        a = F.unfold(
            a, module.kernel_size, module.dilation, module.padding, module.stride
        ).mT
    else:
        a = a.reshape(len(a), -1, a.shape[-1])
    if layer.has_bias:
        a = torch.cat([a, a.new_ones(*a.shape[:-1], 1)], dim=-1)
    return a


def layer_gradients(module: nn.Module, b: Tensor) -> Tensor:
    """Return the gradient at a layer's output as rows, shape (B, L, D_out)."""
    if isinstance(module, nn.Conv2d):
        return b.flatten(2).mT
    return b.reshape(len(b), -1, b.shape[-1])


def pseudo_gradients(
    denoiser: Denoiser, layout: Layout, samples: Samples
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (layer number, inputs (B, L, D_in), gradients (B, L, D_out)) per layer.

    The gradients are those of sum_n sqrt(2) <u_n, prediction_n>, so that the per-sample
    weight gradients g_n = b^T a have E[g g^T] = 2 J^T J (Eq. 9).
    """
    with torch.enable_grad(), recorded_layers(denoiser.unet, layout) as record:
        prediction = denoiser.predict(samples.x_t, samples.timesteps, samples.labels)
        target = (2**0.5 * samples.probes * prediction).sum()
        outputs = [record[layer.name][1] for layer in layout.layers]
        gradients = torch.autograd.grad(target, outputs)
    for i, layer in enumerate(layout.layers):
        module = denoiser.unet.get_submodule(layer.name)
        a = layer_inputs(module, layer, record[layer.name][0])
        yield i, a, layer_gradients(module, gradients[i])


def fit_factors(
    denoiser: Denoiser,
    layout: Layout,
    batches: Iterable[Samples],
    state: dict[str, Tensor] | None = None,
    on_batch: Callable[[dict[str, Tensor]], None] | None = None,
) -> Factors:
    """Return the K-FAC factors over all samples (Eq. 12).

    Args:
        denoiser: The model.
        layout: The layers of `denoiser.unet` that count.
        batches: The samples; sums are kept in float64, so the batching does not matter.
        state: Running sums to go on from, as given to `on_batch`.
        on_batch: Called with the running sums after every batch, to save or to stop.
    """
    sums = state if state is not None else _zero_sums(denoiser, layout)
    for samples in batches:
        for i, a, b in pseudo_gradients(denoiser, layout, samples):
            positions = a.shape[1]
            a, b = a.flatten(0, 1), b.flatten(0, 1)
            sums[f"input.{i}"] += (a.T @ a).double() / positions
            sums[f"gradient.{i}"] += (b.T @ b).double()
        sums["count"] += len(samples.x_t)
        if on_batch is not None:
            on_batch(sums)
    numbers = range(len(layout.layers))
    return Factors(
        layout,
        tuple(sums[f"input.{i}"] / sums["count"] for i in numbers),
        tuple(sums[f"gradient.{i}"] / sums["count"] for i in numbers),
    )


def _zero_sums(denoiser: Denoiser, layout: Layout) -> dict[str, Tensor]:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=denoiser.device)

    sums = {"count": zeros()}
    for i, layer in enumerate(layout.layers):
        sums[f"input.{i}"] = zeros(layer.d_in, layer.d_in)
        sums[f"gradient.{i}"] = zeros(layer.d_out, layer.d_out)
    return sums


def eigenbasis(factors: Factors) -> tuple[Eigenbasis, Tensor]:
    """Return the eigenbasis of the factors and the K-FAC eigenvalues, shape (P,).

    The decompositions are in float64; the signs of eigenvectors are fixed so that equal
    factors give an equal basis.
    """
    input_eigenvectors, gradient_eigenvectors, eigenvalues = [], [], []
    for a, b in zip(factors.input_covariance, factors.gradient_covariance, strict=True):
        values_a, vectors_a = _eigh(a)
        values_b, vectors_b = _eigh(b)
        input_eigenvectors.append(vectors_a)
        gradient_eigenvectors.append(vectors_b)
        eigenvalues.append(torch.outer(values_b, values_a))
    basis = Eigenbasis(
        factors.layout, tuple(input_eigenvectors), tuple(gradient_eigenvectors)
    )
    return basis, factors.layout.join(eigenvalues)


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(matrix.double())
    largest = vectors.abs().argmax(0, keepdim=True)
    vectors = vectors * vectors.gather(0, largest).sign()
    # Rounding can leave a zero eigenvalue slightly negative; the matrix is positive.
    return values.clamp(min=0), vectors


def fit_corrected_eigenvalues(
    denoiser: Denoiser,
    basis: Eigenbasis,
    batches: Iterable[Samples],
    state: dict[str, Tensor] | None = None,
    on_batch: Callable[[dict[str, Tensor]], None] | None = None,
) -> Tensor:
    """Return the second moments of the pseudo-gradients in the eigenbasis, shape (P,).

    Args:
        denoiser: The model.
        basis: The eigenbasis, on the model's device.
        batches: The samples; sums are kept in float64, so the batching does not matter.
        state: Running sums to go on from, as given to `on_batch`.
        on_batch: Called with the running sums after every batch, to save or to stop.
    """
    layout = basis.layout
    sums = state
    if sums is None:
        zeros = torch.zeros(
            layout.num_params, dtype=torch.float64, device=denoiser.device
        )
        sums = {"squares": zeros, "count": torch.zeros((), dtype=torch.float64)}
    for samples in batches:
        squares = layout.split(sums["squares"])
        for i, a, b in pseudo_gradients(denoiser, layout, samples):
            q_a, q_g = basis.input_eigenvectors[i], basis.gradient_eigenvectors[i]
            gradients = (b @ q_g).mT @ a  # (B, D_out, D_in), rotated on the left
            squares[i].add_((gradients @ q_a).square().sum(0))
        sums["count"] += len(samples.x_t)
        if on_batch is not None:
            on_batch(sums)
    return sums["squares"] / sums["count"]
