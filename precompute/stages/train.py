"""Train the denoiser: AdamW, warm-up, cosine decay and EMA (App. J.8); resumable."""

import math
import time

import numpy as np
import torch
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from torch import Tensor

from core.config import DATA_DIR, CollectionConfig, TrainConfig
from core.data.datasets import Dataset
from core.measure.draws import keyed_generator
from core.model.build import make_denoiser
from core.model.checkpoint import denoiser_from_bytes, denoiser_to_bytes
from core.model.denoiser import Denoiser
from core.model.finisher import Finisher, fit
from core.unrolled.reverse import Training
from core.unrolled.step import Losses
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import Workspace, write_atomically
from precompute.stages.batches import seen_by, seen_rows, training_batch
from precompute.stages.smooth import train_smoothly


def column_sizes(class_names: tuple[tuple[str, ...], ...]) -> tuple[int, ...]:
    """Return how many values each label column has.

    Raises:
        ValueError: If not every combination of them is a class: labels would not be
            numbered as a model of several conditions numbers them.
    """
    sizes = tuple(len(set(values)) for values in zip(*class_names, strict=True))
    if math.prod(sizes) != len(class_names):
        raise ValueError(
            f"The label columns have {' x '.join(map(str, sizes))} values, and "
            f"{len(class_names)} combinations occur. `model.part_dropout` needs all of "
            "them: set data.complete=true, or leave it out."
        )
    return sizes


def new_denoiser(config: CollectionConfig, dataset: Dataset) -> Denoiser:
    """Return the untrained denoiser of a collection, its autoencoder fitted to it.

    Raises:
        ValueError: If the weights it is to begin with are of another model.
    """
    names = dataset.class_names
    denoiser = make_denoiser(
        config.model,
        config.data.image_size,
        config.data.channels,
        column_sizes(names) if config.model.part_dropout else len(names),
        keyed_generator(config.seed, "initial weights"),
    )
    if config.model.autoencoder == "patch":
        denoiser.autoencoder.fit(dataset.images())
    if config.train.start_from:
        start = (DATA_DIR / "models" / config.train.start_from).read_bytes()
        begun = denoiser_from_bytes(start).unet.state_dict()
        if shapes(begun) != shapes(denoiser.unet.state_dict()):
            raise ValueError(
                f"`train.start_from` cannot be '{config.train.start_from}': its "
                "weights are of another model, or of other classes. Expected: weights "
                "of these model settings, or nothing, to begin with random weights."
            )
        denoiser.unet.load_state_dict(begun)
    return denoiser


def shapes(weights: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by its name."""
    return {name: tuple(values.shape) for name, values in weights.items()}


def train(
    config: CollectionConfig,
    dataset: Dataset,
    workspace: Workspace,
    device: str = "cpu",
    whole: Dataset | None = None,
) -> bytes:
    """Return the trained denoiser's bytes (EMA weights, fp16), resuming a checkpoint.

    The result depends on the settings alone: the same noise is drawn at each step
    whether or not the run was interrupted.

    With `train.root_epsilon` the step is that of `core.unrolled`, which can be
    differentiated; without it torch's own, in whose arithmetic the shipped models were
    trained. They differ by that epsilon alone.

    With `train.common_draws` the images that `whole` has besides keep their turns, with
    weight 0. The sum of the losses is divided by the batch size all the same, so that
    the gradient of every other image stays as large as it is in the full training. So
    leaving out image j lowers its weight in the mean over all N images by 1/N, which is
    the epsilon of Eq. 4.

    Args:
        config: The settings.
        dataset: What to train on.
        workspace: Where checkpoints and the result lie.
        device: Where to compute.
        whole: All images, where `dataset` is a part of them: the autoencoder is fitted
            to them.
    """
    settings = config.train
    path = workspace.path("train", "denoiser.safetensors")
    if path.exists():
        return path.read_bytes()

    denoiser = new_denoiser(config, whole or dataset).to(device)
    turns, kept = taking_turns(settings, dataset, whole)
    x_0 = encode_all(denoiser, turns)
    if settings.root_epsilon:
        seen, losses = seen_by(config, denoiser, turns, x_0, kept), Losses(denoiser)
        kept = kept.to(denoiser.device)
        training = Training(losses, settings, seen, kept)
        seconds = train_smoothly(training, workspace)
        fit_finisher(config, denoiser, dataset if whole is None else None)
        return finished(denoiser, workspace, seconds)
    labels = torch.from_numpy(turns.labels).to(device)
    # Per dimension, so one step size fits all.
    size = math.prod(denoiser.shape)

    unet = denoiser.unet.train()
    parameters = list(unet.parameters())
    optimizer, schedule, ema = optimizers(parameters, settings)
    start, smooth_loss, before = restore(workspace, unet, optimizer, schedule, ema)
    started = time.time() - before

    bar = Bar(
        range(start, settings.num_steps), "train", settings.num_steps, initial=start
    )
    for step in bar:
        batch = training_batch(config, denoiser, turns.ids, step)
        batch = batch[seen_rows(batch, kept)]
        weights, batch = kept[batch.index].to(device), batch.to(device)
        clean = batch.pictures(x_0)
        given = denoiser.dropped(labels[batch.index], batch.drop)
        losses = denoiser.losses(clean, batch.noise, batch.timesteps, given)
        loss = (weights * losses).sum() / settings.batch_size / size
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        ema.step(parameters)

        value = loss.item()
        smooth_loss = (
            value if smooth_loss is None else 0.99 * smooth_loss + 0.01 * value
        )
        bar.set_postfix(loss=f"{smooth_loss:.4f}", refresh=False)
        done = step + 1
        if done % settings.checkpoint_every == 0 and done < settings.num_steps:
            facts = {"smooth_loss": smooth_loss, "seconds": time.time() - started}
            checkpoint(workspace, unet, optimizer, ema, step=done, **facts)

    ema.copy_to(parameters)
    fit_finisher(config, denoiser, dataset if whole is None else None)
    return finished(denoiser, workspace, time.time() - started)


def fit_finisher(
    config: CollectionConfig, denoiser: Denoiser, dataset: Dataset | None
) -> None:
    """Give a model what takes the grain out of its images, if its settings want that.

    Args:
        config: The settings.
        denoiser: Whose autoencoder is fitted.
        dataset: What to learn it from; None for a model that was trained again on a
            part of the images, whose drawings the full model decodes.
    """
    if dataset is None or not config.model.finisher_steps:
        return
    steps = range(config.model.finisher_steps)
    denoiser.autoencoder.finisher = fit(
        Finisher(config.data.channels),
        denoiser.autoencoder,
        dataset.images().to(denoiser.device),
        Bar(steps, "finisher"),
        keyed_generator(config.seed, "finisher"),
    )


def finished(denoiser: Denoiser, workspace: Workspace, seconds: float) -> bytes:
    """Write a trained denoiser and what it took; return its file's bytes."""
    data = denoiser_to_bytes(denoiser)
    workspace.save("train", "train", {}, seconds=seconds)
    write_atomically(workspace.path("train", "denoiser.safetensors"), data)
    workspace.path("train", "checkpoint.safetensors").unlink(missing_ok=True)
    return data


def taking_turns(
    settings: TrainConfig, dataset: Dataset, whole: Dataset | None
) -> tuple[Dataset, Tensor]:
    """Return the images that have a turn, and their weights (N,): 0 where left out."""
    turns = (settings.common_draws and whole) or dataset
    return turns, torch.from_numpy(np.isin(turns.ids, dataset.ids)).float()


def optimizers(parameters: list[Tensor], settings: TrainConfig) -> tuple:
    """Return AdamW, its learning rate schedule, and the moving average (App. J.8)."""
    optimizer = torch.optim.AdamW(
        parameters,
        settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,  # a third of the time of the loop over parameters
    )
    schedule = get_cosine_schedule_with_warmup(
        optimizer, settings.warmup_steps, settings.num_steps
    )
    ema = EMAModel(
        parameters, settings.ema_decay, use_ema_warmup=True, power=0.75, foreach=True
    )
    return optimizer, schedule, ema


def encode_all(denoiser: Denoiser, dataset: Dataset) -> Tensor:
    """Return x_0 of every example on the model's device, shape (N, C, H, W)."""
    parts = [
        denoiser.encode(dataset.images(slice(first, first + 256)).to(denoiser.device))
        for first in range(0, len(dataset), 256)
    ]
    return torch.cat(parts)


def checkpoint(workspace, unet, optimizer, ema, **facts) -> None:
    """Save all that training goes on from; `unet` is any module of the parameters."""
    tensors = {f"unet.{name}": value for name, value in unet.state_dict().items()}
    for i, parameter in enumerate(unet.parameters()):
        state = optimizer.state[parameter]
        tensors[f"exp_avg.{i}"] = state["exp_avg"]
        tensors[f"exp_avg_sq.{i}"] = state["exp_avg_sq"]
        tensors[f"ema.{i}"] = ema.shadow_params[i]
    workspace.save("train", "checkpoint", tensors, **facts)


def restore(
    workspace, unet, optimizer, schedule, ema
) -> tuple[int, float | None, float]:
    """Load the last checkpoint, if any; return next step, loss and seconds so far."""
    saved = workspace.load("train", "checkpoint")
    if saved is None:
        return 0, None, 0.0
    tensors, facts = saved
    unet.load_state_dict({
        name[5:]: value for name, value in tensors.items() if name.startswith("unet.")
    })
    step = facts["step"]
    for i, parameter in enumerate(unet.parameters()):
        optimizer.state[parameter] = {
            "step": torch.tensor(float(step), device=parameter.device),
            "exp_avg": tensors[f"exp_avg.{i}"].to(parameter.device),
            "exp_avg_sq": tensors[f"exp_avg_sq.{i}"].to(parameter.device),
        }
    ema.shadow_params = [
        tensors[f"ema.{i}"].to(ema.shadow_params[i].device)
        for i in range(len(ema.shadow_params))
    ]
    ema.optimization_step = step
    schedule.last_epoch = step
    for group, base, share in zip(
        optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    ):
        group["lr"] = base * share(step)
    return step, facts["smooth_loss"], facts["seconds"]
