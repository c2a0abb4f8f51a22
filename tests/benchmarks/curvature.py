"""What fitting EK-FAC costs, against the floor and against the peer libraries.

The floor is one forward and backward pass over the same samples. All take the same
samples in the same run; eigendecompositions are counted apart, for they depend on the
model alone. How the fit grows with the examples, the draws and the parameters is stated
as the slope of logarithms: 1 is proportional. The last lines are the accepted figures.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from core.config import CollectionConfig
from core.curvature.basis import Curvature
from core.curvature.fit import (
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.data.datasets import Dataset, load_dataset
from core.measure.draws import keyed_generator
from core.model.build import make_denoiser
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.parameters import (
    Layout,
    attributed_parameters,
    flatten_gradients,
    parameter_layout,
)
from core.presets import collection_config
from precompute.stages.curvature import CurvatureStage
from precompute.stages.stages import shipped_weights
from precompute.stages.train import encode_all, new_denoiser
from tests.benchmarks.machine import facts
from tests.benchmarks.peers import (
    KRONFLUENCE_MISSING,
    curvlinops_operator,
    curvlinops_seconds,
    kronfluence_seconds,
    timed,
)

SAMPLES, PEER_SAMPLES, ROUNDS = 512, 128, 3
# (examples, draws, widths of the levels): one of the three grows at a time.
THREE_LEVELS = {"attention": (False, True, True)}
GROWTH = {
    "examples": [(n, 1, (16, 32, 48)) for n in (64, 128, 256)],
    "draws": [(64, draws, (16, 32, 48)) for draws in (1, 2, 4)],
    "parameters": [
        (64, 1, widths) for widths in ((16, 16, 32), (16, 32, 48), (32, 64, 96))
    ],
}


def run(collection: str, root: Path | None) -> dict:
    """Return seconds of floor, fit and peers, and how well fit and curvlinops agree."""
    config = collection_config(collection)
    dataset = load_dataset(config.data)
    weights = shipped_weights(config)
    denoiser = (
        denoiser_from_bytes(weights) if weights else new_denoiser(config, dataset)
    )
    layout, x_0 = parameter_layout(denoiser.unet), encode_all(denoiser, dataset)
    draws = config.curvature.factor_draws
    batches = sample_batches(config, dataset, denoiser, x_0, SAMPLES // draws, draws)
    few = batches[: PEER_SAMPLES // config.curvature.batch_size]
    floor(denoiser, layout, batches[:1])  # warm up
    rounds, peers = [], []
    for number in range(ROUNDS):  # in turn: a slower machine slows all alike
        rounds.append(seconds_of_fit(config, denoiser, layout, batches))
        if number > 0:
            peers.append(curvlinops_seconds(denoiser, layout, few))
    best = {name: min(r[name] for r in rounds) for name in rounds[0]}
    fit = best["factors"] + best["eigenvalues"]
    kronfluence = kronfluence_seconds(denoiser, few)
    result = {
        "collection": collection,
        **facts(),
        "num_params": layout.num_params,
        "samples": SAMPLES,
        "settings": vars(config.curvature),
        "seconds": best,
        "rounds": rounds,
        "curvlinops": {"samples": PEER_SAMPLES, "rounds": peers},
        "kronfluence": kronfluence and {"samples": PEER_SAMPLES, **kronfluence},
        "agreement": agreement(denoiser, layout, few[0]),
        "growth": growth(config, dataset, x_0),
    }
    as_many = SAMPLES / PEER_SAMPLES
    ratios = {}
    if kronfluence is not None:
        ratios["kronfluence/fit"] = sum(kronfluence.values()) * as_many / fit
    ratios["fit/floor"] = fit / best["floor"]
    ratios["curvlinops/fit"] = min(peers) * as_many / fit
    lines = [f"{name} {ratio:.2f}" for name, ratio in ratios.items()]
    notes = [] if kronfluence is not None else [KRONFLUENCE_MISSING]
    return {**result, **ratios, "lines": [*notes, *lines]}


def sample_batches(
    config: CollectionConfig,
    dataset: Dataset,
    denoiser: Denoiser,
    x_0: torch.Tensor,
    examples: int,
    draws: int,
) -> list[Samples]:
    """Return the samples of a number of examples, in the batches that a build uses."""
    size = config.curvature.batch_size
    numbers = range(examples * draws // size)
    stage = CurvatureStage(config, dataset, denoiser, x_0)
    return list(stage.samples("benchmark", draws, size, numbers))


def seconds_of_fit(
    config: CollectionConfig,
    denoiser: Denoiser,
    layout: Layout,
    batches: list[Samples],
) -> dict[str, float]:
    """Return the seconds of the floor and of the parts of the fit."""
    settings = config.curvature
    seconds = {"floor": timed(floor, denoiser, layout, batches)[0]}
    seconds["factors"], factors = timed(
        fit_factors,
        denoiser,
        layout,
        batches,
        settings.kfac_approx,
        max_positions=settings.max_positions,
    )
    seconds["eigendecompositions"], (basis, _) = timed(eigenbasis, factors)
    basis = basis.to(denoiser.device)
    seconds["eigenvalues"] = timed(
        fit_corrected_eigenvalues, denoiser, basis, batches, settings.group_size
    )[0]
    return seconds


def floor(denoiser: Denoiser, layout: Layout, batches: list[Samples]) -> None:
    """Compute the gradient of every batch: the least that any method needs."""
    parameters = attributed_parameters(denoiser.unet, layout)
    for samples in batches:
        predicted = denoiser.predict(samples.x_t, samples.timesteps, samples.labels)
        torch.autograd.grad(samples.objective(predicted), parameters)


def growth(
    config: CollectionConfig, dataset: Dataset, x_0: torch.Tensor
) -> dict[str, dict]:
    """Return the seconds of fits of growing size, and their slopes, random weights."""
    table = {}
    for name, sizes in GROWTH.items():
        rows = []
        for examples, draws, widths in sizes:
            model = replace(config.model, **THREE_LEVELS, block_out_channels=widths)
            g, labels = keyed_generator(0, "growth"), len(dataset.class_names)
            data = config.data
            denoiser = make_denoiser(model, data.image_size, data.channels, labels, g)
            layout = parameter_layout(denoiser.unet)
            batches = sample_batches(config, dataset, denoiser, x_0, examples, draws)
            rounds = [
                seconds_of_fit(config, denoiser, layout, batches) for _ in range(2)
            ]
            rows.append({
                "examples": examples,
                "draws": draws,
                "parameters": layout.num_params,
                "seconds": min(r["factors"] + r["eigenvalues"] for r in rounds),
            })
        x, y = ([row[key] for row in rows] for key in (name, "seconds"))
        slope = float(np.polyfit(np.log(x), np.log(y), 1)[0])
        table[name] = {"slope": round(slope, 2), "rows": rows}
    return table


def agreement(denoiser: Denoiser, layout: Layout, samples: Samples) -> float:
    """Return the relative difference of one EK-FAC product from curvlinops'.

    The same algorithm on the same targets: the empirical Fisher, whose targets are
    data, nothing thinned, eigenvalues sample by sample.
    """
    g = torch.Generator().manual_seed(0)
    samples = samples[:16]
    signs = torch.ones(16, 1, 1, 1)
    samples = replace(samples, probes=signs, targets=samples.probes)
    vector = [
        torch.randn(p.shape, generator=g)
        for p in attributed_parameters(denoiser.unet, layout)
    ]
    peer = curvlinops_operator(denoiser, layout, [samples], "empirical")
    expected = flatten_gradients(peer @ vector, layout) / 16
    basis, _ = eigenbasis(fit_factors(denoiser, layout, [samples]))
    basis = basis.to("cpu")
    eigenvalues = fit_corrected_eigenvalues(denoiser, basis, [samples], 1).float()
    found = Curvature(basis, eigenvalues).multiply(flatten_gradients(vector, layout))
    return float((found - expected).norm() / expected.norm())
