"""A curvature to multiply with and to invert: its eigenbasis and eigenvalues.

Eqs. 9 to 12: per layer a Kronecker basis, and one eigenvalue for each coordinate. How
it is fitted is `core.curvature.fit`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.model.parameters import Layout


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


def precondition(
    rotated: Tensor, eigenvalues: Tensor | None = None, damping: float = 0.0
) -> Tensor:
    """Return rotated queries (..., P) over (eigenvalue + damping).

    All that a lens changes is in here: EK-FAC's or K-FAC's eigenvalues and any damping
    rank again by this and one reading of the index. The index is asked with the result
    times `balance`, a sketch with the result times what its vectors were divided by.

    Args:
        rotated: In the eigenbasis, shape (..., P).
        eigenvalues: Shape (P,); None for the plain inner product.
        damping: In the units of the eigenvalues, positive.

    Raises:
        ValueError: If there are eigenvalues and the damping is not positive.
    """
    if eigenvalues is None:
        return rotated
    if not damping > 0:
        raise ValueError(
            f"A damping of {damping} leaves directions without curvature undamped. "
            "Give a positive one, such as a thousandth of the mean eigenvalue."
        )
    return rotated / (eigenvalues + damping)


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
        return self.basis.rotate_back(precondition(rotated, self.eigenvalues, damping))

    def solve_in(self, basis: Eigenbasis, rotated: Tensor, damping: float) -> Tensor:
        """Return what `solve` does of vectors in another eigenbasis, in that basis.

        K-FAC or EK-FAC of another GGN, or with reduce in place of expand (App. C and
        D): the inner product of the result with training gradients in the same basis is
        Eq. 6 under this curvature.
        """
        return basis.rotate(self.solve(basis.rotate_back(rotated), damping))


def factor_eigenvalues(layout: Layout, eigenvalues: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of both factors, whose products are K-FAC's.

    A layer's K-FAC eigenvalues are a matrix of rank one: its largest column, and its
    largest row over their common entry, say all of it in a hundredth of the room.

    Args:
        layout: The layers, in flattening order.
        eigenvalues: K-FAC's, shape (P,).

    Returns:
        Concatenated over layers: (sum of D_out,) and (sum of D_in,).
    """
    columns, rows = [], []
    for matrix in layout.split(eigenvalues):
        place = int(matrix.argmax())
        row, column = divmod(place, matrix.shape[1])
        top = matrix[row, column]
        columns.append(matrix[:, column])
        rows.append(matrix[row] / (top if top > 0 else 1))
    return torch.cat(columns), torch.cat(rows)


def kfac_eigenvalues(layout: Layout, columns: Tensor, rows: Tensor) -> Tensor:
    """Return K-FAC's eigenvalues, shape (P,), from what `factor_eigenvalues` gave."""
    per_layer = zip(
        columns.split([layer.d_out for layer in layout.layers]),
        rows.split([layer.d_in for layer in layout.layers]),
        strict=True,
    )
    return layout.join([torch.outer(column, row) for column, row in per_layer])


def eigenvectors(basis: Eigenbasis) -> dict[str, Tensor]:
    """Return an eigenbasis as `eigenbasis_from` reads it, in half precision.

    That is what a collection ships, so all is computed with it.
    """
    sides = {"input": basis.input_eigenvectors, "gradient": basis.gradient_eigenvectors}
    return {
        f"{side}.{i}": vectors.half()
        for side, layers in sides.items()
        for i, vectors in enumerate(layers)
    }


def eigenbasis_from(tensors: dict[str, Tensor], layout: Layout) -> Eigenbasis:
    """Return the eigenbasis in float32 from a file's `input.i` and `gradient.i`."""
    numbers = range(len(layout.layers))
    return Eigenbasis(
        layout,
        tuple(tensors[f"input.{i}"].float() for i in numbers),
        tuple(tensors[f"gradient.{i}"].float() for i in numbers),
    )
