"""What a command needs that others make, and which command to run where it is missing.

A question about a collection never trains a model in silence.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from core.config import CollectionConfig
from core.data.datasets import Dataset, load_dataset
from core.model.checkpoint import denoiser_from_bytes
from precompute.machinery.config import MeasureConfig
from precompute.machinery.settings import published_settings
from precompute.machinery.workspace import DEPENDS_ON, Workspace, open_workspace
from precompute.retraining.jobs import retrain_folder
from precompute.stages.samples import make_samples
from precompute.stages.stages import build_first, needed_weights


@dataclass(frozen=True)
class Gallery:
    """What retrained models are measured on, and what it was made of.

    Attributes:
        weights: The full model's file.
        dataset: All images.
        workspace: Of the collection in the making.
        samples: The gallery, as `make_samples` returns it.
    """

    weights: bytes
    dataset: Dataset
    workspace: Workspace
    samples: dict[str, Tensor]

    def at_most(self, settings: MeasureConfig) -> MeasureConfig:
        """Return settings for no more samples than there are."""
        count = min(settings.num_samples, len(self.samples["x_0"]))
        return replace(settings, num_samples=count)


def open_gallery(config: CollectionConfig, work: Path | None, device: str) -> Gallery:
    """Return the gallery of a trained model, drawing it if need be.

    A model that is not trained raises the LookupError of `needed_weights`.
    """
    weights = needed_weights(config, work)
    dataset, workspace = load_dataset(config.data), open_workspace(config, work)
    denoiser = denoiser_from_bytes(weights).to(device)
    samples = make_samples(config, denoiser, dataset, workspace)
    return Gallery(weights, dataset, workspace, samples)


def check_evidence(
    config: CollectionConfig, root: Path, work: Path | None, add: bool
) -> None:
    """Refuse to make evidence where there is nothing to measure or to score.

    Args:
        config: The collection.
        root: Folder of the published collections.
        work: Folder of unfinished work.
        add: Whether there is evidence to add to.

    Raises:
        LookupError: If the collection or the retrained models are missing.
        ValueError: If another collection was published under its name.
    """
    needed_weights(config, work)
    published = published_settings(config.name, root)
    if published is None:
        raise LookupError(
            f"The collection '{config.name}' is not built yet. {build_first(config)}"
        )
    stages = DEPENDS_ON["samples"]
    if published.fingerprint(*stages) != config.fingerprint(*stages):
        raise ValueError(
            f"The collection '{config.name}' was published with other settings. "
            f"{build_first(config)}"
        )
    if not add and not any(retrain_folder(config, work).glob("*.safetensors")):
        raise LookupError(
            f"No model of '{config.name}' was trained again without some of its "
            "images, so there is nothing to measure. Run `python -m precompute "
            f"retrain --collection {config.name}` first."
        )
