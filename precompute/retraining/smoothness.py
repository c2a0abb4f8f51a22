"""Can this recipe be differentiated in practice? Asked before the long way back.

A training is a function of the images' weights, but may be so rough that its slope
says nothing of the change when an image is left out. So a few images' weights are
lowered, by a tenth and to 0, the model is trained again each time, and the measured
changes are compared with those that the slopes predict.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.nn.utils import vector_to_parameters

from core.config import CollectionConfig
from core.engine.query import Question
from core.evidence.sizes import ratio
from core.measure.draws import keyed_generator
from core.numbers import number
from core.unrolled.reverse import Training
from core.unrolled.step import State, first_state
from precompute.machinery.progress import Bar
from precompute.retraining.jobs import retrain_folder
from precompute.retraining.ready import open_gallery
from precompute.retraining.same_seed import common_config
from precompute.retraining.unroll import (
    MEMORY,
    open_unrolling,
    questions_of,
    sample_slopes,
)

LOWERED = (0.1, 1.0)  # by how much an image's weight is
SAMPLES = 4
COLUMNS = ("image", "lowered", "sample_id", "predicted", "measured")
SMOOTH = 0.2  # how far the ratio of measured to predicted may be from 1


def last_state(training: Training) -> State:
    """Return the state after the last step, keeping none on the way."""
    total = training.settings.num_steps
    states = training.states(first_state(training.losses.denoiser), 0, total)
    (last,) = deque(Bar(states, "train", total + 1, leave=False), maxlen=1)
    return last


def values(training: Training, average: torch.Tensor, questions: list[Question]):
    """Return what each question measures of trained weights, shape (Q,)."""
    denoiser = training.losses.denoiser
    first = first_state(denoiser).weights
    vector_to_parameters(average, denoiser.unet.parameters())
    costs = [one.to(denoiser).value()[0] for one in questions]
    vector_to_parameters(first, denoiser.unet.parameters())
    return np.array(costs)


def smoothness(
    config: CollectionConfig,
    work: Path | None,
    num_images: int,
    device: str = "cpu",
) -> pd.DataFrame:
    """Return predicted and measured changes of a few samples' training loss.

    Args:
        config: The collection's settings.
        work: Folder of unfinished work.
        num_images: How many images' weights are lowered; each takes two trainings.
        device: Where to compute.

    Returns:
        A row per image, by how much it was lowered, and sample: `COLUMNS`.
    """
    gallery, common = open_gallery(config, work, device), common_config(config)
    folder = retrain_folder(common, work) / "unrolled"
    unrolling = open_unrolling(common, gallery, folder, device, MEMORY)
    questions = questions_of(gallery, range(SAMPLES), "loss", config.seed)
    last = unrolling.forward()
    training = unrolling.training
    whole = values(training, last.average, questions)
    first = first_state(training.losses.denoiser).weights
    slopes = sample_slopes(unrolling, last, questions)
    vector_to_parameters(first, training.losses.denoiser.unet.parameters())
    predicted = -unrolling.backward(slopes, "smoothness").cpu().double().numpy()
    return pd.DataFrame(
        [
            (image, lowered, sample, lowered * predicted[sample, image], cost - before)
            for image, lowered, costs in lowered_costs(training, questions, num_images)
            for sample, (cost, before) in enumerate(zip(costs, whole, strict=True))
        ],
        columns=list(COLUMNS),
    )


def lowered_costs(
    training: Training, questions: list[Question], num_images: int
) -> Iterator[tuple[int, float, np.ndarray]]:
    """Yield (image, by how much its weight is lowered, what the questions measure)."""
    g = keyed_generator(0, "smoothness")
    order = torch.randperm(len(training.kept), generator=g).tolist()
    for image in order[:num_images]:
        for lowered in LOWERED:
            kept = training.kept.clone()
            kept[image] -= lowered
            average = last_state(replace(training, kept=kept)).average
            yield image, lowered, values(training, average, questions)


def verdict(table: pd.DataFrame) -> str:
    """Return whether slopes say what happens, in one or two sentences."""
    parts, smooth = [], True
    for lowered, rows in table.groupby("lowered"):
        predicted, measured = (rows[c].to_numpy() for c in ("predicted", "measured"))
        times, _ = ratio(predicted, measured)
        alike = float(np.corrcoef(predicted, measured)[0, 1])
        smooth &= abs(times - 1) <= SMOOTH
        parts.append(
            f"lowered by {lowered:.0%}, a change is {number(times)} of the predicted "
            f"(correlation {number(alike)})"
        )
    text = f"With an image's weight {'; '.join(parts)}."
    if smooth:
        return f"This recipe can be differentiated. {text}"
    return (
        f"This recipe is too rough to be differentiated. {text} Try a larger "
        "train.root_epsilon, a smaller train.learning_rate or larger batches."
    )
