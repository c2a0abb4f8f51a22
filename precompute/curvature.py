"""Fit EK-FAC of GGN^model over the training set (Sec. 3.1); resumable."""

import time
from collections.abc import Iterator

import torch
from torch import Tensor
from tqdm import tqdm

from core.config import CollectionConfig
from core.curvature import (
    Curvature,
    Eigenbasis,
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.datasets import Dataset
from core.diffusion import Denoiser
from core.draws import keyed_generator, make_draws
from core.parameters import Layout, parameter_layout
from precompute.train import encode_all
from precompute.workspace import Workspace

SAVE_EVERY = 60.0  # seconds


def curvature_samples(
    denoiser: Denoiser,
    config: CollectionConfig,
    dataset: Dataset,
    x_0: Tensor,
    purpose: str,
    num_draws: int,
    first: int = 0,
) -> Iterator[Samples]:
    """Yield noisy training examples in batches, from position `first` on.

    Each example has draws of its own, keyed by its id, so the batches may be cut
    anywhere.
    """
    per_batch = max(1, config.curvature.batch_size // num_draws)
    for start in range(first, len(dataset), per_batch):
        positions = range(start, min(start + per_batch, len(dataset)))
        parts = []
        for position in positions:
            g = keyed_generator(config.seed, purpose, int(dataset.ids[position]))
            draws = make_draws(
                num_draws,
                denoiser.shape,
                denoiser.num_train_timesteps,
                g,
                config.model.label_dropout,
                config.train.horizontal_flip,
            )
            probes = torch.randn(num_draws, *denoiser.shape, generator=g)
            parts.append((draws, probes, position))
        timesteps = torch.cat([d.timesteps for d, _, _ in parts]).to(denoiser.device)
        noise = torch.cat([d.noise for d, _, _ in parts]).to(denoiser.device)
        drop = torch.cat([d.drop_label for d, _, _ in parts]).to(denoiser.device)
        flip = torch.cat([d.flip for d, _, _ in parts]).to(denoiser.device)
        index = torch.tensor([p for _, _, p in parts]).repeat_interleave(num_draws)
        clean = x_0[index.to(x_0.device)]
        clean = torch.where(flip[:, None, None, None], clean.flip(-1), clean)
        labels = torch.from_numpy(dataset.labels)[index].to(denoiser.device)
        yield Samples(
            denoiser.add_noise(clean, noise, timesteps),
            timesteps,
            denoiser.dropped(labels, drop),
            torch.cat([p for _, p, _ in parts]).to(denoiser.device),
        )


def fit_curvature(
    config: CollectionConfig, dataset: Dataset, denoiser: Denoiser, workspace: Workspace
) -> Curvature:
    """Return EK-FAC in float32 on the CPU, resuming from the last saved sums."""
    layout = parameter_layout(denoiser.unet)
    saved = workspace.load("curvature", "curvature")
    if saved is not None:
        return _from_tensors(layout, saved[0])
    started = time.time()
    x_0 = encode_all(denoiser, dataset)

    def run(stage: str, num_draws: int, fit):
        """Run one pass with a progress bar and a checkpoint a minute."""
        loaded = workspace.load("curvature", stage)
        state, first = (
            (None, 0) if loaded is None else (loaded[0], loaded[1]["position"])
        )
        if state is not None:
            state = {name: value.to(denoiser.device) for name, value in state.items()}
        batches = curvature_samples(
            denoiser, config, dataset, x_0, f"curvature {stage}", num_draws, first
        )
        bar = tqdm(
            total=len(dataset) * num_draws, desc=stage, initial=first * num_draws
        )
        last_saved = time.time()

        def on_batch(sums: dict[str, Tensor]) -> None:
            nonlocal last_saved
            done = int(sums["count"])
            bar.update(done - bar.n)
            if time.time() - last_saved > SAVE_EVERY:
                workspace.save("curvature", stage, sums, position=done // num_draws)
                last_saved = time.time()

        result = fit(batches, state, on_batch)
        bar.close()
        return result

    settings = config.curvature
    factors = run(
        "factors",
        settings.factor_draws,
        lambda *args: fit_factors(denoiser, layout, *args),
    )
    basis, kfac_eigenvalues = eigenbasis(factors)
    # Half precision is what a collection ships, so everything is computed with it.
    basis = basis.to("cpu", torch.float16)
    on_device = basis.to(denoiser.device)
    corrected = run(
        "eigenvalues",
        settings.eigenvalue_draws,
        lambda *args: fit_corrected_eigenvalues(denoiser, on_device, *args),
    )
    tensors = {
        "corrected": corrected.float().cpu(),
        "kfac": kfac_eigenvalues.float().cpu(),
    }
    for i in range(len(layout.layers)):
        tensors[f"input.{i}"] = basis.input_eigenvectors[i]
        tensors[f"gradient.{i}"] = basis.gradient_eigenvectors[i]
    workspace.save("curvature", "curvature", tensors, seconds=time.time() - started)
    for stage in ("factors", "eigenvalues"):
        workspace.path("curvature", f"{stage}.safetensors").unlink(missing_ok=True)
    return _from_tensors(layout, tensors)


def _from_tensors(layout: Layout, tensors: dict[str, Tensor]) -> Curvature:
    numbers = range(len(layout.layers))
    basis = Eigenbasis(
        layout,
        tuple(tensors[f"input.{i}"].float() for i in numbers),
        tuple(tensors[f"gradient.{i}"].float() for i in numbers),
    )
    return Curvature(basis, tensors["corrected"])
