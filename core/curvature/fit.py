"""K-FAC and EK-FAC of both GGNs: factors, eigenbasis, eigenvalues, damped inverses.

Holds Eqs. 7 to 12 and App. C. For each layer, a GGN is approximated by Q
diag(eigenvalues) Q^T with Q the Kronecker product of the eigenvectors of the two K-FAC
factors. K-FAC's eigenvalues are the products of the factors'; EK-FAC's are the second
moments of the gradient in that basis (George et al. 2018).

GGN^model (Eqs. 7, 9): the second moment of pseudo-gradients. Eq. 10's would give twice
Eq. 9, so they are drawn as J^T (sqrt(2) u) with u ~ N(0, I), whose second moment is
exactly 2 J^T J. GGN^loss (Eqs. 8, 11), the empirical Fisher: the second moment of the
training loss's own gradients.

Weights that are shared over positions are treated as K-FAC-expand does, the paper's
recommendation, or as K-FAC-reduce (Eschenhagen et al. 2023). Data augmentation is part
of the outer expectation: every draw mirrors its image or not; for GGN^loss with
reduce, whose average over draws comes before the outer product, it is part of the loss
(App. "Handling of data augmentations").
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from core.config import KFAC_APPROXIMATIONS
from core.curvature.basis import Eigenbasis
from core.curvature.patches import (
    input_covariance,
    input_moments,
    layer_inputs,
    row_moments,
)
from core.measure.draws import Batch
from core.model.denoiser import Denoiser
from core.model.parameters import Layout, attributed_parameters, flatten_gradients


@dataclass(frozen=True)
class Samples(Batch):
    """Noisy examples at which curvature is evaluated.

    Attributes:
        x_t: Shape (B, C, H, W).
        timesteps: Shape (B,), int64.
        labels: Shape (B,), int64, or None for a model without classes.
        probes: For GGN^model, u of the module docstring, standard normal, shape (B, C,
            H, W). For GGN^loss, random signs, shape (B, 1, 1, 1), which change no
            gradient's outer product but make different samples' gradients uncorrelated.
        targets: For GGN^loss, what the model was to predict, shape (B, C, H, W); None
            for GGN^model.
    """

    x_t: Tensor
    timesteps: Tensor
    labels: Tensor | None
    probes: Tensor
    targets: Tensor | None = None

    def objective(self, prediction: Tensor) -> Tensor:
        """Return the sum over samples of what is differentiated, a scalar."""
        if self.targets is None:
            return 2**0.5 * (self.probes * prediction).sum()
        return (self.probes * (prediction - self.targets).square()).sum()


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


def layer_gradients(module: nn.Module, b: Tensor) -> Tensor:
    """Return the gradient at a layer's output as rows, shape (B, L, D_out)."""
    if isinstance(module, nn.Conv2d):
        return b.flatten(2).mT
    return b.reshape(len(b), -1, b.shape[-1])


def recorded_gradients(
    denoiser: Denoiser, layout: Layout, samples: Samples
) -> Iterator[tuple[int, nn.Module, Tensor, Tensor]]:
    """Yield (layer number, layer, its input, gradient at its output) per layer."""
    with torch.enable_grad(), recorded_layers(denoiser.unet, layout) as record:
        prediction = denoiser.predict(samples.x_t, samples.timesteps, samples.labels)
        outputs = [record[layer.name][1] for layer in layout.layers]
        gradients = torch.autograd.grad(samples.objective(prediction), outputs)
    for i, layer in enumerate(layout.layers):
        module = denoiser.unet.get_submodule(layer.name)
        yield i, module, record[layer.name][0], gradients[i]


Sums = dict[str, Tensor]


def fit_factors(
    denoiser: Denoiser,
    layout: Layout,
    batches: Iterable[Samples],
    kfac_approx: str = "expand",
    draws_per_example: int = 1,
    max_positions: int | None = None,
    sums: Sums | None = None,
) -> Factors:
    """Return the K-FAC factors over all samples (Eq. 12).

    Args:
        denoiser: The model.
        layout: The layers of `denoiser.unet` that count.
        batches: The samples; sums are kept in float64, so the batching does not matter.
        kfac_approx: "expand": every position is a sample of its own (Eq. 12); "reduce":
            positions are summed before the outer product (App. C).
        draws_per_example: For GGN^loss with "reduce", whose average over the draws of
            an example comes before the outer product (App. C, the bars): so many
            samples in a row are draws of one example, and batches hold whole examples.
        max_positions: For "expand", a layer with k times as many positions takes its
            factors from every k-th sample of a batch alone: neighbouring positions say
            nearly the same, and their products are most of the work. The expectation is
            the same if the samples come in random order. None takes all.
        sums: Running sums to go on from. A batch is added to them in place before the
            next one is asked for, so what yields the batches can save them between two,
            and after the last add those of other processes.

    Raises:
        ValueError: If `kfac_approx` is neither.
    """
    if kfac_approx not in KFAC_APPROXIMATIONS:
        raise ValueError(
            f"There is no K-FAC approximation '{kfac_approx}'. "
            f"Choose one of {', '.join(KFAC_APPROXIMATIONS)}."
        )
    sums = {} if sums is None else sums
    for samples in batches:
        empirical = samples.targets is not None
        averaged = draws_per_example if empirical and kfac_approx == "reduce" else 1
        for i, module, a, b in recorded_gradients(denoiser, layout, samples):
            if kfac_approx == "expand":
                moments = _expand_moments(module, a, b, max_positions)
            else:
                moments = _reduce_moments(module, a, b, averaged)
            for name, value in moments:
                _add(sums, f"{i}.{name}", value)
    return _factors_from_sums(layout, sums)


def _add(sums: Sums, name: str, value: Tensor) -> None:
    """Add a batch's sum to the running one, in float64."""
    if name in sums:
        sums[name] += value
    else:
        sums[name] = value.double()


def _expand_moments(module, a, b, max_positions) -> Iterator[tuple[str, Tensor]]:
    """Yield a batch's sums of a a^T and b b^T over samples and positions."""
    b = layer_gradients(module, b)
    step = max(1, b.shape[1] // max_positions) if max_positions else 1
    for name, value in input_moments(module, a[::step]).items():
        yield f"input.{name}", value
    b = b[::step]
    yield "samples", b.new_tensor(len(b))
    b = b.flatten(0, 1)
    yield "gradient", b.T @ b


def _reduce_moments(module, a, b, averaged) -> Iterator[tuple[str, Tensor]]:
    """Yield a batch's sums of outer products of a's mean and b's sum over positions."""
    a = layer_inputs(module, a).mean(1)
    b = layer_gradients(module, b).sum(1)
    if averaged > 1:
        a = a.unflatten(0, (-1, averaged)).mean(1)
        b = b.unflatten(0, (-1, averaged)).mean(1)
    for name, value in row_moments(a).items():
        yield f"input.{name}", value
    yield "samples", b.new_tensor(len(b))
    yield "gradient", b.T @ b


def _factors_from_sums(layout: Layout, sums: Sums) -> Factors:
    inputs, gradients = [], []
    for i, layer in enumerate(layout.layers):
        prefix = f"{i}.input."
        moments = {
            name.removeprefix(prefix): value
            for name, value in sums.items()
            if name.startswith(prefix)
        }
        inputs.append(input_covariance(layer, moments))
        gradients.append(sums[f"{i}.gradient"] / sums[f"{i}.samples"])
    return Factors(layout, tuple(inputs), tuple(gradients))


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
    group_size: int,
    sums: Sums | None = None,
) -> Tensor:
    """Return the second moments of the gradients in the eigenbasis, shape (P,).

    A group's gradients are summed before they are rotated and squared. The probes make
    them uncorrelated with mean zero, so the square of the sum has the expectation of
    the sum of squares, at the cost of one backward pass and one rotation per group. The
    larger the groups, the noisier the estimate from a given number of samples: the
    relative variance is about 2 over the number of groups. Groups of one sample give
    the textbook's estimate.

    Args:
        denoiser: The model.
        basis: The eigenbasis, on the model's device.
        batches: The samples; a batch's groups are rotated together, which reads the
            eigenvectors from memory once.
        group_size: Samples per group; a batch's last group may have fewer.
        sums: Running sums to go on from. A batch is added to them in place before the
            next one is asked for, so what yields the batches can save them between two,
            and after the last add those of other processes.
    """
    sums = {} if sums is None else sums
    for samples in batches:
        gradients = torch.stack([
            _summed_gradient(denoiser, basis.layout, group)
            for group in samples.split(group_size)
        ])
        _add(sums, "squares", basis.rotate(gradients).square().sum(0))
        _add(sums, "count", torch.tensor(len(samples.x_t), device=denoiser.device))
    return sums["squares"] / sums["count"]


def _summed_gradient(denoiser: Denoiser, layout: Layout, samples: Samples) -> Tensor:
    """Return the gradient of the samples' objective, shape (P,)."""
    parameters = attributed_parameters(denoiser.unet, layout)
    with torch.enable_grad():
        predicted = denoiser.predict(samples.x_t, samples.timesteps, samples.labels)
        gradients = torch.autograd.grad(samples.objective(predicted), parameters)
    return flatten_gradients(list(gradients), layout)
