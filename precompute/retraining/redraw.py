"""What the retrained models draw from the seeds of the gallery."""

from pathlib import Path

import numpy as np
import pandas as pd

from core.config import CollectionConfig
from core.files.whole import written_whole
from core.model.checkpoint import denoiser_from_bytes
from precompute.retraining.ready import Gallery
from precompute.stages.samples import decoded, draw


def regenerated(
    config: CollectionConfig,
    weights: bytes,
    gallery: Gallery,
    count: int,
    path: Path,
    device: str = "cpu",
) -> pd.DataFrame:
    """Return the first samples of the gallery as a model draws them, once.

    Args:
        config: The full model's settings, whose sampler is used.
        weights: The model's file.
        gallery: The samples, and the full model, which decodes what any model draws.
        count: How many samples.
        path: Where the result is kept; used again if it is there.
        device: Where to compute.

    Returns:
        Columns `sample_id`, `pixels` (uint8 in order C, H, W) and `shape` (C, H, W).
    """
    if not path.exists():
        denoiser = denoiser_from_bytes(weights).to(device)
        full = denoiser_from_bytes(gallery.weights).to(device)
        seeds, labels = (
            gallery.samples[name][:count].tolist() for name in ("seeds", "labels")
        )
        pixels = decoded(full, draw(config, denoiser, seeds, labels))
        with written_whole(path) as file:
            np.save(file, pixels)
    pixels = np.load(path)
    return pd.DataFrame({
        "sample_id": range(len(pixels)),
        "pixels": [picture.tobytes() for picture in pixels],
        "shape": [list(pixels.shape[1:])] * len(pixels),
    })
