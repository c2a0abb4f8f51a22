"""What is measured of an image: a cost, in squared errors or in nats.

All measurements are costs, so that a positive influence always reads "removing it
raises the cost". The loss, the noise loss and the negative ELBO are means over
timesteps and noise, estimated from draws: each is a function that returns one cost per
draw. The trajectory's is a sum over the steps that made the image, without Monte
Carlo error. Holds the terms of Ho et al. (2020), eq. 5. Knows nothing about gradients.
"""

from pkgutil import resolve_name

import torch
from torch import Tensor

from core.measure.draws import Draws
from core.measurements import MEASUREMENTS
from core.model.denoiser import Denoiser

PIXEL = 1 / 255  # half of the distance between neighbouring 8-bit values in [-1, 1]


def loss(
    denoiser: Denoiser,
    x_0: Tensor,
    label: int | None,
    draws: Draws,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the training loss of one example at every draw.

    Its mean is the loss of the display after Eq. 2, in the prediction the model was
    trained with: squared errors summed over C, H, W.

    Args:
        denoiser: The model.
        x_0: Clean example, shape (C, H, W). It is mirrored as stored where `draws.flip`
            says so, which is exact for pixels; latent models are trained without flips.
        label: Class index; None means no label.
        draws: S draws, on the device of the model.
        mask: Which summands count, boolean, shape (H, W); None means all.

    Returns:
        Costs, shape (S,).
    """
    errors = denoiser.errors(*noising(denoiser, x_0, label, draws))
    return masked_total(errors.square(), mask)


def noise_loss(
    denoiser: Denoiser,
    x_0: Tensor,
    label: int | None,
    draws: Draws,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the squared error of the predicted noise (Eq. 2) at every draw, (S,).

    The paper's loss for any model. It differs from `loss` for one that was trained to
    predict another target, by a factor that depends on the timestep alone. The
    arguments are those of `loss`.
    """
    errors = denoiser.noise_errors(*noising(denoiser, x_0, label, draws))
    return masked_total(errors.square(), mask)


def elbo(
    denoiser: Denoiser,
    x_0: Tensor,
    label: int | None,
    draws: Draws,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the terms of the negative ELBO at every draw, in nats, shape (S,).

    Ho et al. (2020), eq. 5: their mean over all timesteps and noise, plus
    `elbo_constant`, is the bound itself, an upper bound of -log p(x_0). A term is T
    times the one of the draw's timestep, without what no parameter changes: estimated
    from draws, that constant would drown the rest, thousands of nats in one timestep.

    The reverse process has the large variance, beta_t, as in the paper's code: the
    small one is that of a single known image, and a model that is unsure between
    images pays for it at every step. Its predictions are not clipped, though sampling
    may clip them: then each term is the noise loss times `elbo_weights`, and no
    gradient is cut off.

    The last step, to x_0, is a distribution over 8-bit values for a pixel model, so the
    bound is that of the probability of the image as it is stored; x_0 is rounded to
    the values. The paper's code cuts these probabilities at 1e-12; here they are exact
    in the tails. For a latent model it is a normal density, the continuous limit:
    latents lie on no grid, so the bound is that of a density of the latents and may be
    of either sign.

    The arguments are those of `loss`.
    """
    arguments = noising(denoiser, _stored(denoiser, x_0), label, draws)
    errors = denoiser.noise_errors(*arguments)
    weights = elbo_weights(denoiser).to(errors)[draws.timesteps, None, None, None]
    terms = weights * errors.square()
    last = (draws.timesteps == 0).nonzero()[:, 0]
    if denoiser.autoencoder is None and len(last):
        cost = last_step_cost(denoiser, arguments[0][last], errors[last])
        cost = cost - elbo_constants(denoiser)[0].to(cost)
        terms = terms.index_copy(0, last, cost)
    return masked_total(denoiser.num_train_timesteps * terms, mask)


def elbo_constant(denoiser: Denoiser, x_0: Tensor, mask: Tensor | None = None) -> float:
    """Return what the negative ELBO adds to the mean of its terms, in nats.

    The prior's divergence and `elbo_constants`, over the entries that the mask keeps;
    none depends on a parameter. In a range of timesteps it counts in proportion to the
    number of timesteps.
    """
    alpha = denoiser.alphas_cumprod[-1].double()
    clean = _stored(denoiser, x_0).double()
    prior = (alpha * (clean.square() - 1) - (1 - alpha).log()) / 2
    return float(masked_total((prior + elbo_constants(denoiser).sum())[None], mask))


def _stored(denoiser: Denoiser, x_0: Tensor) -> Tensor:
    """Return the 8-bit values of a pixel model's image; latents as they are."""
    if denoiser.autoencoder is not None:
        return x_0
    return (((x_0 + 1) * 127.5).round() / 127.5 - 1).clamp(-1, 1)


def noising(
    denoiser: Denoiser, x_0: Tensor, label: int | None, draws: Draws
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return clean examples, noise, timesteps and labels, one of each per draw."""
    clean = x_0.expand(len(draws), *x_0.shape)
    if draws.flip.any():
        clean = torch.where(draws.flip[:, None, None, None], clean.flip(-1), clean)
    labels = denoiser.labels(label, len(draws))
    labels = denoiser.dropped(labels, draws.drop_label)
    return clean, draws.noise, draws.timesteps, labels


def masked_total(summands: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sum over C, H, W, of what the mask (H, W) keeps, shape (B,)."""
    if mask is not None:
        summands = summands * mask.to(summands)
    return summands.sum((1, 2, 3))


def _steps(denoiser: Denoiser) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cumulative alphas, those one step before, and the betas, float64."""
    alphas = denoiser.alphas_cumprod.double()
    before = torch.cat([torch.ones_like(alphas[:1]), alphas[:-1]])
    return alphas, before, 1 - alphas / before


def elbo_weights(denoiser: Denoiser) -> Tensor:
    """Return the factors of the noise loss in the negative ELBO, shape (T,), float64.

    beta_t / (2 alpha_t (1 - cumulative alpha_t)): Ho et al. (2020), eq. 12, with the
    large variance.
    """
    alphas, before, betas = _steps(denoiser)
    return betas / (2 * alphas / before * (1 - alphas))


def elbo_proposal(denoiser: Denoiser) -> Tensor:
    """Return how often the ELBO's queries draw each timestep, shape (T,), on the CPU.

    Three quarters of them in proportion to a power of its weights, more than 1 because
    the noise loss rises with them: on Glyphs samples two thirds of the bound come from
    ten timesteps of a thousand. The rest evenly, so that no part of a curve over
    timesteps is empty.
    """
    powers = elbo_weights(denoiser).cpu() ** 1.5
    return 0.75 * powers / powers.sum() + 0.25 / len(powers)


def noise_weights(denoiser: Denoiser) -> dict[str, Tensor]:
    """Return the weight of each timestep in each measurement of draws.

    Measurements weigh the same squared error of the predicted noise differently. The
    weights of a measurement are scaled to add up to one.

    Returns:
        Shape (T,), float64, by the name of the measurement.
    """
    weights = {
        name: resolve_name(facts.weights)(denoiser)
        for name, facts in MEASUREMENTS.items()
        if facts.weights is not None
    }
    return {name: values / values.sum() for name, values in weights.items()}


def even_weights(denoiser: Denoiser) -> Tensor:
    """Return ones: the noise loss counts all timesteps alike, shape (T,)."""
    return torch.ones_like(denoiser.alphas_cumprod.double())


def loss_weights(denoiser: Denoiser) -> Tensor:
    """Return the factors of the noise loss in the training loss, shape (T,)."""
    alphas = denoiser.alphas_cumprod.double()
    trained = {
        "epsilon": torch.ones_like(alphas),
        "sample": 1 / alphas - 1,
        "v_prediction": 1 / alphas,
    }
    return trained[denoiser.scheduler.config.prediction_type]


def elbo_constants(denoiser: Denoiser) -> Tensor:
    """Return what each term of the negative ELBO adds per entry, shape (T,), float64.

    What the variances alone contribute: to a divergence between normal distributions
    for t > 0; for t = 0 to a normal log-density, for a pixel model times the width of
    an 8-bit value, which is nearly the probability of the value.
    """
    alphas, before, betas = _steps(denoiser)
    ratio = (1 - before) / (1 - alphas)  # of the small variance to the large one
    constants = (ratio - 1 - ratio.log()) / 2
    constants[0] = (2 * torch.pi * betas[0]).log() / 2
    if denoiser.autoencoder is None:
        constants[0] -= torch.tensor(2 * PIXEL).log()
    return constants


def last_step_cost(denoiser: Denoiser, clean: Tensor, noise_errors: Tensor) -> Tensor:
    """Return -log p(x_0 | x_1) of 8-bit values, per entry, shape (B, C, H, W).

    The discretised normal distribution of Ho et al. (2020), eq. 13: the lowest value
    takes everything below it, the highest everything above.
    """
    alpha = denoiser.alphas_cumprod[0].to(clean.dtype)
    sigma = (1 - alpha).sqrt()
    shift = sigma / alpha.sqrt() * noise_errors  # x_0 minus the predicted one
    far = torch.full_like(shift, 1e6)  # infinity would make gradients NaN
    lower = torch.where(clean < PIXEL - 1, -far, (shift - PIXEL) / sigma)
    upper = torch.where(clean > 1 - PIXEL, far, (shift + PIXEL) / sigma)
    return -_log_interval(lower, upper)


def _log_interval(lower: Tensor, upper: Tensor) -> Tensor:
    """Return the log-probability of an interval under the standard normal."""
    # An interval above 0 is mirrored: the lower tail keeps its digits.
    above = lower + upper > 0
    low, high = torch.where(above, -upper, lower), torch.where(above, -lower, upper)
    log_low, log_high = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
    return log_high + torch.log1p(-(log_low - log_high).exp())
