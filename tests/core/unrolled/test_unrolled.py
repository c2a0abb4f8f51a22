"""The step is torch's, and the way back is the derivative of real trainings."""

from dataclasses import replace

import pytest
import torch
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

from core.config import TrainConfig
from core.measure.draws import keyed_generator
from core.unrolled.reverse import (
    Slopes,
    Training,
    last_slopes,
    scores,
    slopes_before_segment,
)
from core.unrolled.step import Losses, Seen, State, first_state, gradient, updated
from tests.helpers.toys import linear_denoiser, tiny_denoiser

IMAGES, BATCH = 6, 4
SETTINGS = TrainConfig(
    num_steps=12,
    batch_size=BATCH,
    learning_rate=0.02,
    warmup_steps=3,
    max_grad_norm=0.5,  # clips in some of the steps, not in all
    ema_decay=0.6,
    weight_decay=0.1,
    root_epsilon=1e-4,
)


def visits(denoiser, labelled: bool):
    """Return what each step sees, every number keyed by the step."""
    g = keyed_generator(0, "toy images")
    x_0 = torch.randn(IMAGES, *denoiser.shape, generator=g, dtype=torch.float64)

    def seen(step: int) -> Seen:
        g = keyed_generator(0, "toy step", step)
        index = torch.randperm(IMAGES, generator=g)[:BATCH]
        clean = x_0[index]
        flip = torch.rand(BATCH, generator=g) < 0.5
        clean = torch.where(flip[:, None, None, None], clean.flip(-1), clean)
        noise = torch.randn(clean.shape, generator=g, dtype=torch.float64)
        steps = torch.randint(denoiser.num_train_timesteps, (BATCH,), generator=g)
        drop = torch.rand(BATCH, generator=g) < 0.3
        labels = torch.where(drop, 2, index % 2) if labelled else None
        return Seen(index, clean, noise, steps, labels, clean.numel())

    return seen


@pytest.fixture(params=["network", "linear"])
def training(request):
    """Return a training of a network with attention, or of a deep linear model."""
    if request.param == "network":
        denoiser = tiny_denoiser(num_classes=2, label_dropout=0.3)
        assert denoiser.null_label == 2
    else:
        denoiser = linear_denoiser()
    seen = visits(denoiser, denoiser.null_label is not None)
    kept = torch.ones(IMAGES, dtype=torch.float64)
    return Training(Losses(denoiser), SETTINGS, seen, kept)


def run(training: Training) -> State:
    """Return the state after the whole training."""
    start = first_state(training.losses.denoiser)
    *_, last = training.states(start, 0, training.settings.num_steps)
    return last


def measured(training: Training, average: torch.Tensor) -> torch.Tensor:
    """Return two measurements (2,) of trained weights: losses at draws never seen."""
    costs = [training.losses.at(average, training.seen(1_000 + i)) for i in (0, 1)]
    return torch.stack([cost.mean() for cost in costs])


def slopes(training: Training, segment: int) -> Slopes:
    """Return the slopes before the first step, gone through in segments."""
    count = training.settings.num_steps
    start = first_state(training.losses.denoiser)
    states = list(training.states(start, 0, count))
    average = states[-1].average.requires_grad_()
    rows = [
        torch.autograd.grad(cost, average, retain_graph=True)[0]
        for cost in measured(training, average)
    ]
    after = last_slopes(torch.stack(rows), IMAGES)
    for first in reversed(range(0, count, segment)):
        steps = range(first, min(count, first + segment))
        after = slopes_before_segment(training, states[first], steps, after)
    return after


def test_the_step_is_that_of_torch_and_diffusers(training):
    """AdamW, clipping, schedule and moving average; epsilon outside as in torch."""
    settings = replace(SETTINGS, root_epsilon=0.0)
    training = replace(training, settings=settings)
    denoiser = training.losses.denoiser
    before = first_state(denoiser)
    last = run(training)
    parameters = list(denoiser.unet.parameters())
    optimizer = torch.optim.AdamW(
        parameters, settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = get_cosine_schedule_with_warmup(
        optimizer, settings.warmup_steps, settings.num_steps
    )
    ema = EMAModel(parameters, settings.ema_decay, use_ema_warmup=True, power=0.75)
    clipped = []
    for step in range(settings.num_steps):
        seen = training.seen(step)
        given = (seen.clean, seen.noise, seen.timesteps, seen.labels)
        (denoiser.losses(*given).sum() / seen.size).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
        clipped.append(bool(norm > settings.max_grad_norm))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        ema.step(parameters)
    theirs = torch.cat([value.detach().flatten() for value in parameters])
    average = torch.cat([value.flatten() for value in ema.shadow_params])
    assert any(clipped)
    moved = (theirs - before.weights).abs().max()
    assert (last.weights - theirs).abs().max() < 1e-9 * moved
    assert (last.average - average).abs().max() < 1e-9 * moved


def test_epsilon_inside_the_root_is_that():
    """The first step that moves anything, by hand: moments are the gradient's own."""
    settings = replace(SETTINGS, warmup_steps=0, weight_decay=0.0, max_grad_norm=9.0)
    start = torch.tensor([1.0, -2.0], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)
    given = torch.tensor([0.3, 0.0], dtype=torch.float64)
    new = updated(State(start, zero, zero, start), given, 0, settings)
    wanted = 1.0 - 0.02 * 0.3 / (0.3**2 + 1e-4) ** 0.5
    assert new.weights.tolist() == pytest.approx([wanted, -2.0], rel=1e-6)


def test_the_way_back_is_the_derivative_of_the_whole_training(training):
    """Against one graph over all steps, differentiated in one piece."""
    kept = training.kept.clone().requires_grad_()
    state = first_state(training.losses.denoiser)
    state.weights.requires_grad_()
    start = state.weights
    for step in range(SETTINGS.num_steps):
        seen = training.seen(step)
        given = gradient(
            training.losses, state.weights, seen, kept[seen.index], again=True
        )
        state = updated(state, given, step, SETTINGS)
    back = slopes(training, segment=5)
    for number, cost in enumerate(measured(training, state.average)):
        images, weights = torch.autograd.grad(cost, [kept, start], retain_graph=True)
        torch.testing.assert_close(back.images[number], images, rtol=1e-7, atol=1e-12)
        # At the start the average is the weights, and none of it is kept.
        torch.testing.assert_close(
            back.state.weights[number], weights, rtol=1e-7, atol=1e-12
        )
    assert back.images.abs().min() > 0


def test_scores_are_finite_differences_of_real_trainings(training):
    """Central differences in the weight of each image, to 1e-4 of the largest."""
    found = scores(slopes(training, segment=4).images)
    step, columns = 1e-4, []
    for image in range(IMAGES):
        ends = []
        for sign in (1, -1):
            kept = training.kept.clone()
            kept[image] += sign * step
            last = run(replace(training, kept=kept))
            ends.append(measured(training, last.average).detach())
        columns.append(-IMAGES * (ends[0] - ends[1]) / (2 * step))
    wanted = torch.stack(columns, 1)
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()


def test_segments_and_company_change_no_bit(training):
    """Neither where states were kept, nor how many measurements there are."""
    whole = slopes(training, segment=12)
    for segment in (1, 5):
        other = slopes(training, segment)
        assert torch.equal(whole.images, other.images)
        for ours, theirs in zip(whole.state.parts(), other.state.parts(), strict=True):
            assert torch.equal(ours, theirs)
    count = SETTINGS.num_steps
    start = first_state(training.losses.denoiser)
    average = run(training).average.requires_grad_()
    (row,) = torch.autograd.grad(measured(training, average)[1], average)
    alone = slopes_before_segment(
        training, start, range(count), last_slopes(row[None], IMAGES)
    )
    assert torch.equal(alone.images[0], whole.images[1])


def test_weights_that_no_gradient_reaches_have_a_slope(training):
    """A second moment of zero, whose root has no slope, gives no NaN."""
    settings = replace(SETTINGS, root_epsilon=0.0)
    training = replace(training, settings=settings)
    seen = training.seen

    def blind(step):  # nobody is seen at first
        first = seen(step)
        return replace(first, clean=first.clean * 0, noise=first.noise * 0)

    for one in (replace(training, seen=lambda k: blind(k) if k < 2 else seen(k)),):
        assert slopes(one, segment=12).images.isfinite().all()
