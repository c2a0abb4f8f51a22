"""Run every stage, publish the collection, and test the errors of its answers."""

from pathlib import Path

from core.config import CollectionConfig
from precompute.machinery.parallel import joined, own_device, rank_and_size
from precompute.stages.coverage import affordable, measure_coverage
from precompute.stages.publish import publish
from precompute.stages.stages import compute


def build(
    config: CollectionConfig,
    root: Path,
    work: Path | None = None,
    device: str | None = None,
) -> Path | None:
    """Run the stages that have no result yet, publish, and return the collection file.

    How its standard errors stand a test by other draws is measured last, and kept,
    where that costs little beside the training gradients.

    Args:
        config: What to build.
        root: Folder of the published collections.
        work: Folder of unfinished work; None for `data/work`.
        device: Where to compute; None for the GPU where there is one.

    Returns:
        The path of the published file; None in all processes but the first.
    """
    device = own_device(device)
    with joined(device):
        made = compute(config, root, work, device)
        if rank_and_size()[0] != 0:
            return None
        path = publish(config, root, made)
        trial = affordable(config, len(made.model.dataset))
        if trial is not None:
            measure_coverage(root, config.name, work, lambda _: trial)
        return path
