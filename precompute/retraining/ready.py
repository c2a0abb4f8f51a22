"""What a command needs that others make, and which command to run where it is missing.

Nothing here computes: a question about a collection never trains a model in silence.
"""

from pathlib import Path

from core.config import CollectionConfig
from precompute.machinery.settings import published_settings
from precompute.machinery.workspace import DEPENDS_ON, workspace_of
from precompute.retraining.jobs import retrain_folder
from precompute.stages.stages import imported_weights, shipped_weights


def finished_weights(config: CollectionConfig, work: Path | None) -> bytes | None:
    """Return the trained model, None where it is still to be trained."""
    if config.train.imported:
        return imported_weights(config)
    path = workspace_of(config, work).path("train", "denoiser.safetensors")
    return path.read_bytes() if path.exists() else shipped_weights(config)


def needed_weights(config: CollectionConfig, work: Path | None) -> bytes:
    """Return the trained model.

    Raises:
        LookupError: If it is not trained.
    """
    weights = finished_weights(config, work)
    if weights is None:
        raise LookupError(
            f"The model of '{config.name}' is not trained yet. {_first(config)}"
        )
    return weights


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
            f"The collection '{config.name}' is not built yet. {_first(config)}"
        )
    stages = DEPENDS_ON["samples"]
    if published.fingerprint(*stages) != config.fingerprint(*stages):
        raise ValueError(
            f"The collection '{config.name}' was published with other settings. "
            f"{_first(config)}"
        )
    if not add and not any(retrain_folder(config, work).glob("*.safetensors")):
        raise LookupError(
            f"No model of '{config.name}' was trained again without some of its "
            "images, so there is nothing to measure. Run `python -m precompute "
            f"retrain --collection {config.name}` first."
        )


def _first(config: CollectionConfig) -> str:
    return f"Run `python -m precompute build --collection {config.name}` first."
