"""Noise levels in words, and bars over them that one spike does not flatten."""

import numpy as np

# What a model decides at each third of the noise levels, from the noisiest.
STAGES = (
    ("Structure", "the model decides what goes where"),
    ("In between", "shapes and colours settle"),
    ("Detail", "edges and texture are finished"),
)


def stage_of(timestep: float, num_timesteps: int) -> tuple[str, str]:
    """Return what is decided at a noise level: its name, and in words.

    Args:
        timestep: Of the level, from 0 (no noise).
        num_timesteps: T, how many levels there are.
    """
    third = int(3 * timestep / num_timesteps)
    return STAGES[len(STAGES) - 1 - min(third, len(STAGES) - 1)]


def signed_roots(values: np.ndarray) -> np.ndarray:
    """Return square roots with the values' signs, the largest of size 1, any shape."""
    largest = np.abs(values).max(initial=0.0)
    if largest == 0:
        return np.zeros_like(values)
    return np.sign(values) * np.sqrt(np.abs(values) / largest)
