"""Features of all training images for the methods that score by them; resumable.

Projected gradients of two kinds: out of the full index, where `build` left one (TRAK;
DataInf, which needs all gradients at once); and computed here, one forward pass for all
methods (TRAK without an index, D-TRAK, DAS).
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import torch
from torch import Tensor

from core.index.full import GradientIndex, balance
from core.index.projection import Projection, project_columns
from core.measure.draws import Augmentation, Draws, keyed_generator, make_draws
from core.measure.outputs import Prediction, predict
from core.methods import METHODS, parts
from core.model.parameters import attributed_parameters, flatten_gradients
from core.scores.baselines import datainf_damping, datainf_mixing
from precompute.machinery.parallel import rank_and_size, wait_for_all
from precompute.machinery.progress import Bar
from precompute.machinery.rows import Rows
from precompute.stages.method_stage import MethodStage
from precompute.stages.train import encode_all

CHUNK = 8  # examples whose features are written together
STRIDE = 8 * GradientIndex.block  # coordinates read from the index at a time
SAVE_EVERY = 60.0  # seconds


def make_features(stage: MethodStage, kinds: list[str], indexed: bool) -> list[Path]:
    """Return the files of methods, making those not there yet, out of the index or not.

    An index that is needed and not there raises a LookupError.
    """
    settings = {kind: stage.feature_settings(kind, indexed) for kind in kinds}
    paths = [stage.path(kind, settings[kind]) for kind in kinds]
    missing = [
        kind for kind, path in zip(kinds, paths, strict=True) if not path.exists()
    ]
    if missing:
        make = features_from_index if indexed else features_from_draws
        for kind, tensors, facts in make(stage, missing):
            stage.write_features(kind, settings[kind], tensors, **facts)
        wait_for_all()
    return paths


def features_from_draws(
    stage: MethodStage, kinds: list[str]
) -> Iterator[tuple[str, dict[str, Tensor], dict]]:
    """Yield (method, features and what is kept beside them, facts).

    The gradients are computed here. All examples share the draws, and all methods the
    forward pass.
    """
    path = stage.path(kinds[0], stage.feature_settings(kinds[0], False))
    rows = open_rows(stage, kinds, path.stem.rsplit("-", 1)[1])
    compute_rows(stage, kinds, rows)
    wait_for_all()
    seconds = float(rows.arrays["seconds"].sum(dtype=np.float64)) / len(kinds)
    for kind in kinds:
        names = {"features": kind, "norm": f"{kind}.norm"}
        if METHODS[kind].features.residual:
            names["residual"] = f"{kind}.residual"
        tensors = {
            name: torch.from_numpy(np.array(rows.arrays[stored]))
            for name, stored in names.items()
        }
        yield kind, tensors, {"seconds": seconds, "draws": stage.settings.num_draws}


def open_rows(stage: MethodStage, kinds: list[str], fingerprint: str) -> Rows:
    """Open or create the rows of the examples' features."""
    shapes = {"seconds": ("<f4", ())}
    for kind in kinds:
        shapes[kind] = ("<f4", (stage.settings.dim,))
        shapes[f"{kind}.norm"] = ("<f4", ())
        if METHODS[kind].features.residual:
            shapes[f"{kind}.residual"] = ("<f4", ())
    folder = stage.workspace.folder / f"methods-{'-'.join(kinds)}-{fingerprint}.d"
    return Rows(folder, len(stage.dataset), CHUNK, shapes)


def shared_draws(stage: MethodStage) -> Draws:
    """Return the draws that all examples share, on the model's device."""
    draws = make_draws(
        stage.settings.num_draws,
        stage.denoiser.shape,
        stage.denoiser.num_train_timesteps,
        keyed_generator(stage.config.seed, "method draws"),
        Augmentation(stage.config.model.drops, stage.config.train.horizontal_flip),
    )
    return draws.to(stage.denoiser.device)


def compute_rows(stage: MethodStage, kinds: list[str], rows: Rows) -> None:
    """Fill the rows that are missing, this process's share of them."""
    part, projection = rank_and_size(), stage.projection(kinds[0])
    draws = shared_draws(stage)
    x_0 = encode_all(stage.denoiser, stage.dataset)
    for positions in rows.unfinished(part, ", ".join(kinds)):
        started, entries = time.time(), {}
        for position in positions:
            label = int(stage.dataset.labels[position])
            prediction = predict(stage.denoiser, x_0[position], label, draws)
            rotated = stage.basis.rotate(objective_gradients(stage, prediction, kinds))
            features = projection.apply(rotated).cpu()
            for kind, row, gradient in zip(kinds, features, rotated, strict=True):
                entries.setdefault(kind, []).append(row.numpy())
                entries.setdefault(f"{kind}.norm", []).append(float(gradient.norm()))
                if residual := METHODS[kind].features.residual:
                    number = float(resolve_name(residual)(prediction).detach())
                    entries.setdefault(f"{kind}.residual", []).append(number)
        seconds = (time.time() - started) / len(positions)
        entries = {name: np.array(values) for name, values in entries.items()}
        rows.write(positions, **entries, seconds=seconds)


def objective_gradients(
    stage: MethodStage, prediction: Prediction, kinds: list[str]
) -> Tensor:
    """Return the gradients (M, P) of the methods' mean outputs, from one pass."""
    layout = stage.basis.layout
    parameters = attributed_parameters(stage.denoiser.unet, layout)
    gradients = []
    for i, kind in enumerate(kinds):
        parts = torch.autograd.grad(
            resolve_name(METHODS[kind].features.outputs)(prediction).mean(),
            parameters,
            retain_graph=i < len(kinds) - 1,
        )
        gradients.append(flatten_gradients(list(parts), layout))
    return torch.stack(gradients)


def features_from_index(
    stage: MethodStage, kinds: list[str]
) -> Iterator[tuple[str, dict[str, Tensor], dict]]:
    """Yield what `features_from_draws` does, of the full index's gradients.

    Raises:
        LookupError: If there is no full index.
    """
    if stage.index is None:
        raise LookupError(
            f"{METHODS[kinds[0]].title} needs every training gradient at once, and "
            f"the full index is not beside collection '{stage.config.name}'. Build it "
            f"here with `python -m precompute build --collection {stage.config.name}`, "
            "or leave it out with "
            f"`--only {','.join(part for part in parts() if part not in kinds)}`."
        )
    for kind in kinds if rank_and_size()[0] == 0 else []:
        features, squares, seconds = index_features(stage, kind)
        tensors = {"features": features, "norm": squares.sum(1).sqrt()}
        if METHODS[kind].features.layerwise:
            tensors["layer_damping"] = datainf_damping(squares, stage.basis.layout)
        draws = stage.config.gradients.num_draws
        yield kind, tensors, {"seconds": seconds, "draws": draws}


def index_features(stage: MethodStage, kind: str) -> tuple[Tensor, Tensor, float]:
    """Return features out of the index layer by layer, saved once a minute.

    Args:
        stage: With an index.
        kind: The method; the gradients are projected as they are or, layer by layer,
            preconditioned by DataInf and times the root of their layer's damping.

    Returns:
        Features (N, k); squared lengths per layer (N, L); seconds, those of interrupted
        runs included.
    """
    layout, num_examples = stage.basis.layout, len(stage.dataset)
    settings = stage.feature_settings(kind, True)
    name = stage.path(kind, settings).stem
    state, facts = stage.workspace.load("gradients", name) or (
        {
            "features": torch.zeros(num_examples, stage.dim(kind)),
            "squares": torch.zeros(num_examples, len(layout.layers)),
        },
        {"layers": 0, "seconds": 0.0},
    )
    projection, features = stage.projection(kind), state["features"]
    rms = stage.index.rms()
    started = last_saved = time.time()
    start = sum(layer.size for layer in layout.layers[: facts["layers"]])
    bar = Bar(total=layout.num_params, initial=start, desc=kind, unit_scale=True)
    for number in range(facts["layers"], len(layout.layers)):
        stop = start + layout.layers[number].size
        gradients = layer_gradients(stage.index, balance(rms), start, stop)
        gram, projected, squares = layer_products(
            gradients, projection, METHODS[kind].features.layerwise
        )
        state["squares"][:, number] = squares
        damping = datainf_damping(state["squares"], layout)[number]
        if gram is None:
            features += projected
        elif damping > 0:
            mixing = datainf_mixing(gram, squares, damping)
            features += damping.sqrt() * (mixing @ projected)
        bar.update(stop - start)
        start = stop
        if time.time() - last_saved > SAVE_EVERY:
            seconds = facts["seconds"] + time.time() - started
            done = {"layers": number + 1, "seconds": seconds}
            stage.workspace.save("gradients", name, state, **done)
            last_saved = time.time()
    bar.close()
    return features, state["squares"], facts["seconds"] + time.time() - started


def layer_gradients(
    index: GradientIndex, divisors: Tensor, start: int, stop: int
) -> Iterator[tuple[int, Tensor]]:
    """Yield (first coordinate, gradients (N, n)) of coordinates [start, stop)."""
    while start < stop:
        end = min(stop, start - start % STRIDE + STRIDE)
        yield start, index.columns(start, end) * divisors[start:end]
        start = end


def layer_products(
    gradients: Iterable[tuple[int, Tensor]], projection: Projection, with_gram: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return a layer's inner products (N, N), projections (N, k), squares (N,)."""
    gram, projected, squares = None, 0.0, 0.0
    for first, values in gradients:
        projected = projected + project_columns(projection, values, first)
        squares = squares + values.square().sum(1)
        if with_gram:
            product = values @ values.T
            gram = product if gram is None else gram.add_(product)
    return gram, projected, squares
