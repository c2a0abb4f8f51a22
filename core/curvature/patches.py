"""Second moments of the rows that a layer multiplies by its weights.

A Linear layer's rows are its inputs; a convolution's are its unrolled patches; a bias
adds a column of ones. K-FAC needs the sum of a a^T over all rows (Eq. 12).

The patches of a 3x3 convolution need not be unrolled for it. The block of the sum that
pairs kernel offsets o and o' is the sum over pixels p of x(p + o) x(p + o')^T, which
depends on o' - o alone, but for the pixels that one of the two windows leaves out at
the border. So 13 products of C x C, for the differences of one half plane, and thin
ones for rows, columns and corners at the border replace one of 9C x 9C: a sixth of the
operations and none of the memory, exactly. Knows nothing of gradients.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from core.model.parameters import Layer

# The offsets (row, column) of a 3x3 kernel, in the order of its unrolled weights.
OFFSETS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


def layer_inputs(module: nn.Module, a: Tensor) -> Tensor:
    """Return a layer's input, without bias, as rows: positions L, shape (B, L, D)."""
    if isinstance(module, nn.Conv2d):
        return F.unfold(
            a, module.kernel_size, module.dilation, module.padding, module.stride
        ).mT
    return a.reshape(len(a), -1, a.shape[-1])


def input_moments(module: nn.Module, a: Tensor) -> dict[str, Tensor]:
    """Return sums over a batch from which `input_covariance` makes the covariance.

    Args:
        module: The layer.
        a: What the layer was given: (B, C, H, W) or (B, ..., D).

    Returns:
        Tensors that add up over batches: those of `row_moments`, or for 3x3
        convolutions those of `_shift_moments`.
    """
    if _keeps_size(module):
        return _shift_moments(a)
    return row_moments(layer_inputs(module, a).flatten(0, 1))


def row_moments(rows: Tensor) -> dict[str, Tensor]:
    """Return the sums over rows (R, D).

    Returns:
        "products" (D, D): of a a^T. "sums" (D,): of a. "count": R.
    """
    return {
        "products": rows.T @ rows,
        "sums": rows.sum(0),
        "count": rows.new_tensor(len(rows)),
    }


def input_covariance(layer: Layer, moments: dict[str, Tensor]) -> Tensor:
    """Return the mean of a a^T over examples and positions, shape (D_in, D_in).

    Args:
        layer: The layer's shape.
        moments: Sums of `input_moments` over all batches.
    """
    count = moments["count"]
    covariance = count.new_empty(layer.d_in, layer.d_in)
    products = covariance[:-1, :-1] if layer.has_bias else covariance
    if "products" in moments:
        products.copy_(moments["products"])
        sums = moments["sums"]
    else:
        _set_patch_products(products, moments)
        sums = F.unfold(moments["image"][None], 3, padding=1)[0].sum(1)
    if layer.has_bias:
        covariance[:-1, -1] = covariance[-1, :-1] = sums
        covariance[-1, -1] = count
    return covariance.div_(count)


def _keeps_size(module: nn.Module) -> bool:
    """Return whether a layer is a 3x3 convolution with stride 1 and a border of 1."""
    return (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (3, 3)
        and module.stride == module.dilation == module.padding == (1, 1)
        and module.padding_mode == "zeros"
    )


def _shift_moments(x: Tensor) -> dict[str, Tensor]:
    """Return the sums over a batch of images (B, C, H, W).

    Returns:
        "shifts" (C, C, 3, 5): at [:, :, i, j + 2] the sum over pixels p of x(p) x(p +
        (i, j))^T. "edge_rows" (2, 3, C, C): the same within the first and the last row,
        for differences (0, 0..2). "edge_columns" (2, 3, C, C): within the first and the
        last column, for (0..2, 0). "corners" (2, 2, C, C): of the four corners. "image"
        (C, H, W): the sum of the images. "count": pixels.
    """
    channels = x.shape[1]
    corners = x[:, :, [0, 0, -1, -1], [0, -1, 0, -1]].permute(2, 1, 0)  # (4, C, B)
    return {
        "shifts": conv2d_weight(F.pad(x, (2, 2, 0, 2)), (channels, channels, 3, 5), x),
        "edge_rows": _line_products(x[:, :, [0, -1]].permute(2, 1, 0, 3)),
        "edge_columns": _line_products(x[..., [0, -1]].permute(3, 1, 0, 2)),
        "corners": (corners @ corners.mT).view(2, 2, channels, channels),
        "image": x.sum(0),
        "count": x.new_tensor(x[:, 0].numel()),
    }


def _line_products(lines: Tensor) -> Tensor:
    """Return the sums of x(p) x(p + s)^T along lines (E, C, B, L), shape (E, 3, C, C).

    The shifts s are 0, 1 and 2; what leaves a line meets zeros.
    """
    length = lines.shape[-1]
    padded = F.pad(lines, (0, 2))
    shifted = torch.stack([padded[..., s : s + length] for s in range(3)], 1)
    return lines.flatten(2)[:, None] @ shifted.flatten(3).mT


def _set_patch_products(products: Tensor, moments: dict[str, Tensor]) -> None:
    """Set a matrix (9C, 9C) to the sum of a a^T over patches.

    An offset of -1 leaves out the image's last row, one of +1 the first; the zeros
    around the image see to all pairs of different offsets.
    """
    shifts = moments["shifts"].permute(2, 3, 0, 1)  # (3, 5, C, C)
    channels = shifts.shape[-1]
    left_out = {-1: 1, 1: 0}  # offset -> which end (0 first, 1 last) it leaves out
    blocks = shifts.new_empty(9, 9, channels, channels)
    for first, (row, column) in enumerate(OFFSETS):
        for second, (other_row, other_column) in enumerate(OFFSETS[first:], first):
            i, j = other_row - row, other_column - column
            block = shifts[i, j + 2]
            outer_row = left_out.get(row) if i == 0 else None
            outer_column = left_out.get(column) if j == 0 else None
            if outer_row is not None:
                block = block - moments["edge_rows"][outer_row, j]
            if outer_column is not None:
                block = block - moments["edge_columns"][outer_column, i]
            if outer_row is not None and outer_column is not None:
                block = block + moments["corners"][outer_row, outer_column]
            blocks[first, second] = block
            blocks[second, first] = block.T
    products = products.unflatten(0, (channels, 9)).unflatten(2, (channels, 9))
    products.copy_(blocks.permute(2, 0, 3, 1))
