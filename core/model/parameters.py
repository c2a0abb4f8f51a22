"""Which weights count, and the one order in which they are flattened.

Only Linear and Conv2d layers count (App. J.4), and none that is frozen: with a LoRA its
own layers are all that was trained. A layer is one matrix of shape (D_out, D_in): its
weight, a convolution's kernel unrolled to (C_in k_h k_w), with the bias, where there is
one, as the last column. A flattened gradient is these matrices row by row, layers in
the order of `named_modules`. Knows nothing of models beyond `torch.nn`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layer:
    """One attributed layer: its module path and the shape of its matrix."""

    name: str
    d_out: int
    d_in: int  # with the bias column
    has_bias: bool

    @property
    def size(self) -> int:
        """Return the number of parameters of the layer."""
        return self.d_out * self.d_in


@dataclass(frozen=True)
class Layout:
    """The layers that count, in the order in which gradients are flattened."""

    layers: tuple[Layer, ...]

    @property
    def num_params(self) -> int:
        """Return P, the number of parameters that count."""
        return sum(layer.size for layer in self.layers)

    def split(self, flat: Tensor) -> list[Tensor]:
        """Return views of shape (..., D_out, D_in), one per layer, of vectors (..., P).

        Raises:
            ValueError: If the vectors come from another layout.
        """
        if flat.shape[-1] != self.num_params:
            raise ValueError(
                f"A vector of {flat.shape[-1]} parameters was given for a layout of "
                f"{self.num_params}. Use gradients of the same model."
            )
        flat_layers = flat.split([layer.size for layer in self.layers], dim=-1)
        return [
            values.unflatten(-1, (layer.d_out, layer.d_in))
            for values, layer in zip(flat_layers, self.layers, strict=True)
        ]

    def join(self, matrices: list[Tensor]) -> Tensor:
        """Return vectors (..., P) from matrices (..., D_out, D_in), one per layer."""
        return torch.cat([matrix.flatten(-2) for matrix in matrices], dim=-1)


def parameter_layout(model: nn.Module) -> Layout:
    """Return the layout of every Linear and Conv2d inside a model that is not frozen.

    Raises:
        ValueError: If a convolution has groups: its matrix would not be a single block.
    """
    layers = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.Conv2d):
            continue
        if not module.weight.requires_grad:
            continue
        if isinstance(module, nn.Conv2d) and module.groups != 1:
            raise ValueError(
                f"The convolution '{name}' has {module.groups} groups; only ordinary "
                "convolutions can be attributed. Choose a model without grouped ones."
            )
        d_out, d_in = module.weight.flatten(1).shape
        has_bias = module.bias is not None
        layers.append(Layer(name, d_out, d_in + has_bias, has_bias))
    return Layout(tuple(layers))


def attributed_parameters(model: nn.Module, layout: Layout) -> list[nn.Parameter]:
    """Return the weights and biases in layout order: weight, bias, weight, ..."""
    parameters = []
    for layer in layout.layers:
        module = model.get_submodule(layer.name)
        parameters.append(module.weight)
        if layer.has_bias:
            parameters.append(module.bias)
    return parameters


def flatten_gradients(
    gradients: list[Tensor], layout: Layout, out: Tensor | None = None
) -> Tensor:
    """Return one vector (P,) from gradients in the order of `attributed_parameters`.

    Args:
        gradients: Of the weights and biases.
        layout: The layers that count.
        out: Where the vector goes; None for a new tensor.
    """
    remaining = iter(gradients)
    flat = gradients[0].new_empty(layout.num_params) if out is None else out
    for layer, matrix in zip(layout.layers, layout.split(flat), strict=True):
        weight = next(remaining).flatten(1)
        matrix[:, : weight.shape[1]] = weight
        if layer.has_bias:
            matrix[:, -1] = next(remaining)
    return flat
