"""The slope of a measurement in all weights, from which the way back sets out."""

from pkgutil import resolve_name

import torch
from torch import Tensor

from core.engine.query import Question, query_draws
from core.model.denoiser import Denoiser


@torch.enable_grad()
def weight_slopes(denoiser: Denoiser, question: Question) -> Tensor:
    """Return the gradient (P,) of a question's value in every weight of the UNet.

    Training moves all of them, not only the layers that curvature knows. The draws are
    those by which retrained models are measured.

    Args:
        denoiser: The trained model.
        question: About all timesteps.

    Raises:
        ValueError: If the measurement is not a mean over draws.
    """
    facts = question.measurement
    if facts.over != "draws":
        raise ValueError(
            f"{facts.title} cannot be followed back through the training. Ask about "
            "the training loss or the ELBO."
        )
    draws = query_draws(denoiser, question.num_draws, question.seed, facts)
    costs, subject = resolve_name(facts.costs), question.subject
    x_0, total = subject.x_0.to(denoiser.device), 0.0
    for part in draws.to(denoiser.device).split(denoiser.most_at_once):
        cost = part.weights * costs(denoiser, x_0, subject.label, part)
        parts = torch.autograd.grad(
            cost.sum() / len(draws), list(denoiser.unet.parameters())
        )
        total = total + torch.cat([one.flatten() for one in parts])
    return total
