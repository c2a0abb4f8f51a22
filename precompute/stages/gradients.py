"""Training gradients into index, sketches and gallery scores in one pass; resumable.

Each example's gradient is computed once and used for everything at once: the full 8-bit
index, the sketch that travels inside the collection, and the exact scores of the whole
gallery (the paper's query batching, Sec. 3.2), so that the gallery's answers lose
nothing to compression.
"""

import time
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.collection.schema import file_sha256
from core.collection.store import Collection, find_collection
from core.config import CollectionConfig
from core.curvature.basis import Curvature
from core.data.datasets import Dataset
from core.index.full import GradientIndex, balance
from core.index.sketch import Sketch, collection_sketch, pack_signs
from core.measure.costs import loss
from core.measure.draws import Augmentation, Draws, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.denoiser import Denoiser
from precompute.machinery.parallel import rank_and_size, wait_for_all
from precompute.machinery.progress import Bar
from precompute.machinery.rows import Rows
from precompute.machinery.workers import example_workers
from precompute.machinery.workspace import Workspace
from precompute.stages.proposal import timestep_proposal
from precompute.stages.train import encode_all

QUERIES_AT_ONCE = 32  # of the gallery, by one worker


@dataclass(frozen=True)
class GradientStage:
    """What every step of the pass needs.

    Attributes:
        config: The collection's settings.
        dataset: The training set.
        denoiser: The model.
        curvature: EK-FAC, on the model's device.
        draws: The draws that all examples share, on the model's device; None before
            they are made.
        x_0: Clean examples, shape (N, C, H, W).
    """

    config: CollectionConfig
    dataset: Dataset
    denoiser: Denoiser
    curvature: Curvature
    draws: Draws | None
    x_0: Tensor

    @property
    def damping(self) -> float:
        """Return the recommended damping, in the units of the eigenvalues."""
        relative = self.config.gradients.relative_damping
        return relative * float(self.curvature.eigenvalues.double().mean())

    def folds(self, position: int) -> Tensor:
        """Return one example's gradient by each fold of the draws, shape (F, P)."""
        gradients, _ = fold_gradients(
            loss,
            self.denoiser,
            self.curvature.basis.layout,
            self.x_0[position],
            int(self.dataset.labels[position]),
            self.draws,
            self.config.gradients.num_folds,
        )
        return gradients


def gradient_stage(
    config: CollectionConfig,
    dataset: Dataset,
    denoiser: Denoiser,
    curvature: Curvature,
    workspace: Workspace,
) -> GradientStage:
    """Return the stage: shared draws and encoded images, on the model's device.

    How often each timestep is drawn is measured once and kept in the workspace.
    """
    device = denoiser.device
    on_device = Curvature(curvature.basis.to(device), curvature.eigenvalues.to(device))
    x_0 = encode_all(denoiser, dataset)
    stage = GradientStage(config, dataset, denoiser, on_device, None, x_0)
    draws = make_draws(
        config.gradients.num_draws,
        denoiser.shape,
        denoiser.num_train_timesteps,
        keyed_generator(config.seed, "training draws"),
        Augmentation(config.model.drops, config.train.horizontal_flip),
        num_folds=config.gradients.num_folds,
        proposal=measured_proposal(stage, workspace),
    )
    return replace(stage, draws=draws.to(device))


def measured_proposal(stage: GradientStage, workspace: Workspace) -> Tensor:
    """Return how often each timestep is to be drawn, shape (T,)."""

    def make() -> dict[str, Tensor]:
        proposal = timestep_proposal(
            stage.denoiser,
            stage.curvature,
            stage.damping,
            stage.x_0,
            torch.from_numpy(stage.dataset.labels),
            stage.config.seed,
            stage.config.train.horizontal_flip,
        )
        return {"proposal": proposal}

    return workspace.kept("gradients", "proposal", make)["proposal"]


def measure_slice(stage: GradientStage, workspace: Workspace) -> dict[str, Tensor]:
    """Return `rms` (P,), `noise` (P,) and `spread` () of a random slice of examples.

    `rms` is the root mean square of each rotated coordinate. `noise` is the Monte Carlo
    variance of a coordinate of the mean over folds, without the part that all examples
    share: that part moves all scores alike and goes when scores are centred. `spread`
    is the average over the slice of `fold_spread`, which no rotation changes.
    """
    return workspace.kept("gradients", "slice", lambda: slice_statistics(stage))


def slice_statistics(stage: GradientStage) -> dict[str, Tensor]:
    """Return what `measure_slice` does, measured anew."""
    settings = stage.config.gradients
    count = min(settings.slice_examples, len(stage.dataset))
    positions = torch.randperm(
        len(stage.dataset), generator=keyed_generator(stage.config.seed, "slice")
    )[:count]
    num_params = stage.curvature.basis.layout.num_params
    zeros = torch.zeros(num_params, dtype=torch.float64, device=stage.denoiser.device)
    squares, deviations = zeros.clone(), zeros.clone()
    shared = torch.zeros_like(zeros).expand(settings.num_folds, -1).clone()

    def rotated(position: int) -> Tensor:
        return stage.curvature.basis.rotate(stage.folds(position))

    with example_workers(stage.denoiser.device) as pool:
        for chunk in Bar(positions.split(settings.chunk), "slice"):
            for folds in pool.map(rotated, chunk.tolist()):
                mean = folds.double().mean(0)
                squares += mean.square()
                deviations += (folds - mean).square().sum(0)
                shared += folds - mean
    own = deviations - shared.square().sum(0) / count
    noise = own / (max(count - 1, 1) * settings.num_folds * (settings.num_folds - 1))
    return {
        "rms": (squares / count).sqrt().float().cpu(),
        "noise": noise.clamp(min=0).float().cpu(),
        "spread": (deviations.sum() / count).float().cpu(),
    }


def fold_spread(folds: Tensor) -> Tensor:
    """Return the sum over folds of |fold - mean|^2 of one example's folds (F, P)."""
    mean = folds.mean(0)  # `dist` writes no difference to memory
    return torch.stack([torch.dist(fold, mean) for fold in folds]).square().sum()


@dataclass(frozen=True)
class Reduction:
    """What turns gradients into the little that is kept of them.

    Attributes:
        divisor: Balances the rotated coordinates for the index, shape (P,).
        damped: Eigenvalue + damping, shape (P,).
        sketch: Of the rotated gradients, whitens them first.
        mean_queries: Preconditioned mean queries in the space of the parameters, where
            the folds of a gradient are, shape (M, P).
        queries: Preconditioned rotated queries, per fold, shape (M F', P).
        spread: The average of `fold_spread`; 1 where there is none.
    """

    divisor: Tensor
    damped: Tensor
    sketch: Sketch
    mean_queries: Tensor
    queries: Tensor
    spread: Tensor


def make_reduction(
    stage: GradientStage, queries: Tensor, statistics: dict[str, Tensor]
) -> Reduction:
    """Return the reduction to the scores of rotated queries (M, F', P) and the rest."""
    config, device = stage.config, stage.denoiser.device
    damped = stage.curvature.eigenvalues + stage.damping
    sketch = collection_sketch(
        config.seed, queries.shape[-1], config.gradients.sketch_dim
    )
    solved = queries.to(device) / damped
    means = solved.mean(1)
    with example_workers(device) as pool:  # one thread each: the same bits everywhere
        back = list(pool.map(stage.curvature.basis.rotate_back, means))
    return Reduction(
        balance(statistics["rms"].to(device)),
        damped,
        sketch.weighted(damped.rsqrt().cpu()),
        torch.stack(back) if back else means,
        solved.flatten(0, 1),
        balance(statistics["spread"].to(device)),
    )


def open_rows(stage: GradientStage, queries: Tensor, folder: Path) -> Rows:
    """Open or create the rows of `reduce_chunk`."""
    settings, (num_queries, query_folds, _) = stage.config.gradients, queries.shape
    shapes = {
        "bits": ("u1", (settings.sketch_dim // 8,)),
        "scale": ("<f4", ()),
        "norm": ("<f4", ()),
        "level": ("<f4", ()),
        "panel_train": ("<f4", (num_queries, settings.num_folds)),
        "panel_query": ("<f4", (num_queries, query_folds)),
        "seconds": ("<f4", ()),
    }
    return Rows(folder, len(stage.dataset), settings.chunk, shapes)


def reduce_chunk(
    stage: GradientStage,
    reduction: Reduction,
    positions: range,
    rows: Rows,
    index: GradientIndex,
    pool: Executor,
) -> None:
    """Compute the gradients of a chunk of examples and store what is kept of them.

    Each example is one worker's: only the mean of its folds is rotated, and encoded and
    sketched while it is in the cache. The products with the gallery's queries, longer
    than all else in memory, read them once for the whole chunk.
    """
    started = time.time()

    def reduce_one(position: int) -> tuple[Tensor, ...]:
        folds = stage.folds(position)
        mean = stage.curvature.basis.rotate(folds.mean(0))[None]
        index.write(position, mean / reduction.divisor)
        sketch = reduction.sketch.apply(mean)
        norm = (mean.square() / reduction.damped).sum().sqrt()
        return folds, mean, sketch, norm, fold_spread(folds) / reduction.spread

    done = zip(*pool.map(reduce_one, positions), strict=True)
    folds, mean, sketch, norm, level = (torch.stack(values) for values in done)
    bits, scale = pack_signs(sketch[:, 0])
    rows.write(
        positions,
        bits=bits,
        scale=scale,
        norm=norm.cpu().numpy(),
        level=level.cpu().numpy(),
        panel_train=panel(pool, folds, reduction.mean_queries),
        panel_query=panel(pool, mean, reduction.queries).reshape(
            rows.arrays["panel_query"][positions.start : positions.stop].shape
        ),
        seconds=(time.time() - started) / len(positions),
    )


def panel(pool: Executor, vectors: Tensor, queries: Tensor) -> np.ndarray:
    """Return inner products, shape (B, M, F), of vectors (B, F, P) with (M, P)."""
    flat = vectors.flatten(0, 1)
    parts = pool.map(lambda part: flat @ part.T, queries.split(QUERIES_AT_ONCE))
    products = torch.cat(list(parts), 1).unflatten(0, vectors.shape[:2])
    return products.mT.cpu().numpy()


def is_whole(index: GradientIndex, name: str, rows: Rows) -> bool:
    """Return whether the index still holds what the finished rows put into it.

    It is not where files are gone. Where nothing is left to do, the collection that was
    published with it knows the checksums.

    Args:
        index: In the folder of the published collections.
        name: Of the collection.
        rows: What is finished.
    """
    paths = {index.folder / shard for shard in index.shard_names()}
    if not rows.done.any():
        return True
    if not all(path.is_file() for path in paths):
        return False
    if rows.missing():
        return True
    try:
        with Collection(find_collection(index.folder.parent, name)) as published:
            shards = {published.shard_path(s): s.sha256 for s in published.shards()}
    except (LookupError, ValueError):  # nothing was published yet, or no longer
        return True
    known = paths & shards.keys()
    return all(file_sha256(path) == shards[path] for path in known)


def compute_gradients(
    stage: GradientStage,
    queries: Tensor,
    workspace: Workspace,
    index_folder: Path,
    part: tuple[int, int] = (0, 1),
) -> tuple[Rows, GradientIndex, dict[str, Tensor]]:
    """Compute every training gradient and what is kept of it.

    Args:
        stage: From `gradient_stage`.
        queries: Rotated gallery queries, shape (M, F', P).
        workspace: Where results go.
        index_folder: Where the full index goes.
        part: (i, n): only every n-th chunk from the i-th on. Several processes may each
            take a part; what they write is the same as one process's.

    Returns:
        The rows (`bits`, `scale`: packed sketch; `norm`: length of the whitened
        gradient; `level`: spread of its folds relative to the slice's; `panel_train`
        (M, F): scores of the gallery's mean queries with each fold; `panel_query`
        (M, F'): scores of each query fold with the mean gradient; `seconds` spent), the
        full index, and the slice's statistics.
    """
    statistics = measure_slice(stage, workspace)
    reduction = make_reduction(stage, queries, statistics)
    rows = open_rows(stage, queries, workspace.path("gradients", "records.d"))
    index = GradientIndex(
        index_folder,
        len(stage.dataset),
        queries.shape[-1],
        stage.config.gradients.index_bits,
    )
    if rank_and_size()[0] == 0 and not is_whole(index, stage.config.name, rows):
        print(f"The index in '{index_folder.name}' is gone or damaged: made again.")
        for name in index.shard_names():
            (index_folder / name).unlink(missing_ok=True)
        rows.forget()
    wait_for_all()
    index.create()
    statistics["rms"].numpy().astype("<f4").tofile(index_folder / "rms.bin")

    with example_workers(stage.denoiser.device) as pool:
        for positions in rows.unfinished(part, "gradients"):
            reduce_chunk(stage, reduction, positions, rows, index, pool)
    return rows, index, statistics
