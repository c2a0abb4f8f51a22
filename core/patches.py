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

from core.parameters import Layer

# The differences (rows, columns) of two kernel offsets, one of each pair +-d.
SHIFTS = [(i, j) for i in range(3) for j in range(-2, 3) if (i, j) >= (0, 0)]


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
    count = moments["count"].view(1, 1)
    if "products" in moments:
        products, sums = moments["products"], moments["sums"][:, None]
    else:
        blocks = _shift_blocks(moments)  # (3, 3, C, 3, 3, C)
        products = blocks.permute(2, 0, 1, 5, 3, 4).flatten(3).flatten(0, 2)
        patches = F.unfold(moments["image"][None], 3, padding=1)
        sums = patches[0].sum(1, keepdim=True)
    if layer.has_bias:
        products = torch.cat([
            torch.cat([products, sums], 1),
            torch.cat([sums.T, count], 1),
        ])
    return products / count


def _keeps_size(module: nn.Module) -> bool:
    """Return whether a layer is a 3x3 convolution with stride 1 and a border of 1."""
    return (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (3, 3)
        and module.stride == module.dilation == module.padding == (1, 1)
        and module.padding_mode == "zeros"
    )


def _shift_moments(x: Tensor) -> dict[str, Tensor]:
    """Return the sums over a batch of pictures (B, C, H, W).

    Returns:
        "shifts" (13, C, C): for each difference d of `SHIFTS`, the sum over pixels p of
        x(p) x(p + d)^T. "edge_rows" (2, 3, C, C): the same within the first and the
        last row, for d = (0, 0..2). "edge_columns" (2, 3, C, C): within the first and
        the last column, for d = (0..2, 0). "corners" (2, 2, C, C): of the four corners.
        "image" (C, H, W): the sum of the pictures. "count": pixels.
    """
    pixels = x.permute(0, 2, 3, 1)  # (B, H, W, C)
    # Two zeros after each row and two rows of zeros after each picture: a shifted
    # pixel that leaves the picture meets a zero, so one flat shift serves all.
    padded = F.pad(pixels, (0, 0, 0, 2, 0, 2))
    stride, channels = padded.shape[2], padded.shape[3]
    first_row, last_row = pixels[:, 0], pixels[:, -1]
    first_column, last_column = pixels[:, :, 0], pixels[:, :, -1]
    return {
        "shifts": _products(padded, [i * stride + j for i, j in SHIFTS]),
        "edge_rows": torch.stack([
            _products(F.pad(line, (0, 0, 0, 2)), range(3))
            for line in (first_row, last_row)
        ]),
        "edge_columns": torch.stack([
            _products(F.pad(line, (0, 0, 0, 2)), range(3))
            for line in (first_column, last_column)
        ]),
        "corners": torch.stack([
            _products(pixels[:, i, j], [0]) for i in (0, -1) for j in (0, -1)
        ]).view(2, 2, channels, channels),
        "image": x.sum(0),
        "count": x.new_tensor(x[:, 0].numel()),
    }


def _products(pixels: Tensor, shifts) -> Tensor:
    """Return the sums of x(p) x(p + s)^T over flat positions p, shape (S, C, C)."""
    flat = pixels.reshape(-1, pixels.shape[-1])
    return torch.stack([flat[: len(flat) - s].T @ flat[s:] for s in shifts])


def _shift_blocks(moments: dict[str, Tensor]) -> Tensor:
    """Return the patch second moments by kernel offset, shape (3, 3, C, 3, 3, C).

    An offset of -1 leaves out the picture's last row, one of +1 the first; the zeros
    around the picture see to all pairs of different offsets.
    """
    channels = moments["image"].shape[0]
    blocks = moments["image"].new_zeros(3, 3, channels, 3, 3, channels)
    shifts = dict(zip(SHIFTS, moments["shifts"], strict=True))
    left_out = {-1: 1, 1: 0}  # offset -> which end (0 first, 1 last) it leaves out
    for (i, j), shift in shifts.items():
        for row in range(-1, 2 - i):
            for column in range(max(-1, -1 - j), min(2, 2 - j)):
                block = shift.clone()
                outer_row = left_out.get(row) if i == 0 else None
                outer_column = left_out.get(column) if j == 0 else None
                if outer_row is not None:
                    block -= moments["edge_rows"][outer_row, j]
                if outer_column is not None:
                    block -= moments["edge_columns"][outer_column, i]
                if outer_row is not None and outer_column is not None:
                    block += moments["corners"][outer_row, outer_column]
                first, second = (row + 1, column + 1), (row + i + 1, column + j + 1)
                blocks[*first, :, *second] = block
                blocks[*second, :, *first] = block.T
    return blocks
