"""How much of the scores does each index format keep? See `stages.fidelity`."""

from pathlib import Path

from core.data.datasets import load_dataset
from core.model.checkpoint import denoiser_from_bytes
from core.presets import collection_config
from precompute.machinery.config import FIDELITY_EXAMPLES
from precompute.machinery.workspace import open_workspace
from precompute.stages.fidelity import fidelity
from precompute.stages.stages import shipped_weights
from tests.benchmarks.machine import facts


def run(collection: str, root: Path | None) -> dict:
    """Return the table of a collection's shipped model; resumable."""
    config = collection_config(collection)
    dataset, workspace = load_dataset(config.data), open_workspace(config, root)
    denoiser = denoiser_from_bytes(shipped_weights(config))
    result = fidelity(config, dataset, denoiser, workspace, FIDELITY_EXAMPLES)
    return {**facts(), **result, "lines": [result["paper"]["outcome"]]}
