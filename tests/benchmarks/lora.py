"""Do scores over a LoRA say what the images it was tuned on did to it?

The shipped Glyphs model never saw travel and places. A LoRA around its attention is
tuned on some of Noto's drawings of them, by peft; then again on random halves of these,
which is what scores are to predict (LDS). Other drawings of the same house and group,
held out, and samples of the tuned model are asked about too.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor

from core.curvature.basis import Curvature
from core.curvature.fit import (
    Samples,
    eigenbasis,
    fit_corrected_eigenvalues,
    fit_factors,
)
from core.data.datasets import load_dataset
from core.drawing import Drawing
from core.evidence.evaluation import lds, mean_and_error, predicted_changes
from core.measure.costs import loss
from core.measure.draws import Draws, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.lora import keep_adapters
from core.model.parameters import parameter_layout
from core.model.sampling import sample
from core.presets import collection_config
from core.scores.influence import centred
from precompute.stages.stages import shipped_weights

ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
RELATIVE_DAMPING = 1e-3  # the default


@dataclass(frozen=True)
class Size:
    """How large the experiment is.

    Attributes:
        images: Held in; as many are held out.
        queries: Of each kind, samples included.
        steps: Of each tuning.
        batch: Images of a step.
        draws: Of each gradient.
        halves: Random halves that a LoRA is tuned on again.
        rank: Of the LoRA.
    """

    pictures: int = 24
    queries: int = 12
    steps: int = 200
    batch: int = 12
    draws: int = 64
    halves: int = 12
    rank: int = 8


def drawings(denoiser: Denoiser, count: int) -> Tensor:
    """Return clean examples of drawings that the model was not trained on."""
    chosen = (("group", ("Travel & Places",)), ("style", ("noto",)))
    dataset = load_dataset(replace(collection_config("glyphs").data, keep=chosen))
    order = torch.randperm(len(dataset), generator=keyed_generator(0, "lora pictures"))
    return denoiser.encode(dataset.images(order[:count].numpy()))


def tuned(weights: bytes, x_0: Tensor, size: Size) -> Denoiser:
    """Return the model with a LoRA tuned on clean examples."""
    denoiser = denoiser_from_bytes(weights)
    config = LoraConfig(r=size.rank, lora_alpha=size.rank, target_modules=ATTENTION)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # peft initialises from the global state
        inject_adapter_in_model(config, denoiser.unet)
    keep_adapters(denoiser.unet)
    trained = [p for p in denoiser.unet.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 10) * (1 - step / size.steps)
    )
    g = keyed_generator(0, "lora training")
    for _ in range(size.steps):
        clean = x_0[torch.randint(len(x_0), (size.batch,), generator=g)]
        timesteps = torch.randint(1000, (size.batch,), generator=g)
        noise = torch.randn(clean.shape, generator=g)
        labels = denoiser.labels(None, size.batch)
        denoiser.losses(clean, noise, timesteps, labels).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return denoiser


def noisy_batches(denoiser: Denoiser, x_0: Tensor, purpose: str) -> list[Samples]:
    """Return batches for a curvature: four draws of each example."""
    g, batches = keyed_generator(0, purpose), []
    for _ in range(4):
        timesteps = torch.randint(1000, (len(x_0),), generator=g)
        noise, probes = torch.randn(2, *x_0.shape, generator=g)
        x_t = denoiser.add_noise(x_0, noise, timesteps)
        labels = denoiser.labels(None, len(x_0))
        batches.append(Samples(x_t, timesteps, labels, probes))
    return batches


def ekfac(denoiser: Denoiser, x_0: Tensor) -> Curvature:
    """Return the EK-FAC of the model on the examples it was tuned on."""
    layout = parameter_layout(denoiser.unet)
    batches = noisy_batches(denoiser, x_0, "lora factors")
    basis, _ = eigenbasis(fit_factors(denoiser, layout, batches, max_positions=32))
    basis = basis.to("cpu")
    batches = noisy_batches(denoiser, x_0, "lora eigenvalues")
    corrected = fit_corrected_eigenvalues(denoiser, basis, batches, 6)
    return Curvature(basis, corrected.float())


def shared_draws(denoiser: Denoiser, size: Size, purpose: str) -> Draws:
    """Return draws that all examples share."""
    g = keyed_generator(0, purpose)
    return make_draws(size.draws, denoiser.shape, 1000, g, num_folds=2)


def gradients(denoiser: Denoiser, x_0: Tensor, draws: Draws) -> Tensor:
    """Return the gradient of each example's loss over the LoRA, shape (N, P)."""
    layout = parameter_layout(denoiser.unet)
    return torch.cat([
        fold_gradients(loss, denoiser, layout, one, None, draws, 1)[0] for one in x_0
    ])


def scores(
    denoiser: Denoiser, x_0: Tensor, queries: Tensor, candidates: Tensor, size: Size
) -> np.ndarray:
    """Return the influence of candidates on queries, shape (Q, C).

    Args:
        denoiser: The tuned model.
        x_0: What it was tuned on.
        queries: Clean examples, whose draws are others than the candidates'.
        candidates: Clean examples.
        size: Of the experiment.
    """
    curvature = ekfac(denoiser, x_0)
    damping = RELATIVE_DAMPING * float(curvature.eigenvalues.double().mean())
    asked = gradients(denoiser, queries, shared_draws(denoiser, size, "lora queries"))
    given = shared_draws(denoiser, size, "lora candidates")
    solved = curvature.solve(asked, damping)
    return centred((solved @ gradients(denoiser, candidates, given).T).numpy())


@torch.no_grad()
def measured(denoiser: Denoiser, queries: Tensor, size: Size) -> np.ndarray:
    """Return the loss of each query, shape (Q,)."""
    draws = shared_draws(denoiser, size, "lora queries")
    return np.array([
        float((draws.weights * loss(denoiser, one, None, draws)).mean())
        for one in queries
    ])


def own_ranks(found: np.ndarray) -> list[int]:
    """Return the rank of each query among the candidates it is the first ones of."""
    return [int((row > row[i]).sum()) + 1 for i, row in enumerate(found)]


def auc(found: np.ndarray, held_in: np.ndarray) -> float:
    """Return how often an image held in scores above one held out."""
    above = found[:, held_in][:, :, None] > found[:, ~held_in][:, None]
    return float(above.mean())


def run(collection: str, root: Path | None, size: Size = Size()) -> dict:
    """Return ranks and LDS; the first two arguments are those of every benchmark."""
    started, count = time.time(), size.pictures
    weights = shipped_weights(collection_config("glyphs"))
    both = drawings(denoiser_from_bytes(weights), 2 * count)
    x_0, out = both[:count], both[count:]
    denoiser = tuned(weights, x_0, size)
    settings = [Drawing(None, i, num_steps=25) for i in range(size.queries)]
    drawn = sample(denoiser, settings, 0)
    groups = {
        "held in": x_0[: size.queries],
        "held out": out[: size.queries],
        "samples": torch.stack([trajectory.states[-1] for trajectory in drawn]),
    }
    queries = torch.cat(list(groups.values()))
    found = scores(denoiser, x_0, queries, both, size)
    held_in = np.arange(2 * count) < count
    result = {
        "lora_parameters": parameter_layout(denoiser.unet).num_params,
        **vars(size),
        "own_ranks_among_all": own_ranks(found[: size.queries]),
        "auc_of_held_in_for_samples": auc(found[2 * size.queries :], held_in),
    }
    masks = np.zeros((size.halves, count), dtype=bool)
    costs = np.empty((len(queries), size.halves))
    for number, mask in enumerate(masks):
        order = torch.randperm(count, generator=keyed_generator(0, "half", number))
        mask[order[: count // 2].numpy()] = True
        again = tuned(weights, x_0[torch.from_numpy(mask)], size)
        costs[:, number] = measured(again, queries, size)
    near = -torch.cdist(queries.flatten(1), x_0.flatten(1)).numpy()
    for method, values in {"EK-FAC": found[:, :count], "pixels": near}.items():
        agreement = lds(predicted_changes(centred(values), masks), costs)
        parts = agreement.reshape(len(groups), -1)
        result[f"lds {method}"] = {
            name: [round(value, 3) for value in mean_and_error(part)]
            for name, part in zip(groups, parts, strict=True)
        }
    return result | {"minutes": round((time.time() - started) / 60, 1)}
