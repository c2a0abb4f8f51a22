"""What the stages of a build take at small sizes, by their own code.

Each is run at two sizes and drawn out by a straight line: what it costs to begin, and
what each step, pair or draw adds. Knows no plan: `precompute.planning.plan` puts them
together.
"""

import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from core.config import CollectionConfig
from core.curvature.basis import Curvature
from core.data.datasets import Dataset
from core.engine.clip import load_clip
from core.engine.query import QUERY_FOLDS
from core.index.full import GradientIndex
from core.measure.draws import keyed_generator
from core.model.checkpoint import denoiser_from_bytes
from core.model.parameters import parameter_layout
from core.model.prompts import check_captions
from precompute.machinery.workers import example_workers
from precompute.machinery.workspace import Workspace, open_workspace
from precompute.stages.curvature import fit_curvature
from precompute.stages.fidelity import QUERIES, measure_fidelity
from precompute.stages.gradients import (
    GradientStage,
    gradient_stage,
    make_reduction,
    open_rows,
    reduce_chunk,
)
from precompute.stages.samples import make_samples, sample_queries
from precompute.stages.stages import finished_weights
from precompute.stages.train import new_denoiser, train

PROBE_EXAMPLES = 32  # images that are probed on


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
                stage = self._gradient_stage(config, curvature, workspace)
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

    def _gradient_stage(
        self, config: CollectionConfig, curvature: Curvature, workspace: Workspace
    ) -> GradientStage:
        """Return the stage with a proposal that was not measured."""
        proposal = torch.ones(self.denoiser.num_train_timesteps)
        workspace.save("gradients", "proposal", {"proposal": proposal})
        return gradient_stage(config, self.some, self.denoiser, curvature, workspace)

    def formats(self, curvature: Curvature, draw: float) -> Line:
        """Return what measuring the ways to store takes, by the gradients compared.

        Args:
            curvature: Of the model's shapes.
            draw: Seconds of one draw of a gradient; these are left out.
        """
        folds = self.config.gradients.num_folds
        count = min(QUERIES, self.config.samples.num_samples)
        queries = torch.randn(
            count,
            self.layout.num_params,
            generator=keyed_generator(self.config.seed, "probed queries"),
        )

        def cost(pictures: int) -> float:
            passed = []

            def run(config: CollectionConfig, workspace: Workspace) -> None:
                stage = self._gradient_stage(config, curvature, workspace)
                started = time.perf_counter()
                measure_fidelity(stage, queries, workspace, pictures)
                passed.append(time.perf_counter() - started)

            self.seconds(run, gradients={"num_draws": folds})
            return passed[-1]

        line = line_through(cost, 8, 16)
        return Line(line.fixed, max(0.0, line.slope - folds * draw))

    def clip(self) -> Line:
        """Return what embedding images takes, by their number."""
        pixels = self.some.pixels

        def cost(pictures: int) -> float:
            started = time.perf_counter()
            load_clip(device=self.device).embed_images(pixels[:pictures])
            return time.perf_counter() - started

        half = max(1, len(pixels) // 2)
        return line_through(cost, half, max(half + 1, len(pixels)))


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
