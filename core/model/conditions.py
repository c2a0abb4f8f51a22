"""Several conditions of one model, each with an embedding of its own, added up.

A label is still one number. First come the classes, every combination of the columns'
values in order, as the data set numbers them; then the null label, which leaves all
columns open; then those that leave some open: "this concept, by any house". So whatever
knows labels as numbers works for such a model too.
"""

from itertools import product
from math import prod

import torch
from torch import Tensor, nn


def label_rows(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return for each label the value of every column, its size where left open."""
    rows = list(product(*(range(size + 1) for size in sizes)))
    still_open = [sum(v == s for v, s in zip(row, sizes, strict=True)) for row in rows]
    whole = [row for row, count in zip(rows, still_open, strict=True) if count == 0]
    table = [
        row for row, count in zip(rows, still_open, strict=True) if 0 < count < len(row)
    ]
    return [*whole, tuple(sizes), *table]


def label_of(sizes: tuple[int, ...], values: tuple[int | None, ...]) -> int:
    """Return the label of one value per column, None where it is left open."""
    row = tuple(
        size if value is None else value
        for size, value in zip(sizes, values, strict=True)
    )
    return label_rows(sizes).index(row)


class SummedEmbedding(nn.Module):
    """The sum of an embedding per column, for a UNet of `class_embed_type="identity"`.

    Attributes:
        sizes: Values of each column.
        tables: An embedding per column; its last row is that of a column left open.
        rows: The value of every column of each label, shape (L, columns).
        drops: The label that each becomes by each drop code, shape (L, 2 + columns):
            0 drops nothing, 1 all columns, 2 + k column k alone.
    """

    def __init__(self, sizes: tuple[int, ...], width: int):
        super().__init__()
        self.sizes = tuple(sizes)
        self.tables = nn.ModuleList(nn.Embedding(size + 1, width) for size in sizes)
        rows = label_rows(self.sizes)
        label_of_row = {row: label for label, row in enumerate(rows)}
        drops = [
            [label, self.null_label]
            + [
                label_of_row[row[:k] + (size,) + row[k + 1 :]]
                for k, size in enumerate(self.sizes)
            ]
            for label, row in enumerate(rows)
        ]
        self.register_buffer("rows", torch.tensor(rows), persistent=False)
        self.register_buffer("drops", torch.tensor(drops), persistent=False)

    @property
    def null_label(self) -> int:
        """The label that leaves all columns open."""
        return prod(self.sizes)

    def forward(self, labels: Tensor) -> Tensor:
        """Return the summed embeddings, shape (B, width), of labels (B,)."""
        values = self.rows[labels]
        return sum(table(values[..., k]) for k, table in enumerate(self.tables))

    def dropped(self, labels: Tensor, codes: Tensor) -> Tensor:
        """Return the labels (B,) after dropping what the codes (B,) say."""
        return self.drops[labels, codes.long()]
