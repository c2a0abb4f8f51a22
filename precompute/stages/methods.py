"""What other methods need beyond a collection, into files beside it; resumable.

Needs a published collection and its data set only. Three kinds of work: eigenbases of
the other curvatures; features of gradients of the training loss out of the full index,
where `build` left one (TRAK; DataInf, which needs all gradients at once); and features
of gradients computed here, one forward pass for all methods (TRAK without an index,
D-TRAK, DAS).
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import torch
from torch import Tensor

from core.collection.schema import bytes_sha256
from core.collection.store import Collection, find_collection
from core.config import CollectionConfig, MethodConfig, config_from_dict
from core.curvature.basis import Eigenbasis
from core.data.datasets import Dataset, load_dataset
from core.files.tensor_files import write_tensors
from core.index.full import GradientIndex, balance
from core.index.projection import (
    MAX_DIM,
    Projection,
    checksum,
    make_projection,
    project_columns,
)
from core.measure.draws import Draws, keyed_generator, make_draws
from core.measure.outputs import Prediction, predict
from core.methods import METHODS, parts, with_features
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.parameters import (
    attributed_parameters,
    flatten_gradients,
    parameter_layout,
)
from core.scores.baselines import datainf_damping, datainf_mixing
from core.scores.beside import index_bits, open_eigenbasis, open_index
from core.scores.method_files import method_path, pack_as_signs, pack_features
from precompute.machinery.parallel import rank_and_size, wait_for_all
from precompute.machinery.progress import Bar
from precompute.machinery.rows import Rows
from precompute.machinery.workspace import Workspace, open_workspace
from precompute.stages.curvature import fit_curvature
from precompute.stages.train import encode_all

# DataInf scales every layer by its size of gradient, so that many directions count and
# few features say little: Spearman with exact scores 0.55 at 768. Sixteen times as many
# signs take the same room and give 0.83 (160 Glyphs, 24 queries).
SIGNS_PER_FEATURE = 16
CHUNK = 8  # examples whose features are written together
STRIDE = 8 * GradientIndex.block  # coordinates read from the index at a time
SAVE_EVERY = 60.0  # seconds


@dataclass(frozen=True)
class MethodStage:
    """What every part needs.

    Attributes:
        config: The settings of the collection.
        recorded: The same as the collection recorded them.
        settings: Those of the methods.
        dataset: The training set.
        denoiser: The model.
        basis: The main eigenbasis, on the model's device.
        sha256: Of the model.
        bits: Of the full index, per coordinate.
        index: The full index, where it is there.
        workspace: Where unfinished work lies.
        root: Where the files go.
    """

    config: CollectionConfig
    recorded: dict
    settings: MethodConfig
    dataset: Dataset
    denoiser: Denoiser
    basis: Eigenbasis
    sha256: str
    bits: int
    index: GradientIndex | None
    workspace: Workspace
    root: Path

    def dim(self, kind: str) -> int:
        """Return how many features a method keeps of a gradient."""
        if METHODS[kind].features.layerwise:
            return min(SIGNS_PER_FEATURE * self.settings.dim, MAX_DIM)
        return self.settings.dim

    def projection(self, kind: str) -> Projection:
        """Return the projection of a method, on the CPU."""
        return make_projection(
            self.settings.projection,
            self.basis.layout.num_params,
            self.dim(kind),
            self.config.seed,
        )

    def content(self, method: dict, *stages: str) -> dict:
        """Return the settings that decide a file's content."""
        return {
            **{
                name: self.recorded[name]
                for name in ("data", "model", "train", *stages)
            },
            "seed": self.config.seed,
            "method": method,
        }

    def feature_settings(self, kind: str, from_index: bool) -> dict:
        """Return the settings that decide the features of a method."""
        method = {"dim": self.dim(kind), "projection": self.settings.projection}
        if from_index:
            source = {"source": "index", "bits": self.bits}
            return self.content(method | source, "curvature", "gradients")
        draws = {"source": "own draws", "num_draws": self.settings.num_draws}
        return self.content(method | draws, "curvature")

    def path(self, kind: str, settings: dict) -> Path:
        """Return where a file goes."""
        return method_path(self.root, self.config.name, kind, settings)

    def write(
        self,
        kind: str,
        settings: dict,
        tensors: dict[str, Tensor],
        seconds: float,
        **facts,
    ) -> None:
        """Write a file with its facts; only the first process does."""
        if rank_and_size()[0] != 0:
            return
        facts |= {
            "method": kind,
            "collection": self.config.name,
            "denoiser": self.sha256,
            "settings": settings,
            "seconds": round(seconds, 3),
            "bytes": sum(value.nbytes for value in tensors.values()),
        }
        write_tensors(self.path(kind, settings), tensors, {"facts": facts})

    def write_features(
        self,
        kind: str,
        settings: dict,
        features: Tensor,
        seconds: float,
        draws: int,
        **others: Tensor,
    ) -> None:
        """Write the features of a method and what else belongs to them."""
        layerwise = METHODS[kind].features.layerwise
        pack = pack_as_signs if layerwise else pack_features
        self.write(
            kind,
            settings,
            pack(features) | others,
            seconds,
            draws=draws,
            num_params=self.basis.layout.num_params,
            projection=checksum(self.projection(kind)),
        )


def compute_methods(
    root: Path,
    name: str,
    work: Path | None,
    device: str,
    only: Iterable[str] | None = None,
    settings: MethodConfig | None = None,
) -> list[Path]:
    """Return the paths of all files that were asked for, making those not there yet.

    Under torchrun the processes share the curvatures and the gradients.

    Args:
        root: Folder of the published collections.
        name: Of the collection.
        work: Folder of unfinished work; None for `data/work`.
        device: Where to compute.
        only: Which of `parts()`; None for all.
        settings: Of the features; None for the defaults.

    Raises:
        ValueError: If there is no such part; the message lists them.
    """
    only = parts() if only is None else tuple(only)
    if unknown := sorted(set(only) - set(parts())):
        raise ValueError(
            f"Nothing is precomputed for '{unknown[0]}'. Choose from "
            f"{', '.join(parts())}; the other methods need no file."
        )
    stage = open_stage(root, name, work, device, settings or MethodConfig())
    paths = compute_curvatures(stage) if "curvature" in only else []
    by_index, by_draws = [], []
    for kind in [kind for kind in with_features() if kind in only]:
        (by_index if from_index(stage, kind) else by_draws).append(kind)
    paths += features_from_draws(stage, by_draws)
    return paths + features_from_index(stage, by_index)


def from_index(stage: MethodStage, kind: str) -> bool:
    """Return whether features are read from the index, or were."""
    features = METHODS[kind].features
    if features.outputs is None:
        return True
    made = stage.path(kind, stage.feature_settings(kind, True))
    return features.indexed and (stage.index is not None or made.exists())


def open_stage(
    root: Path, name: str, work: Path | None, device: str, settings: MethodConfig
) -> MethodStage:
    """Return what every part needs, out of a published collection.

    Errors of `core.scores.beside` pass through.

    Raises:
        ValueError: If the data set holds other pictures than the collection.
    """
    with Collection(find_collection(root, name)) as collection:
        recorded = collection.meta("settings")
        config = config_from_dict(recorded)
        dataset = load_dataset(config.data)
        if not np.array_equal(dataset.ids, collection.examples().index):
            raise ValueError(
                f"The data set '{config.data.path}' holds other pictures than "
                f"collection '{name}'. Build the collection again."
            )
        weights = collection.denoiser()
        denoiser = denoiser_from_bytes(weights).to(device)
        layout = parameter_layout(denoiser.unet)
        basis = open_eigenbasis(collection, layout)
        index, bits = open_index(collection, layout.num_params), index_bits(collection)
    return MethodStage(
        config,
        recorded,
        settings,
        dataset,
        denoiser,
        basis.to(device),
        bytes_sha256(weights),
        bits,
        index,
        open_workspace(config, work),
        root,
    )


def other_curvatures(config: CollectionConfig) -> list[CollectionConfig]:
    """Return the settings with every other GGN and treatment of shared weights."""
    own = config.curvature
    choices = [(ggn, how) for ggn in ("model", "loss") for how in ("expand", "reduce")]
    return [
        replace(config, curvature=replace(own, ggn=ggn, kfac_approx=how))
        for ggn, how in choices
        if (ggn, how) != (own.ggn, own.kfac_approx)
    ]


def compute_curvatures(stage: MethodStage) -> list[Path]:
    """Fit the eigenbasis and both kinds of eigenvalues of every other curvature."""
    paths = []
    for config in other_curvatures(stage.config):
        own = config.curvature
        kind = f"curvature-{own.ggn}-{own.kfac_approx}"
        settings = stage.content(asdict(own))
        paths.append(stage.path(kind, settings))
        if paths[-1].exists():
            continue
        workspace = Workspace(config, stage.workspace.folder)
        ekfac, kfac = fit_curvature(config, stage.dataset, stage.denoiser, workspace)
        tensors = {"ekfac": ekfac.eigenvalues, "kfac": kfac.eigenvalues}
        basis = ekfac.basis
        for i in range(len(basis.layout.layers)):
            tensors[f"input.{i}"] = basis.input_eigenvectors[i].half()
            tensors[f"gradient.{i}"] = basis.gradient_eigenvectors[i].half()
        seconds = workspace.load("curvature", "curvature")[1]["seconds"]
        stage.write(kind, settings, tensors, seconds, draws=own.factor_draws)
    return paths


def features_from_draws(stage: MethodStage, kinds: list[str]) -> list[Path]:
    """Return files with features of gradients that are computed here.

    All examples share the draws, and all methods the forward pass.
    """
    settings = {kind: stage.feature_settings(kind, False) for kind in kinds}
    paths = [stage.path(kind, settings[kind]) for kind in kinds]
    missing = [kind for kind in kinds if not stage.path(kind, settings[kind]).exists()]
    if not missing:
        return paths
    rows = open_rows(stage, missing, paths)
    compute_rows(stage, missing, rows)
    wait_for_all()
    seconds = float(rows.arrays["seconds"].sum(dtype=np.float64)) / len(missing)
    for kind in missing:
        names = ["norm", "residual"] if METHODS[kind].features.residual else ["norm"]
        stage.write_features(
            kind,
            settings[kind],
            torch.from_numpy(np.array(rows.arrays[kind])),
            seconds,
            stage.settings.num_draws,
            **{
                name: torch.from_numpy(np.array(rows.arrays[f"{kind}.{name}"]))
                for name in names
            },
        )
    wait_for_all()
    return paths


def open_rows(stage: MethodStage, kinds: list[str], paths: list[Path]) -> Rows:
    """Open or create the rows of the examples' features."""
    shapes = {"seconds": ("<f4", ())}
    for kind in kinds:
        shapes[kind] = ("<f4", (stage.settings.dim,))
        shapes[f"{kind}.norm"] = ("<f4", ())
        if METHODS[kind].features.residual:
            shapes[f"{kind}.residual"] = ("<f4", ())
    fingerprint = paths[0].stem.rsplit("-", 1)[1]
    folder = stage.workspace.folder / f"methods-{'-'.join(kinds)}-{fingerprint}.d"
    return Rows(folder, len(stage.dataset), CHUNK, shapes)


def shared_draws(stage: MethodStage) -> Draws:
    """Return the draws that all examples share, on the model's device."""
    draws = make_draws(
        stage.settings.num_draws,
        stage.denoiser.shape,
        stage.denoiser.num_train_timesteps,
        keyed_generator(stage.config.seed, "method draws"),
        stage.config.model.drops,
        stage.config.train.horizontal_flip,
    )
    return draws.to(stage.denoiser.device)


def compute_rows(stage: MethodStage, kinds: list[str], rows: Rows) -> None:
    """Fill the rows that are missing, this process's share of them."""
    part, projection = rank_and_size(), stage.projection(kinds[0])
    draws = shared_draws(stage)
    x_0 = encode_all(stage.denoiser, stage.dataset)
    remaining = rows.missing(part)
    own, todo = sum(map(len, rows.chunks(part))), sum(map(len, remaining))
    bar = Bar(total=own, desc=", ".join(kinds), initial=own - todo)
    for positions in remaining:
        started, entries = time.time(), {}
        for position in positions:
            label = int(stage.dataset.labels[position])
            prediction = predict(
                stage.denoiser,
                x_0[position],
                label,
                draws,
            )
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
        bar.update(len(positions))
    bar.close()


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


def features_from_index(stage: MethodStage, kinds: list[str]) -> list[Path]:
    """Return files with features of the full index's gradients.

    Raises:
        LookupError: If there is no full index.
    """
    settings = {kind: stage.feature_settings(kind, True) for kind in kinds}
    paths = [stage.path(kind, settings[kind]) for kind in kinds]
    missing = [kind for kind in kinds if not stage.path(kind, settings[kind]).exists()]
    if not missing:
        return paths
    if stage.index is None:
        raise LookupError(
            f"{METHODS[missing[0]].title} needs every training gradient at once, and "
            f"the full index is not beside collection '{stage.config.name}'. Build it "
            f"here with `python -m precompute build --collection {stage.config.name}`, "
            "or leave it out with "
            f"`--only {','.join(part for part in parts() if part not in missing)}`."
        )
    for kind in missing if rank_and_size()[0] == 0 else []:
        features, squares, seconds = index_features(stage, kind)
        stage.write_features(
            kind,
            settings[kind],
            features,
            seconds,
            stage.config.gradients.num_draws,
            norm=squares.sum(1).sqrt(),
            **(
                {"layer_damping": datainf_damping(squares, stage.basis.layout)}
                if METHODS[kind].features.layerwise
                else {}
            ),
        )
    wait_for_all()
    return paths


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
