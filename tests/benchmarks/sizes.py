"""Why are predicted sizes off? A model small enough for the exact GGN, retrained.

A UNet of some thousand weights on 256 images of 8x8 pixels is trained for different
lengths, and again without random 2, 10 and 50% of the images by the same draws
(`train.common_draws`). Predictions invert EK-FAC, the exact GGN within each layer, and
the exact GGN, each under dampings from 1e-8 to 1 times its mean eigenvalue. The slope
is how many times a predicted change was measured: 1 is the right size.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from core.config import CollectionConfig, CurvatureConfig, TrainConfig
from core.curvature.fit import Samples
from core.data.datasets import Dataset, load_dataset
from core.evidence.evaluation import (
    lds,
    mean_and_error,
    predicted_changes,
    size_of_changes,
    slope_error,
)
from core.measure.draws import Draws, keyed_generator, make_draws
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.parameters import (
    Layout,
    attributed_parameters,
    flatten_gradients,
    parameter_layout,
)
from core.presets import collection_config
from precompute.machinery.config import SameSeedConfig
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import Workspace
from precompute.retraining.jobs import Job
from precompute.retraining.same_seed import same_seed_jobs
from precompute.retraining.train import retrain
from precompute.stages.curvature import CurvatureStage, fit_curvature
from tests.benchmarks import machine
from tests.helpers.exact import block_diagonal

IMAGES, QUERIES = 256, 16  # trained on; measured, unseen
LENGTHS = (1_000, 2_000)  # steps of training; each 20 minutes of one core
REMOVALS = SameSeedConfig((0.02, 0.1, 0.5), num_subsets=8, num_seeds=1)
DAMPINGS = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0)  # of the mean eigenvalue
DRAWS = 128  # of each image and each sample
GGN_DRAWS = 8  # of each image


def small_config(num_steps: int) -> CollectionConfig:
    """Return the settings of a model whose GGN can be written down."""
    config = collection_config("fashion2", "tiny")
    model = replace(
        config.model,
        block_out_channels=(4, 4),
        attention=(False, False),
        attention_head_dim=4,
        norm_num_groups=2,
    )
    return replace(
        config,
        data=replace(config.data, image_size=8, limit=IMAGES),
        model=model,
        train=TrainConfig(
            num_steps=num_steps,
            batch_size=32,
            learning_rate=2e-3,
            warmup_steps=100,
            ema_decay=0.99,
            checkpoint_every=num_steps,
            common_draws=True,
        ),
        curvature=CurvatureConfig(factor_draws=GGN_DRAWS, eigenvalue_draws=GGN_DRAWS),
    )


def small_images() -> tuple[Dataset, Tensor]:
    """Return the training images at 8x8, and those of the samples, in [-1, 1]."""
    config = collection_config("fashion2").data
    dataset = load_dataset(replace(config, limit=IMAGES + QUERIES))
    squares = dataset.pixels.reshape(-1, 1, 8, 2, 8, 2).mean((3, 5))
    dataset = replace(dataset, pixels=squares.round().astype(np.uint8))
    unseen = dataset.images(slice(IMAGES, None))
    return dataset.restricted(np.arange(len(dataset)) < IMAGES), unseen


def shared_draws(denoiser: Denoiser) -> Draws:
    """Return stratified draws that all images share: centring takes out their error."""
    g = keyed_generator(0, "sizes")
    return make_draws(DRAWS, denoiser.shape, denoiser.num_train_timesteps, g)


def losses(denoiser: Denoiser, image: Tensor, draws: Draws) -> Tensor:
    """Return the losses of one image under each draw, shape (S,)."""
    clean = image.expand(len(draws.timesteps), -1, -1, -1)
    return denoiser.losses(clean, draws.noise, draws.timesteps, None)


@torch.no_grad()
def costs(denoiser: Denoiser, images: Tensor, draws: Draws) -> np.ndarray:
    """Return the mean loss of each image, shape (Q,)."""
    means = [losses(denoiser, image, draws).double().mean() for image in images]
    return torch.stack(means).numpy()


def gradients(denoiser: Denoiser, images: Tensor, draws: Draws) -> Tensor:
    """Return the gradient of each image's mean loss, shape (B, P)."""
    layout = parameter_layout(denoiser.unet)
    parameters = attributed_parameters(denoiser.unet, layout)
    rows = []
    for image in images:
        mean = losses(denoiser, image, draws).mean()
        parts = torch.autograd.grad(mean, parameters)
        rows.append(flatten_gradients(list(parts), layout))
    return torch.stack(rows).double()


def exact_ggn(denoiser: Denoiser, layout: Layout, batches: list[Samples]) -> Tensor:
    """Return the GGN of Eq. 9 over all samples, shape (P, P), float64."""
    parameters = attributed_parameters(denoiser.unet, layout)
    total, count = 0.0, 0
    for batch in Bar(batches, "GGN"):
        for i in range(len(batch.x_t)):
            one = batch[torch.tensor([i])]
            with sdpa_kernel(SDPBackend.MATH):  # the others have no batched gradient
                output = denoiser.predict(one.x_t, one.timesteps, None).flatten()
            entries = torch.eye(len(output))
            parts = torch.autograd.grad(
                output, parameters, entries, is_grads_batched=True
            )
            rows = [
                flatten_gradients([part[j] for part in parts], layout)
                for j in range(len(output))
            ]
            jacobian = torch.stack(rows).double()
            total = total + 2 * jacobian.T @ jacobian
            count += 1
    return total / count


def run(collection: str, root: Path | None) -> dict:
    """Return LDS and slope by length, share removed, curvature and damping.

    Args:
        collection: Not used; the model is the benchmark's own.
        root: Where its models are kept; None for a folder that is removed.
    """
    rows, facts = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for num_steps in LENGTHS:
            config = small_config(num_steps)
            at = (root or Path(folder)) / str(num_steps)
            figures, known = of_one_length(config, at)
            rows += [{"steps": num_steps} | row for row in figures]
            facts[str(num_steps)] = known
    return {**machine.facts(), "images": IMAGES, "models": facts, "rows": rows}


def of_one_length(config: CollectionConfig, folder: Path) -> tuple[list[dict], dict]:
    """Return the rows of one length of training, and what is known of its model."""
    dataset, unseen = small_images()
    jobs = same_seed_jobs(config, REMOVALS, len(dataset), folder)
    folder.mkdir(parents=True, exist_ok=True)
    models = [denoiser_from_bytes(model_of(config, dataset, job)) for job in jobs]
    full, draws = models[0].eval(), shared_draws(models[0])
    measured = np.stack([costs(one.eval(), unseen, draws) for one in models], 1)
    changes = measured[:, 1:] - measured[:, :1]
    kept = np.stack([job.kept for job in jobs[1:]])
    fractions = np.array([job.why["same-seed"]["fraction"] for job in jobs[1:]])
    training, queries = (
        gradients(full, images, draws) for images in (dataset.images(), unseen)
    )
    rows = []
    for name, damping, solved in preconditioned(config, dataset, full, queries, folder):
        scores = (solved @ training.T).numpy()
        scores -= scores.mean(1, keepdims=True)
        predicted = predicted_changes(scores, kept)
        for fraction in REMOVALS.fractions:
            some = fractions == fraction
            pair = predicted[:, some], changes[:, some]
            value, error = mean_and_error(lds(*pair))
            rows.append({
                "removed": fraction,
                "curvature": name,
                "damping": damping,
                "lds": value,
                "lds_error": error,
                "slope": size_of_changes(*pair),
                "slope_error": slope_error(*pair),
            })
    relative = changes / measured[:, :1]
    known = {
        "weights": parameter_layout(full.unet).num_params,
        "training_loss": float(costs(full, dataset.images(), draws).mean()),
        "unseen_loss": float(measured[:, 0].mean()),
        "change": {
            str(one): float(np.sqrt(np.mean(relative[:, fractions == one] ** 2)))
            for one in REMOVALS.fractions
        },
    }
    return rows, known


def model_of(config: CollectionConfig, dataset: Dataset, job: Job) -> bytes:
    """Return the model of a job, training it unless that is done."""
    return retrain(config, dataset, job).read_bytes()


def preconditioned(config, dataset, denoiser, queries: Tensor, folder: Path):
    """Yield (curvature, relative damping, H^-1 of the queries' gradients (Q, P))."""
    layout = parameter_layout(denoiser.unet)
    ekfac, kfac = fit_curvature(
        config, dataset, denoiser, Workspace(config, folder / "curvature")
    )
    for name, curvature in (("EK-FAC", ekfac), ("K-FAC", kfac)):
        mean = float(curvature.eigenvalues.double().mean())
        basis = curvature.basis.to("cpu", torch.float64)
        values = curvature.eigenvalues.double()
        for damping in DAMPINGS:
            rotated = basis.rotate(queries) / (values + damping * mean)
            yield name, damping, basis.rotate_back(rotated)
    stage = CurvatureStage(config, dataset, denoiser, dataset.images())
    size = config.curvature.batch_size
    batches = -(-len(dataset) * GGN_DRAWS // size)
    samples = list(stage.samples("exact GGN", GGN_DRAWS, size, range(batches)))
    exact = exact_ggn(denoiser, layout, samples)
    for name, matrix in (
        ("GGN, layer by layer", block_diagonal(exact, layout)),
        ("GGN", exact),
    ):
        mean = float(matrix.diagonal().mean())
        values, vectors = torch.linalg.eigh(matrix)
        for damping in DAMPINGS:
            rotated = (queries @ vectors) / (values.clamp(min=0) + damping * mean)
            yield name, damping, rotated @ vectors.T
    yield "none", float("nan"), queries
