"""Training gradients into index, sketches and gallery scores in one pass; resumable.

Each example's gradient is computed once and used for everything at once: the full 8-bit
index, the sketch that travels inside the collection, and the exact scores of the whole
gallery (the paper's query batching, Sec. 3.2), so that the gallery's answers lose
nothing to compression.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from core.config import CollectionConfig
from core.curvature import Curvature
from core.datasets import Dataset
from core.diffusion import Denoiser
from core.draws import Draws, keyed_generator, make_draws
from core.gradients import fold_gradients
from core.index import GradientIndex, balance, create_once
from core.measurements import MEASUREMENTS
from core.proposal import timestep_proposal
from core.sketch import Sketch, collection_sketch, pack_signs
from precompute.train import encode_all
from precompute.workspace import Workspace


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

    def rotated(self, position: int) -> Tensor:
        """Return one example's gradient in the eigenbasis, per fold, shape (F, P)."""
        label = int(self.dataset.labels[position])
        gradients, _ = fold_gradients(
            MEASUREMENTS["loss"],
            self.denoiser,
            self.curvature.basis.layout,
            self.x_0[position],
            label if self.denoiser.null_label is not None else None,
            self.draws,
            self.config.gradients.num_folds,
        )
        return self.curvature.basis.rotate(gradients)


def gradient_stage(
    config: CollectionConfig,
    dataset: Dataset,
    denoiser: Denoiser,
    curvature: Curvature,
    workspace: Workspace,
) -> GradientStage:
    """Return the stage: shared draws and encoded pictures, on the model's device.

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
        config.model.label_dropout,
        config.train.horizontal_flip,
        num_folds=config.gradients.num_folds,
        proposal=measured_proposal(stage, workspace),
    )
    return replace(stage, draws=draws.to(device))


def measured_proposal(stage: GradientStage, workspace: Workspace) -> Tensor:
    """Return how often each timestep is to be drawn, shape (T,)."""
    saved = workspace.load("gradients", "proposal")
    if saved is None:
        proposal = timestep_proposal(
            stage.denoiser,
            stage.curvature,
            stage.damping,
            stage.x_0,
            torch.from_numpy(stage.dataset.labels),
            stage.config.seed,
            stage.config.train.horizontal_flip,
        )
        workspace.save("gradients", "proposal", {"proposal": proposal})
        return proposal
    return saved[0]["proposal"]


def measure_slice(stage: GradientStage, workspace: Workspace) -> dict[str, Tensor]:
    """Return `rms` (P,) and `noise` (P,) from a random slice of the training set.

    `rms` is the root mean square of each rotated coordinate. `noise` is the Monte Carlo
    variance of a coordinate of the mean over folds, without the part that all examples
    share: that part moves all scores alike and goes when scores are centred.
    """
    saved = workspace.load("gradients", "slice")
    if saved is not None:
        return saved[0]
    started, settings = time.time(), stage.config.gradients
    count = min(settings.slice_examples, len(stage.dataset))
    positions = torch.randperm(
        len(stage.dataset), generator=keyed_generator(stage.config.seed, "slice")
    )[:count]
    num_params = stage.curvature.basis.layout.num_params
    zeros = torch.zeros(num_params, dtype=torch.float64, device=stage.denoiser.device)
    squares, deviations = zeros.clone(), zeros.clone()
    shared = torch.zeros_like(zeros).expand(settings.num_folds, -1).clone()
    for position in tqdm(positions.tolist(), "slice"):
        folds = stage.rotated(position).double()
        mean = folds.mean(0)
        squares += mean.square()
        deviations += (folds - mean).square().sum(0)
        shared += folds - mean
    own = deviations - shared.square().sum(0) / count
    noise = own / (max(count - 1, 1) * settings.num_folds * (settings.num_folds - 1))
    tensors = {
        "rms": (squares / count).sqrt().float().cpu(),
        "noise": noise.clamp(min=0).float().cpu(),
    }
    workspace.save("gradients", "slice", tensors, seconds=time.time() - started)
    return tensors


class Rows:
    """Per-example results on disk, chunk by chunk: a kill loses one chunk."""

    def __init__(self, folder: Path, num_examples: int, chunk: int, shapes: dict):
        """Open or create the arrays.

        Args:
            folder: Where the arrays lie.
            num_examples: N.
            chunk: Examples written together.
            shapes: Name -> (dtype, shape of one example's entry).
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.num_examples, self.chunk = folder, num_examples, chunk
        self.arrays = {
            name: self._open(name, dtype, (num_examples, *shape))
            for name, (dtype, shape) in shapes.items()
        }
        self.done = self._open("done", "u1", (-(-num_examples // chunk),))

    def _open(self, name: str, dtype: str, shape: tuple[int, ...]) -> np.memmap:
        path = self.folder / f"{name}.npy"
        create_once(
            path, lambda new: np.lib.format.open_memmap(new, "w+", dtype, shape)
        )
        return np.lib.format.open_memmap(path, "r+")

    def chunks(self, part: tuple[int, int] = (0, 1)) -> list[range]:
        """Return the positions of every chunk of one part of several."""
        which, parts = part
        return [
            range(i * self.chunk, min((i + 1) * self.chunk, self.num_examples))
            for i in range(which, len(self.done), parts)
        ]

    def missing(self, part: tuple[int, int] = (0, 1)) -> list[range]:
        """Return those chunks that are not finished."""
        return [
            chunk
            for chunk in self.chunks(part)
            if not self.done[chunk.start // self.chunk]
        ]

    def write(self, positions: range, **entries: np.ndarray) -> None:
        """Store the entries of a chunk, then mark it as finished."""
        for name, entry in entries.items():
            self.arrays[name][positions.start : positions.stop] = entry
            self.arrays[name].flush()
        self.done[positions.start // self.chunk] = 1
        self.done.flush()


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
        gradient; `level`: its noise relative to `noise`; `panel_train` (M, F): scores
        of the gallery's mean queries with each fold; `panel_query` (M, F'): scores of
        each query fold with the mean gradient; `seconds` spent), the full index, and
        the slice's statistics.
    """
    config, device = stage.config, stage.denoiser.device
    num_params = stage.curvature.basis.layout.num_params
    statistics = measure_slice(stage, workspace)
    divisor = balance(statistics["rms"].to(device))
    noise = statistics["noise"].to(device)
    damped = stage.curvature.eigenvalues + stage.damping
    whitening = damped.rsqrt()
    sketch = collection_sketch(config.seed, num_params, config.gradients.sketch_dim)
    on_device = Sketch(sketch.order.to(device), sketch.signs.to(device))
    weighted = queries.to(device) / damped  # (M, F', P)
    mean_queries = weighted.mean(1)

    folder = workspace.path("gradients", "rows.d")
    num_examples, (num_queries, query_folds, _) = len(stage.dataset), queries.shape
    shapes = {
        "bits": ("u1", (config.gradients.sketch_dim // 8,)),
        "scale": ("<f4", ()),
        "norm": ("<f4", ()),
        "level": ("<f4", ()),
        "panel_train": ("<f4", (num_queries, config.gradients.num_folds)),
        "panel_query": ("<f4", (num_queries, query_folds)),
        "seconds": ("<f4", ()),
    }
    rows = Rows(folder, num_examples, config.gradients.chunk, shapes)
    index = GradientIndex(index_folder, num_examples, num_params)
    index.create()
    statistics["rms"].numpy().astype("<f4").tofile(index_folder / "rms.bin")

    remaining = rows.missing(part)
    todo = sum(map(len, remaining))
    own = sum(map(len, rows.chunks(part)))
    bar = tqdm(total=own, desc="gradients", initial=own - todo)
    for positions in remaining:
        started = time.time()
        folds = torch.stack([stage.rotated(position) for position in positions])
        mean = folds.mean(1)  # (B, P)
        index.write(positions.start, mean / divisor)
        whitened = mean * whitening
        bits, scale = pack_signs(on_device.apply(whitened))
        spread = (folds - mean[:, None]).square().sum(1)
        spread = spread / (folds.shape[1] * (folds.shape[1] - 1))
        relative = torch.where(
            noise > 0, spread / noise, torch.zeros((), device=device)
        )
        rows.write(
            positions,
            bits=bits,
            scale=scale,
            norm=whitened.norm(dim=1).cpu().numpy(),
            level=relative.mean(1).cpu().numpy(),
            panel_train=torch.einsum("qp,bfp->bqf", mean_queries, folds).cpu().numpy(),
            panel_query=torch.einsum("qfp,bp->bqf", weighted, mean).cpu().numpy(),
            seconds=(time.time() - started) / len(positions),
        )
        bar.update(len(positions))
    bar.close()
    return rows, index, statistics
