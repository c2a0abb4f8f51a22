"""The gradient and the value of a query: the part of Eq. 6 computed when asked.

A `Question` holds all that its answer depends on besides the model. There are three
kinds of measurement: `Drawn`, a mean over timesteps and noise estimated from keyed
draws; `Path`, a sum over the steps that drew the image; `Whole`, a value alone. A
timestep range or a region is a contribution: disjoint ranges, and a region and its
complement, sum to the whole. Ranges keep those draws that all queries share whose
timestep lies in them, so the sum is exact, not only in expectation.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name

import torch
from torch import Tensor

from core.curvature.basis import Eigenbasis
from core.lenses import QUERY_FOLDS, check_timesteps
from core.measure.draws import Draws, keyed_generator, make_draws
from core.measure.gradients import fold_gradients, summed_gradient
from core.measure.trajectory import PathSteps, path_steps
from core.measurements import MEASUREMENTS, Measurement
from core.model.denoiser import Denoiser
from core.model.parameters import Layout, parameter_layout
from core.model.sampling import Subject

NARROW = 32  # a range of fewer than T / 32 timesteps has draws of its own
MAX_BATCH = 256  # draws in one pass without gradients
PATH_BATCH = 32  # sampling steps in one pass: bounds the memory

TimestepRange = tuple[int, int]
OnStep = Callable[[int, int], None] | None  # (parts done, in all); may raise to stop


@dataclass(frozen=True)
class QueryGradient:
    """The gradient of a cost of one image, by folds of draws.

    Attributes:
        folds: Shape (F, P), float32; their mean is the gradient. F is 1 where there is
            no Monte Carlo error.
        value: The cost.
        value_error: Its standard error; NaN where F is 1.
    """

    folds: Tensor
    value: float
    value_error: float


@dataclass(frozen=True)
class Question:
    """What is asked of the model about one image.

    Attributes:
        subject: The image, with its label and, where they count, its sampling steps.
        measurement: What is measured.
        num_draws: S, Monte Carlo draws, a multiple of `QUERY_FOLDS`; the trajectory
            needs none.
        seed: The collection's seed.
        timesteps: Half-open range whose contribution is asked for; None means all.
        mask: Which entries count, boolean, shape (H, W); None means all.
    """

    subject: Subject
    measurement: Measurement
    num_draws: int
    seed: int
    timesteps: TimestepRange | None = None
    mask: Tensor | None = None

    def to(self, denoiser: Denoiser) -> "Drawn | Path | Whole":
        """Return the question put to a model, whose methods answer it.

        A range that is not one of the model's, or a trajectory that is not known or has
        no probability, raises a ValueError.
        """
        check_timesteps(self.timesteps, denoiser.num_train_timesteps)
        kinds = {"draws": Drawn, "steps": Path, "image": Whole}
        return kinds[self.measurement.over](denoiser, self)


def query_draws(
    denoiser: Denoiser,
    num_draws: int,
    seed: int,
    measurement: Measurement = MEASUREMENTS["loss"],
    timesteps: TimestepRange | None = None,
) -> Draws:
    """Return the draws that every query of a collection shares.

    They differ from the training gradients' draws; the label is never dropped, because
    the question is about the image with its label. They depend on no weights, so that
    retrained models can be compared by the same draws.

    Args:
        denoiser: The model.
        num_draws: S, a multiple of `QUERY_FOLDS`.
        seed: The collection's seed.
        measurement: What is measured.
        timesteps: Half-open range of timesteps to draw from; None means all.
    """
    keys, proposal = () if timesteps is None else timesteps, None
    if measurement.proposal is not None:
        proposal = resolve_name(measurement.proposal)(denoiser)
    return make_draws(
        num_draws,
        denoiser.shape,
        timesteps or denoiser.num_train_timesteps,
        keyed_generator(seed, "query draws", num_draws, *keys),
        num_folds=QUERY_FOLDS,
        proposal=proposal,
    )


class _Measured:
    """What all kinds share: the image on the model's device, and ranges."""

    doing = "Measuring"

    def __init__(self, denoiser: Denoiser, question: Question):
        self.denoiser, self.question = denoiser, question
        mask = question.mask
        self.mask = None if mask is None else mask.to(denoiser.device)
        self.range = question.timesteps or (0, denoiser.num_train_timesteps)

    def _layout(self, basis: Eigenbasis | None) -> Layout:
        return parameter_layout(self.denoiser.unet) if basis is None else basis.layout

    def _bands(self, edges: list[int]) -> list[TimestepRange]:
        """Return band b as [edges[b], edges[b + 1]), each checked."""
        bands = list(zip(edges[:-1], edges[1:], strict=True))
        for band in bands:
            check_timesteps(band, self.denoiser.num_train_timesteps)
        return bands


class Drawn(_Measured):
    """A mean over timesteps and noise, estimated from draws that all queries share."""

    def __init__(self, denoiser: Denoiser, question: Question):
        super().__init__(denoiser, question)
        self.x_0 = question.subject.x_0.to(denoiser.device)
        costs = resolve_name(question.measurement.costs)
        self.measure = partial(costs, mask=self.mask)

    def gradient(
        self,
        basis: Eigenbasis | None,
        on_step: OnStep = None,
        on_half: Callable[[QueryGradient], None] | None = None,
    ) -> QueryGradient:
        """Return the gradient of the question's range of timesteps.

        Args:
            basis: The Kronecker eigenbasis to rotate into, on the model's device; None
                leaves the gradient as it is.
            on_step: Called with (parts done, parts in all); may raise to stop.
            on_half: Called once half of the draws are done, with what they say: whole
                folds are complete estimates, each balanced over the timesteps.
        """
        folds, share = self._folds(self.question.timesteps)
        return self._gradients(basis, folds, share, [self.range], on_step, on_half)[0]

    def band_gradients(
        self, basis: Eigenbasis | None, edges: list[int], on_step: OnStep = None
    ) -> list[QueryGradient]:
        """Return the gradient of each band's contribution, in one pass.

        All bands share the draws of the whole, however narrow they are: together they
        are exactly the gradient of the range from the first edge to the last.
        """
        bands = self._bands(edges)
        folds, share = self._folds(None)
        return self._gradients(basis, folds, share, bands, on_step)

    def value(self, on_step: OnStep = None) -> tuple[float, float]:
        """Return the cost and its standard error: those of `gradient`, without it."""
        folds, share = self._folds(self.question.timesteps)
        totals = []
        for draws in folds:
            kept = _inside(draws, self.range)
            costs = self._costs(kept, on_step)
            totals.append(share * (kept.weights * costs).sum() / len(draws))
        value, error = _mean_and_error(torch.stack(totals))
        return value + self._constant(self.range), error

    def costs(self, on_step: OnStep = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return timesteps (S,), costs (S,) and weights (S,) of all draws, on the CPU.

        The mean of weight times cost is the value over all timesteps, for the ELBO
        without its constant; that of each quarter of the draws, in order, is an
        estimate by itself. The draws depend on no weights: the costs of two models
        differ by the models alone.
        """
        draws = self._draws(None)
        costs = self._costs(draws.to(self.denoiser.device), on_step)
        return draws.timesteps, costs.cpu(), draws.weights

    def _draws(self, timesteps: TimestepRange | None) -> Draws:
        asked = self.question
        return query_draws(
            self.denoiser, asked.num_draws, asked.seed, asked.measurement, timesteps
        )

    def _folds(self, timesteps: TimestepRange | None) -> tuple[list[Draws], float]:
        """Return the draws of each fold and the share of the timesteps they cover."""
        share, draws = 1.0, self._draws(None)
        total = self.denoiser.num_train_timesteps
        if timesteps is not None:
            width = timesteps[1] - timesteps[0]
            if NARROW * width < total or not len(_inside(draws, timesteps)):
                share, draws = width / total, self._draws(timesteps)
        size = len(draws) // QUERY_FOLDS
        draws = draws.to(self.denoiser.device)
        return draws.split(size), share

    @torch.no_grad()
    def _costs(self, draws: Draws, on_step: OnStep) -> Tensor:
        """Return the unweighted cost of every draw, shape (S,)."""
        most = min(MAX_BATCH, self.denoiser.most_at_once)
        label = self.question.subject.label
        costs = [
            self.measure(self.denoiser, self.x_0, label, part)
            for part in _counted(draws.split(most), on_step)
        ]
        return torch.cat([self.x_0.new_zeros(0), *costs])

    def _gradients(
        self,
        basis: Eigenbasis | None,
        folds: list[Draws],
        share: float,
        bands: list[TimestepRange],
        on_step: OnStep,
        on_half: Callable[[QueryGradient], None] | None = None,
    ) -> list[QueryGradient]:
        """Return the gradient of each band's share of the draws."""
        layout, found = self._layout(basis), []
        for number, band in enumerate(bands):
            gradients, values = [], []
            for fold, draws in enumerate(folds):
                gradient, value = self._fold(layout, draws, band, share)
                gradients.append(gradient)
                values.append(value)
                if on_step is not None:
                    on_step(number * len(folds) + fold + 1, len(bands) * len(folds))
                if on_half is not None and 2 * (fold + 1) == len(folds):
                    on_half(self._found(gradients, values, band, basis))
            found.append(self._found(gradients, values, band, basis))
        return found

    def _fold(
        self, layout: Layout, draws: Draws, band: TimestepRange, share: float
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient (P,) and the value of a band within one fold."""
        kept = _inside(draws, band)
        if not len(kept):
            return self.x_0.new_zeros(layout.num_params), self.x_0.new_zeros(())
        label = self.question.subject.label
        gradient, value = fold_gradients(
            self.measure, self.denoiser, layout, self.x_0, label, kept, 1
        )
        # fold_gradients divides by the draws it is given.
        factor = share * len(kept) / len(draws)
        return factor * gradient[0], factor * value[0]

    def _found(self, gradients, values, band, basis) -> QueryGradient:
        value, error = _mean_and_error(torch.stack(values))
        rotated = _rotated(torch.stack(gradients), basis)
        return QueryGradient(rotated, value + self._constant(band), error)

    def _constant(self, band: TimestepRange) -> float:
        """Return what a range of timesteps adds to the mean of its draws."""
        if self.question.measurement.constant is None:
            return 0.0
        share = (band[1] - band[0]) / self.denoiser.num_train_timesteps
        constant = resolve_name(self.question.measurement.constant)
        return share * constant(self.denoiser, self.x_0, self.mask)


class Path(_Measured):
    """A sum over the steps in which the image was drawn, without Monte Carlo error.

    Its methods are those of `Drawn`; errors are NaN.
    """

    def __init__(self, denoiser: Denoiser, question: Question):
        super().__init__(denoiser, question)
        self.steps = path_steps(denoiser, question.subject)
        self.measure = resolve_name(question.measurement.costs)

    def gradient(
        self,
        basis: Eigenbasis | None,
        on_step: OnStep = None,
        on_half: Callable[[QueryGradient], None] | None = None,
    ) -> QueryGradient:
        """Return the gradient over the question's range; `on_half` is never called."""
        return self._gradient(basis, self._steps_inside(), on_step)

    def band_gradients(
        self, basis: Eigenbasis | None, edges: list[int], on_step: OnStep = None
    ) -> list[QueryGradient]:
        """Return the gradient over the steps in each band; they sum to the whole."""
        return [
            self._gradient(basis, _inside(self.steps, band), on_step)
            for band in self._bands(edges)
        ]

    def value(self, on_step: OnStep = None) -> tuple[float, float]:
        """Return the cost over the question's range, and NaN."""
        costs = self._costs(self._steps_inside(), on_step)
        return float(costs.double().sum()), float("nan")

    def costs(self, on_step: OnStep = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return timesteps (S,), costs (S,) and weights (S,) of all steps."""
        costs = self._costs(self.steps, on_step).cpu()
        return self.steps.timesteps, costs, torch.full_like(costs, len(costs))

    def _steps_inside(self) -> PathSteps:
        """Return the steps in the question's range, if there are any."""
        kept = _inside(self.steps, self.range)
        if not len(kept):
            times = self.steps.timesteps
            raise ValueError(
                f"The trajectory has no noisy step in {self.range[0]}:{self.range[1]}. "
                f"It has {len(times)}, from timestep {times[0]} to {times[-1]}. Choose "
                "a wider range."
            )
        return kept

    @torch.no_grad()
    def _costs(self, steps: PathSteps, on_step: OnStep) -> Tensor:
        """Return the cost of every step, shape (S,)."""
        return torch.cat(list(self._part_costs(steps, on_step)))

    def _gradient(self, basis, steps: PathSteps, on_step: OnStep) -> QueryGradient:
        layout, value = self._layout(basis), 0.0
        gradient = torch.zeros(layout.num_params, device=self.denoiser.device)
        if len(steps):
            totals = (costs.sum() for costs in self._part_costs(steps, on_step))
            gradient, value = summed_gradient(totals, self.denoiser, layout)
        rotated = _rotated(gradient[None], basis)
        return QueryGradient(rotated, float(value), float("nan"))

    def _part_costs(self, steps: PathSteps, on_step: OnStep) -> Iterator[Tensor]:
        """Yield the costs of as many steps as fit into one pass.

        Guidance needs two predictions of each step.
        """
        most = min(PATH_BATCH, max(1, self.denoiser.most_at_once // 2))
        for part in _counted(steps.split(most), on_step):
            yield self.measure(self.denoiser, self.question.subject, part, self.mask)


class Whole(_Measured):
    """A value of the whole image, without scores of training images."""

    doing = "Following the flow"

    def value(self, on_step: OnStep = None) -> tuple[float, float]:
        """Return the cost and its standard error."""
        costs = resolve_name(self.question.measurement.costs)
        subject = self.question.subject
        return costs(self.denoiser, subject, self.question.seed, on_step)


def _counted(parts: list, on_step: OnStep) -> Iterator:
    """Yield parts; after each, `on_step` hears (parts done, parts in all)."""
    for number, part in enumerate(parts):
        yield part
        if on_step is not None:
            on_step(number + 1, len(parts))


def _inside(items, band: TimestepRange):
    """Return those draws or steps whose timestep lies in a half-open range."""
    start, stop = band
    return items[(items.timesteps >= start) & (items.timesteps < stop)]


def _rotated(gradients: Tensor, basis: Eigenbasis | None) -> Tensor:
    return gradients if basis is None else basis.rotate(gradients)


def _mean_and_error(values: Tensor) -> tuple[float, float]:
    """Return the mean of fold values and its standard error."""
    error = values.double().std() / len(values) ** 0.5
    return float(values.double().mean()), float(error)
