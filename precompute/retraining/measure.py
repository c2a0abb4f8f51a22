"""What one retrained model costs its samples, with the draws that all share."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from core.config import CollectionConfig
from core.engine.query import QUERY_FOLDS, Question
from core.evidence.stored import MODEL, PICTURE_COLUMNS, RANDOM
from core.files.table_files import read_table, write_table
from core.measure.likelihood import log_probability
from core.measurements import MEASUREMENTS, tested_measurements
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.sampling import Subject
from precompute.machinery.config import MeasureConfig
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import DEPENDS_ON
from precompute.retraining.jobs import identity_of, is_measured
from precompute.retraining.ready import Gallery
from precompute.retraining.redraw import regenerated
from precompute.retraining.train import model_facts

PACKAGES = ("torch", "diffusers", "numpy", "scipy")
COSTS = ("sample_id", "measurement", "low", "high", "value", "standard_error")


def drawn_rows(
    denoiser: Denoiser,
    subject: Subject,
    measurement: str,
    settings: MeasureConfig,
    seed: int,
) -> list[tuple]:
    """Return (measurement, low, high, value, standard error) of the whole and of bands.

    Bands share the draws of the whole and sum to it.
    """
    facts = MEASUREMENTS[measurement]
    question = Question(subject, facts, settings.num_draws, seed)
    timesteps, costs, weights = question.to(denoiser).costs()
    weighted = (weights * costs).double()
    edges = np.linspace(0, denoiser.num_train_timesteps, settings.num_bands + 1)
    bands = [(-1, -1), *zip(edges[:-1].astype(int), edges[1:].astype(int), strict=True)]
    rows = []
    for low, high in bands:
        inside = (timesteps >= low) & (timesteps < high) if low >= 0 else timesteps >= 0
        folds = (weighted * inside).view(QUERY_FOLDS, -1).mean(1)
        error = folds.std() / QUERY_FOLDS**0.5
        rows.append((
            measurement,
            int(low),
            int(high),
            float(folds.mean()),
            float(error),
        ))
    return rows


def measured_rows(
    denoiser: Denoiser, x_0: torch.Tensor, label: int | None, settings, seed: int
) -> list[tuple]:
    """Return all costs of one sample in one model, as in `drawn_rows`."""
    subject = Subject(x_0, label)
    rows = []
    for name in tested_measurements():
        rows += drawn_rows(denoiser, subject, name, settings, seed)
    if settings.probability_draws:
        value, error = log_probability(
            denoiser,
            subject,
            seed,
            settings.probability_draws,
            settings.probability_tolerance,
        )
        # A cost, as all measurements are: -log p, in nats.
        rows.append(("log-probability", -1, -1, -value, error))
    return rows


def measure_model(
    weights: bytes,
    samples: dict[str, torch.Tensor],
    settings: MeasureConfig,
    seed: int,
    path: Path,
    device: str = "cpu",
) -> pd.DataFrame:
    """Return every cost of every sample in one model, from `path` if it is there.

    Args:
        weights: The model's file.
        samples: The gallery, as `make_samples` returns it.
        settings: What to measure.
        seed: The collection's seed, of the draws that all models share.
        path: Where the result is kept.
        device: Where to compute.

    Returns:
        The columns `COSTS`.
    """
    if path.exists():
        table = read_table(path)
        if set(tested_measurements()) <= set(table["measurement"]):
            return table  # otherwise a measurement was added since
    denoiser = denoiser_from_bytes(weights).to(device)
    rows = []
    for sample_id in range(settings.num_samples):
        label = int(samples["labels"][sample_id])
        x_0 = samples["x_0"][sample_id].to(device)
        costs = measured_rows(denoiser, x_0, label, settings, seed)
        rows += [(sample_id, *row) for row in costs]
    table = pd.DataFrame(rows, columns=COSTS)
    write_table(path, table)
    return table


def measure_models(
    config: CollectionConfig,
    settings: MeasureConfig,
    gallery: Gallery,
    folder: Path,
    part: tuple[int, int] = (0, 1),
    device: str = "cpu",
    known: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what the full model and each one that was trained again say of samples.

    Args:
        config: The full model's settings.
        settings: What to measure.
        gallery: The full model, and the samples.
        folder: Where the retrained models lie, and the results.
        part: (number of this process, number of processes).
        device: Where to compute.
        known: What was measured before; these models are left out.

    Returns:
        The columns of `Evidence.measured` and of `Evidence.pictures`, for this
        process's share.
    """
    (number, size), samples = part, gallery.samples
    folder.mkdir(parents=True, exist_ok=True)
    tables = [pd.DataFrame(columns=[*MODEL, *COSTS])]
    pictures = [pd.DataFrame(columns=PICTURE_COLUMNS)]
    paths = [None, *sorted(folder.glob("*.safetensors"))]
    how = f"{settings.fingerprint()}-{gallery_fingerprint(config)}"
    if known is not None:
        paths = [path for path in paths if not is_measured(identity(path), known)]
    for path in Bar(paths[number::size], "measurements"):
        name = "full" if path is None else path.stem
        kept = folder / f"measured-{how}-{name}.parquet"
        weights = gallery.weights if path is None else path.read_bytes()
        table = measure_model(weights, samples, settings, config.seed, kept, device)
        which = identity(path)
        tables.append(table.assign(**which))
        shown = which["method"] != RANDOM or which["about"] == 0  # one stands for all
        if which["kind"] != "half" and shown:
            kept = folder / f"drawn-{how}-{name}.npy"
            count = min(settings.num_pictures, settings.num_samples)
            drawn = regenerated(config, weights, gallery, count, kept, device)
            pictures.append(drawn.assign(**which))
    return (
        pd.concat(tables, ignore_index=True),
        pd.concat(pictures, ignore_index=True)[list(PICTURE_COLUMNS)],
    )


def gallery_fingerprint(config: CollectionConfig) -> str:
    """Return 12 hex digits that identify the samples that are measured."""
    return config.fingerprint(*DEPENDS_ON["samples"])


def identity(path: Path | None) -> dict:
    """Return which model a file holds, None for the full one, by column of `MODEL`."""
    return identity_of(None if path is None else model_facts(path))
