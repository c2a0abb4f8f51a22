"""Bands of timesteps: where their edges lie, and tables of what each contributes."""

import numpy as np
import pandas as pd


def band_edges(timesteps: tuple[int, int], num_bands: int) -> tuple[int, ...]:
    """Return the bounds of bands of equal width, as near as whole numbers allow."""
    start, stop = timesteps
    return tuple(
        start + number * (stop - start) // num_bands for number in range(num_bands + 1)
    )


def band_table(
    timesteps: np.ndarray,
    costs: np.ndarray,
    weights: np.ndarray,
    edges: tuple[int, ...],
) -> pd.DataFrame:
    """Return the mean cost in bands of timesteps, with its standard error.

    Draws come in pairs of opposite noise at one timestep, which are one estimate
    together. The weights undo that some timesteps of a band are drawn more often.

    Args:
        timesteps: Shape (S,), each twice in a row.
        costs: Shape (S,).
        weights: Shape (S,).
        edges: Bounds of the bands.
    """
    bands = np.digitize(timesteps[::2], edges) - 1
    pairs = costs.reshape(-1, 2).mean(1).astype(np.float64)
    rows = []
    for band in np.unique(bands):
        cost, weight = pairs[bands == band], weights[::2][bands == band]
        mean, count = np.average(cost, weights=weight), len(cost)
        squares = (weight**2 * (cost - mean) ** 2).sum()
        one = count == 1  # a single estimate has no spread
        error = np.nan if one else np.sqrt(squares * count / (count - 1)) / weight.sum()
        rows.append((edges[band], edges[band + 1], mean, error))
    columns = ["timestep_low", "timestep_high", "cost", "standard_error"]
    return pd.DataFrame(rows, columns=columns)


def step_table(timesteps: np.ndarray, costs: np.ndarray) -> pd.DataFrame:
    """Return the cost of every sampling step, from the last timestep to the first.

    Args:
        timesteps: Of the steps, descending, shape (S,).
        costs: Shape (S,).
    """
    stride = timesteps[-2] - timesteps[-1] if len(timesteps) > 1 else timesteps[-1]
    previous = np.append(timesteps[1:], timesteps[-1] - stride)
    return pd.DataFrame({
        "timestep_low": previous[::-1] + 1,
        "timestep_high": timesteps[::-1] + 1,
        "cost": costs[::-1].astype(np.float64),
        "standard_error": np.nan,
    })
