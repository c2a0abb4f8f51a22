"""How noisy are scores? Signal to noise of ways to draw, at equal compute.

Scores of some training images for some samples are estimated several times, each time
with other draws. r is the mean Spearman correlation between two such estimates; signal
to noise is r / (1 - r). Query gradients and curvature are the same throughout.
"""

import hashlib
import inspect
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

import core.measure.draws
from core.config import CollectionConfig
from core.curvature.basis import Curvature
from core.data.datasets import Dataset, load_dataset
from core.drawing import Drawing
from core.measure.costs import loss
from core.measure.draws import Augmentation, Draws, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.parameters import Layout
from core.model.sampling import sample
from core.presets import collection_config
from precompute.machinery.workspace import Workspace, open_workspace
from precompute.stages.curvature import fit_curvature
from precompute.stages.proposal import timestep_proposal
from precompute.stages.stages import shipped_weights
from precompute.stages.train import encode_all
from tests.benchmarks import machine

NUM_DRAWS = 64
NUM_EXAMPLES = 40
NUM_QUERIES = 12
NUM_ESTIMATES = 3
QUERY_DRAWS = 256


@dataclass(frozen=True)
class Problem:
    """A trained model and what is estimated.

    Attributes:
        config: The collection's settings.
        denoiser: The model.
        layout: Its layers that count.
        x_0: Clean training examples, shape (N, C, H, W).
        labels: Their classes, shape (N,).
        positions: Which examples are scored.
        solved: Preconditioned query gradients, shape (Q, P).
        proposal: Of `timestep_proposal`, shape (T,).
    """

    config: CollectionConfig
    denoiser: Denoiser
    layout: Layout
    x_0: Tensor
    labels: Tensor
    positions: list[int]
    solved: Tensor
    proposal: Tensor

    def draws(self, *keys: int | str, **settings) -> Draws:
        """Return what the package draws, keyed."""
        return make_draws(
            NUM_DRAWS,
            self.denoiser.shape,
            self.denoiser.num_train_timesteps,
            keyed_generator(self.config.seed, "noise benchmark", *keys),
            Augmentation(
                self.config.model.label_dropout, self.config.train.horizontal_flip
            ),
            **settings,
        )


def plain(problem: Problem, stratified: bool, *keys: int | str) -> Draws:
    """Return draws with noise, mirrors and labels of their own, as the paper does.

    Timesteps are independent, or each uniform in its own slice.
    """
    g = keyed_generator(problem.config.seed, "plain draws", *keys)
    slices = torch.arange(NUM_DRAWS) if stratified else 0
    position = (slices + torch.rand(NUM_DRAWS, generator=g)) / NUM_DRAWS
    if not stratified:
        position = position * NUM_DRAWS
    return Draws(
        (position * problem.denoiser.num_train_timesteps).long(),
        torch.randn(NUM_DRAWS, *problem.denoiser.shape, generator=g),
        torch.rand(NUM_DRAWS, generator=g) < problem.config.model.label_dropout,
        torch.rand(NUM_DRAWS, generator=g) < 0.5 * problem.config.train.horizontal_flip,
        torch.ones(NUM_DRAWS),
    )


def antithetic(problem: Problem, estimate: int) -> Draws:
    """Return the package's draws without a proposal and with independent pairs."""
    g = keyed_generator(problem.config.seed, "pairs", estimate)
    noise = torch.randn(NUM_DRAWS // 2, *problem.denoiser.shape, generator=g)
    noise = torch.stack([noise, -noise], 1).flatten(0, 1)
    return replace(problem.draws(estimate), noise=noise)


# Each takes (problem, number of the estimate, position of the example).
ESTIMATORS: dict[str, Callable[[Problem, int, int], Draws]] = {
    "independent": lambda p, e, j: plain(p, False, e, j),
    "stratified, shared": lambda p, e, _: plain(p, True, e),
    "systematic, shared, antithetic": lambda p, e, _: antithetic(p, e),
    "systematic, shared, antithetic orthogonal": lambda p, e, _: p.draws(e),
    "proposal, shared, antithetic orthogonal": lambda p, e, _: p.draws(
        e, proposal=p.proposal
    ),
    "the same in 4 folds": lambda p, e, _: p.draws(
        e, "folds", proposal=p.proposal, num_folds=4
    ),
}


def pose(
    config: CollectionConfig, dataset: Dataset, denoiser: Denoiser, workspace: Workspace
) -> Problem:
    """Return the problem: samples as queries, preconditioned, and the proposal."""
    curvature, _ = fit_curvature(config, dataset, denoiser, workspace)
    damping = config.gradients.relative_damping * float(
        curvature.eigenvalues.double().mean()
    )
    seed, x_0 = config.seed, encode_all(denoiser, dataset)
    labels = torch.from_numpy(dataset.labels)
    order = torch.randperm(len(dataset), generator=keyed_generator(seed, "noise of"))
    saved = workspace.load("curvature", "noise")
    if saved is None:
        tensors = {
            "solved": solved_queries(
                config, denoiser, curvature, damping, labels[order[-NUM_QUERIES:]]
            ),
            "proposal": timestep_proposal(
                denoiser,
                curvature,
                damping,
                x_0,
                labels,
                seed,
                config.train.horizontal_flip,
            ),
        }
        workspace.save("curvature", "noise", tensors)
    tensors, _ = workspace.load("curvature", "noise")
    positions = order[:NUM_EXAMPLES].tolist()
    layout = curvature.basis.layout
    return Problem(config, denoiser, layout, x_0, labels, positions, **tensors)


def solved_queries(
    config: CollectionConfig,
    denoiser: Denoiser,
    curvature: Curvature,
    damping: float,
    labels: Tensor,
) -> Tensor:
    """Return the preconditioned gradients of samples with the given labels, (Q, P)."""
    guidance = config.samples.guidance_scale
    drawings = [
        Drawing(int(label), i, guidance_scale=guidance)
        for i, label in enumerate(labels)
    ]
    trajectories = sample(denoiser, drawings, config.seed)
    g = keyed_generator(config.seed, "noise query draws")
    draws = make_draws(QUERY_DRAWS, denoiser.shape, denoiser.num_train_timesteps, g)
    layout = curvature.basis.layout
    return torch.cat([
        curvature.solve(
            fold_gradients(
                loss, denoiser, layout, t.states[-1], int(label), draws, 1, 64
            )[0],
            damping,
        )
        for t, label in zip(trajectories, labels, strict=True)
    ])


def estimated_scores(problem: Problem, name: str, path: Path) -> np.ndarray:
    """Return scores, shape (estimates, examples, queries), going on from the file."""
    scores = np.full((NUM_ESTIMATES, NUM_EXAMPLES, NUM_QUERIES), np.nan)
    if path.exists():
        scores = np.load(path)
    started = time.time()
    for e, j in itertools.product(range(NUM_ESTIMATES), range(NUM_EXAMPLES)):
        if not np.isnan(scores[e, j]).any():
            continue
        position = problem.positions[j]
        draws = ESTIMATORS[name](problem, e, position)
        gradient, _ = fold_gradients(
            loss,
            problem.denoiser,
            problem.layout,
            problem.x_0[position],
            int(problem.labels[position]),
            draws,
            1,
        )
        scores[e, j] = (gradient @ problem.solved.T)[0].numpy()
        if j % 8 == 7:
            np.save(path, scores)
    print(f"{name}: {time.time() - started:.0f} s", flush=True)
    return scores


def agreement(scores: np.ndarray) -> np.ndarray:
    """Return Spearman between every two estimates, shape (pairs, queries)."""
    return np.array([
        [spearmanr(a[:, q], b[:, q]).statistic for q in range(scores.shape[2])]
        for a, b in itertools.combinations(scores, 2)
    ])


def table(correlations: dict[str, np.ndarray]) -> list[dict]:
    """Return one row per estimator, errors by resampling queries 1,000 times.

    The resampled queries are the same for all rows, so the error of a ratio leaves out
    what makes a query hard for every estimator.
    """
    rng = np.random.default_rng(0)
    chosen = rng.integers(NUM_QUERIES, size=(1000, NUM_QUERIES))
    rows, first = [], None
    for name, values in correlations.items():
        per_query = values.mean(0)
        r = np.append(per_query[chosen].mean(1), per_query.mean())
        signal_to_noise = r / (1 - r)
        first = signal_to_noise if first is None else first
        ratio = signal_to_noise / first
        rows.append({
            "estimator": name,
            "r": round(r[-1], 4),
            "r_error": round(r[:-1].std(), 4),
            "signal_to_noise": round(signal_to_noise[-1], 2),
            "ratio": round(ratio[-1], 2),
            "ratio_error": round(ratio[:-1].std(), 2),
        })
    return rows


def measure(config: CollectionConfig, weights: bytes, workspace: Workspace) -> dict:
    """Return the table of a trained model, with what made it."""
    denoiser, dataset = denoiser_from_bytes(weights), load_dataset(config.data)
    problem = pose(config, dataset, denoiser, workspace)
    started, correlations = time.time(), {}
    source = hashlib.sha256(inspect.getsource(core.measure.draws).encode()).hexdigest()[
        :8
    ]
    for number, name in enumerate(ESTIMATORS):
        path = workspace.path("curvature", f"noise-{number}-{source}.npy")
        correlations[name] = agreement(estimated_scores(problem, name, path))
    rows = table(correlations)
    print(f"{'estimator':44} r       r/(1-r)  ratio to independent")
    for row in rows:
        print(
            f"{row['estimator']:44} {row['r']:.4f}  {row['signal_to_noise']:7.2f}  "
            f"{row['ratio']:5.2f} +- {row['ratio_error']:.2f}"
        )
    return {
        "collection": config.name,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "draws": NUM_DRAWS,
        "examples": NUM_EXAMPLES,
        "queries": NUM_QUERIES,
        "estimates": NUM_ESTIMATES,
        "relative_damping": config.gradients.relative_damping,
        "seed": config.seed,
        **machine.facts(),
        "seconds": round(time.time() - started, 1),
        "proposal": [
            round(float(part.mean()) * len(problem.proposal), 3)
            for part in problem.proposal.chunk(20)
        ],
        "rows": rows,
    }


def run(collection: str, root: Path | None) -> dict:
    """Return the table of a collection's shipped model; resumable.

    Raises:
        LookupError: If the collection's model was not made with the present settings.
    """
    config = collection_config(collection)
    weights = shipped_weights(config)
    if weights is None:
        raise LookupError(
            f"There is no trained model of '{collection}' with the present settings. "
            f"Make it with `python -m precompute train --collection {collection}`."
        )
    one = replace(config.curvature, factor_draws=1, eigenvalue_draws=1)
    config = replace(config, curvature=one)
    return measure(config, weights, open_workspace(config, root))
