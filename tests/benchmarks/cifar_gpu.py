"""How long the paper's CIFAR-2 takes: its UNet, its draws, extrapolated to hours.

The weights and the images are random, which changes no time. A few hundred images
are measured, drawing of the noise included, and scaled to the paper's 5,000 with 250
draws for the factors, 125 for the eigenvalues and 250 for each training gradient. The
share of the peak is that of a large matrix product on the same device under the same
precision. Interrupted, the same command goes on from what the JSON file holds.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from core.config import CollectionConfig, CurvatureConfig, DataConfig, ModelConfig
from core.curvature.basis import Eigenbasis
from core.curvature.fit import (
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.data.datasets import Dataset
from core.measure.costs import loss
from core.measure.draws import keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.build import make_denoiser
from core.model.denoiser import Denoiser
from core.model.parameters import Layout, parameter_layout
from core.presets import cifar
from precompute.machinery.workspace import write_atomically
from precompute.stages.curvature import CurvatureStage
from tests.benchmarks.machine import facts

PAPER_EXAMPLES = 5_000
PAPER_DRAWS = {"factors": 250, "eigenvalues": 125, "gradients": 250}
PAPER_HOURS = {"fit": 3 + 30 / 60 + 32 / 3600, "gradients": 34 / 60 + 42 / 3600}
PAPER_CARD = "NVIDIA A100"
SAVE_EVERY = 10.0  # seconds


@dataclass(frozen=True)
class Size:
    """What is measured: a model of the paper's shape, its images and draws."""

    examples: int
    draws: int
    batch_size: int = 500
    group_size: int = 250
    widths: tuple[int, ...] = (128, 256, 256, 256)
    image_size: int = 32
    norm_num_groups: int = 32
    matmul: int = 8192  # side of the product that measures the peak


GPU_SIZE = Size(examples=200, draws=250)
TINY_SIZE = Size(2, 4, 8, 4, (8, 8, 8, 8), 16, 4, 256)


def paper_denoiser(size: Size) -> Denoiser:
    """Return the paper's CIFAR UNet (App. J.2) with random weights; no classes."""
    recipe = cifar("cifar", DataConfig())
    model = replace(
        recipe.model,
        block_out_channels=size.widths,
        norm_num_groups=size.norm_num_groups,
    )
    generator = keyed_generator(0, "random weights")
    return make_denoiser(model, size.image_size, 3, 0, generator).eval()


def random_dataset(size: Size) -> Dataset:
    """Return as many images of random pixels as are measured, without classes."""
    shape = (size.examples, 3, size.image_size, size.image_size)
    g = keyed_generator(0, "random pictures")
    pixels = torch.randint(256, shape, generator=g, dtype=torch.uint8)
    ids, labels = np.arange(size.examples), np.zeros(size.examples, np.int64)
    return Dataset(ids, pixels.numpy(), labels, ((),), (), pd.DataFrame(index=ids), ())


class Progress:
    """The seconds and samples of each part so far, in a JSON file."""

    def __init__(self, path: Path | None, made_with: dict):
        self.path, self.parts = path, {}
        self.made_with = json.loads(json.dumps(made_with))  # tuples become lists
        if path is not None and path.exists():
            stored = json.loads(path.read_text())
            if stored["made_with"] == self.made_with:
                self.parts = stored["parts"]

    def save(self) -> None:
        """Write the file, atomically."""
        if self.path is not None:
            text = json.dumps({"made_with": self.made_with, "parts": self.parts})
            write_atomically(self.path, text.encode())

    def measure(self, name: str, steps: Callable[[int], Iterator[int]]) -> dict:
        """Run a part from where it stopped; return its samples and seconds.

        Args:
            name: Of the part.
            steps: Given the samples done before, works on and yields, after each step,
                how many more samples are done.
        """
        part = self.parts.setdefault(name, {"samples": 0, "seconds": 0.0})
        started = saved = time.perf_counter()
        for count in steps(part["samples"]):
            now = time.perf_counter()
            part["samples"] += count
            part["seconds"] += now - started
            started = now
            if now - saved > SAVE_EVERY:
                self.save()
                saved = now
        self.save()
        return part


def synchronised(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul_peak(side: int, device: torch.device) -> float:
    """Return the operations per second of a square float32 product, best of five."""
    a, best = torch.randn(side, side, device=device), float("inf")
    for _ in range(6):
        synchronised(device)
        started = time.perf_counter()
        a @ a
        synchronised(device)
        best = min(best, time.perf_counter() - started)
    return 2 * side**3 / best


def operations(function: Callable) -> int:
    """Return the operations of the matrix products and convolutions of a call."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@dataclass(frozen=True)
class Problem:
    """The model, its images and what the passes need.

    Attributes:
        size: What is measured.
        config: Settings for `curvature_samples`.
        denoiser: The model, on its device.
        layout: Its layers.
        dataset: The images.
        x_0: The same in [-1, 1], on the device.
    """

    size: Size
    config: CollectionConfig
    denoiser: Denoiser
    layout: Layout
    dataset: Dataset
    x_0: Tensor

    def batches(self, purpose: str, first: int) -> Iterator[Samples]:
        """Yield batches from the first-th on, as a fit does."""
        draws, size = self.size.draws, self.size.batch_size
        per_batch = max(1, size // draws)
        numbers = range(first, -(-self.size.examples // per_batch))
        stage = CurvatureStage(self.config, self.dataset, self.denoiser, self.x_0)
        return stage.samples(purpose, draws, size, numbers)

    def batched(self, purpose: str, fit: Callable[[list[Samples]], object]):
        """Return steps for `Progress.measure`: `fit` of one batch after another."""
        per_batch = max(1, self.size.batch_size // self.size.draws) * self.size.draws

        def steps(done: int) -> Iterator[int]:
            for samples in self.batches(purpose, done // per_batch):
                fit([samples])
                synchronised(self.denoiser.device)
                yield len(samples.x_t)

        return steps

    def gradient(self, position: int, basis: Eigenbasis) -> Tensor:
        """Return one image's training gradient in the eigenbasis, shape (1, P)."""
        g = keyed_generator(0, "training draws")
        shape, steps = self.denoiser.shape, self.denoiser.num_train_timesteps
        draws = make_draws(self.size.draws, shape, steps, g)
        self.denoiser.most_at_once = self.size.batch_size
        x_0 = self.x_0[position]
        return basis.rotate(
            fold_gradients(loss, self.denoiser, self.layout, x_0, None, draws, 1)[0]
        )

    def gradients(self, basis: Eigenbasis):
        """Return steps for `Progress.measure`: one image's gradient after another."""

        def steps(done: int) -> Iterator[int]:
            for position in range(done // self.size.draws, self.size.examples):
                self.gradient(position, basis)
                synchronised(self.denoiser.device)
                yield self.size.draws

        return steps


def pose(size: Size, device: torch.device) -> Problem:
    """Return the problem on a device."""
    denoiser = paper_denoiser(size).to(device)
    dataset = random_dataset(size)
    config = CollectionConfig(
        "cifar2",
        model=ModelConfig(label_dropout=0.0),
        curvature=CurvatureConfig(
            batch_size=size.batch_size, group_size=size.group_size
        ),
    )
    layout, x_0 = parameter_layout(denoiser.unet), dataset.images().to(device)
    return Problem(size, config, denoiser, layout, dataset, x_0)


def run(size: Size, out: Path | None, device: str) -> dict:
    """Return seconds per sample of every pass and the hours for CIFAR-2; resumable."""
    torch.set_float32_matmul_precision("high")  # products as convolutions do: tf32
    where = torch.device(device)
    progress = Progress(
        out and out.with_suffix(".part.json"), {**facts(), **vars(size)}
    )
    problem = pose(size, where)
    settings = problem.config.curvature

    def factors(batches: list[Samples]):
        return fit_factors(
            problem.denoiser,
            problem.layout,
            batches,
            max_positions=settings.max_positions,
        )

    one = [next(problem.batches("first", 0))]
    first = factors(one)  # also warms up
    synchronised(where)
    started = time.perf_counter()
    basis = eigenbasis(first)[0].to(where)
    synchronised(where)
    decomposing = time.perf_counter() - started

    def eigenvalues(batches: list[Samples]):
        return fit_corrected_eigenvalues(
            problem.denoiser, basis, batches, settings.group_size
        )

    passes = {
        "factors": (problem.batched("factors", factors), lambda: factors(one)),
        "eigenvalues": (
            problem.batched("eigenvalues", eigenvalues),
            lambda: eigenvalues(one),
        ),
        "gradients": (problem.gradients(basis), lambda: problem.gradient(0, basis)),
    }
    peak, rows = matmul_peak(size.matmul, where), {}
    for name, (steps, once) in passes.items():
        counted = size.draws if name == "gradients" else len(one[0].x_t)
        per_sample = operations(once) / counted  # also warms up
        part = progress.measure(name, steps)
        seconds = part["seconds"] / part["samples"]
        rows[name] = {
            **part,
            "seconds_per_sample": seconds,
            "share_of_peak": per_sample / seconds / peak,
            "hours": seconds * PAPER_EXAMPLES * PAPER_DRAWS[name] / 3600,
        }
    hours = {
        "fit": rows["factors"]["hours"]
        + rows["eigenvalues"]["hours"]
        + decomposing / 3600,
        "gradients": rows["gradients"]["hours"],
    }
    card = facts()["machine"]
    return {
        **facts(),
        "device": device,
        "num_params": problem.layout.num_params,
        "size": vars(size),
        "matmul_peak_teraflops": peak / 1e12,
        "eigendecompositions_seconds": decomposing,
        "passes": rows,
        "cifar2_hours": hours,
        "paper_hours": PAPER_HOURS,
        "lines": [
            f"{name}: {hours[name]:.2f} hours for CIFAR-2 on {card}; "
            f"the paper {PAPER_HOURS[name]:.2f} hours on an {PAPER_CARD}"
            for name in hours
        ],
    }
