"""The way back through a training: what each image's weight did to a measurement.

Reverse-mode differentiation of the recursion of `core.unrolled.step`, exact up to
rounding (MAGIC, Ilyas and Engstrom 2025). States are kept at the beginning of every
segment; a segment is run again before it is gone through backwards. Several
measurements share the forward passes: for each step and measurement it takes one
product of the loss's Hessian with a vector, and the slope of each image's loss along
that vector.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from core.config import TrainConfig
from core.unrolled.step import Losses, Seen, State, gradient, trained, updated


@dataclass(frozen=True)
class Training:
    """A training whose every number is known beforehand.

    Attributes:
        losses: The model, of any weights.
        settings: Of the training.
        seen: Step, counted from 0 -> what it sees.
        kept: Weight of every image, shape (N,): 1, or 0 where it is left out.
    """

    losses: Losses
    settings: TrainConfig
    seen: Callable[[int], Seen]
    kept: Tensor

    def states(self, state: State, first: int, stop: int) -> Iterator[State]:
        """Yield the state before each step of [first, stop), then the one after all."""
        for step in range(first, stop):
            yield state
            seen = self.seen(step)
            state = trained(
                self.losses, state, seen, self.kept[seen.index], step, self.settings
            )
        yield state


@dataclass(frozen=True)
class Slopes:
    """Derivatives of Q measurements, on the way back.

    Attributes:
        state: In the state before a step, vectors (Q, P).
        images: In the weights of the images, of all steps from there on, (Q, N).
    """

    state: State
    images: Tensor


def last_slopes(average: Tensor, num_examples: int) -> Slopes:
    """Return the slopes after the last step.

    Args:
        average: Derivatives of the measurements in the moving average, shape (Q, P).
        num_examples: N.
    """
    zero = torch.zeros_like(average)
    images = average.new_zeros(len(average), num_examples)
    return Slopes(State(zero, zero.clone(), zero.clone(), average), images)


def slopes_before(training: Training, state: State, step: int, after: Slopes) -> Slopes:
    """Return the slopes before a step, given those after it.

    Args:
        training: The training.
        state: Before the step.
        step: Counted from 0.
        after: The slopes after the step.
    """
    seen = training.seen(step)
    with torch.enable_grad():
        weights = state.weights.detach().requires_grad_()
        kept = training.kept[seen.index].detach().requires_grad_()
        computed = gradient(training.losses, weights, seen, kept, again=True)
        leaves = [part.detach().requires_grad_() for part in state.parts()]
        given = computed.detach().requires_grad_()
        new = updated(State(*leaves), given, step, training.settings)
    images = after.images.clone()
    rows = []
    for number, row in enumerate(zip(*after.state.parts(), strict=True)):
        *through, along = torch.autograd.grad(
            new.parts(), [*leaves, given], row, retain_graph=True, allow_unused=True
        )
        curved, sloped = torch.autograd.grad(
            computed, [weights, kept], along, retain_graph=True
        )
        through[0] = through[0] + curved
        images[number].index_add_(0, seen.index, sloped)
        rows.append([
            torch.zeros_like(along) if part is None else part for part in through
        ])
    return Slopes(
        State(*(torch.stack(parts) for parts in zip(*rows, strict=True))), images
    )


def slopes_before_segment(
    training: Training,
    state: State,
    steps: range,
    after: Slopes,
    tell: Callable[[int], None] = lambda step: None,
) -> Slopes:
    """Return the slopes before a segment of steps, running it again first.

    Args:
        training: The training.
        state: Before the first step.
        steps: Of the segment, consecutive.
        after: The slopes after the last step.
        tell: Called with each step that was gone through backwards.
    """
    *before, _ = training.states(state, steps.start, steps.stop)
    for step in reversed(steps):
        after = slopes_before(training, before.pop(), step, after)
        tell(step)
    return after


def scores(images: Tensor) -> Tensor:
    """Return influence scores (Q, N): N times the change when an image's weight is 0.

    To first order; as every score here, a positive one raises the cost when the image
    is left out.
    """
    return -images.shape[1] * images
