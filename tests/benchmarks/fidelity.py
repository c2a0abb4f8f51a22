"""How much of the scores does each index format keep? See `precompute.fidelity`."""

from pathlib import Path

from core.config import collection_config
from core.datasets import load_dataset
from core.denoiser_file import denoiser_from_bytes
from precompute.fidelity import EXAMPLES, fidelity
from precompute.stages import shipped_weights
from precompute.workspace import open_workspace
from tests.benchmarks.machine import facts


def run(collection: str, root: Path | None) -> dict:
    """Return the table of a collection's shipped model; resumable."""
    config = collection_config(collection)
    dataset, workspace = load_dataset(config.data), open_workspace(config, root)
    denoiser = denoiser_from_bytes(shipped_weights(config))
    result = fidelity(config, dataset, denoiser, workspace, EXAMPLES)
    return {**facts(), **result, "lines": [result["paper"]["outcome"]]}
