"""What the pass over the training gradients costs, against its floor.

The floor is one forward and backward pass of the loss over the same examples and draws.
The last line is the accepted figure.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from core.config import collection_config
from core.curvature import (
    Curvature,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.datasets import load_dataset
from core.diffusion import denoiser_from_bytes
from core.draws import keyed_generator
from core.gradients import draws_in_parts
from core.index import GradientIndex
from core.measurements import loss
from core.parameters import attributed_parameters, parameter_layout
from core.query import QUERY_FOLDS
from precompute.build import shipped_weights
from precompute.curvature import curvature_samples
from precompute.gradients import (
    GradientStage,
    gradient_stage,
    make_reduction,
    measure_slice,
    open_rows,
    reduce_chunk,
)
from precompute.train import encode_all, new_denoiser
from precompute.workspace import open_workspace
from tests.benchmarks.machine import facts

BATCH_SIZE, CHUNKS, ROUNDS = 64, 2, 5
CURVATURE_SAMPLES, SLICE_EXAMPLES = 64, 4  # time does not depend on the values


def run(collection: str, root: Path | None) -> dict:
    """Return seconds of the floor and of the build's own path, writing included."""
    with TemporaryDirectory() as folder:
        stage, compute = prepared(collection, Path(folder))
        examples = CHUNKS * stage.config.gradients.chunk
        floor(stage, range(1))  # warm up
        compute(range(1))
        rounds = [
            {
                "floor": timed(floor, stage, range(examples)),
                "gradients": timed(compute, range(CHUNKS)),
            }
            for _ in range(ROUNDS)  # in turn, so that a slower machine slows all alike
        ]
    best = {name: min(r[name] for r in rounds) for name in rounds[0]}
    ratio = best["gradients"] / best["floor"]
    return {
        "collection": collection,
        **facts(),
        "num_params": stage.curvature.basis.layout.num_params,
        "examples": examples,
        "settings": vars(stage.config.gradients),
        "seconds": best,
        "rounds": rounds,
        "gradients/floor": ratio,
        "lines": [f"gradients/floor {ratio:.2f}"],
    }


def prepared(
    collection: str, folder: Path
) -> tuple[GradientStage, Callable[[range], None]]:
    """Return the stage, and what computes and writes chunks given by their numbers.

    The eigenbasis is of a few samples, timesteps are drawn evenly, queries at random.
    """
    config = collection_config(collection)
    config = replace(
        config, gradients=replace(config.gradients, slice_examples=SLICE_EXAMPLES)
    )
    dataset = load_dataset(config.data)
    weights = shipped_weights(config)
    denoiser = (
        denoiser_from_bytes(weights) if weights else new_denoiser(config, dataset)
    )
    x_0 = encode_all(denoiser, dataset)
    samples = curvature_samples(
        denoiser, config, dataset, x_0, "benchmark", 1, CURVATURE_SAMPLES, range(1)
    )
    batches, layout = list(samples), parameter_layout(denoiser.unet)
    basis, _ = eigenbasis(
        fit_factors(
            denoiser, layout, batches, max_positions=config.curvature.max_positions
        )
    )
    basis = basis.to("cpu")
    eigenvalues = fit_corrected_eigenvalues(denoiser, basis, batches).float()
    workspace = open_workspace(config, folder)
    proposal = torch.ones(denoiser.num_train_timesteps)
    workspace.save("gradients", "proposal", {"proposal": proposal})
    stage = gradient_stage(
        config, dataset, denoiser, Curvature(basis, eigenvalues), workspace
    )
    shape = (config.samples.num_samples, QUERY_FOLDS, layout.num_params)
    queries = torch.randn(shape, generator=keyed_generator(0, "benchmark queries"))
    reduction = make_reduction(stage, queries, measure_slice(stage, workspace))
    rows = open_rows(stage, queries, folder / "rows")
    index = GradientIndex(folder / "index", len(dataset), layout.num_params)
    index.create()

    def compute(numbers: range) -> None:
        for number in numbers:
            reduce_chunk(stage, reduction, rows.chunks()[number], rows, index)

    return stage, compute


def floor(stage: GradientStage, positions: range) -> None:
    """Compute the gradient of every batch of draws: the least that is needed."""
    denoiser, draws = stage.denoiser, stage.draws
    parameters = attributed_parameters(denoiser.unet, stage.curvature.basis.layout)
    for position in positions:
        label = int(stage.dataset.labels[position])
        for part in draws_in_parts(draws, 0, len(draws), BATCH_SIZE):
            costs = loss(denoiser, stage.x_0[position], label, part)
            torch.autograd.grad((part.weights * costs).mean(), parameters)


def timed(function: Callable, *args) -> float:
    """Return the seconds of a call."""
    started = time.perf_counter()
    function(*args)
    return time.perf_counter() - started
