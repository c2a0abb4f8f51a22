"""What a collection will cost before any of it is made: time, memory, disk.

Every stage runs at two small sizes, by its own code, and is drawn out to its full size
by a straight line: what it costs to begin, and what each step, pair or draw adds. What
exists already costs nothing. Memory and disk follow from shapes.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from core.checks import check_classes
from core.clip import load_clip
from core.config import CollectionConfig
from core.curvature import Curvature
from core.datasets import Dataset, load_dataset
from core.denoiser_file import denoiser_from_bytes
from core.diffusion import MOST_AT_ONCE, PASS_BYTES, Denoiser
from core.index import GradientIndex
from core.parameters import Layout, parameter_layout
from core.prompts import check_captions
from core.proposal import NUM_BANDS, NUM_PICTURES, NUM_QUERIES
from core.query import QUERY_FOLDS
from precompute.curvature import fit_curvature
from precompute.fidelity import EXAMPLES
from precompute.gradients import (
    gradient_stage,
    make_reduction,
    open_rows,
    reduce_chunk,
)
from precompute.ready import finished_weights
from precompute.samples import make_samples, sample_queries
from precompute.train import new_denoiser, train
from precompute.workers import example_workers
from precompute.workspace import Workspace, open_workspace

PROBE_EXAMPLES = 32  # pictures that are probed on
LONG = 24 * 3600  # seconds; a warning says what would shorten it
BASE_MEMORY = 0.6e9  # bytes of the program itself
SHORTER = {
    "train": "--set train.num_steps=...",
    "curvature": "--set curvature.factor_draws=... and curvature.eigenvalue_draws=...",
    "samples": "--set samples.num_steps=... or samples.num_samples=...",
    "gradients": "--set gradients.num_draws=...",
    "checks": "--set gradients.num_draws=...",
}


@dataclass(frozen=True)
class Cost:
    """What a stage costs: seconds, bytes of memory at most, bytes left on disk."""

    seconds: float
    memory: float
    disk: float


@dataclass(frozen=True)
class Line:
    """A cost that grows with a size: `fixed + slope * size`."""

    fixed: float
    slope: float

    def at(self, size: float) -> float:
        """Return the cost at a size."""
        return self.fixed + self.slope * size


def line_through(cost: Callable[[int], float], small: int, large: int) -> Line:
    """Return the straight line through a cost measured at two sizes.

    The first call warms up and does not count. Noise may tilt the line below nothing;
    it is then flat.
    """
    cost(small)
    low, high = cost(small), cost(large)
    slope = max(0.0, (high - low) / (large - small))
    return Line(max(0.0, low - slope * small), slope)


class Probe:
    """Runs stages at small sizes, by their own code, each in a folder of its own."""

    def __init__(
        self, config: CollectionConfig, work: Path | None, device: str, dataset: Dataset
    ):
        """Load the model if there is one."""
        self.config, self.device, self.dataset = config, device, dataset
        self.some = self.dataset.restricted(
            np.arange(len(self.dataset)) < PROBE_EXAMPLES
        )
        weights = finished_weights(config, work)
        self.is_trained = weights is not None
        self.denoiser = (
            denoiser_from_bytes(weights)
            if self.is_trained
            else new_denoiser(config, self.some)
        ).to(device)
        check_captions(self.denoiser.unet, self.dataset.class_names)
        self.layout = parameter_layout(self.denoiser.unet)

    def seconds(
        self, run: Callable[[CollectionConfig, Workspace], object], **changes
    ) -> float:
        """Return what a stage takes under changed settings, by stage and name."""
        config = self.config
        for name, settings in changes.items():
            part = replace(getattr(config, name), **settings)
            config = replace(config, **{name: part})
        with TemporaryDirectory() as folder, redirect_stderr(StringIO()):
            workspace = open_workspace(config, Path(folder))
            started = time.perf_counter()
            run(config, workspace)
            if torch.device(self.device).type == "cuda":
                torch.cuda.synchronize()
            return time.perf_counter() - started

    def training(self) -> Line:
        """Return what training takes, by its steps."""
        return line_through(
            lambda steps: self.seconds(
                lambda config, workspace: train(
                    config, self.some, workspace, self.device
                ),
                train={"num_steps": steps, "warmup_steps": 1},
            ),
            2,
            8,
        )

    def curvature(self) -> tuple[Line, Line]:
        """Return what the factors and the eigenvalues take, by their draws of all.

        The eigenvectors are in what the factors take at no draw.
        """

        def cost(factors: int, eigenvalues: int) -> float:
            draws = {"factor_draws": factors, "eigenvalue_draws": eigenvalues}
            return self.seconds(
                lambda config, workspace: fit_curvature(
                    config, self.some, self.denoiser, workspace
                ),
                curvature=draws,
            )

        factors = line_through(lambda draws: cost(draws, 1), 1, 3)
        more = cost(1, 3)
        eigenvalues = max(0.0, (more - factors.at(1)) / 2)
        scale = len(self.dataset) / len(self.some)
        return (
            Line(max(0.0, factors.fixed - eigenvalues), factors.slope * scale),
            Line(0.0, eigenvalues * scale),
        )

    def sampling(self) -> Line:
        """Return what drawing one sample takes, by its steps."""
        return line_through(
            lambda steps: self.seconds(
                lambda config, workspace: make_samples(
                    config, self.denoiser, self.some, workspace
                ),
                samples={"num_samples": 1, "num_candidates": 0, "num_steps": steps},
            ),
            2,
            6,
        )

    def query(self, curvature: Curvature) -> Line:
        """Return what one sample's gradient takes, by its draws."""
        samples = {
            "x_0": torch.zeros(1, *self.denoiser.shape),
            "labels": torch.zeros(1, dtype=torch.long),
        }
        return line_through(
            lambda draws: self.seconds(
                lambda config, workspace: sample_queries(
                    config, self.denoiser, curvature, samples, workspace
                ),
                samples={"num_draws": draws},
            ),
            *probed_draws(self.config.samples.num_draws, 2 * QUERY_FOLDS),
        )

    def gradients(self, curvature: Curvature) -> Line:
        """Return what one training gradient takes, by its draws, all kept of it."""
        count = 2 * torch.get_num_threads()

        def cost(draws: int) -> float:
            passed = []

            def run(config: CollectionConfig, workspace: Workspace) -> None:
                proposal = torch.ones(self.denoiser.num_train_timesteps)
                workspace.save("gradients", "proposal", {"proposal": proposal})
                stage = gradient_stage(
                    config, self.some, self.denoiser, curvature, workspace
                )
                zeros = torch.zeros(self.layout.num_params)
                statistics = {"rms": zeros + 1, "spread": torch.ones(())}
                queries = zeros.expand(1, QUERY_FOLDS, -1).clone()
                reduction = make_reduction(stage, queries, statistics)
                rows = open_rows(stage, queries, workspace.folder / "rows")
                index = GradientIndex(
                    workspace.folder / "index",
                    len(self.some),
                    self.layout.num_params,
                    config.gradients.index_bits,
                )
                index.create()
                examples = range(min(count, len(self.some)))
                with example_workers(self.denoiser.device) as pool:
                    started = time.perf_counter()
                    reduce_chunk(stage, reduction, examples, rows, index, pool)
                    passed.append((time.perf_counter() - started) / len(examples))

            settings = {"num_draws": draws, "chunk": count}
            self.seconds(run, gradients=settings)
            return passed[-1]

        folds = self.config.gradients.num_folds
        draws = probed_draws(self.config.gradients.num_draws, 4 * folds)
        return line_through(cost, *draws)

    def clip(self) -> float:
        """Return what embedding one picture takes."""
        model = load_clip(device=self.device)
        pixels = self.some.pixels
        model.embed_images(pixels[:2])
        started = time.perf_counter()
        model.embed_images(pixels)
        return (time.perf_counter() - started) / len(pixels)


def probed_draws(planned: int, unit: int) -> tuple[int, int]:
    """Return two numbers of draws to probe, whole units: a quarter and half of all.

    Far fewer would make batches so small that each draw costs twice as much.
    """
    quarter = max(1, planned // 4 // unit) * unit
    return quarter, 2 * quarter


def flat_curvature(probe: Probe) -> Curvature:
    """Return a curvature of the model's shapes; what it holds changes no time."""
    with TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        config = replace(
            probe.config,
            curvature=replace(
                probe.config.curvature, factor_draws=1, eigenvalue_draws=1
            ),
        )
        workspace = open_workspace(config, Path(folder))
        return fit_curvature(config, probe.some, probe.denoiser, workspace)[0]


def plan(
    config: CollectionConfig,
    work: Path | None = None,
    device: str = "cpu",
    dataset: Dataset | None = None,
) -> dict[str, Cost]:
    """Return what every stage of a build costs on this machine, by its name.

    Args:
        config: The collection.
        work: Folder of unfinished work; a model that is trained there costs nothing.
        device: Where it would be computed.
        dataset: Its pictures; None loads them.
    """
    dataset = load_dataset(config.data) if dataset is None else dataset
    check_classes(config, len(dataset.class_names))
    probe = Probe(config, work, device, dataset)
    curvature = flat_curvature(probe)
    factors, eigenvalues = probe.curvature()
    sampling, query = probe.sampling(), probe.query(curvature)
    example = probe.gradients(curvature)
    settings = config.gradients
    count, pictures = len(probe.dataset), min(EXAMPLES, len(probe.dataset))
    one = example.at(settings.num_draws)
    pilot = min(NUM_QUERIES + NUM_PICTURES, count) * query.slope * 2 * NUM_BANDS
    drawn = config.samples.num_samples + config.samples.num_candidates
    seconds = {
        "train": 0.0 if probe.is_trained else _training_seconds(probe),
        "curvature": factors.at(config.curvature.factor_draws)
        + eigenvalues.at(config.curvature.eigenvalue_draws),
        "samples": drawn * sampling.at(config.samples.num_steps)
        + config.samples.num_samples * query.at(config.samples.num_draws),
        "gradients": pilot + one * (count + min(settings.slice_examples, count)),
        # Uncompressed gradients of some pictures, CLIP of all.
        "checks": pictures * query.slope * settings.num_draws + count * probe.clip(),
    }
    memory, disk = sizes(config, probe.dataset, probe.denoiser, probe.layout)
    return {
        name: Cost(value, BASE_MEMORY + memory[name], disk[name])
        for name, value in seconds.items()
    }


def _training_seconds(probe: Probe) -> float:
    return probe.training().at(probe.config.train.num_steps)


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
        "checks": 4 * min(EXAMPLES, count) * num_params,
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


def warnings(costs: dict[str, Cost], memory: float, disk: float) -> list[str]:
    """Return a sentence for all that will not fit, with the option that would.

    Args:
        costs: By stage.
        memory: Bytes that are free.
        disk: Bytes that are free.
    """
    said = []
    needed = sum(cost.disk for cost in costs.values())
    if needed > disk:
        said.append(
            f"It needs {needed / 1e9:.1f} GB of disk and {disk / 1e9:.1f} GB are free. "
            "An index of 1 bit takes an eighth: --set gradients.index_bits=1."
        )
    stage = max(costs, key=lambda name: costs[name].memory)
    if costs[stage].memory > memory:
        option = {
            "train": "train.batch_size=32",
            "curvature": "model.block_out_channels=... with smaller numbers",
        }.get(stage, "samples.num_samples=16")
        said.append(
            f"'{stage}' needs {costs[stage].memory / 1e9:.1f} GB of memory and "
            f"{memory / 1e9:.1f} GB are free. Less is needed with --set {option}."
        )
    for name, cost in costs.items():
        if cost.seconds > LONG:
            said.append(
                f"'{name}' takes {cost.seconds / 86400:.1f} days here. It is shorter "
                f"on a GPU, or with {SHORTER[name]}."
            )
    return said


def free_memory() -> float:
    """Return bytes of memory that are free, on Linux; no bound elsewhere."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return float("inf")
    for row in path.read_text().splitlines():
        if row.startswith("MemAvailable:"):
            return 1024 * float(row.split()[1])
    return float("inf")


def printed(costs: dict[str, Cost], root: Path) -> str:
    """Return the plan as a table, and a sentence for all that will not fit."""
    rows = [
        f"{name:<10} {clock(cost.seconds):>10} {cost.memory / 1e9:>9.1f} GB "
        f"{cost.disk / 1e9:>9.2f} GB"
        for name, cost in costs.items()
    ]
    seconds = sum(cost.seconds for cost in costs.values())
    memory = max(cost.memory for cost in costs.values())
    disk = sum(cost.disk for cost in costs.values())
    total = f"{clock(seconds):>10} {memory / 1e9:>9.1f} GB {disk / 1e9:>9.2f} GB"
    there = next(one for one in (root, *root.absolute().parents) if one.exists())
    free = shutil.disk_usage(there).free
    return "\n".join([
        f"{'stage':<10} {'time':>10} {'memory':>12} {'disk':>12}",
        *rows,
        f"{'in all':<10} {total}",
        *warnings(costs, free_memory(), free),
    ])


def clock(seconds: float) -> str:
    """Return a time as a person reads it: 40 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
