"""Train the project's own small CLIP on the drawings' names; embed examples with it.

No pretrained weights ship with the project, so this is the model behind "similar" when
the machine has no other: it has seen only the Glyphs drawings and their Unicode names.
Four houses drew the same subjects; a text is therefore true of several images of a
batch, and the contrastive loss spreads its target over all of them.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from core.config import DataConfig
from core.data.datasets import Dataset, load_dataset
from core.engine.clip import (
    GLYPHS_CLIP_NAME,
    ClipModel,
    clip_to_bytes,
    load_clip,
    new_clip,
)
from core.files.tensor_files import read_tensors, write_tensors
from core.measure.draws import keyed_generator
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import write_atomically
from precompute.stages.batches import batch_indices

# A ResNet learns more from a few thousand drawings than a ViT of the same cost.
GLYPHS_CLIP_CONFIG = {
    "model_cfg": {
        "embed_dim": 128,
        "vision_cfg": {
            "image_size": 64,  # pixels
            "layers": [1, 1, 1, 1],  # bottleneck blocks per resolution
            "width": 16,
            "head_width": 64,
        },
        "text_cfg": {
            "context_length": 20,  # tokens; the longest text of training has 20
            "vocab_size": 4514,  # 514 + the 4000 most common merges
            "width": 128,
            "heads": 4,
            "layers": 2,
        },
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}

# What a training text may look like. None names the house that drew the image: when a
# quarter of the texts did, nearest images shared the house rather than the subject.
TEMPLATES = (
    "{name}",
    "a {name}",
    "a drawing of {name}",
    "a drawing of a {name}",
    "{group}: {name}",
    "{subgroup}: {name}",
)


@dataclass(frozen=True)
class ClipTraining:
    """How the small CLIP is trained; its file says so."""

    seed: int = 0  # of the initial weights and all randomness
    num_steps: int = 1_200  # batches in all
    names_per_batch: int = 64  # different subjects
    houses_per_name: int = 2  # images of each subject in a batch, at most
    learning_rate: float = 2e-3  # of AdamW, at the end of the warm-up
    weight_decay: float = 0.1  # of AdamW, on matrices and convolutions


def train_clip(
    output_path: Path | str,
    training: ClipTraining,
    device: str = "cpu",
    dataset: Dataset | None = None,
    config: dict = GLYPHS_CLIP_CONFIG,
    checkpoint_every: int = 100,
) -> ClipModel:
    """Train the small CLIP and write it in fp16, resuming a checkpoint beside it.

    The result depends on the arguments alone, whether or not the run was interrupted.

    Args:
        output_path: The safetensors file to write.
        training: How.
        device: Where to compute.
        dataset: Images with `style`, `name`, `group` and `subgroup` as metadata; None
            means all Glyphs.
        config: Sizes of the model and preparation of its images.
        checkpoint_every: Steps between checkpoints.

    Returns:
        The trained model, as read back from the file.
    """
    output_path = Path(output_path)
    if dataset is None:
        dataset = load_dataset(DataConfig(keep=()))
    settings = asdict(training) | {"num_pictures": len(dataset)}
    seed, num_steps = training.seed, training.num_steps
    clip_model = new_clip(
        config,
        GLYPHS_CLIP_NAME,
        keyed_generator(seed, "initial clip weights"),
        settings,
    )
    model = clip_model.model.to(device).train()
    # A third faster on a CPU than the default layout, for so few channels.
    model.visual.to(memory_format=torch.channels_last)

    optimizer = _new_optimizer(model, training)
    checkpoint = _checkpoint_path(output_path, settings, config)
    start = _restore(checkpoint, model, optimizer)

    images_by_name = list(dataset.metadata.groupby("name").indices.values())
    smooth_loss = None
    bar = Bar(range(start, num_steps), "clip", num_steps, initial=start)
    for step in bar:
        generator = keyed_generator(seed, "clip step", step)
        names = batch_indices(step, training.names_per_batch, len(images_by_name), seed)
        index = _pick_images(names, images_by_name, training.houses_per_name, generator)
        rows = dataset.metadata.iloc[index]
        texts = describe(rows, generator)
        images = torch.from_numpy(dataset.pixels[index]).float() / 255
        images = augment(images, generator).to(device)

        loss = contrastive_loss(
            clip_model.encode_images(images),
            clip_model.encode_texts(texts),
            model.logit_scale.exp(),
            true_pairs(rows).to(device),
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate * warm_up_and_decay(step, num_steps)
        optimizer.step()
        optimizer.zero_grad()
        model.logit_scale.data.clamp_(max=math.log(100))  # as the CLIP paper does

        value = loss.item()
        smooth_loss = (
            value if smooth_loss is None else 0.98 * smooth_loss + 0.02 * value
        )
        bar.set_postfix(loss=f"{smooth_loss:.3f}", refresh=False)
        done = step + 1
        if done % checkpoint_every == 0 and done < num_steps:
            _save(checkpoint, model, optimizer, done)

    write_atomically(output_path, clip_to_bytes(clip_model))
    checkpoint.unlink(missing_ok=True)
    return load_clip(output_path, device)


def warm_up_and_decay(step: int, num_steps: int) -> float:
    """Return the share of the learning rate: 5 % linear warm-up, then a cosine to 0."""
    warmup = num_steps // 20
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup))) / 2


def embed_examples(clip_model: ClipModel, dataset: Dataset) -> np.ndarray:
    """Return the unit embedding of every example, shape (N, D), float32."""
    return clip_model.embed_images(dataset.pixels)


def _pick_images(
    names: Tensor,
    images_by_name: list[np.ndarray],
    count: int,
    generator: torch.Generator,
) -> np.ndarray:
    """Return row numbers: up to `count` images of each name, by random houses."""
    picked = []
    for name in names.tolist():
        rows = images_by_name[name]
        order = torch.randperm(len(rows), generator=generator)
        picked.extend(rows[order[:count].numpy()])
    return np.array(picked)


def describe(rows: pd.DataFrame, generator: torch.Generator) -> list[str]:
    """Return a random true text for each image."""
    choices = torch.randint(len(TEMPLATES), (len(rows),), generator=generator)
    return [
        TEMPLATES[choice].format(
            name=row.name, group=row.group, subgroup=row.subgroup.replace("-", " ")
        )
        for choice, row in zip(choices.tolist(), rows.itertuples(), strict=True)
    ]


def true_pairs(rows: pd.DataFrame) -> Tensor:
    """Return which text (column) is true of which image (row), shape (B, B), bool."""
    name = torch.from_numpy(pd.factorize(rows["name"])[0])
    return name[:, None] == name


def contrastive_loss(
    images: Tensor, texts: Tensor, scale: Tensor, true: Tensor
) -> Tensor:
    """Return CLIP's loss, its target spread evenly over all true pairs of a row.

    With one true pair per row this is CLIP's own loss.

    Args:
        images: Unit embeddings, shape (B, D).
        texts: Unit embeddings, shape (B, D).
        scale: Inverse temperature.
        true: Which text is true of which image, shape (B, B), bool, none empty.

    Returns:
        Mean cross entropy of both directions, in nats.
    """
    logits = scale * images @ texts.mT
    target = true.float()
    per_image = F.cross_entropy(logits, target / target.sum(1, keepdim=True))
    per_text = F.cross_entropy(logits.mT, (target / target.sum(0)).mT)
    return (per_image + per_text) / 2


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images, each moved, scaled and recoloured a little, on white.

    Images are not mirrored, because names say left and right.

    Args:
        images: Images in [0, 1], shape (B, C, H, W).
        generator: Source of every number drawn.

    Returns:
        Images in [0, 1], shape (B, C, H, W).
    """

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(len(images), *shape, generator=generator)

    placement = torch.zeros(len(images), 2, 3)
    placement[:, 0, 0] = uniform(0.9, 1.25)  # above 1: the image gets smaller
    placement[:, 1, 1] = placement[:, 0, 0]
    placement[:, :, 2] = uniform(-0.12, 0.12, 2)  # of half the width
    grid = F.affine_grid(placement, list(images.shape), align_corners=False)
    # Outside lies 0, so the ink is sampled, not the light: the margin becomes white.
    ink = F.grid_sample(1 - images, grid, align_corners=False)
    ink = ink * uniform(0.7, 1.1, images.shape[1], 1, 1)
    return (1 - ink).clamp(0, 1)


def _new_optimizer(model, training: ClipTraining):
    """Return AdamW that decays matrices and convolutions, but no scale or bias."""
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW(
        [
            {"params": weights, "weight_decay": training.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        training.learning_rate,
        betas=(0.9, 0.98),
    )


def _checkpoint_path(output_path: Path, settings: dict, config: dict) -> Path:
    """Return a path that differs when anything differs that decides the result."""
    text = json.dumps([settings, config], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return output_path.with_name(f"{output_path.stem}-{digest}.checkpoint.safetensors")


def _save(path: Path, model, optimizer, step: int) -> None:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        tensors[f"exp_avg.{name}"] = state["exp_avg"]
        tensors[f"exp_avg_sq.{name}"] = state["exp_avg_sq"]
    write_tensors(path, tensors, {"step": step})


def _restore(path: Path, model, optimizer) -> int:
    """Load the last checkpoint, if there is one; return the next step."""
    if not path.exists():
        return 0
    tensors, header = read_tensors(path, sealed=False)
    model.load_state_dict({
        name[6:]: value for name, value in tensors.items() if name.startswith("model.")
    })
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(float(header["step"])),
            "exp_avg": tensors[f"exp_avg.{name}"].to(parameter.device),
            "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(parameter.device),
        }
    return header["step"]
