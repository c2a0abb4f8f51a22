"""What fitting EK-FAC costs, against the floor and against the peer libraries.

The floor is one forward and backward pass over the same samples. All take the same
samples in the same run; eigendecompositions are counted apart, for they depend on the
model alone. The last lines are the accepted figures.
"""

import time
from pathlib import Path

import curvlinops.ekfac
import torch
from curvlinops import EKFACLinearOperator
from torch import nn

from core.config import collection_config
from core.curvature import (
    Curvature,
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.datasets import load_dataset
from core.diffusion import Denoiser, denoiser_from_bytes
from core.parameters import (
    Layout,
    attributed_parameters,
    flatten_gradients,
    parameter_layout,
)
from precompute.build import shipped_weights
from precompute.curvature import curvature_samples, examples_per_batch
from precompute.train import encode_all, new_denoiser
from tests.benchmarks.machine import facts

SAMPLES, PEER_SAMPLES, ROUNDS = 512, 128, 3


def run(collection: str, root: Path | None) -> dict:
    """Return seconds of floor, fit and curvlinops, and how well the two agree."""
    config = collection_config(collection)
    dataset = load_dataset(config.data)
    weights = shipped_weights(config)
    denoiser = (
        denoiser_from_bytes(weights) if weights else new_denoiser(config, dataset)
    )
    layout, settings = parameter_layout(denoiser.unet), config.curvature
    x_0 = encode_all(denoiser, dataset)

    def batches(size: int, count: int) -> list[Samples]:
        per_batch = examples_per_batch(size, settings.factor_draws)
        numbers = range(count // (per_batch * settings.factor_draws))
        return list(
            curvature_samples(
                denoiser,
                config,
                dataset,
                x_0,
                "benchmark",
                settings.factor_draws,
                size,
                numbers,
            )
        )

    wide = batches(settings.batch_size, SAMPLES)
    groups = batches(settings.group_size, SAMPLES)
    floor(denoiser, layout, wide[:1])  # warm up
    rounds = []
    for _ in range(ROUNDS):  # in turn, so that a slower machine slows all alike
        seconds = {"floor": timed(floor, denoiser, layout, wide)[0]}
        seconds["factors"], factors = timed(
            fit_factors,
            denoiser,
            layout,
            wide,
            settings.kfac_approx,
            max_positions=settings.max_positions,
        )
        seconds["eigendecompositions"], (basis, _) = timed(eigenbasis, factors)
        basis = basis.to("cpu")
        seconds["eigenvalues"] = timed(
            fit_corrected_eigenvalues, denoiser, basis, groups
        )[0]
        rounds.append(seconds)
    best = {name: min(r[name] for r in rounds) for name in rounds[0]}
    few = batches(settings.batch_size, PEER_SAMPLES)
    peer = curvlinops_seconds(denoiser, layout, few)
    fit = best["factors"] + best["eigenvalues"]
    peer_per_sample = peer / PEER_SAMPLES
    result = {
        "collection": collection,
        **facts(),
        "num_params": layout.num_params,
        "samples": SAMPLES,
        "settings": vars(settings),
        "seconds": best,
        "rounds": rounds,
        "curvlinops": {"samples": PEER_SAMPLES, "seconds": peer},
        "agreement": agreement(denoiser, layout, few[0]),
        "fit/floor": fit / best["floor"],
        "curvlinops/fit": peer_per_sample / (fit / SAMPLES),
    }
    result["lines"] = [
        f"{name} {result[name]:.2f}" for name in ("fit/floor", "curvlinops/fit")
    ]
    return result


def timed(function, *args, **kwargs) -> tuple[float, object]:
    """Return (seconds, result) of a call."""
    started = time.perf_counter()
    result = function(*args, **kwargs)
    return time.perf_counter() - started, result


def floor(denoiser: Denoiser, layout: Layout, batches: list[Samples]) -> None:
    """Compute the gradient of every batch: the least that any method needs."""
    parameters = attributed_parameters(denoiser.unet, layout)
    for samples in batches:
        predicted = denoiser.predict(samples.x_t, samples.timesteps, samples.labels)
        torch.autograd.grad(samples.objective(predicted), parameters)


class Packed(nn.Module):
    """A denoiser as curvlinops wants it: one input tensor, 2-D output."""

    def __init__(self, denoiser: Denoiser):
        super().__init__()
        self.denoiser = denoiser

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        """Return predictions (B, C H W) from x_t, timestep and label in one row."""
        x_t = packed[:, :-2].unflatten(1, self.denoiser.shape)
        timesteps, labels = packed[:, -2].long(), packed[:, -1].long()
        if self.denoiser.null_label is None:
            labels = None
        return self.denoiser.predict(x_t, timesteps, labels).flatten(1)


def peer_operator(
    denoiser: Denoiser, layout: Layout, batches: list[Samples], fisher_type: str
) -> EKFACLinearOperator:
    """Return curvlinops' EK-FAC over the samples; it computes on first use."""
    data = []
    for samples in batches:
        labels = samples.labels
        labels = torch.zeros_like(samples.timesteps) if labels is None else labels
        columns = [samples.timesteps[:, None].float(), labels[:, None].float()]
        packed = torch.cat([samples.x_t.flatten(1), *columns], 1)
        targets = samples.targets if samples.targets is not None else samples.probes
        data.append((packed, targets.flatten(1)))
    return EKFACLinearOperator(
        Packed(denoiser),
        nn.MSELoss(reduction="sum"),
        attributed_parameters(denoiser.unet, layout),
        data,
        fisher_type=fisher_type,
        mc_samples=1,
        kfac_approx="expand",
        separate_weight_and_bias=False,
        check_deterministic=False,
    )


def curvlinops_seconds(
    denoiser: Denoiser, layout: Layout, batches: list[Samples]
) -> float:
    """Return the seconds of curvlinops' two passes, without its decompositions."""
    operator = peer_operator(denoiser, layout, batches, "mc")
    vector = [torch.zeros_like(p) for p in attributed_parameters(denoiser.unet, layout)]
    decomposing = 0.0
    eigh = curvlinops.ekfac.eigh

    def timed_eigh(matrix):
        nonlocal decomposing
        seconds, found = timed(eigh, matrix)
        decomposing += seconds
        return found

    curvlinops.ekfac.eigh = timed_eigh
    try:
        return timed(lambda: operator @ vector)[0] - decomposing
    finally:
        curvlinops.ekfac.eigh = eigh


def agreement(denoiser: Denoiser, layout: Layout, samples: Samples) -> float:
    """Return the relative difference of one EK-FAC product from curvlinops'.

    The same algorithm on the same targets: the empirical Fisher, whose targets are
    data, nothing thinned, eigenvalues sample by sample.
    """
    g = torch.Generator().manual_seed(0)
    samples = Samples(
        samples.x_t[:16],
        samples.timesteps[:16],
        None if samples.labels is None else samples.labels[:16],
        torch.ones(16, 1, 1, 1),
        samples.probes[:16],
    )
    vector = [
        torch.randn(p.shape, generator=g)
        for p in attributed_parameters(denoiser.unet, layout)
    ]
    peer = peer_operator(denoiser, layout, [samples], "empirical")
    expected = flatten_gradients(peer @ vector, layout) / 16
    basis, _ = eigenbasis(fit_factors(denoiser, layout, [samples]))
    basis = basis.to("cpu")
    singles = [
        Samples(*(None if v is None else v[i : i + 1] for v in vars(samples).values()))
        for i in range(16)
    ]
    eigenvalues = fit_corrected_eigenvalues(denoiser, basis, singles).float()
    found = Curvature(basis, eigenvalues).multiply(flatten_gradients(vector, layout))
    return float((found - expected).norm() / expected.norm())
