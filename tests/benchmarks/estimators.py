"""Do the cheap curvature estimates rank as the exact one does?

Compared by the Spearman correlation of scores, mean over queries. The exact estimate is
the textbook's: factors of every position, eigenvalues of every sample's gradient alone.
The cheap ones take factors from part of the samples and eigenvalues from summed
gradients. All see the same noisy examples, so only the estimator differs. K-FAC,
of the exact factors, shows what the eigenvalues matter. The last line is the accepted
figure, of the collection's own settings.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.config import CollectionConfig
from core.curvature.basis import Curvature, Eigenbasis
from core.curvature.fit import (
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.data.datasets import Dataset, load_dataset
from core.engine.query import query_draws
from core.measure.costs import loss
from core.measure.draws import Augmentation, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.parameters import parameter_layout
from core.presets import collection_config
from core.scores.influence import centred, split_reliability
from precompute.stages.curvature import CurvatureStage
from precompute.stages.stages import shipped_weights
from precompute.stages.train import encode_all
from tests.benchmarks.machine import facts

EXAMPLES, QUERIES, QUERY_DRAWS = 96, 8, 128
SAMPLES, EXACT_BATCH = 2048, 16  # a few batches of the exact estimate fill the memory
MAX_POSITIONS, GROUPS = (64, 32), (32, 64)


def run(collection: str, root: Path | None) -> dict:
    """Return the Spearman correlation of scores with those of the exact estimate."""
    started = time.time()
    config = collection_config(collection)
    dataset, settings = load_dataset(config.data), config.curvature
    denoiser = denoiser_from_bytes(shipped_weights(config))
    layout, x_0 = parameter_layout(denoiser.unet), encode_all(denoiser, dataset)
    stage = CurvatureStage(config, dataset, denoiser, x_0)

    def samples(purpose: str) -> list[Samples]:
        draws, size = settings.factor_draws, settings.batch_size
        count = min(SAMPLES, len(dataset) * draws)
        numbers = range(count // size)
        return list(stage.samples(purpose, draws, size, numbers))

    factor_samples, eigenvalue_samples = samples("factors"), samples("eigenvalues")

    def basis_of(max_positions: int | None) -> tuple[Eigenbasis, Tensor]:
        factors = fit_factors(
            denoiser, layout, factor_samples, max_positions=max_positions
        )
        basis, kfac_eigenvalues = eigenbasis(factors)
        return basis.to("cpu"), kfac_eigenvalues

    def ekfac(basis: Eigenbasis, group_size: int) -> Curvature:
        batches = eigenvalue_samples
        if group_size == 1:
            batches = [part for b in batches for part in b.split(EXACT_BATCH)]
        return Curvature(
            basis, fit_corrected_eigenvalues(denoiser, basis, batches, group_size)
        )

    scores = scores_by(config, *gradients_and_queries(config, dataset, denoiser, x_0))
    exact_basis, kfac_eigenvalues = basis_of(None)
    exact = scores(ekfac(exact_basis, 1))
    kfac = scores(Curvature(exact_basis, kfac_eigenvalues))
    rows = []
    for max_positions in MAX_POSITIONS:
        basis, _ = basis_of(max_positions)
        for group_size in GROUPS:
            found = scores(ekfac(basis, group_size))
            rows.append({
                "max_positions": max_positions,
                "group_size": group_size,
                "spearman": split_reliability(found, exact),
            })
            print(rows[-1], flush=True)
    default = next(
        row["spearman"]
        for row in rows
        if row["max_positions"] == settings.max_positions
        and row["group_size"] == settings.group_size
    )
    return {
        "collection": collection,
        **facts(),
        "num_params": layout.num_params,
        "samples": sum(len(batch.x_t) for batch in eigenvalue_samples),
        "examples": EXAMPLES,
        "queries": QUERIES,
        "relative_damping": config.gradients.relative_damping,
        "settings": vars(settings),
        "kfac": split_reliability(kfac, exact),
        "rows": rows,
        "seconds": round(time.time() - started, 1),
        "lines": [f"estimator/exact spearman {default:.4f}"],
    }


def scores_by(
    config: CollectionConfig, gradients: Tensor, queries: Tensor
) -> Callable[[Curvature], np.ndarray]:
    """Return what gives the centred scores (Q, E) under a curvature."""

    def scores(curvature: Curvature) -> np.ndarray:
        damping = config.gradients.relative_damping * curvature.eigenvalues.mean()
        solved = curvature.basis.rotate(queries) / (curvature.eigenvalues + damping)
        rotated = curvature.basis.rotate(gradients).double()
        return centred((solved @ rotated.T).numpy())

    return scores


def gradients_and_queries(
    config: CollectionConfig, dataset: Dataset, denoiser: Denoiser, x_0: Tensor
) -> tuple[Tensor, Tensor]:
    """Return training gradients (E, P) and query gradients (Q, P), float32.

    The queries are training images that are not among the examples.
    """
    layout = parameter_layout(denoiser.unet)
    order = torch.randperm(len(dataset), generator=keyed_generator(0, "estimators"))
    conditional = denoiser.null_label is not None

    def gradient(position: int, draws) -> Tensor:
        label = int(dataset.labels[position]) if conditional else None
        found, _ = fold_gradients(
            loss, denoiser, layout, x_0[position], label, draws, 1
        )
        return found[0]

    draws = make_draws(
        config.gradients.num_draws,
        denoiser.shape,
        denoiser.num_train_timesteps,
        keyed_generator(config.seed, "training draws"),
        Augmentation(config.model.label_dropout, config.train.horizontal_flip),
    )
    gradients = torch.stack([gradient(i, draws) for i in order[:EXAMPLES].tolist()])
    draws = query_draws(denoiser, QUERY_DRAWS, config.seed)
    chosen = order[EXAMPLES : EXAMPLES + QUERIES].tolist()
    return gradients, torch.stack([gradient(i, draws) for i in chosen])
