"""Scores of the gallery when the training gradients are estimated or kept otherwise.

They need what the build left in its workspace and beside the collection: the gallery's
rotated gradients, the exact products of each fold of training draws, the full index.
Each variant is (name, draws of the query gradient, scores (Q, N)).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.curvature.basis import precondition
from core.explorer.explorer import Explorer
from core.index.full import BLOCK, GradientIndex, unpack
from precompute.machinery.workspace import Workspace

BITS = (8, 4, 1)  # per coordinate of the full index
PIECE_BYTES = 1 << 24  # of codes that are converted at a time

Variant = tuple[str, int, np.ndarray]


def gradient_variants(
    explorer: Explorer, workspace: Workspace, folder: Path
) -> Iterator[Variant]:
    """Yield EK-FAC scores for the loss under each variant that can be made here.

    Args:
        explorer: The published collection.
        workspace: Where it was made.
        folder: For an index while it is asked.
    """
    saved = workspace.load("samples", "queries")
    if saved is None:
        return
    yield from training_draw_variants(workspace)
    indexed = explorer.engine.scoring.indexed
    if indexed is None or indexed.index.bits != max(BITS):
        return
    scoring, queries = explorer.engine.scoring, saved[0]["queries"].mean(1)
    vectors = precondition(queries, scoring.eigenvalues["ekfac"], scoring.own_damping)
    draws = workspace.config.samples.num_draws
    for bits in BITS:
        yield f"{bits}-bit index", draws, scores_in(bits, indexed, vectors, folder)


def training_draw_variants(workspace: Workspace) -> Iterator[Variant]:
    """Yield exact scores from half of the training draws and from all."""
    path = workspace.path("gradients", "records.d") / "rows.npy"
    if not path.exists():
        return
    folds = np.load(path, mmap_mode="r")["panel_train"]  # (N, Q, F)
    draws, count = workspace.config.gradients.num_draws, folds.shape[2]
    for used in (count // 2, count):
        scores = folds[:, :, :used].astype(np.float64).mean(2).T
        name = f"{draws * used // count} training draws"
        yield name, workspace.config.samples.num_draws, scores


def scores_in(bits: int, indexed, vectors: Tensor, folder: Path) -> np.ndarray:
    """Return products (Q, N) of vectors (Q, P) with the index in so many bits."""
    if bits == indexed.index.bits:
        return indexed.products(vectors)
    index = recoded(indexed.index, folder / f"index-{bits}-bit", bits)
    scores = index.scores(vectors * indexed.divisors)
    shutil.rmtree(index.folder)
    return scores


def recoded(index: GradientIndex, folder: Path, bits: int) -> GradientIndex:
    """Return a copy of an index in fewer bits per coordinate, in another folder."""
    copy = GradientIndex(folder, index.num_examples, index.num_params, bits)
    copy.create()
    first = 0
    for codes, scales in index.pieces(PIECE_BYTES):
        values = unpack(np.asarray(codes), index.bits, index.num_params)
        values *= np.repeat(scales, BLOCK, axis=1)[:, : index.num_params]
        copy.write(first, torch.from_numpy(values))
        first += len(codes)
    return copy


def gradient_bytes(explorer: Explorer) -> dict[str, float]:
    """Return the bytes per training image of each way to keep its gradient."""
    sketched = explorer.engine.scoring.sketched
    sizes = {"sketch": sketched.bits.shape[1] + sketched.scales.itemsize}
    indexed = explorer.engine.scoring.indexed
    if indexed is None:
        return {"as asked": sizes["sketch"]} | sizes
    index = indexed.index
    sizes["as asked"] = index.num_bytes / index.num_examples
    for bits in BITS:
        same = GradientIndex(index.folder, index.num_examples, index.num_params, bits)
        sizes[f"{bits}-bit index"] = same.num_bytes / same.num_examples
    return sizes
