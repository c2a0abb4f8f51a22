"""Do the cheap curvature estimates rank as the exact ones do?

Compared by the Spearman correlation of scores, mean over queries: the collection's own
settings (input covariances from part of the positions, eigenvalues from summed
gradients), and the textbook's (every position, every sample's gradient alone). A second
textbook fit with other draws shows how much of the difference is noise that both have.
"""

from pathlib import Path

import torch
from torch import Tensor

from core.config import collection_config
from core.curvature import (
    Curvature,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.datasets import load_dataset
from core.diffusion import Denoiser, denoiser_from_bytes
from core.draws import keyed_generator, make_draws
from core.gradients import fold_gradients
from core.influence import centred, split_reliability
from core.measurements import MEASUREMENTS
from core.parameters import parameter_layout
from core.query import query_draws
from precompute.build import shipped_weights
from precompute.curvature import curvature_samples, examples_per_batch
from precompute.train import encode_all
from tests.benchmarks.machine import facts

EXAMPLES, QUERIES, QUERY_DRAWS, EXACT_SAMPLES = 160, 12, 256, 1024
GROUPS = (8, 16, 32, 64)


def run(collection: str, root: Path | None) -> dict:
    """Return the Spearman correlation of scores with those of the exact estimate."""
    config = collection_config(collection)
    dataset = load_dataset(config.data)
    denoiser = denoiser_from_bytes(shipped_weights(config))
    layout, settings = parameter_layout(denoiser.unet), config.curvature
    x_0 = encode_all(denoiser, dataset)

    def samples(purpose: str, size: int, count: int):
        per_batch = examples_per_batch(size, settings.factor_draws)
        numbers = range(-(-count // (per_batch * settings.factor_draws)))
        return curvature_samples(
            denoiser,
            config,
            dataset,
            x_0,
            purpose,
            settings.factor_draws,
            size,
            numbers,
        )

    def exact(purpose: str) -> Curvature:
        basis, _ = eigenbasis(
            fit_factors(denoiser, layout, samples(purpose, 64, EXACT_SAMPLES))
        )
        basis = basis.to("cpu")
        ones = one_by_one(samples(f"{purpose} eigenvalues", 64, EXACT_SAMPLES))
        return Curvature(basis, fit_corrected_eigenvalues(denoiser, basis, ones))

    gradients, queries = gradients_and_queries(config, dataset, denoiser, x_0)

    def scores(curvature: Curvature) -> Tensor:
        damping = config.gradients.relative_damping * curvature.eigenvalues.mean()
        solved = curvature.basis.rotate(queries) / (curvature.eigenvalues + damping)
        return centred((solved @ curvature.basis.rotate(gradients).double().T).numpy())

    reference = scores(exact("first"))
    result = {
        "collection": collection,
        **facts(),
        "examples": EXAMPLES,
        "queries": QUERIES,
        "exact_samples": EXACT_SAMPLES,
        "samples": len(dataset) * settings.factor_draws,
        "exact with other draws": split_reliability(scores(exact("second")), reference),
    }
    everything = len(dataset) * settings.factor_draws
    factors = fit_factors(
        denoiser,
        layout,
        samples("factors", settings.batch_size, everything),
        max_positions=settings.max_positions,
    )
    basis, kfac_eigenvalues = eigenbasis(factors)
    basis = basis.to("cpu")
    result["kfac"] = split_reliability(
        scores(Curvature(basis, kfac_eigenvalues)), reference
    )
    for size in GROUPS:
        groups = samples("eigenvalues", size, everything)
        eigenvalues = fit_corrected_eigenvalues(denoiser, basis, groups)
        result[f"groups of {size}"] = split_reliability(
            scores(Curvature(basis, eigenvalues)), reference
        )
    return result


def one_by_one(batches):
    """Yield batches of one sample."""
    for batch in batches:
        for i in range(len(batch.x_t)):
            parts = (None if v is None else v[i : i + 1] for v in vars(batch).values())
            yield type(batch)(*parts)


def gradients_and_queries(
    config, dataset, denoiser: Denoiser, x_0: Tensor
) -> tuple[Tensor, Tensor]:
    """Return training gradients (E, P) and query gradients (Q, P), float32.

    The queries are training pictures that are not among the examples.
    """
    layout = parameter_layout(denoiser.unet)
    order = torch.randperm(len(dataset), generator=keyed_generator(0, "estimators"))
    conditional = denoiser.null_label is not None

    def gradient(position: int, draws) -> Tensor:
        label = int(dataset.labels[position]) if conditional else None
        found, _ = fold_gradients(
            MEASUREMENTS["loss"], denoiser, layout, x_0[position], label, draws, 1
        )
        return found[0]

    draws = make_draws(
        config.gradients.num_draws,
        denoiser.shape,
        denoiser.num_train_timesteps,
        keyed_generator(config.seed, "training draws"),
        config.model.label_dropout,
        config.train.horizontal_flip,
    )
    gradients = torch.stack([gradient(i, draws) for i in order[:EXAMPLES].tolist()])
    draws = query_draws(denoiser, QUERY_DRAWS, config.seed)
    chosen = order[EXAMPLES : EXAMPLES + QUERIES].tolist()
    return gradients, torch.stack([gradient(i, draws) for i in chosen]).double()
