"""The stages that make a collection, in order, up to the training gradients."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from core.checks import check_classes, check_settings
from core.config import CollectionConfig, sets_folder
from core.curvature.basis import Curvature
from core.data.datasets import Dataset, load_dataset
from core.index.full import GradientIndex
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.prompts import check_captions
from precompute.machinery.parallel import first_one_first, rank_and_size, wait_for_all
from precompute.machinery.rows import Rows
from precompute.machinery.settings import keep_settings
from precompute.machinery.workspace import Workspace, workspace_of, write_atomically
from precompute.stages.curvature import fit_curvature
from precompute.stages.fidelity import gallery_part, measure_fidelity
from precompute.stages.gradients import (
    GradientStage,
    compute_gradients,
    gradient_stage,
    measure_slice,
)
from precompute.stages.samples import make_samples, sample_queries
from precompute.stages.train import train


@dataclass(frozen=True)
class Trained:
    """A collection's images and model, which every later stage goes on from.

    Attributes:
        config: The settings.
        dataset: The training images.
        workspace: Of the collection in the making.
        weights: The model's file.
        denoiser: The model, on its device.
    """

    config: CollectionConfig
    dataset: Dataset
    workspace: Workspace
    weights: bytes
    denoiser: Denoiser


@dataclass(frozen=True)
class Computed:
    """All that the stages before publishing made."""

    model: Trained
    ekfac: Curvature
    kfac: Curvature
    samples: dict[str, Tensor]
    queries: Tensor
    losses: Tensor
    stage: GradientStage
    rows: Rows
    index: GradientIndex
    statistics: dict[str, Tensor]
    fidelity: dict


def compute(
    config: CollectionConfig, root: Path, work: Path | None, device: str
) -> Computed:
    """Return what the stages up to the gradients make, running those still to do.

    Under torchrun the processes share the curvature and the gradients; the rest is done
    by the first one while the others wait.
    """
    check_settings(config)
    model = trained_model(config, work, device)
    dataset, workspace, denoiser = model.dataset, model.workspace, model.denoiser
    ekfac, kfac = fit_curvature(config, dataset, denoiser, workspace)
    samples = first_one_first(
        lambda: make_samples(config, denoiser, dataset, workspace)
    )
    queries, losses = first_one_first(
        lambda: sample_queries(config, denoiser, ekfac, samples, workspace)
    )
    stage = first_one_first(
        lambda: gradient_stage(config, dataset, denoiser, ekfac, workspace)
    )
    first_one_first(lambda: measure_slice(stage, workspace))
    rows, index, statistics = compute_gradients(
        stage, queries, workspace, index_folder(config, root), rank_and_size()
    )
    wait_for_all()
    some = queries[gallery_part(len(queries))].mean(1)
    fidelity = first_one_first(lambda: measure_fidelity(stage, some, workspace))
    gallery, gradients = (samples, queries, losses), (rows, index, statistics)
    return Computed(model, ekfac, kfac, *gallery, stage, *gradients, fidelity)


def trained_model(
    config: CollectionConfig,
    work: Path | None,
    device: str,
    weights: bytes | None = None,
) -> Trained:
    """Return a collection's images and model, which is trained if need be.

    Under torchrun the first process trains it while the others wait.

    Args:
        config: The settings.
        work: Folder of unfinished work; None for `data/work`.
        device: Where to compute.
        weights: The model's file, where it is known.
    """
    dataset, workspace = load_dataset(config.data), workspace_of(config, work)
    check_classes(config, len(dataset.class_names))
    if weights is None:
        weights = first_one_first(lambda: begun(config, dataset, workspace, device))
    denoiser = denoiser_from_bytes(weights).to(device)
    check_captions(denoiser.unet, dataset.class_names)
    return Trained(config, dataset, workspace, weights, denoiser)


def index_folder(config: CollectionConfig, root: Path) -> Path:
    """Return where the full index of a collection lies."""
    fingerprint = config.fingerprint("data", "model", "train", "curvature", "gradients")
    return root / f"{config.name}-index-{fingerprint}"


def shipped_weights(config: CollectionConfig) -> bytes | None:
    """Return the shipped denoiser, if it was made with these settings."""
    path = config.shipped_weights_path()
    return path.read_bytes() if path.exists() else None


def begun(
    config: CollectionConfig, dataset: Dataset, workspace: Workspace, device: str
) -> bytes:
    """Return the denoiser; from here on the settings are those of the collection."""
    workspace.folder.mkdir(parents=True, exist_ok=True)
    keep_settings(config, workspace.folder.parent)
    return trained_weights(config, dataset, workspace, device)


def trained_weights(
    config: CollectionConfig, dataset: Dataset, workspace: Workspace, device: str
) -> bytes:
    """Return the denoiser that was imported or ships, otherwise train it."""
    if config.train.imported:
        return imported_weights(config)
    return shipped_weights(config) or train(config, dataset, workspace, device)


def finished_weights(config: CollectionConfig, work: Path | None) -> bytes | None:
    """Return the trained model, None where it is still to be trained."""
    if config.train.imported:
        return imported_weights(config)
    path = workspace_of(config, work).path("train", "denoiser.safetensors")
    return path.read_bytes() if path.exists() else shipped_weights(config)


def needed_weights(config: CollectionConfig, work: Path | None) -> bytes:
    """Return the trained model.

    Raises:
        LookupError: If the model is not trained.
    """
    weights = finished_weights(config, work)
    if weights is None:
        raise LookupError(
            f"The model of '{config.name}' is not trained yet. {build_first(config)}"
        )
    return weights


def build_first(config: CollectionConfig) -> str:
    """Return which command makes a collection, in a sentence."""
    return f"Run `python -m precompute build --collection {config.name}` first."


def imported_weights(config: CollectionConfig) -> bytes:
    """Return the denoiser that was trained elsewhere.

    Raises:
        FileNotFoundError: If its file is not there any more.
    """
    path = sets_folder() / config.train.imported
    if not path.exists():
        raise FileNotFoundError(
            f"The imported model '{path}' is gone. Import it again with `python -m "
            "precompute import-model`."
        )
    return path.read_bytes()


def ship_weights(config: CollectionConfig, weights: bytes) -> Path:
    """Put a trained denoiser where `shipped_weights` finds it; return the path."""
    path = config.shipped_weights_path()
    write_atomically(path, weights)
    return path
