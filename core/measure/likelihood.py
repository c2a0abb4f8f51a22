"""The log-probability of an image under the probability-flow ODE: its value only.

Song et al. (2021), as in the paper's appendix: the deterministic sampler is a
continuous flow, so the density it gives an image is that of the noise the image
flows to, times the change of volume on the way. The trace that this needs is
Hutchinson's estimate. Taking a gradient would mean differentiating the solver, so
influence is asked of the other measurements.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from core.measure.draws import keyed_generator
from core.model.denoiser import Denoiser
from core.model.sampling import Subject

TOLERANCE = 1e-5  # relative and absolute, as in the paper's code
NUM_DRAWS = 5  # dequantised copies, as in the paper's appendix
BIN = 2 / 255  # width of an 8-bit value in [-1, 1]


def log_probability(
    denoiser: Denoiser,
    subject: Subject,
    seed: int,
    num_draws: int = NUM_DRAWS,
    tolerance: float = TOLERANCE,
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[float, float]:
    """Return log p(x_0) of the flow in nats, and its Monte Carlo standard error.

    Larger is more probable: unlike the measurements with gradients this is not a cost.

    The flow starts at the noise of timestep 0, whose density it gives, because the
    model was trained on nothing cleaner; it ends at the last timestep, as a standard
    normal. For a pixel model every draw adds other uniform noise of one 8-bit step to
    the image, and the result is a lower bound of the probability of the stored
    image. For a latent model it is a density of the latents, of either sign.

    Args:
        denoiser: The model.
        subject: The image and its label. How it was sampled does not matter.
        seed: The collection's seed.
        num_draws: Draws of dequantisation and of the trace's random signs, solved
            together; at least 2 for a standard error.
        tolerance: Of the solver, relative and absolute.
        on_step: Called with (per cent of the way, 100); may raise to stop.

    Raises:
        ValueError: If the noise schedule has no finite end.
    """
    levels = noise_levels(denoiser)
    if not np.isfinite(levels).all():
        raise ValueError(
            "The noise schedule of this model ends in pure noise or starts without "
            "any, where the flow is not defined. Ask for the ELBO instead."
        )
    generator = keyed_generator(seed, "log-probability", num_draws)
    x_0, constant = _copies(denoiser, subject.x_0, num_draws, generator)
    signs = torch.randint(2, x_0.shape, generator=generator) * 2 - 1
    alpha = float(denoiser.alphas_cumprod[0])
    start = alpha**0.5 * x_0
    end, growth = _flow(
        denoiser, subject.label, start, signs, levels, tolerance, on_step
    )
    size = x_0[0].numel()
    normal = -(end.square().sum((1, 2, 3)) + size * np.log(2 * np.pi)) / 2
    values = normal + growth + size / 2 * np.log(alpha) + constant
    return float(values.mean()), float(values.std() / num_draws**0.5)


def probability_cost(
    denoiser: Denoiser,
    subject: Subject,
    seed: int,
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[float, float]:
    """Return -log p(x_0) in nats, a cost as all that is measured, and its error."""
    value, error = log_probability(denoiser, subject, seed, on_step=on_step)
    return -value, error


def noise_levels(denoiser: Denoiser) -> np.ndarray:
    """Return log(noise / signal) of every timestep, ascending, shape (T,)."""
    alphas = denoiser.alphas_cumprod.double().cpu().numpy()
    with np.errstate(divide="ignore"):
        return np.log((1 - alphas) / alphas) / 2


def _copies(
    denoiser: Denoiser, x_0: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, float]:
    """Return dequantised copies, float64, and the log of the volume of a value."""
    copies = x_0.cpu().double().expand(count, *x_0.shape)
    if denoiser.autoencoder is not None:
        return copies, 0.0
    uniform = torch.rand(copies.shape, generator=generator, dtype=torch.float64)
    rounded = ((copies + 1) / BIN).round() * BIN - 1
    return rounded + BIN * (uniform - 0.5), x_0.numel() * float(np.log(BIN))


def _flow(
    denoiser: Denoiser,
    label: int | None,
    start: Tensor,
    signs: Tensor,
    levels: np.ndarray,
    tolerance: float,
    on_step: Callable[[int, int], None] | None,
) -> tuple[Tensor, Tensor]:
    """Return where the flow ends, (B, C, H, W), and the log of its growth, (B,).

    Time is the noise level s = log(noise / signal), in which the probability-flow ODE
    is dx/ds = sigma (predicted noise - sigma x), with sigma^2 = 1 - cumulative alpha.
    The model is asked at the timestep that has the level, interpolated linearly
    between the discrete ones.
    """
    count, device, dtype = len(start), denoiser.device, denoiser.alphas_cumprod.dtype
    signs, labels = signs.to(device, dtype), denoiser.labels(label, count)
    timesteps, size = np.arange(len(levels)), start[0].numel()

    def derivative(level: float, state: np.ndarray) -> np.ndarray:
        if on_step is not None:
            way = (level - levels[0]) / (levels[-1] - levels[0])
            on_step(int(100 * way), 100)
        x_t = torch.from_numpy(state[: count * size]).view(start.shape)
        x_t = x_t.to(device, dtype).requires_grad_()
        timestep = torch.full((count,), np.interp(level, levels, timesteps))
        alpha = torch.tensor(1 / (1 + np.exp(2 * level)), dtype=dtype, device=device)
        with torch.enable_grad():
            output = denoiser.predict(x_t, timestep.to(device, dtype), labels)
            _, noise = denoiser.clean_and_noise(output, x_t, alpha)
            products = torch.autograd.grad((noise * signs).sum(), x_t)[0]
        sigma = (1 - alpha).sqrt()
        velocity = sigma * (noise.detach() - sigma * x_t.detach())
        trace = (products * signs).sum((1, 2, 3))
        growth = sigma * (trace - sigma * size)
        return torch.cat([velocity.flatten(), growth]).double().cpu().numpy()

    state = np.concatenate([start.flatten().numpy(), np.zeros(count)])
    from scipy.integrate import solve_ivp  # slow to load; few ask for the probability

    span = (levels[0], levels[-1])
    solved = solve_ivp(
        derivative, span, state, method="RK45", rtol=tolerance, atol=tolerance
    )
    end = torch.from_numpy(solved.y[:, -1])
    return end[: count * size].view(start.shape), end[count * size :]
