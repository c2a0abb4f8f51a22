"""What a LoRA on Stable Diffusion 1.5 will cost, counted without its weights.

The UNet and the autoencoder are built from their known settings on torch's `meta`
device: shapes without numbers. Parameters, operations and what passes keep are then
exact; seconds follow from an assumed speed of the card, which is stated.
"""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from core.config import CollectionConfig, CurvatureConfig, SampleConfig
from core.model.denoiser import Denoiser
from core.model.lora import add_low_rank, train_adapters_only
from core.model.parameters import parameter_layout
from core.model.pipelines import examples_at_once, output_bytes
from core.model.prompts import TextConditioned
from core.presets import small
from precompute.imports.models import GUIDANCE
from precompute.machinery.config import FIDELITY_EXAMPLES
from precompute.planning.plan import sizes
from precompute.stages.proposal import NUM_BANDS, NUM_IMAGES, NUM_QUERIES

# unet/config.json and vae/config.json of Stable Diffusion 1.5, where they differ from
# diffusers' defaults.
UNET = {"cross_attention_dim": 768, "sample_size": 64}
AUTOENCODER = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "sample_size": 512,
}
# What diffusers' training script adapts.
ADAPTED = ("to_q", "to_k", "to_v", "to_out.0")
RANK, PICTURES = 16, 500
SPEED = 15e12  # float32 operations a second that a card is assumed to sustain


class Counted:
    """So many images of 512x512, without their pixels."""

    pixels = torch.empty(PICTURES, 3, 512, 512, device="meta", dtype=torch.uint8)
    encoded = ()

    def __len__(self) -> int:
        return PICTURES


def adapted_unet(rank: int) -> UNet2DConditionModel:
    """Return the UNet of SD 1.5 with a LoRA around its attention, on meta."""
    with torch.device("meta"):
        unet = UNet2DConditionModel(**UNET).eval()
        for name in [n for n, _ in unet.named_modules() if n.endswith(ADAPTED)]:
            add_low_rank(unet, name, rank, 1.0)
    train_adapters_only(unet)
    return unet


def operations(unet: UNet2DConditionModel, backward: bool) -> int:
    """Return the operations of one pass with one noisy example."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        x_t, texts = torch.empty(1, 4, 64, 64), torch.empty(1, 77, 768)
        output = unet(x_t, torch.zeros(1).long(), encoder_hidden_states=texts).sample
        if backward:
            output.sum().backward()
    return counter.get_total_flops()


def kept_bytes(forward: Callable[[], object], unet: nn.Module) -> int:
    """Return the bytes that autograd keeps of a pass, the weights not counted."""
    weights = {p.untyped_storage().data_ptr() for p in unet.parameters()}
    kept = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # held: no reuse
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward()
    assert output.requires_grad
    return sum(size for size, _ in kept.values())


def run_pass(collection: str, root: Path | None) -> dict:
    """Return what one pass over one noisy example keeps and takes, on random weights.

    It needs 8 GB of memory and two minutes of a CPU core.
    """
    unet = adapted_unet(RANK).to_empty(device="cpu")
    with torch.no_grad():
        for parameter in unet.parameters():
            parameter.normal_(std=0.01)
    x_t, texts = torch.randn(1, 4, 64, 64), torch.randn(1, 77, 768)

    def forward() -> Tensor:
        return unet(x_t, 500, encoder_hidden_states=texts).sample

    kept = kept_bytes(forward, unet)
    started = time.time()
    forward().sum().backward()
    return {
        "gigabytes_put_out": round(output_bytes(UNET) / 1e9, 3),
        "gigabytes_kept": round(kept / 1e9, 3),
        "seconds_forward_and_backward": round(time.time() - started, 1),
        "threads": torch.get_num_threads(),
    }


def settings() -> CollectionConfig:
    """Return the settings that `import-model` makes for it."""
    config = small("sd", CollectionConfig("sd").data)
    most = min(CurvatureConfig.batch_size, examples_at_once(UNET))
    return CollectionConfig(
        "sd",
        config.data,
        config.model,
        config.train,
        CurvatureConfig(factor_draws=2, eigenvalue_draws=2, batch_size=most),
        config.gradients,
        SampleConfig(guidance_scale=GUIDANCE),
    )


def run(collection: str, root: Path | None) -> dict:
    """Return the estimate; the arguments are those of every benchmark."""
    unet = adapted_unet(RANK)
    with torch.device("meta"):
        table = torch.empty(PICTURES + 1, 77, 768)
        denoiser = Denoiser(
            TextConditioned(unet, [""] * PICTURES, table),
            DDPMScheduler(),
            AutoencoderKL(**AUTOENCODER),
            PICTURES,
            examples_at_once(UNET),
        )
    layout, config = parameter_layout(denoiser.unet), settings()
    forward, both = operations(unet, False), operations(unet, True)
    draws, gallery = config.gradients.num_draws, config.samples
    passes = {
        "curvature": PICTURES
        * (config.curvature.factor_draws + config.curvature.eigenvalue_draws),
        "samples": gallery.num_samples * gallery.num_draws,
        "gradients": (PICTURES + config.gradients.slice_examples) * draws
        + (NUM_QUERIES + NUM_IMAGES) * 2 * NUM_BANDS,
        "checks": min(FIDELITY_EXAMPLES, PICTURES) * draws,
    }
    hours = {name: count * both / SPEED / 3600 for name, count in passes.items()}
    drawn = gallery.num_samples * gallery.num_steps * 2  # with and without the text
    hours["samples"] += drawn * forward / SPEED / 3600
    memory, disk = sizes(config, Counted(), denoiser, layout)
    return {
        "unet_parameters": sum(p.numel() for p in unet.parameters())
        - layout.num_params,
        "lora_parameters": layout.num_params,
        "layers": len(layout.layers),
        "teraflop_forward": round(forward / 1e12, 3),
        "teraflop_forward_and_backward": round(both / 1e12, 3),
        "gigabytes_put_out_per_example": round(output_bytes(UNET) / 1e9, 3),
        "examples_at_once": denoiser.most_at_once,
        "assumed_teraflop_per_second": SPEED / 1e12,
        "passes": passes,
        "hours": {name: round(value, 2) for name, value in hours.items()},
        "hours_in_all": round(sum(hours.values()), 1),
        "memory_gb": {name: round(value / 1e9, 1) for name, value in memory.items()},
        "disk_gb": {name: round(value / 1e9, 2) for name, value in disk.items()},
        "index_megabytes_per_picture": round(
            layout.num_params * config.gradients.index_bits / 8e6, 2
        ),
    }
