"""The rotated gradient of a query: the part of Eq. 6 that is computed when asked."""

from collections.abc import Callable

from torch import Tensor

from core.curvature import Eigenbasis
from core.diffusion import Denoiser
from core.draws import Draws, keyed_generator, make_draws
from core.gradients import fold_gradients
from core.measurements import MEASUREMENTS

QUERY_FOLDS = 4  # parts of the draws, for the query's share of the standard error


def query_draws(denoiser: Denoiser, num_draws: int, seed: int) -> Draws:
    """Return the draws that every query of a collection shares.

    They differ from the training gradients' draws; the label is never dropped, because
    the question is about the picture with its label.
    """
    return make_draws(
        num_draws,
        denoiser.shape,
        denoiser.num_train_timesteps,
        keyed_generator(seed, "query draws", num_draws),
        num_folds=QUERY_FOLDS,
    )


def rotated_query(
    denoiser: Denoiser,
    basis: Eigenbasis,
    measurement: str,
    x_0: Tensor,
    label: int | None,
    num_draws: int,
    seed: int,
    on_fold: Callable[[int, int], None] | None = None,
) -> tuple[Tensor, float]:
    """Return the query gradient in the eigenbasis, per fold, and the measured value.

    Args:
        denoiser: The model.
        basis: The Kronecker eigenbasis, on the model's device.
        measurement: A key of `MEASUREMENTS`.
        x_0: Clean example, shape (C, H, W).
        label: Class index, or None.
        num_draws: Monte Carlo draws, a multiple of `QUERY_FOLDS`.
        seed: The collection's seed.
        on_fold: Called with (folds done, folds in all); may raise to stop.

    Returns:
        Shape (QUERY_FOLDS, P), float32, and the mean cost.

    Raises:
        ValueError: If the measurement is unknown; the message lists those there are.
    """
    if measurement not in MEASUREMENTS:
        raise ValueError(
            f"There is no measurement '{measurement}'. "
            f"Choose one of {', '.join(MEASUREMENTS)}."
        )
    draws = query_draws(denoiser, num_draws, seed).to(denoiser.device)
    gradients, costs = fold_gradients(
        MEASUREMENTS[measurement],
        denoiser,
        basis.layout,
        x_0.to(denoiser.device),
        label,
        draws,
        QUERY_FOLDS,
        on_fold=on_fold,
    )
    return basis.rotate(gradients), float(costs.mean())
