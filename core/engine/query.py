"""The gradient and the value of a query: the part of Eq. 6 computed when asked.

A timestep range or a region is a contribution: disjoint ranges, and a region and its
complement, sum to the whole. Ranges keep those draws that all queries share whose
timestep lies in them, so the sum is exact, not only in expectation.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from core.curvature.basis import Eigenbasis
from core.lenses import QUERY_FOLDS
from core.measure.costs import MEASUREMENTS, elbo_constant, elbo_weights
from core.measure.draws import Draws, keyed_generator, make_draws
from core.measure.gradients import draws_in_parts, fold_gradients, summed_gradient
from core.measure.outputs import OUTPUTS
from core.measure.trajectory import PathSteps, path_costs, path_steps
from core.model.denoiser import Denoiser
from core.model.parameters import parameter_layout
from core.model.sampling import Subject

NARROW = 32  # a range of fewer than T / 32 timesteps has draws of its own
MAX_BATCH = 256  # draws in one pass without gradients
PATH_BATCH = 32  # sampling steps in one pass: bounds the memory

TimestepRange = tuple[int, int]


@dataclass(frozen=True)
class QueryGradient:
    """The gradient of a cost of one picture, by folds of draws.

    Attributes:
        folds: Shape (F, P), float32; their mean is the gradient. F is 1 where there is
            no Monte Carlo error.
        value: The cost.
        value_error: Its standard error; NaN where F is 1.
    """

    folds: Tensor
    value: float
    value_error: float


def query_draws(
    denoiser: Denoiser,
    num_draws: int,
    seed: int,
    measurement: str = "loss",
    timesteps: TimestepRange | None = None,
) -> Draws:
    """Return the draws that every query of a collection shares.

    They differ from the training gradients' draws; the label is never dropped, because
    the question is about the picture with its label. They depend on no weights, so that
    retrained models can be compared by the same draws.

    The ELBO draws three quarters of its timesteps in proportion to a power of its
    weights, more than 1 because the noise loss rises with them: on Glyphs samples two
    thirds of the bound come from ten timesteps of a thousand. The rest it draws evenly,
    so that no part of a curve over timesteps is empty.

    Args:
        denoiser: The model.
        num_draws: S, a multiple of `QUERY_FOLDS`.
        seed: The collection's seed.
        measurement: What is measured.
        timesteps: Half-open range of timesteps to draw from; None means all.
    """
    keys = () if timesteps is None else timesteps
    proposal = None
    if measurement == "elbo":
        proposal = elbo_weights(denoiser).cpu() ** 1.5
        proposal = 0.75 * proposal / proposal.sum() + 0.25 / len(proposal)
    return make_draws(
        num_draws,
        denoiser.shape,
        denoiser.num_train_timesteps,
        keyed_generator(seed, "query draws", num_draws, *keys),
        timestep_range=timesteps,
        num_folds=QUERY_FOLDS,
        proposal=proposal,
    )


def query_gradient(
    denoiser: Denoiser,
    basis: Eigenbasis | None,
    subject: Subject,
    measurement: str,
    num_draws: int,
    seed: int,
    timesteps: TimestepRange | None = None,
    mask: Tensor | None = None,
    on_step: Callable[[int, int], None] | None = None,
    on_half: Callable[[QueryGradient], None] | None = None,
) -> QueryGradient:
    """Return the gradient of a measurement of one picture.

    Args:
        denoiser: The model.
        basis: The Kronecker eigenbasis to rotate into, on the model's device; None
            leaves the gradient as it is.
        subject: The picture.
        measurement: A key of `MEASUREMENTS` or of `core.measure.outputs.OUTPUTS`, or
            "trajectory".
        num_draws: Monte Carlo draws, a multiple of `QUERY_FOLDS`; the trajectory needs
            none.
        seed: The collection's seed.
        timesteps: Half-open range whose contribution is asked for; None means all.
        mask: Which entries count, boolean, shape (H, W); None means all.
        on_step: Called with (parts done, parts in all); may raise to stop.
        on_half: Called once half of the draws are done, with what they say: whole folds
            are complete estimates, each balanced over the timesteps by itself. Never
            called for the trajectory.

    An unknown measurement, an impossible range, and a trajectory that is not known or
    has no probability, raise a ValueError of one or two sentences.
    """
    bands = [_range(denoiser, timesteps)]
    if measurement == "trajectory":
        _steps_inside(denoiser, subject, bands[0])  # an empty range is a mistake
        return _path_gradients(denoiser, basis, subject, bands, mask, on_step)[0]
    folds, scale = _folds(denoiser, measurement, num_draws, seed, timesteps)
    return _drawn_gradients(
        denoiser,
        basis,
        subject,
        measurement,
        folds,
        scale,
        bands,
        mask,
        on_step,
        on_half,
    )[0]


def band_gradients(
    denoiser: Denoiser,
    basis: Eigenbasis | None,
    subject: Subject,
    measurement: str,
    num_draws: int,
    seed: int,
    edges: list[int],
    mask: Tensor | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> list[QueryGradient]:
    """Return the gradient of the contribution of each band of timesteps, in one pass.

    All bands share the draws of the whole, however narrow they are: together they are
    exactly the gradient of the range from the first edge to the last.

    Args:
        denoiser: The model.
        basis: As in `query_gradient`.
        subject: The picture.
        measurement: As in `query_gradient`.
        num_draws: As in `query_gradient`, for all bands together.
        seed: The collection's seed.
        edges: Ascending timesteps; band b is [edges[b], edges[b + 1]).
        mask: As in `query_gradient`.
        on_step: As in `query_gradient`.
    """
    bands = [_range(denoiser, b) for b in zip(edges[:-1], edges[1:], strict=True)]
    if measurement == "trajectory":
        return _path_gradients(denoiser, basis, subject, bands, mask, on_step)
    folds, scale = _folds(denoiser, measurement, num_draws, seed, None)
    return _drawn_gradients(
        denoiser, basis, subject, measurement, folds, scale, bands, mask, on_step
    )


def query_value(
    denoiser: Denoiser,
    subject: Subject,
    measurement: str,
    num_draws: int,
    seed: int,
    timesteps: TimestepRange | None = None,
    mask: Tensor | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[float, float]:
    """Return the cost of one picture and its standard error, without its gradient.

    The same numbers as `query_gradient` gives, which documents the arguments.
    """
    band = _range(denoiser, timesteps)
    if measurement == "trajectory":
        steps = _steps_inside(denoiser, subject, band)
        costs = _path_costs(denoiser, subject, steps, mask, on_step)
        return float(costs.double().sum()), float("nan")
    folds, scale = _folds(denoiser, measurement, num_draws, seed, timesteps)
    totals = []
    for draws in folds:
        kept = _inside(draws, band)
        costs = _drawn_costs(denoiser, subject, measurement, kept, mask, on_step)
        totals.append(scale * (kept.weights * costs).sum() / len(draws))
    value, error = _mean_and_error(torch.stack(totals))
    return value + _constant(denoiser, subject, measurement, band, mask), error


def timestep_costs(
    denoiser: Denoiser,
    subject: Subject,
    measurement: str,
    num_draws: int,
    seed: int,
    mask: Tensor | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cost at each draw's timestep, without gradients.

    The draws depend on no weights: the costs of two models differ by the models alone.

    Args:
        denoiser: The model.
        subject: The picture.
        measurement: As in `query_gradient`.
        num_draws: As in `query_gradient`; one entry per sampling step for the
            trajectory.
        seed: The collection's seed.
        mask: As in `query_gradient`.
        on_step: As in `query_gradient`.

    Returns:
        Timesteps (S,), costs (S,) and weights (S,), on the CPU. The mean of weight
        times cost is the value, for the ELBO without its `elbo_constant`; that of each
        quarter of the draws, in order, is an estimate by itself, except for the
        trajectory.
    """
    if measurement == "trajectory":
        steps = path_steps(denoiser, subject)
        costs = _path_costs(denoiser, subject, steps, mask, on_step).cpu()
        return steps.timesteps, costs, torch.full_like(costs, len(costs))
    _measurement(measurement)
    draws = query_draws(denoiser, num_draws, seed, measurement)
    on_device = draws.to(denoiser.device)
    costs = _drawn_costs(denoiser, subject, measurement, on_device, mask, on_step)
    return draws.timesteps, costs.cpu(), draws.weights


@torch.no_grad()
def _drawn_costs(
    denoiser: Denoiser,
    subject: Subject,
    measurement: str,
    draws: Draws,
    mask: Tensor | None,
    on_step: Callable[[int, int], None] | None,
) -> Tensor:
    """Return the unweighted cost of every draw, shape (S,)."""
    measure, mask = _measurement(measurement), _on_device(mask, denoiser)
    x_0 = subject.x_0.to(denoiser.device)
    most = min(MAX_BATCH, denoiser.most_at_once)
    costs = [
        measure(denoiser, x_0, subject.label, part, mask=mask)
        for part in counted(draws_in_parts(draws, 0, len(draws), most), on_step)
    ]
    return torch.cat([x_0.new_zeros(0), *costs])


@torch.no_grad()
def _path_costs(
    denoiser: Denoiser,
    subject: Subject,
    steps: PathSteps,
    mask: Tensor | None,
    on_step: Callable[[int, int], None] | None,
) -> Tensor:
    """Return the cost of every sampling step, shape (S,)."""
    mask = _on_device(mask, denoiser)
    return torch.cat([
        path_costs(denoiser, subject, part, mask)
        for part in counted(_path_parts(denoiser, steps), on_step)
    ])


def counted(parts: list, on_step: Callable[[int, int], None] | None) -> Iterator:
    """Yield parts; after each, `on_step` hears (parts done, parts in all)."""
    for number, part in enumerate(parts):
        yield part
        if on_step is not None:
            on_step(number + 1, len(parts))


def _range(denoiser: Denoiser, timesteps: TimestepRange | None) -> TimestepRange:
    """Return a timestep range, all of them for None, if it is one."""
    start, stop = timesteps or (0, denoiser.num_train_timesteps)
    if not 0 <= start < stop <= denoiser.num_train_timesteps:
        raise ValueError(
            f"The timestep range {start}:{stop} is not inside "
            f"0:{denoiser.num_train_timesteps}. Give a first timestep smaller than the "
            "last one."
        )
    return start, stop


def _steps_inside(
    denoiser: Denoiser, subject: Subject, band: TimestepRange
) -> PathSteps:
    """Return the sampling steps in a range of timesteps, if there are any."""
    steps = path_steps(denoiser, subject)
    kept = _inside(steps, band)
    if not len(kept):
        raise ValueError(
            f"The trajectory has no noisy step in {band[0]}:{band[1]}. It has "
            f"{len(steps)}, from timestep {steps.timesteps[0]} to "
            f"{steps.timesteps[-1]}. Choose a wider range."
        )
    return kept


def _measurement(name: str) -> Callable[..., Tensor]:
    found = MEASUREMENTS.get(name) or OUTPUTS.get(name)
    if found is None:
        known = ", ".join([*MEASUREMENTS, "trajectory"])
        raise ValueError(f"There is no measurement '{name}'. Choose one of {known}.")
    return found


def _folds(
    denoiser: Denoiser,
    measurement: str,
    num_draws: int,
    seed: int,
    timesteps: TimestepRange | None,
) -> tuple[list[Draws], float]:
    """Return the draws of each fold and the share of the timesteps they stand for."""
    _measurement(measurement)
    share = 1.0
    draws = query_draws(denoiser, num_draws, seed, measurement)
    if timesteps is not None:
        width = timesteps[1] - timesteps[0]
        if NARROW * width < denoiser.num_train_timesteps or not len(
            _inside(draws, timesteps)
        ):
            share = width / denoiser.num_train_timesteps
            draws = query_draws(denoiser, num_draws, seed, measurement, timesteps)
    draws = draws.to(denoiser.device)
    size = num_draws // QUERY_FOLDS
    return draws_in_parts(draws, 0, num_draws, size), share


def _inside(items, band: TimestepRange):
    """Return those draws or steps whose timestep lies in a half-open range."""
    start, stop = band
    return items[(items.timesteps >= start) & (items.timesteps < stop)]


def _drawn_gradients(
    denoiser: Denoiser,
    basis: Eigenbasis | None,
    subject: Subject,
    measurement: str,
    folds: list[Draws],
    scale: float,
    bands: list[TimestepRange],
    mask: Tensor | None,
    on_step: Callable[[int, int], None] | None,
    on_half: Callable[[QueryGradient], None] | None = None,
) -> list[QueryGradient]:
    """Return the gradient of each band's share of the draws."""
    layout = parameter_layout(denoiser.unet) if basis is None else basis.layout
    x_0 = subject.x_0.to(denoiser.device)
    measure = partial(_measurement(measurement), mask=_on_device(mask, denoiser))
    found = []
    for number, band in enumerate(bands):
        gradients, values = [], []

        def found_so_far(gradients, values, band=band) -> QueryGradient:
            rotated = _rotated(torch.stack(gradients), basis)
            value, error = _mean_and_error(torch.stack(values))
            value += _constant(denoiser, subject, measurement, band, mask)
            return QueryGradient(rotated, value, error)

        for fold, draws in enumerate(folds):
            kept = _inside(draws, band)
            if len(kept):
                gradient, value = fold_gradients(
                    measure, denoiser, layout, x_0, subject.label, kept, 1
                )
                # fold_gradients divides by the draws it is given.
                factor = scale * len(kept) / len(draws)
                gradients.append(factor * gradient[0])
                values.append(factor * value[0])
            else:
                gradients.append(x_0.new_zeros(layout.num_params))
                values.append(x_0.new_zeros(()))
            if on_step is not None:
                on_step(number * len(folds) + fold + 1, len(bands) * len(folds))
            if on_half is not None and 2 * (fold + 1) == len(folds):
                on_half(found_so_far(gradients, values))
        found.append(found_so_far(gradients, values))
    return found


def _path_gradients(
    denoiser: Denoiser,
    basis: Eigenbasis | None,
    subject: Subject,
    bands: list[TimestepRange],
    mask: Tensor | None,
    on_step: Callable[[int, int], None] | None,
) -> list[QueryGradient]:
    """Return the gradient of the trajectory's cost over the steps in each band."""
    layout = parameter_layout(denoiser.unet) if basis is None else basis.layout
    mask, steps = _on_device(mask, denoiser), path_steps(denoiser, subject)
    found = []
    for band in bands:
        kept = _inside(steps, band)
        gradient, value = torch.zeros(layout.num_params, device=denoiser.device), 0.0
        if len(kept):
            costs = (
                path_costs(denoiser, subject, part, mask).sum()
                for part in counted(_path_parts(denoiser, kept), on_step)
            )
            gradient, value = summed_gradient(costs, denoiser, layout)
        found.append(
            QueryGradient(_rotated(gradient[None], basis), float(value), float("nan"))
        )
    return found


def _path_parts(denoiser: Denoiser, steps: PathSteps) -> list[PathSteps]:
    """Return sampling steps in parts that fit into one pass.

    Guidance needs two predictions of each step.
    """
    most = min(PATH_BATCH, max(1, denoiser.most_at_once // 2))
    return [steps[i : i + most] for i in range(0, len(steps), most)]


def _constant(
    denoiser: Denoiser,
    subject: Subject,
    measurement: str,
    band: TimestepRange,
    mask: Tensor | None,
) -> float:
    """Return what a range of timesteps adds to the mean of its draws."""
    if measurement != "elbo":
        return 0.0
    share = (band[1] - band[0]) / denoiser.num_train_timesteps
    x_0 = subject.x_0.to(denoiser.device)
    return share * elbo_constant(denoiser, x_0, _on_device(mask, denoiser))


def _on_device(mask: Tensor | None, denoiser: Denoiser) -> Tensor | None:
    return None if mask is None else mask.to(denoiser.device)


def _rotated(gradients: Tensor, basis: Eigenbasis | None) -> Tensor:
    return gradients if basis is None else basis.rotate(gradients)


def _mean_and_error(values: Tensor) -> tuple[float, float]:
    """Return the mean of fold values and its standard error."""
    error = values.double().std() / len(values) ** 0.5
    return float(values.double().mean()), float(error)
