"""What a collection will cost before any of it is made: time, memory, disk.

Every stage is tried at two small sizes (`precompute.planning.probe`), which give its
cost at full size. What exists already costs nothing. Memory and disk follow from
shapes. The same arithmetic says what other settings would cost, so that no option is
named that is set already or changes nothing.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.checks import check_classes, check_settings
from core.config import CollectionConfig
from core.data.datasets import Dataset, load_dataset
from core.engine.query import QUERY_FOLDS
from core.model.denoiser import MOST_AT_ONCE, PASS_BYTES, Denoiser
from core.model.parameters import Layout
from core.numbers import clock
from core.recipes import with_settings
from precompute.machinery.config import FIDELITY_EXAMPLES
from precompute.machinery.progress import Bar
from precompute.planning.probe import Line, Probe, flat_curvature
from precompute.stages.proposal import NUM_BANDS, NUM_IMAGES, NUM_QUERIES

LONG = 24 * 3600  # seconds; a warning names the stage
BASE_MEMORY = 0.6e9  # bytes of the program itself
WORTH = 0.02  # of the whole time; an option that saves less is not named
SHOWN = 3  # options that are named


def half(value: int, least: int = 1, unit: int = 1) -> int:
    """Return half of a setting, in whole units and not below the least."""
    return max(least, value // 2 // unit * unit)


# What makes a build smaller -> how. Below these the result says little.
SMALLER: dict[str, Callable[[int], int]] = {
    "train.num_steps": lambda value: half(value, 500),
    "curvature.factor_draws": half,
    "curvature.eigenvalue_draws": half,
    "samples.num_samples": lambda value: half(value, 8),
    "samples.num_candidates": lambda value: 0,
    "samples.num_steps": lambda value: half(value, 20),
    "samples.num_draws": lambda value: half(value, 64, QUERY_FOLDS),
    "gradients.num_draws": lambda value: half(value, 16, 8),
    "gradients.index_bits": lambda value: 1,
    "gradients.sketch_dim": lambda value: half(value, 16_384, 8),
    "gradients.chunk": lambda value: half(value, 4),
}


@dataclass(frozen=True)
class Cost:
    """What a stage costs: seconds, bytes of memory at most, bytes left on disk."""

    seconds: float
    memory: float
    disk: float


@dataclass(frozen=True)
class Estimate:
    """What was measured in trials, and what it makes of any settings.

    Attributes:
        config: That the trials were made with.
        dataset: The images.
        denoiser: The model, or one of its shape.
        layout: Of its weights.
        training: Seconds by steps; None where it is trained.
        factors: Seconds by draws of all images.
        eigenvalues: Seconds by draws of all images.
        sampling: Seconds of one sample by steps.
        query: Seconds of a sample's gradient by draws.
        example: Seconds of a training gradient by draws, all kept of it.
        formats: Seconds of comparing ways to store, by gradients.
        clip: Seconds of embedding, by images.
    """

    config: CollectionConfig
    dataset: Dataset
    denoiser: Denoiser
    layout: Layout
    training: Line | None
    factors: Line
    eigenvalues: Line
    sampling: Line
    query: Line
    example: Line
    formats: Line
    clip: Line

    def costs(self, config: CollectionConfig | None = None) -> dict[str, Cost]:
        """Return what every stage costs by its name, with these or other settings."""
        config = config or self.config
        samples, gradients = config.samples, config.gradients
        count, pictures = len(self.dataset), min(FIDELITY_EXAMPLES, len(self.dataset))
        pilot = min(NUM_QUERIES + NUM_IMAGES, count) * 2 * NUM_BANDS
        kept = count + min(gradients.slice_examples, count)
        drawn = samples.num_samples + samples.num_candidates
        one = self.query.slope * gradients.num_draws
        seconds = {
            "train": self.training.at(config.train.num_steps) if self.training else 0.0,
            "curvature": self.factors.at(config.curvature.factor_draws)
            + self.eigenvalues.at(config.curvature.eigenvalue_draws),
            "samples": drawn * self.sampling.at(samples.num_steps)
            + samples.num_samples * self.query.at(samples.num_draws),
            "gradients": self.query.slope * pilot
            + kept * self.example.at(gradients.num_draws),
            # Gradients of some images that are not compressed, what each way to store
            # them keeps, and CLIP of all images.
            "checks": pictures * one + self.formats.at(pictures) + self.clip.at(count),
        }
        memory, disk = sizes(config, self.dataset, self.denoiser, self.layout)
        return {
            name: Cost(value, BASE_MEMORY + memory[name], disk[name])
            for name, value in seconds.items()
        }


def plan(
    config: CollectionConfig,
    work: Path | None = None,
    device: str = "cpu",
    dataset: Dataset | None = None,
) -> Estimate:
    """Return what trials say of the build of a collection on this machine.

    Args:
        config: The collection.
        work: Folder of unfinished work; a model that is trained there costs nothing.
        device: Where it would be computed.
        dataset: Its images; None loads them.
    """
    dataset = load_dataset(config.data) if dataset is None else dataset
    check_classes(config, len(dataset.class_names))
    with Bar(total=7, desc="trials") as bar:

        def tried(result):
            bar.update()
            return result

        probe = Probe(config, work, device, dataset)
        curvature = flat_curvature(probe)
        factors, eigenvalues = tried(probe.curvature())
        query = tried(probe.query(curvature))
        return Estimate(
            config,
            dataset,
            probe.denoiser,
            probe.layout,
            tried(None if probe.is_trained else probe.training()),
            factors,
            eigenvalues,
            tried(probe.sampling()),
            query,
            tried(probe.gradients(curvature)),
            tried(probe.formats(curvature, query.slope)),
            tried(probe.clip()),
        )


def sizes(
    config: CollectionConfig, dataset: Dataset, denoiser: Denoiser, layout: Layout
) -> tuple[dict[str, float], dict[str, float]]:
    """Return bytes of memory and of disk by stage, from shapes.

    Disk is what stays: weights, eigenvectors (half precision), index and sketch.
    """
    weights = sum(p.numel() for p in denoiser.parameters())
    squares = sum(layer.d_in**2 + layer.d_out**2 for layer in layout.layers)
    count, num_params = len(dataset), layout.num_params
    pixels = dataset.pixels.nbytes + 4 * count * int(np.prod(denoiser.shape))
    # What a pass of a large model keeps; of a small one it is little beside the rest.
    kept = PASS_BYTES if denoiser.most_at_once < MOST_AT_ONCE else 0.0
    gallery = config.samples.num_samples * QUERY_FOLDS * num_params * 4
    settings = config.gradients
    memory = {
        "train": pixels + 16 * weights,  # weights, gradients, two moments
        # Sums in float64.
        "curvature": pixels + kept + 4 * weights + 3 * 8 * squares,
        "samples": kept + 4 * weights + 4 * squares + 2 * gallery,
        # Solved queries beside the raw ones, a chunk's folds and means.
        "gradients": pixels
        + kept
        + 4 * weights
        + 4 * squares
        + 2 * gallery
        + 4 * settings.chunk * (settings.num_folds + 1) * num_params,
        "checks": 4 * min(FIDELITY_EXAMPLES, count) * num_params,
    }
    kept_bytes = num_params * settings.index_bits / 8 + settings.sketch_dim / 8
    disk = {
        "train": 2 * weights,
        "curvature": 2 * squares,
        "samples": gallery,
        "gradients": count * kept_bytes + 4 * num_params,  # the divisors
        "checks": float(sum(map(len, dataset.encoded))),
    }
    return memory, disk


@dataclass(frozen=True)
class Option:
    """A change of settings that makes a build smaller.

    Attributes:
        change: As `--set` takes it.
        costs: What every stage then costs.
    """

    change: str
    costs: dict[str, Cost]


def options(estimate: Estimate) -> list[Option]:
    """Return the changes that there are: each setting is as small as it was, or less.

    What is at its smallest, or would not go together with the rest, is left out.
    """
    smaller = []
    for setting, shrink in SMALLER.items():
        stage, _, name = setting.partition(".")
        value = getattr(getattr(estimate.config, stage), name)
        less = shrink(value)
        if less >= value:
            continue
        change = f"{setting}={less}"
        try:
            config = with_settings(estimate.config, [change])
            check_settings(config)
        except ValueError:
            continue
        smaller.append(Option(change, estimate.costs(config)))
    return smaller


def shorter(estimate: Estimate) -> list[str]:
    """Return a sentence with the options that save most time, each with its saving."""
    whole = total(estimate.costs())
    saved = {one.change: whole - total(one.costs) for one in options(estimate)}
    telling = [change for change in saved if saved[change] > WORTH * whole]
    telling = sorted(telling, key=lambda change: -saved[change])[:SHOWN]
    if not telling:
        return []
    savings = [f"--set {change} saves {clock(saved[change])}" for change in telling]
    return [f"Shorter: {'; '.join(savings)}."]


def warnings(estimate: Estimate, memory: float, disk: float) -> list[str]:
    """Return a sentence for all that will not fit, with the option that saves most.

    Args:
        estimate: What trials said.
        memory: Bytes that are free.
        disk: Bytes that are free.
    """
    sentences, costs, changes = [], estimate.costs(), options(estimate)
    needed = kept(costs)
    if needed > disk:
        sentences.append(
            f"It needs {needed / 1e9:.1f} GB of disk and {disk / 1e9:.1f} GB are free. "
            + least(changes, kept, needed)
        )
    stage = max(costs, key=lambda name: costs[name].memory)
    if costs[stage].memory > memory:
        sentences.append(
            f"'{stage}' needs {costs[stage].memory / 1e9:.1f} GB of memory and "
            f"{memory / 1e9:.1f} GB are free. "
            + least(changes, lambda some: some[stage].memory, costs[stage].memory)
        )
    for name, cost in costs.items():
        if cost.seconds > LONG:
            days = cost.seconds / 86400
            sentences.append(f"'{name}' takes {days:.1f} days here; a GPU is faster.")
    return sentences


def least(
    changes: list[Option], size: Callable[[dict[str, Cost]], float], now: float
) -> str:
    """Return which option needs least, in a sentence."""
    best = min(changes, key=lambda one: size(one.costs), default=None)
    if best is None or size(best.costs) >= now:
        return "No setting changes that: use fewer images, or a smaller model."
    return f"With --set {best.change} it is {size(best.costs) / 1e9:.1f} GB."


def total(costs: dict[str, Cost]) -> float:
    """Return the seconds of all stages."""
    return sum(cost.seconds for cost in costs.values())


def kept(costs: dict[str, Cost]) -> float:
    """Return the bytes that all stages leave on disk."""
    return sum(cost.disk for cost in costs.values())


def free_memory() -> float:
    """Return bytes of memory that are free, on Linux; no bound elsewhere."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return float("inf")
    for row in path.read_text().splitlines():
        if row.startswith("MemAvailable:"):
            return 1024 * float(row.split()[1])
    return float("inf")


def printed(estimate: Estimate, root: Path) -> str:
    """Return the plan as a table, what makes it shorter, and what will not fit."""
    costs = estimate.costs()
    rows = [
        f"{name:<10} {clock(cost.seconds):>10} {cost.memory / 1e9:>9.1f} GB "
        f"{cost.disk / 1e9:>9.2f} GB"
        for name, cost in costs.items()
    ]
    memory = max(cost.memory for cost in costs.values())
    whole = f"{clock(total(costs)):>10} {memory / 1e9:>9.1f} GB"
    there = next(one for one in (root, *root.absolute().parents) if one.exists())
    return "\n".join([
        f"{'stage':<10} {'time':>10} {'memory':>12} {'disk':>12}",
        *rows,
        f"{'in all':<10} {whole} {kept(costs) / 1e9:>9.2f} GB",
        *shorter(estimate),
        *warnings(estimate, free_memory(), shutil.disk_usage(there).free),
    ])
