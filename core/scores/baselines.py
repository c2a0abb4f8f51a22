"""The methods that influence is compared with, each from its own paper.

Pure functions from query and training numbers to scores (Q, N). One sign convention:
positive where removing the training example raises the measured cost of the query.
Gradients are in the main Kronecker eigenbasis, a rotation, so that projections, norms
and inner products are those of the plain gradients, and one file of features serves
every query. A projection is unbiased for inner products: `core.index.projection`.

Which function serves which method, and what it needs, says `core.methods`.

Dampings are those of the mean loss, as in the paper's App. J.5: what the TRAK code
calls lambda is N times larger.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from core.model.parameters import Layout

# A multiple of the mean eigenvalue. The paper's 1e-9 fails for TRAK and D-TRAK, whose
# Fisher has low rank; it sweeps for the best value of each benchmark (App. J.5).
TRAK_RELATIVE_DAMPING = 1e-1
DATAINF_DIVISOR = 10.0  # Kwon et al. 2024: damping = mean squared gradient / 10


def cosine_scores(
    products: np.ndarray, query_norms: np.ndarray, norms: np.ndarray
) -> np.ndarray:
    """Return cosines between gradients (Q, N), from products and true lengths.

    Charpiat et al. 2019. From projected gradients they are estimates with a standard
    error of about 1 / sqrt(k), and an image's own may exceed 1 by as much.

    A score says how alike the directions are in which the two images push the model:
    1 the same, 0 unrelated, -1 opposite.

    Args:
        products: Inner products, shape (Q, N).
        query_norms: Shape (Q,).
        norms: Shape (N,).
    """
    return relative(relative(products, norms).T, query_norms).T


def relative(values: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Return values (..., N) over norms (N,); 0 where a norm is: no gradient at all."""
    return np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)


def mean_eigenvalue(features: Tensor) -> float:
    """Return the mean of those eigenvalues of Phi^T Phi / N that are not zero by rank.

    With more features than examples the others are zero however large the gradients,
    and a mean over all would fall with every feature more: on Fashion-2 a tenth of it
    ranks with LDS 0.10 at 32,768 features, a tenth of this with 0.15.

    Summed by numpy in float64: the order of torch's sums depends on its threads, and
    the evidence names this number to the last digit.
    """
    values = features.cpu().numpy()
    total = np.einsum("nk,nk->", values, values, dtype=np.float64)
    return float(total / (len(values) * min(values.shape)))


def trak_damping(features: Tensor) -> float:
    """Return TRAK's damping: a multiple of the projected Fisher's mean eigenvalue.

    In the normalisation of the mean loss (App. J.5); times N it is the lambda of the
    TRAK and D-TRAK codes.
    """
    return TRAK_RELATIVE_DAMPING * mean_eigenvalue(features)


def fisher_products(query: Tensor, features: Tensor, damping: float) -> Tensor:
    """Return phi_q^T (Phi^T Phi / N + damping I)^-1 phi_j, shape (Q, N).

    Solved in the smaller of the two spaces, of the k features or of the N examples, in
    the floating point type of the features; float32 at least, for half precision
    degrades TRAK (App. J.4). Where rounding leaves no inverse, because the damping is
    tiny beside the largest eigenvalue, in float64.

    Args:
        query: Features of the queries, shape (Q, k).
        features: Features of the training examples, shape (N, k).
        damping: Of the mean loss, positive.

    Raises:
        ValueError: If the damping is not positive or too small for any inverse, or the
            features are in half precision.
    """
    if not damping > 0:
        raise ValueError(
            f"A damping of {damping} leaves the projected Fisher without an inverse. "
            "Give a positive one."
        )
    if torch.finfo(features.dtype).bits < 32:
        raise ValueError(
            f"Features of type {features.dtype} are too coarse for an inverse. "
            "Convert them to float32."
        )
    return _where_it_inverts(_fisher_products, query, features, damping=damping)


def _where_it_inverts(solve: Callable[..., Tensor], *tensors, damping: float) -> Tensor:
    """Return `solve(*tensors, damping)`, in float64 if rounding leaves no inverse."""
    try:
        return solve(*tensors, damping)
    except torch.linalg.LinAlgError:
        wide = [values.double() for values in tensors]
    try:
        return solve(*wide, damping).to(tensors[0].dtype)
    except torch.linalg.LinAlgError:
        raise ValueError(
            f"A damping of {damping:.3g} is too small to invert the projected Fisher. "
            "Choose a larger one."
        ) from None


def _fisher_products(query: Tensor, features: Tensor, damping: float) -> Tensor:
    num_examples, dim = features.shape
    if dim <= num_examples:
        gram, right = features.T @ features / num_examples, features.T
        return query @ _solve(gram, damping, right)
    gram = features @ features.T / num_examples
    return _solve(gram, damping, features @ query.T).T


def _solve(gram: Tensor, damping: float, right: Tensor) -> Tensor:
    """Return (gram + damping I)^-1 right; the matrix `gram` is overwritten."""
    gram.diagonal().add_(damping)
    return torch.cholesky_solve(right, torch.linalg.cholesky(gram))


def das_scores(
    query: Tensor, features: Tensor, residuals: Tensor, damping: float
) -> Tensor:
    """Return diffusion attribution scores (Q, N), never negative.

    Lin et al. 2024, "Diffusion Attribution Score: Evaluating Training Data Influence in
    Diffusion Models" (arXiv 2410.18639): the squared change of the predicted noise when
    the example is left out, by one Newton step in a linearised model,
    (phi_q^T (Phi^T Phi + N damping I)^-1 phi_j r_j / (1 - h_j))^2 with leverage h_j =
    phi_j^T (Phi^T Phi + N damping I)^-1 phi_j, which is the leave-one-out formula of
    ridge regression.

    Verified: abstract, summaries and the authors' code (Jinxu-Lin/DAS), of which this
    is the variant with leverages, squared. Not verified: the wording of the published
    equation, whose text was not at hand. Other than in the code, leverages are the
    training examples' own, taken to the first power as in ridge regression, and r_j is
    the plain root mean square error of the predicted noise. As in the code, one number
    stands for the whole output: the sum of the sizes of its entries.

    A score says how far the model's prediction for the query would move without the
    example, in whatever direction; the order counts, not the size.

    Args:
        query: Projected gradients of the output, shape (Q, k).
        features: Those of the training examples, shape (N, k).
        residuals: r_j, shape (N,).
        damping: Of the mean loss.
    """
    num_examples = len(features)
    products = fisher_products(query, features, damping) / num_examples
    leverages = leverage(features, damping)
    return (products * residuals / (1 - leverages)).square()


def leverage(features: Tensor, damping: float) -> Tensor:
    """Return phi_j^T (Phi^T Phi + N damping I)^-1 phi_j, below 1, shape (N,).

    Args:
        features: Shape (N, k).
        damping: Of the mean loss; one too small for any inverse raises a ValueError.
    """
    return _where_it_inverts(_leverage, features, damping=damping)


def _leverage(features: Tensor, damping: float) -> Tensor:
    num_examples, dim = features.shape
    if dim <= num_examples:
        gram = features.T @ features / num_examples
        gram.diagonal().add_(damping)
        factor = torch.linalg.cholesky(gram)
        whitened = torch.linalg.solve_triangular(factor, features.T, upper=False)
        return whitened.square().sum(0) / num_examples
    # 1 - h is the diagonal of N damping (Phi Phi^T + N damping I)^-1.
    gram = features @ features.T / num_examples
    gram.diagonal().add_(damping)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    return 1 - damping * inverse.diagonal()


def datainf_damping(layer_squares: Tensor, layout: Layout) -> Tensor:
    """Return DataInf's damping of every layer: mean squared gradient over ten, (L,).

    Args:
        layer_squares: Squared length of every layer's gradient, shape (N, L).
        layout: The layers.
    """
    sizes = layer_squares.new_tensor([layer.size for layer in layout.layers])
    return layer_squares.mean(0) / sizes / DATAINF_DIVISOR


def datainf_mixing(gram: Tensor, squares: Tensor, damping: Tensor) -> Tensor:
    """Return M (N, N): row j of M G is the layer's damped inverse times gradient j.

    The closed form of Kwon et al. 2024, Eq. 5: the inverse of a mean is taken for the
    mean of inverses, each of one outer product by Sherman and Morrison, so that
    H^-1 v = 1 / (N d) sum_i (v - (g_i^T v) g_i / (d + |g_i|^2)).

    Args:
        gram: Inner products of the layer's gradients G, shape (N, N).
        squares: Their squared lengths, shape (N,).
        damping: d, a scalar.
    """
    num_examples = len(gram)
    mixing = -gram / (num_examples * (damping + squares))
    mixing.diagonal().add_(1)
    return mixing / damping


def per_coordinate(values: Tensor, layout: Layout) -> Tensor:
    """Return values of layers (L,) repeated for every coordinate, shape (P,)."""
    sizes = torch.tensor([layer.size for layer in layout.layers])
    return values.repeat_interleave(sizes.to(values.device))


def pixel_similarity(query: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Return how near images are, pixel by pixel (Q, N), 1 where they are the same.

    One minus half the root mean square difference of pixels in [-1, 1], so that the
    order is that of Euclidean nearest neighbours: the raw pixel baseline.

    A score says how alike the two images are, not what caused the query.

    Args:
        query: Images in uint8, shape (Q, C, H, W).
        pixels: Those of the training set, uint8, shape (N, C, H, W).
    """
    flat = pixels.reshape(len(pixels), -1).astype(np.float32) / 127.5 - 1
    rows = query.reshape(len(query), -1).astype(np.float32) / 127.5 - 1
    distances = [np.sqrt(np.square(flat - row).mean(1)) for row in rows]
    return 1 - np.stack(distances) / 2


def latent_similarity(query: np.ndarray, x_0: np.ndarray) -> np.ndarray:
    """Return the cosine between clean examples as the model sees them, shape (Q, N).

    For a latent model these are latents; for a pixel model pixels in [-1, 1].

    A score says how alike the two images are in the model's own code, not what caused
    the query: 1 the same direction, 0 unrelated.

    Args:
        query: Clean examples, shape (Q, C, H, W).
        x_0: Those of the training set, shape (N, C, H, W).
    """
    rows = query.reshape(len(query), -1).astype(np.float64)
    others = x_0.reshape(len(x_0), -1).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1), np.linalg.norm(others, axis=1)
    return cosine_scores(rows @ others.T, *norms)
