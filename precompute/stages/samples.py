"""Make the gallery: samples over all classes, and their query gradients; resumable."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from core.config import CollectionConfig
from core.curvature.basis import Curvature
from core.data.datasets import Dataset
from core.engine.clip import clip_similarity, load_clip
from core.engine.query import Question, Subject
from core.measure.draws import keyed_generator
from core.measurements import MEASUREMENTS
from core.model.denoiser import Denoiser, to_pixels
from core.model.sampling import sample
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import Workspace
from precompute.stages.clip import embed_examples

BATCH = 32


def gallery_labels(num_samples: int, num_classes: int) -> list[int]:
    """Return a label per sample, spread evenly over the classes."""
    return [
        i * num_classes // num_samples if num_samples < num_classes else i % num_classes
        for i in range(num_samples)
    ]


def pair_labels(num_samples: int, labels: np.ndarray, held_out: Sequence[int]) -> list:
    """Return a label per sample, in turn one that training saw and one that it did not.

    Args:
        num_samples: How many.
        labels: Of the training images.
        held_out: The classes that none of them is of.
    """
    orders = []
    for name, known in (("seen", np.unique(labels)), ("held out", np.array(held_out))):
        g = keyed_generator(0, "gallery", name)
        orders.append(known[torch.randperm(len(known), generator=g).numpy()])
    return [int(orders[i % 2][i // 2 % len(orders[i % 2])]) for i in range(num_samples)]


def make_samples(
    config: CollectionConfig, denoiser: Denoiser, dataset: Dataset, workspace: Workspace
) -> dict[str, Tensor]:
    """Return the gallery: `x_0` (M, C, H, W), `pixels` uint8, `labels`, `seeds` (M,).

    Each sample has a generator of its own, keyed by its seed. It is drawn alone, so
    that drawing it again gives the same bits.
    """

    def make() -> dict[str, Tensor]:
        seeds, labels = gallery_seeds(config, denoiser, dataset, workspace)
        pairs = Bar(zip(seeds, labels, strict=True), "samples", len(seeds))
        clean = [draw(config, denoiser, [seed], [label]) for seed, label in pairs]
        clean = torch.cat(clean)
        return {
            "x_0": clean,
            "pixels": torch.from_numpy(decoded(denoiser, clean)),
            "labels": torch.tensor(labels),
            "seeds": torch.tensor(seeds),
        }

    samples = workspace.kept("samples", "samples", make)
    workspace.forget("samples", "candidates")
    return samples


def gallery_seeds(
    config: CollectionConfig, denoiser: Denoiser, dataset: Dataset, workspace: Workspace
) -> tuple[list[int], list[int]]:
    """Return the seed and the label of each sample of the gallery."""
    settings, num_classes = config.samples, len(dataset.class_names)
    if settings.num_candidates:
        seeds = choose_seeds(config, denoiser, dataset, workspace)
        return seeds, [seed % num_classes for seed in seeds]
    count = settings.num_samples
    labels = (
        pair_labels(count, dataset.labels, dataset.held_out)
        if dataset.held_out
        else gallery_labels(count, num_classes)
    )
    return list(range(count)), labels


def draw(
    config: CollectionConfig, denoiser: Denoiser, seeds: list[int], labels: list[int]
) -> Tensor:
    """Return the samples x_0 of some seeds and labels, shape (B, C, H, W)."""
    pairs = zip(labels, seeds, strict=True)
    drawings = [config.samples.drawing(label, seed) for label, seed in pairs]
    trajectories = sample(denoiser, drawings, config.seed)
    return torch.stack([trajectory.states[-1] for trajectory in trajectories])


def decoded(denoiser: Denoiser, x_0: Tensor) -> np.ndarray:
    """Return the images of clean examples, uint8, shape (B, C, H, W)."""
    parts = [denoiser.decode(part.to(denoiser.device)) for part in x_0.split(BATCH)]
    return np.concatenate([to_pixels(part) for part in parts])


def choose_seeds(
    config: CollectionConfig, denoiser: Denoiser, dataset: Dataset, workspace: Workspace
) -> list[int]:
    """Return the seeds of the gallery: those whose images look most like drawings.

    A candidate's label is its seed modulo the number of classes; `typicality` decides
    and `best_spread` sees to variety. Drawing resumes after the last whole batch.
    """
    num_classes, clean = len(dataset.class_names), []
    candidates = range(config.samples.num_candidates)
    batches = [candidates[i : i + BATCH] for i in range(0, len(candidates), BATCH)]
    for number, batch in enumerate(Bar(batches, "candidates")):

        def make(seeds: range = batch) -> dict[str, Tensor]:
            labels = [seed % num_classes for seed in seeds]
            return {"x_0": draw(config, denoiser, list(seeds), labels)}

        clean.append(workspace.kept("samples", f"candidates-{number}", make)["x_0"])
    scores = typicality(decoded(denoiser, torch.cat(clean)), dataset, denoiser.device)
    return best_spread(scores, dataset.class_names, config.samples.num_samples)


def typicality(
    pixels: np.ndarray, dataset: Dataset, device: torch.device
) -> np.ndarray:
    """Return each image's mean CLIP similarity to its three nearest training ones.

    Args:
        pixels: uint8, shape (B, C, H, W).
        dataset: The training set.
        device: Where CLIP runs.
    """
    clip_model = load_clip(device=str(device))
    similarity = clip_similarity(
        clip_model.embed_images(pixels), embed_examples(clip_model, dataset)
    )
    return np.sort(similarity, axis=1)[:, -3:].mean(1)


def best_spread(
    scores: np.ndarray, class_names: Sequence[tuple[str, ...]], count: int
) -> list[int]:
    """Return the places of `count` good scores, spread over the subjects, ascending.

    The best of every subject comes first, then the second best of every subject, and so
    on; at most one per class. Place i belongs to class i % C; a class's subject is the
    last of its names.
    """
    classes = len(class_names)
    best, turns = {}, Counter()
    for candidate in np.argsort(-scores, kind="stable").tolist():
        subject = class_names[candidate % classes][-1]
        if candidate % classes not in best:
            best[candidate % classes] = (turns[subject], -scores[candidate], candidate)
            turns[subject] += 1
    return sorted(candidate for _, _, candidate in sorted(best.values())[:count])


def sample_queries(
    config: CollectionConfig,
    denoiser: Denoiser,
    curvature: Curvature,
    samples: dict[str, Tensor],
    workspace: Workspace,
) -> tuple[Tensor, Tensor]:
    """Return rotated query gradients (M, F, P) and losses (M,) of the gallery."""

    def make() -> dict[str, Tensor]:
        every = range(len(samples["x_0"]))
        folds, losses = query_gradients(config, denoiser, curvature, samples, every)
        return {"queries": folds, "losses": losses}

    saved = workspace.kept("samples", "queries", make)
    return saved["queries"], saved["losses"]


def query_gradients(
    config: CollectionConfig,
    denoiser: Denoiser,
    curvature: Curvature,
    samples: dict[str, Tensor],
    numbers: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Return what `sample_queries` does of some samples, computed anew."""
    basis = curvature.basis.to(denoiser.device)
    folds, losses = [], []
    for number in Bar(numbers, "queries"):
        subject = Subject(samples["x_0"][number], int(samples["labels"][number]))
        loss, num_draws = MEASUREMENTS["loss"], config.samples.num_draws
        question = Question(subject, loss, num_draws, config.seed)
        gradient = question.to(denoiser).gradient(basis)
        folds.append(gradient.folds.cpu())
        losses.append(gradient.value)
    return torch.stack(folds), torch.tensor(losses, dtype=torch.float64)
