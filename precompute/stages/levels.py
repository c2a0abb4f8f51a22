"""What the page Timesteps shows of the gallery, computed once; resumable.

Part of `answers`: the scores over noise levels, and each image forming out of noise.
"""

from pathlib import Path

import numpy as np
import torch

from core.answers import BandAnswers, Forming
from core.engine.forming import noise_images
from core.explorer.explorer import Explorer
from core.explorer.stored_levels import (
    BANDS,
    NoiseImages,
    levels_arrays,
    levels_path,
    read_levels,
    recipe,
    shown_first,
    write_levels,
)
from core.lenses import Lens
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import load_tensors, save_tensors


def store_levels(explorer: Explorer, root: Path, folder: Path) -> None:
    """Write the file of `core.explorer.stored_levels`, where it is not there yet.

    A collection without a gallery, or without what computing takes, gets none.

    Args:
        explorer: Of the collection.
        root: Folder of the published collections.
        folder: Keeps what is found of each gallery sample until all is there.
    """
    path, made_by = levels_path(root, explorer.config), recipe(root, explorer.config)
    samples = [int(sample) for sample in explorer.gallery.index]
    stored = read_levels(path, made_by)
    done = stored is not None and all(sample in stored for sample in samples)
    if done or not samples or not explorer.computes:
        return
    found = {}
    for sample in Bar(samples, "noise levels"):
        bands, forming = kept_levels(explorer, sample, folder)
        answer = explorer.answer(explorer.query_from_gallery(sample), Lens())
        found[sample] = bands, shown_first(bands, answer), forming
    engine = explorer.engine
    query = explorer.query_from_gallery(samples[0])
    x_0 = engine.subject(query, with_steps=False).x_0
    images = noise_images(engine.denoiser, x_0, engine.seed)
    mixed_with = None if images is None else NoiseImages(*images)
    write_levels(path, levels_arrays(found, mixed_with), made_by)


def kept_levels(
    explorer: Explorer, sample: int, folder: Path
) -> tuple[BandAnswers, Forming]:
    """Return a sample's scores over bands and its image forming, kept in a folder."""
    path = folder / f"{sample}-timesteps.safetensors"
    if not path.exists():
        query = explorer.query_from_gallery(sample)
        bands = explorer.band_answers(query, Lens(), BANDS)
        forming = explorer.forming(query, BANDS)
        tensors = {
            "scores": bands.scores,
            "standard_errors": bands.standard_errors,
            "values": bands.values,
            "timesteps": forming.timesteps,
            "noise": forming.noise,
            "noisy": forming.noisy,
            "expected": forming.expected,
        }
        tensors = {name: torch.from_numpy(one) for name, one in tensors.items()}
        save_tensors(path, tensors, source=bands.source, edges=list(bands.edges))
    tensors, facts = load_tensors(path)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    scores = (arrays.pop(name) for name in ("scores", "standard_errors", "values"))
    ids = explorer.examples.table.index.to_numpy(np.int64)
    bands = BandAnswers(tuple(facts["edges"]), ids, *scores, facts["source"])
    return bands, Forming(**arrays)
