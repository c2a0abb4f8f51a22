"""One step of training as a function: AdamW, warm-up, cosine decay, clipping, EMA.

The state is four flat vectors, so that the whole training is a recursion

    state_{k+1} = step(state_k, g(state_k, w), k),

g being the gradient of sum_i w_i loss_i / B, in the weights w of the images: 1 for
every image that takes part. Its derivative in w says what leaving an image out does.

In exact arithmetic the step is that of `torch.optim.AdamW`, `clip_grad_norm_`,
diffusers' cosine schedule and `EMAModel` (App. J.8), but for `train.root_epsilon`: with
it Adam divides by sqrt(v + root_epsilon) in place of sqrt(v) + 1e-8, whose slope is
unbounded where a second moment v is near zero.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from core.config import TrainConfig
from core.model.denoiser import Denoiser

BETAS = (0.9, 0.999)
OUTSIDE = 1e-8  # added to the root, without `root_epsilon`
EMA_POWER = 0.75


@dataclass(frozen=True)
class State:
    """What training goes on from: flat vectors of shape (P,), or (Q, P) of derivatives.

    Attributes:
        weights: Of the model, all parameters one after the other.
        first: Adam's mean of gradients.
        second: Adam's mean of squared gradients.
        average: The moving average of the weights, which is what is kept in the end.
    """

    weights: Tensor
    first: Tensor
    second: Tensor
    average: Tensor

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the four vectors."""
        return self.weights, self.first, self.second, self.average


@dataclass(frozen=True)
class Seen:
    """What one step sees of the training set.

    Attributes:
        index: Positions of the images, shape (B,).
        clean: Their x_0, mirrored where the step does so, shape (B, C, H, W).
        noise: Shape (B, C, H, W).
        timesteps: Shape (B,).
        labels: Shape (B,), dropped where the step does so; None without classes.
        size: What the sum of the losses is divided by: batch size times C H W.
    """

    index: Tensor
    clean: Tensor
    noise: Tensor
    timesteps: Tensor
    labels: Tensor | None
    size: int


class Losses(nn.Module):
    """A denoiser whose forward pass is its losses, with weights given from outside."""

    def __init__(self, denoiser: Denoiser):
        super().__init__()
        self.denoiser = denoiser
        named = dict(denoiser.unet.named_parameters(prefix="denoiser.unet"))
        self.names, self.shapes = list(named), [value.shape for value in named.values()]

    def forward(self, *arguments: Tensor | None) -> Tensor:
        """Return `Denoiser.losses`."""
        return self.denoiser.losses(*arguments)

    def at(self, weights: Tensor, seen: Seen) -> Tensor:
        """Return the losses (B,) of what a step sees, at flat weights (P,)."""
        parts = weights.split([shape.numel() for shape in self.shapes])
        given = {
            name: part.view(shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }
        arguments = (seen.clean, seen.noise, seen.timesteps, seen.labels)
        with sdpa_kernel(SDPBackend.MATH):  # the only one with second derivatives
            return functional_call(self, given, arguments)


def first_state(denoiser: Denoiser) -> State:
    """Return the state before the first step, the moving average being the weights."""
    parts = [value.detach().flatten() for value in denoiser.unet.parameters()]
    weights = torch.cat(parts)
    zero = torch.zeros_like(weights)
    return State(weights, zero, zero.clone(), weights.clone())


def gradient(
    losses: Losses, weights: Tensor, seen: Seen, kept: Tensor, again: bool = False
) -> Tensor:
    """Return the gradient (P,) of what a step minimises.

    Args:
        losses: The model.
        weights: Shape (P,), requiring a gradient.
        seen: What the step sees.
        kept: Weight of each image in the batch, shape (B,): 0 where it is left out.
        again: Whether it is to be differentiated, in the weights and in `kept`.
    """
    loss = (kept * losses.at(weights, seen)).sum() / seen.size
    return torch.autograd.grad(loss, weights, create_graph=again)[0]


def learning_rate(step: int, settings: TrainConfig) -> float:
    """Return the learning rate of a step, counted from 0."""
    if step < settings.warmup_steps:
        return settings.learning_rate * step / max(1, settings.warmup_steps)
    whole = max(1, settings.num_steps - settings.warmup_steps)
    done = (step - settings.warmup_steps) / whole
    return settings.learning_rate * max(0.0, 0.5 * (1 + math.cos(math.pi * done)))


def ema_decay(step: int, settings: TrainConfig) -> float:
    """Return how much of the moving average a step, counted from 0, keeps."""
    if step == 0:
        return 0.0
    return min(1 - (1 + step) ** -EMA_POWER, settings.ema_decay)


def updated(state: State, gradient: Tensor, step: int, settings: TrainConfig) -> State:
    """Return the state after a step, a differentiable function of state and gradient.

    Args:
        state: Before the step.
        gradient: Shape (P,).
        step: Counted from 0.
        settings: Of the training.
    """
    rate = learning_rate(step, settings)
    # The slope of a norm is not defined at zero, where nothing is shortened.
    norm = gradient.square().sum().clamp(min=1e-30).sqrt()
    gradient = gradient * (settings.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
    beta_1, beta_2 = BETAS
    first = beta_1 * state.first + (1 - beta_1) * gradient
    second = beta_2 * state.second + (1 - beta_2) * gradient.square()
    mean = first / (1 - beta_1 ** (step + 1))
    square = second / (1 - beta_2 ** (step + 1))
    if settings.root_epsilon:
        root = (square + settings.root_epsilon).sqrt()
    else:
        root = square.clamp(min=1e-30).sqrt() + OUTSIDE
    weights = state.weights * (1 - rate * settings.weight_decay) - rate * mean / root
    keep = ema_decay(step, settings)
    average = keep * state.average + (1 - keep) * weights
    return State(weights, first, second, average)


def trained(
    losses: Losses,
    state: State,
    seen: Seen,
    kept: Tensor,
    step: int,
    settings: TrainConfig,
) -> State:
    """Return the state after a step of training, detached from what came before.

    Args:
        losses: The model.
        state: Before the step.
        seen: What the step sees.
        kept: Weight of each image in the batch, shape (B,).
        step: Counted from 0.
        settings: Of the training.
    """
    weights = state.weights.detach().requires_grad_()
    with torch.enable_grad():
        given = gradient(losses, weights, seen, kept)
    with torch.no_grad():
        return updated(state, given, step, settings)
