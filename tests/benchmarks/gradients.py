"""What the pass over the training gradients costs, against its floor.

The floor is one forward and backward pass of the loss over the same examples and draws.
The last line is the accepted figure: gradients, rotation, balancing, quantising,
sketching and writing. A build also computes the exact scores of the whole gallery in
the same pass; the line before counts them in. `growth` measures how the seconds grow.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from core.config import CollectionConfig
from core.curvature.basis import Curvature, Eigenbasis
from core.data.datasets import load_dataset
from core.engine.query import QUERY_FOLDS
from core.index.full import GradientIndex
from core.measure.costs import loss
from core.measure.draws import keyed_generator, make_draws
from core.model.checkpoint import denoiser_from_bytes
from core.model.parameters import Layout, attributed_parameters, parameter_layout
from core.presets import collection_config
from precompute.machinery.rows import Rows
from precompute.machinery.workers import example_workers
from precompute.machinery.workspace import open_workspace
from precompute.stages.gradients import (
    GradientStage,
    Reduction,
    gradient_stage,
    make_reduction,
    measure_slice,
    open_rows,
    reduce_chunk,
)
from precompute.stages.stages import shipped_weights
from precompute.stages.train import new_denoiser
from tests.benchmarks.machine import facts

BATCH_SIZE, ROUNDS = 64, 3
SLICE_EXAMPLES = 2  # time does not depend on the values
# What growth is measured on: chunks of few examples, and a gallery that fits in memory
# beside each model.
GROWTH_CHUNK, GROWTH_SAMPLES, GROWTH_HEAD = 2, 8, 8
GROWTH_EXAMPLES = (2, 4, 8)
GROWTH_DRAWS = (32, 64, 128)
GROWTH_WIDTHS = ((16, 32, 48), (24, 48, 72), (32, 64, 96))


@dataclass(frozen=True)
class Pass:
    """All that chunks of examples are computed with."""

    stage: GradientStage
    reduction: Reduction
    rows: Rows
    index: GradientIndex

    def compute(self, examples: int) -> None:
        """Compute and write the first whole chunks of as many examples, as a build."""
        with example_workers(self.stage.denoiser.device) as pool:
            for positions in self.rows.chunks()[: examples // self.rows.chunk]:
                reduce_chunk(
                    self.stage, self.reduction, positions, self.rows, self.index, pool
                )

    def with_draws(self, count: int) -> "Pass":
        """Return the same with another number of draws, shared by all examples."""
        stage = self.stage
        draws = make_draws(
            count,
            stage.denoiser.shape,
            stage.denoiser.num_train_timesteps,
            keyed_generator(0, "benchmark draws"),
            num_folds=stage.config.gradients.num_folds,
        )
        return replace(
            self, stage=replace(stage, draws=draws.to(stage.denoiser.device))
        )


def run(collection: str, root: Path | None) -> dict:
    """Return seconds of the floor and of the build's own path, writing included.

    `gradients/floor` is the accepted figure: the floor runs as torch runs it, all
    threads in each layer. `gradients/divided floor` is against the same floor divided
    over one-thread workers as the pass itself is. Both are of the pass without a
    gallery; `with gallery/floor` is of a build's.
    """
    config = collection_config(collection)
    bare = replace(config, samples=replace(config.samples, num_samples=0))
    with TemporaryDirectory() as folder:
        work = prepared(config, Path(folder) / "gallery")
        alone = prepared(bare, Path(folder) / "alone")
        examples = work.rows.chunk
        tasks = {
            "floor": lambda: floor(work.stage, range(examples)),
            "divided floor": lambda: divided_floor(work.stage, examples),
            "gradients": lambda: alone.compute(examples),
            "with gallery": lambda: work.compute(examples),
        }
        for task in tasks.values():  # warm up
            task()
        rounds = [  # in turn, so that a slower machine slows all alike
            {name: timed(task) for name, task in tasks.items()} for _ in range(ROUNDS)
        ]
    best = {name: min(r[name] for r in rounds) for name in tasks}
    ratio, with_gallery = (
        best[name] / best["floor"] for name in ("gradients", "with gallery")
    )
    return {
        "collection": collection,
        **facts(),
        "num_params": work.stage.curvature.basis.layout.num_params,
        "examples": examples,
        "settings": vars(config.gradients),
        "seconds": best,
        "rounds": rounds,
        "gradients/divided floor": best["gradients"] / best["divided floor"],
        "with gallery/floor": with_gallery,
        "gradients/floor": ratio,
        "lines": [
            f"with the gallery's exact scores {with_gallery:.2f}",
            f"gradients/floor {ratio:.2f}",
        ],
    }


def run_growth(collection: str, root: Path | None) -> dict:
    """Return seconds and log-log slopes against examples, draws and parameters."""
    growing = growth(collection_config(collection))
    return {
        "collection": collection,
        **facts(),
        **growing,
        "lines": [
            f"slope against {name} {found['slope']:.2f}"
            for name, found in growing.items()
        ],
    }


def growth(config: CollectionConfig) -> dict[str, dict]:
    """Return seconds and slopes, models of several widths for the parameters."""
    small = replace(
        config,
        gradients=replace(config.gradients, chunk=GROWTH_CHUNK),
        samples=replace(config.samples, num_samples=GROWTH_SAMPLES),
        train=replace(config.train, start_from=""),
    )
    by_params, by_draws, by_examples = {}, {}, {}
    for widths in GROWTH_WIDTHS:
        model = replace(
            config.model, block_out_channels=widths, attention_head_dim=GROWTH_HEAD
        )
        with TemporaryDirectory() as folder:
            work = prepared(replace(small, model=model), Path(folder))
            params = work.stage.curvature.basis.layout.num_params
            by_params[params] = quickest(work, GROWTH_CHUNK)
            if widths == GROWTH_WIDTHS[-1]:
                by_examples = {n: quickest(work, n) for n in GROWTH_EXAMPLES}
                by_draws = {
                    s: quickest(work.with_draws(s), GROWTH_CHUNK) for s in GROWTH_DRAWS
                }
    return {
        "examples": with_slope(by_examples),
        "draws": with_slope(by_draws),
        "parameters": with_slope(by_params),
    }


def quickest(work: Pass, examples: int) -> float:
    """Return the seconds of the quickest of a few passes, after one to warm up."""
    work.compute(GROWTH_CHUNK)
    return min(timed(work.compute, examples) for _ in range(2))


def with_slope(seconds: dict[int, float]) -> dict:
    """Return the seconds and the slope of their logarithm against the size's."""
    sizes, times = np.log(list(seconds)), np.log(list(seconds.values()))
    return {"seconds": seconds, "slope": float(np.polyfit(sizes, times, 1)[0])}


def prepared(config: CollectionConfig, folder: Path) -> Pass:
    """Return a pass that is ready to compute.

    Timesteps are drawn evenly; curvature and queries are random.
    """
    config = replace(
        config, gradients=replace(config.gradients, slice_examples=SLICE_EXAMPLES)
    )
    dataset = load_dataset(config.data)
    weights = shipped_weights(config)
    denoiser = (
        denoiser_from_bytes(weights) if weights else new_denoiser(config, dataset)
    )
    layout = parameter_layout(denoiser.unet)
    workspace = open_workspace(config, folder)
    proposal = torch.ones(denoiser.num_train_timesteps)
    workspace.save("gradients", "proposal", {"proposal": proposal})
    curvature = random_curvature(layout)
    stage = gradient_stage(config, dataset, denoiser, curvature, workspace)
    shape = (config.samples.num_samples, QUERY_FOLDS, layout.num_params)
    queries = torch.randn(shape, generator=keyed_generator(0, "benchmark queries"))
    reduction = make_reduction(stage, queries, measure_slice(stage, workspace))
    rows = open_rows(stage, queries, folder / "rows")
    index = GradientIndex(
        folder / "index",
        len(dataset),
        layout.num_params,
        config.gradients.index_bits,
    )
    index.create()
    return Pass(stage, reduction, rows, index)


def random_curvature(layout: Layout) -> Curvature:
    """Return a curvature of the right sizes."""
    g = keyed_generator(0, "benchmark curvature")

    def matrices(sides: list[int]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(d, d, generator=g) / d**0.5 for d in sides)

    basis = Eigenbasis(
        layout,
        matrices([layer.d_in for layer in layout.layers]),
        matrices([layer.d_out for layer in layout.layers]),
    )
    return Curvature(basis, torch.rand(layout.num_params, generator=g))


def divided_floor(stage: GradientStage, examples: int) -> None:
    """Compute the same gradients as `floor`, each by a worker of one thread."""
    with example_workers(stage.denoiser.device) as pool:
        list(pool.map(lambda i: floor(stage, range(i, i + 1)), range(examples)))


def floor(stage: GradientStage, positions: range) -> None:
    """Compute the gradient of every batch of draws: the least that is needed."""
    denoiser, draws = stage.denoiser, stage.draws
    parameters = attributed_parameters(denoiser.unet, stage.curvature.basis.layout)
    for position in positions:
        label = int(stage.dataset.labels[position])
        for part in draws.split(BATCH_SIZE):
            costs = loss(denoiser, stage.x_0[position], label, part)
            torch.autograd.grad((part.weights * costs).mean(), parameters)


def timed(function: Callable, *args) -> float:
    """Return the seconds of a call."""
    started = time.perf_counter()
    function(*args)
    return time.perf_counter() - started
