"""Train by a step that can be differentiated (`train.root_epsilon`); resumable.

The step is that of `core.unrolled`, so that the way back through a training goes
through what was really done.
"""

import time

import torch
from torch.nn.utils import vector_to_parameters

from core.unrolled.reverse import Training
from core.unrolled.step import State, first_state
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import Workspace

NAMES = ("weights", "first", "second", "average")


def tensors_of(state: State) -> dict[str, torch.Tensor]:
    """Return a state as named tensors, for a file."""
    return dict(zip(NAMES, state.parts(), strict=True))


def state_of(tensors: dict[str, torch.Tensor], device: torch.device | str) -> State:
    """Return the state that a file holds."""
    return State(*(tensors[name].to(device) for name in NAMES))


def train_smoothly(training: Training, workspace: Workspace) -> float:
    """Train, leave the moving average in the model, and return the seconds it took."""
    settings, denoiser = training.settings, training.losses.denoiser
    saved = workspace.load("train", "checkpoint")
    state, start, before = first_state(denoiser), 0, 0.0
    if saved is not None:
        tensors, facts = saved
        state = state_of(tensors, denoiser.device)
        start, before = facts["step"], facts["seconds"]
    started = time.time() - before
    steps = training.states(state, start, settings.num_steps)
    total = settings.num_steps
    for step in Bar(range(start, total), "train", total, initial=start):
        state = next(steps)
        if step % settings.checkpoint_every == 0 and step > start:
            seconds = time.time() - started
            workspace.save(
                "train", "checkpoint", tensors_of(state), step=step, seconds=seconds
            )
    vector_to_parameters(next(steps).average, denoiser.unet.parameters())
    return time.time() - started
