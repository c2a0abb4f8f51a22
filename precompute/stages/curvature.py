"""Fit K-FAC and EK-FAC over the training set (Sec. 3.1); resumable."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.config import CollectionConfig
from core.curvature.basis import Curvature, eigenbasis_from, eigenvectors
from core.curvature.fit import (
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.data.datasets import Dataset
from core.measure.draws import Draws, drop_codes, keyed_generator
from core.model.denoiser import Denoiser
from core.model.parameters import Layout, parameter_layout
from precompute.machinery.parallel import add_up, rank_and_size, wait_for_all
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import Workspace
from precompute.stages.train import encode_all

SAVE_EVERY = 60.0  # seconds


def examples_per_batch(batch_size: int, num_draws: int) -> int:
    """Return how many examples, each with all its draws, make a batch."""
    return max(1, batch_size // num_draws)


def independent_draws(
    config: CollectionConfig,
    denoiser: Denoiser,
    num_draws: int,
    generator: torch.Generator,
) -> Draws:
    """Return draws as in training: second moments gain little from anything cleverer.

    Args:
        config: The collection's settings.
        denoiser: The model.
        num_draws: S.
        generator: Source of every number drawn.
    """
    steps = denoiser.num_train_timesteps
    return Draws(
        torch.randint(steps, (num_draws,), generator=generator),
        torch.randn(num_draws, *denoiser.shape, generator=generator),
        drop_codes(torch.rand(num_draws, generator=generator), config.model.drops),
        torch.rand(num_draws, generator=generator) < 0.5 * config.train.horizontal_flip,
        torch.ones(num_draws),
    )


@dataclass(frozen=True)
class CurvatureStage:
    """What both passes need.

    Attributes:
        config: The collection's settings.
        dataset: The training set.
        denoiser: The model.
        x_0: Clean examples, shape (N, C, H, W).
        workspace: Where results go; None where nothing is run.
    """

    config: CollectionConfig
    dataset: Dataset
    denoiser: Denoiser
    x_0: Tensor
    workspace: Workspace | None = None

    def samples(
        self, purpose: str, num_draws: int, batch_size: int, numbers: Iterable[int]
    ) -> Iterator[Samples]:
        """Yield batches of noisy training examples.

        Each example has draws of its own, keyed by its id, so that a batch does not
        depend on those before it. Whether a draw mirrors its image is part of it.
        Examples come in random order, so that part of a batch is a random sample of the
        training set.

        Args:
            purpose: What the draws are for.
            num_draws: Draws per example.
            batch_size: Draws per batch, rounded to whole examples.
            numbers: Which batches: the k-th holds the k-th run of the examples' order.
        """
        config, dataset, denoiser = self.config, self.dataset, self.denoiser
        device, empirical = denoiser.device, config.curvature.ggn == "loss"
        per_batch = examples_per_batch(batch_size, num_draws)
        g = keyed_generator(config.seed, purpose, "order")
        order = torch.randperm(len(dataset), generator=g)
        for number in numbers:
            start = number * per_batch
            parts = []
            for position in order[start : start + per_batch].tolist():
                g = keyed_generator(config.seed, purpose, int(dataset.ids[position]))
                draws = independent_draws(config, denoiser, num_draws, g)
                if empirical:
                    signs = torch.randint(2, (num_draws, 1, 1, 1), generator=g)
                    probes = 2.0 * signs - 1
                else:
                    probes = torch.randn(num_draws, *denoiser.shape, generator=g)
                parts.append((draws, probes, position))
            timesteps, noise, drop, flip = (
                torch.cat([getattr(draws, name) for draws, _, _ in parts]).to(device)
                for name in ("timesteps", "noise", "drop_label", "flip")
            )
            index = torch.tensor([p for _, _, p in parts]).repeat_interleave(num_draws)
            clean = self.x_0[index.to(self.x_0.device)]
            clean = torch.where(flip[:, None, None, None], clean.flip(-1), clean)
            labels = torch.from_numpy(dataset.labels)[index].to(device)
            yield Samples(
                denoiser.add_noise(clean, noise, timesteps),
                timesteps,
                denoiser.dropped(labels, drop),
                torch.cat([p for _, p, _ in parts]).to(device),
                denoiser.target(clean, noise, timesteps) if empirical else None,
            )

    def run(
        self, name: str, num_draws: int, batch_size: int, fit: Callable
    ) -> tuple[Any, float]:
        """Run one pass with a progress bar, saving its sums once a minute.

        Under torchrun each process takes every n-th batch.

        Args:
            name: Of the pass.
            num_draws: Draws per example.
            batch_size: Draws per batch.
            fit: `fit_factors` or `fit_corrected_eigenvalues`, given batches and sums.

        Returns:
            What `fit` returns, and seconds, those of interrupted runs included.

        Raises:
            ValueError: If there are more processes than batches.
        """
        rank, size = rank_and_size()
        total = -(-len(self.dataset) // examples_per_batch(batch_size, num_draws))
        if total < size:
            raise ValueError(
                f"There are {size} processes for {total} batches. Start fewer."
            )
        part = name if size == 1 else f"{name}-{rank}-of-{size}"
        saved, facts = self.workspace.load("curvature", part) or (
            {},
            {"batches": 0, "seconds": 0.0},
        )
        sums = {key: value.to(self.x_0.device) for key, value in saved.items()}
        numbers = range(rank, total, size)
        bar = Bar(total=len(numbers), desc=part, initial=facts["batches"])
        started = time.time()

        def seconds() -> float:
            return facts["seconds"] + time.time() - started

        def batches() -> Iterator[Samples]:
            last_saved, remaining = started, numbers[facts["batches"] :]
            purpose = f"curvature {name}"
            for batch in self.samples(purpose, num_draws, batch_size, remaining):
                yield batch  # and `sums` hold it
                bar.update()
                if time.time() - last_saved > SAVE_EVERY:
                    done = {"batches": bar.n, "seconds": seconds()}
                    self.workspace.save("curvature", part, sums, **done)
                    last_saved = time.time()
            add_up(sums)

        result = fit(batches(), sums)
        bar.close()
        return result, seconds()

    def fit_basis(self, layout: Layout) -> None:
        """Run the first pass; save the eigenbasis with K-FAC's eigenvalues."""
        settings = self.config.curvature
        factors, seconds = self.run(
            "factors",
            settings.factor_draws,
            settings.batch_size,
            lambda batches, sums: fit_factors(
                self.denoiser,
                layout,
                batches,
                settings.kfac_approx,
                settings.factor_draws,
                settings.max_positions,
                sums,
            ),
        )
        if rank_and_size()[0] == 0:
            basis, kfac_eigenvalues = eigenbasis(factors)
            tensors = eigenvectors(basis) | {"kfac": kfac_eigenvalues.float()}
            self.workspace.save("curvature", "basis", tensors, seconds=seconds)
        wait_for_all()


def fit_curvature(
    config: CollectionConfig, dataset: Dataset, denoiser: Denoiser, workspace: Workspace
) -> tuple[Curvature, Curvature]:
    """Return (EK-FAC, K-FAC) in float32 on the CPU, resuming from saved sums.

    What several processes compute together equals one process's up to the rounding of
    float64 sums.
    """
    layout, settings = parameter_layout(denoiser.unet), config.curvature
    saved = workspace.load("curvature", "curvature")
    if saved is not None:
        return _from_tensors(layout, saved[0])
    x_0 = encode_all(denoiser, dataset)
    stage = CurvatureStage(config, dataset, denoiser, x_0, workspace)
    if workspace.load("curvature", "basis") is None:
        stage.fit_basis(layout)
    tensors, facts = workspace.load("curvature", "basis")
    basis = eigenbasis_from(tensors, layout).to(denoiser.device)
    corrected, seconds = stage.run(
        "eigenvalues",
        settings.eigenvalue_draws,
        settings.batch_size,
        lambda batches, sums: fit_corrected_eigenvalues(
            denoiser, basis, batches, settings.group_size, sums
        ),
    )
    if rank_and_size()[0] == 0:
        tensors["corrected"] = corrected.float().cpu()
        seconds += facts["seconds"]
        workspace.save("curvature", "curvature", tensors, seconds=seconds)
    wait_for_all()
    workspace.forget("curvature", "basis", "factors", "eigenvalues")
    return _from_tensors(layout, workspace.load("curvature", "curvature")[0])


def _from_tensors(
    layout: Layout, tensors: dict[str, Tensor]
) -> tuple[Curvature, Curvature]:
    basis = eigenbasis_from(tensors, layout)
    return Curvature(basis, tensors["corrected"]), Curvature(basis, tensors["kfac"])
