"""Do the standard errors cover? Simulated on a small trained model, from end to end.

A small UNet is trained on random pictures. The pass over the training gradients and the
gallery's answers are then made many times, each time with other draws for examples and
queries, and compared with scores from many draws.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from core.config import (
    CollectionConfig,
    DataConfig,
    GradientConfig,
    ModelConfig,
    collection_config,
)
from core.curvature import (
    Curvature,
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.diffusion import Denoiser, make_denoiser
from core.draws import Draws, keyed_generator, make_draws
from core.gradients import fold_gradients
from core.influence import centred
from core.measurements import loss
from core.parameters import parameter_layout
from core.query import QUERY_FOLDS
from precompute.assemble import check_errors, gallery_answers
from precompute.gradients import GradientStage, compute_gradients
from precompute.workspace import open_workspace
from tests.benchmarks import machine

NORMAL_90 = 1.6449  # 90% of a normal distribution lie within so many deviations
SIZE, TIMESTEPS, RELATIVE_DAMPING = 4, 20, 0.1


@dataclass(frozen=True)
class Trial:
    """How much is simulated.

    Attributes:
        examples: N.
        queries: M, of which each has as many draws as an example.
        draws: Of each example in one set.
        sets: Independent sets of draws.
        many: Times as many draws give the scores that intervals should cover.
        steps: Of training.
    """

    examples: int = 24
    queries: int = 8
    draws: int = 32
    sets: int = 40
    many: int = 40
    steps: int = 300

    @property
    def config(self) -> CollectionConfig:
        """Return the settings of the simulated collection."""
        gradients = GradientConfig(
            num_draws=self.draws,
            relative_damping=RELATIVE_DAMPING,
            sketch_dim=1024,
            slice_examples=self.examples,
        )
        base = collection_config("glyphs", "tiny")
        data = DataConfig(limit=self.examples)
        return replace(base, name="errors", data=data, gradients=gradients)

    def drawn(self, times: int, num_folds: int, *keys: str | int) -> Draws:
        """Return draws for `times` sets at once."""
        generator = keyed_generator(0, "error draws", *keys)
        shape = (1, SIZE, SIZE)
        count = times * self.draws
        return make_draws(count, shape, TIMESTEPS, generator, num_folds=num_folds)


def trained_denoiser(trial: Trial, x_0: Tensor) -> Denoiser:
    """Return a small UNet that has learnt something about the pictures."""
    generator = keyed_generator(0, "error model")
    settings = ModelConfig(
        block_out_channels=(4, 4),
        attention=(False, True),
        attention_head_dim=2,
        norm_num_groups=2,
        num_train_timesteps=TIMESTEPS,
        beta_end=0.3,
        clip_sample=False,
    )
    denoiser = make_denoiser(settings, SIZE, 1, 1, generator)
    optimizer = torch.optim.Adam(denoiser.unet.parameters(), 5e-3)
    for _ in range(trial.steps):
        chosen = torch.randint(len(x_0), (64,), generator=generator)
        timesteps = torch.randint(TIMESTEPS, (64,), generator=generator)
        noise = torch.randn(64, *denoiser.shape, generator=generator)
        optimizer.zero_grad()
        denoiser.losses(x_0[chosen], noise, timesteps, None).mean().backward()
        optimizer.step()
    return denoiser.eval()


def fitted_curvature(denoiser: Denoiser, x_0: Tensor) -> Curvature:
    """Return EK-FAC from every picture at some noisy states."""
    generator = keyed_generator(0, "error curvature")
    layout = parameter_layout(denoiser.unet)
    batches = []
    for part in x_0.repeat(8, 1, 1, 1).split(8):
        timesteps = torch.randint(TIMESTEPS, (len(part),), generator=generator)
        noise, probes = torch.randn(2, *part.shape, generator=generator)
        x_t = denoiser.add_noise(part, noise, timesteps)
        batches.append(Samples(x_t, timesteps, None, probes))
    basis, _ = eigenbasis(fit_factors(denoiser, layout, batches))
    basis = basis.to("cpu")
    eigenvalues = fit_corrected_eigenvalues(denoiser, basis, batches, 1)
    return Curvature(basis, eigenvalues.float())


def simulated(trial: Trial) -> tuple[np.ndarray, Iterator[tuple]]:
    """Return scores (M, N) from many draws, and (scores, errors) of each set."""
    generator = keyed_generator(0, "error pictures")
    count = trial.examples + trial.queries
    x_0 = torch.randn(count, 1, SIZE, SIZE, generator=generator)
    x_0 *= 0.4 + 1.2 * torch.rand(count, 1, 1, 1, generator=generator)
    denoiser = trained_denoiser(trial, x_0)
    curvature = fitted_curvature(denoiser, x_0)
    labels = np.zeros(trial.examples, np.int64)
    examples = x_0[: trial.examples]
    stage = GradientStage(
        trial.config, Examples(labels), denoiser, curvature, None, examples
    )

    def gradients(pictures: Tensor, draws: Draws, num_folds: int) -> Tensor:
        layout = curvature.basis.layout
        return torch.stack([
            fold_gradients(loss, denoiser, layout, x, None, draws, num_folds)[0]
            for x in pictures
        ])

    def rotated_queries(times: int, *keys: str | int) -> Tensor:
        draws = trial.drawn(times, QUERY_FOLDS, "query", *keys)
        folds = gradients(x_0[trial.examples :], draws, QUERY_FOLDS)
        return curvature.basis.rotate(folds)

    damped = curvature.eigenvalues + stage.damping
    solved = rotated_queries(trial.many, "many").mean(1) / damped
    training = gradients(examples, trial.drawn(trial.many, 1, "many"), 1)[:, 0]
    exact = centred((solved @ curvature.basis.rotate(training).T).double().numpy())

    def answers() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(trial.sets):
            draws = trial.drawn(1, trial.config.gradients.num_folds, number)
            yield answer(replace(stage, draws=draws), rotated_queries(1, number))

    return exact, answers()


@dataclass(frozen=True)
class Examples:
    """What the pass asks of a data set."""

    labels: np.ndarray

    def __len__(self) -> int:
        """Return N."""
        return len(self.labels)


def answer(stage: GradientStage, queries: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (M, N) and standard errors as a build makes them."""
    with TemporaryDirectory() as folder:
        workspace = open_workspace(stage.config, Path(folder))
        rows, _, statistics = compute_gradients(
            stage, queries, workspace, Path(folder) / "index"
        )
        predicted, calibration, _ = check_errors(stage, queries, rows, statistics)
        return gallery_answers(rows, calibration * predicted)


def coverage(trial: Trial) -> dict[str, np.ndarray]:
    """Return whether each 90% interval covers, and how far off each score was.

    Returns:
        "covered", bool, and "squared_error" over "predicted" variance, each of shape
        (sets, M, N).
    """
    exact, answers = simulated(trial)
    scores, errors = (np.stack(x) for x in zip(*answers, strict=True))
    off = scores - exact
    return {
        "covered": np.abs(off) < NORMAL_90 * errors,
        "squared_error": off**2,
        "predicted": errors**2,
    }


def run(collection: str, root: Path | None) -> dict:
    """Return the share of 90% intervals that cover; the collection does not matter."""
    trial, started = Trial(), time.time()
    found = coverage(trial)
    covered = found["covered"]
    return {
        **machine.facts(),
        "trial": vars(trial),
        "seconds": round(time.time() - started, 1),
        "coverage": round(float(covered.mean()), 4),
        "by_set": quantiles(covered.mean((1, 2))),
        "by_query": quantiles(covered.mean((0, 2))),
        "by_example": quantiles(covered.mean((0, 1))),
        "squared_error/predicted": round(
            float(found["squared_error"].mean() / found["predicted"].mean()), 3
        ),
        "lines": [f"coverage of 90% intervals {covered.mean():.3f}"],
    }


def quantiles(shares: np.ndarray) -> dict[str, float]:
    """Return the least, the median and the largest share."""
    least, median, largest = np.quantile(shares, (0, 0.5, 1))
    return {
        name: round(float(x), 3)
        for name, x in {"least": least, "median": median, "largest": largest}.items()
    }
