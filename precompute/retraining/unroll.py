"""Differentiate a whole training: which image's weight did how much to the samples?

Forward, the state is kept at the beginning of every segment; backward, each segment is
run again and gone through in reverse (`core.unrolled`). Both go on where they were
stopped. The training is that of the full model whose retrained ones share all draws, so
that a removal is a weight of 0 and nothing else.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from core.config import CollectionConfig
from core.engine.query import Question, Subject
from core.evidence.same_seed import SAME_SEED, UNROLLED_FILE
from core.evidence.stored import evidence_folder
from core.files.table_files import read_table, write_table
from core.measurements import MEASUREMENTS
from core.unrolled.measured import weight_slopes
from core.unrolled.reverse import (
    Slopes,
    Training,
    last_slopes,
    scores,
    slopes_before_segment,
)
from core.unrolled.step import Losses, State, first_state
from precompute.machinery.config import MeasureConfig
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import load_tensors, save_tensors
from precompute.retraining.jobs import retrain_folder
from precompute.retraining.ready import Gallery, open_gallery
from precompute.retraining.same_seed import common_config
from precompute.stages.batches import seen_by
from precompute.stages.smooth import state_of, tensors_of
from precompute.stages.train import encode_all, new_denoiser

MEMORY = 2 << 30  # bytes of the states of one segment


@dataclass(frozen=True)
class Unrolling:
    """A training to be gone through, and where its states are kept.

    Attributes:
        training: The training.
        folder: Of the states and slopes.
        segment: Steps of a segment.
    """

    training: Training
    folder: Path
    segment: int

    @property
    def starts(self) -> range:
        """First step of every segment."""
        return range(0, self.training.settings.num_steps, self.segment)

    def path(self, step: int) -> Path:
        """Return the file of the state before a step."""
        return self.folder / f"state-{step:06d}.safetensors"

    def state(self, step: int) -> State:
        """Return the state before a step that was kept."""
        denoiser = self.training.losses.denoiser
        return state_of(load_tensors(self.path(step))[0], denoiser.device)

    def forward(self) -> State:
        """Return the state after the last step, keeping those of all segments."""
        total = self.training.settings.num_steps
        marks = [*self.starts, total]
        done = [step for step in marks if self.path(step).exists()]
        if not done:
            save_tensors(self.path(0), tensors_of(self.first))
            done = [0]
        start, wanted = done[-1], set(marks)
        states = self.training.states(self.state(start), start, total)
        for step in Bar(range(start, total + 1), "forward", total + 1, initial=start):
            state = next(states)
            if step in wanted and step > start:
                save_tensors(self.path(step), tensors_of(state))
        return state

    @property
    def first(self) -> State:
        """The state before the first step."""
        return first_state(self.training.losses.denoiser)

    def backward(self, average: Tensor, name: str) -> Tensor:
        """Return the slopes in the images' weights (Q, N).

        Args:
            average: Slopes in the moving average after the last step, (Q, P).
            name: Of the file that unfinished slopes are kept in.
        """
        path, total = self.folder / f"{name}.safetensors", self.starts.stop
        after, stop = last_slopes(average, len(self.training.kept)), total
        if path.exists():
            tensors, facts = load_tensors(path)
            device = average.device
            images, stop = tensors.pop("images").to(device), facts["step"]
            after = Slopes(state_of(tensors, device), images)
        bar = Bar(total=total, initial=total - stop, desc="backward")
        for start in [one for one in reversed(self.starts) if one < stop]:
            steps = range(start, min(start + self.segment, total))
            after = slopes_before_segment(
                self.training,
                self.state(start),
                steps,
                after,
                lambda step: bar.update(),
            )
            tensors = tensors_of(after.state) | {"images": after.images}
            save_tensors(path, tensors, step=start)
        bar.close()
        return after.images


def segment_length(num_steps: int, num_weights: int, memory: int = MEMORY) -> int:
    """Return how many steps a segment has: the root of all, or what memory holds."""
    most = max(1, memory // (4 * 4 * num_weights))  # four vectors of four bytes each
    return min(most, math.isqrt(num_steps - 1) + 1)


def open_unrolling(
    config: CollectionConfig, gallery: Gallery, folder: Path, device: str, memory: int
) -> Unrolling:
    """Return the training of a configuration, ready to be gone through.

    Args:
        config: Of the training, with common draws.
        gallery: The images.
        folder: Of the states.
        device: Where to compute.
        memory: Bytes that the states of one segment may take.
    """
    dataset = gallery.dataset
    denoiser = new_denoiser(config, dataset).to(device).train()
    kept = torch.ones(len(dataset))
    seen = seen_by(config, denoiser, dataset, encode_all(denoiser, dataset), kept)
    training = Training(Losses(denoiser), config.train, seen, kept.to(device))
    num_weights = sum(value.numel() for value in denoiser.unet.parameters())
    folder.mkdir(parents=True, exist_ok=True)
    segment = segment_length(config.train.num_steps, num_weights, memory)
    return Unrolling(training, folder, segment)


def sample_slopes(
    unrolling: Unrolling,
    last: State,
    questions: list[Question],
) -> Tensor:
    """Return the slopes (Q, P) of questions in the moving average of the last state."""
    denoiser = unrolling.training.losses.denoiser
    vector_to_parameters(last.average, denoiser.unet.parameters())
    return torch.stack([weight_slopes(denoiser, one) for one in questions])


def questions_of(
    gallery: Gallery, samples: range, measurement: str, seed: int
) -> list[Question]:
    """Return the questions that the retrained models are asked about some samples."""
    facts, draws = MEASUREMENTS[measurement], MeasureConfig.num_draws
    return [
        Question(
            Subject(
                gallery.samples["x_0"][number], int(gallery.samples["labels"][number])
            ),
            facts,
            draws,
            seed,
        )
        for number in samples
    ]


def unroll(
    config: CollectionConfig,
    places: tuple[Path, Path | None],
    samples: range,
    measurement: str,
    device: str = "cpu",
    memory: int = MEMORY,
) -> Path:
    """Store the exact scores of samples beside the evidence.

    Args:
        config: The collection's settings.
        places: Folders of published collections and of unfinished work.
        samples: Numbers of gallery samples.
        measurement: What is measured, a mean over draws.
        device: Where to compute.
        memory: Bytes that the states of one segment may take.

    Returns:
        The file.
    """
    root, work = places
    gallery, common = open_gallery(config, work, device), common_config(config)
    folder = retrain_folder(common, work) / "unrolled"
    unrolling = open_unrolling(common, gallery, folder, device, memory)
    last = unrolling.forward()
    questions = questions_of(gallery, samples, measurement, config.seed)
    average = sample_slopes(unrolling, last, questions)
    name = f"slopes-{measurement}-{samples.start}-{samples.stop}"
    rows = scores(unrolling.backward(average, name)).cpu().double().numpy()
    path = evidence_folder(root, config) / SAME_SEED / UNROLLED_FILE
    table = pd.DataFrame({
        "measurement": measurement,
        "sample_id": list(samples),
        "mean": rows.mean(1),
        "scores": list((rows - rows.mean(1, keepdims=True)).astype(np.float32)),
    })
    if path.exists():
        old = read_table(path)
        again = old["sample_id"].isin(samples) & (old["measurement"] == measurement)
        table = pd.concat([old[~again], table], ignore_index=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, table.sort_values(["measurement", "sample_id"]))
    return path
