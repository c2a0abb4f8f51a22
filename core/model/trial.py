"""One trial pass of a model: can all that attribution asks of it be computed?

A saved model may have blocks that do not fit its image size, layers that run twice
or not at all, or weights that overflow. It is better to hear so before a night of
computing than after. Nothing is kept of the trial.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from core.config import SAMPLERS
from core.drawing import Drawing
from core.model.denoiser import Denoiser, pixels_per_latent
from core.model.parameters import Layout, attributed_parameters, parameter_layout
from core.model.sampling import Subject, invert, sample
from core.model.weight_files import quietly


def try_out(denoiser: Denoiser) -> None:
    """Run a model once each way: forward, backward, a step of each sampler.

    Raises:
        ValueError: If that cannot be done; the layer or the setting is named.
    """
    layout = parameter_layout(denoiser.unet)
    if not layout.layers:
        raise ValueError(
            "The model has no Linear or Conv2d layer that was trained, so there is "
            "nothing to attribute. Give another model."
        )
    with quietly():
        _try_gradient(denoiser, layout)
        _try_samplers(denoiser)
        _try_autoencoder(denoiser)


@contextmanager
def _counted(denoiser: Denoiser, layout: Layout) -> Iterator[tuple[Counter, list]]:
    """Count each attributed layer's passes, and list layers with outputs not finite."""
    passes, broken, handles = Counter(), [], []

    def hook(name: str):
        def count(module, inputs, output: Tensor) -> None:
            passes[name] += 1
            if not output.isfinite().all():
                broken.append(name)

        return count

    try:
        for layer in layout.layers:
            module = denoiser.unet.get_submodule(layer.name)
            handles.append(module.register_forward_hook(hook(layer.name)))
        yield passes, broken
    finally:
        for handle in handles:
            handle.remove()


def _example(denoiser: Denoiser) -> Tensor:
    """Return one noisy example, shape (1, C, H, W), the same every time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn((1, *denoiser.shape), generator=generator)


def _try_gradient(denoiser: Denoiser, layout: Layout) -> None:
    """Refuse a model whose loss, or its gradient, cannot be computed.

    Raises:
        ValueError: If a pass fails, skips or repeats a layer, or is not finite.
    """
    x_0, timesteps = (
        _example(denoiser),
        torch.tensor([denoiser.num_train_timesteps // 2]),
    )
    labels = denoiser.labels(None, 1)
    with _counted(denoiser, layout) as (passes, broken):
        try:
            loss = denoiser.losses(x_0, x_0.flip(-1), timesteps, labels).sum()
        except Exception:  # of any kind: the settings are anybody's
            reached = list(passes)
            after = f"after its layer '{reached[-1]}'" if reached else "at its start"
            channels, height, width = denoiser.shape
            raise ValueError(
                f"The model cannot take examples of {channels}x{height}x{width}: its "
                f"pass fails {after}. Check sample_size and the blocks in the UNet's "
                "config.json."
            ) from None
    for layer in layout.layers:
        if passes[layer.name] != 1:
            times = passes[layer.name]
            used = f"used {times} times in one pass" if times else "not used in a pass"
            raise ValueError(
                f"The layer '{layer.name}' is {used}. Only models that use every layer "
                "once can be attributed."
            )
    if broken or not loss.isfinite():
        raise ValueError(
            f"The layer '{(broken or ['conv_out'])[0]}' gives values that are not "
            "numbers (NaN or infinite) for plain noise. Use a checkpoint from before "
            "the training diverged."
        )
    parameters = attributed_parameters(denoiser.unet, layout)
    gradients = torch.autograd.grad(loss, parameters)
    names = [layer.name for layer in layout.layers for _ in range(1 + layer.has_bias)]
    for name, gradient in zip(names, gradients, strict=True):
        if not gradient.isfinite().all():
            raise ValueError(
                f"The gradient of the layer '{name}' is not finite (NaN or infinite). "
                "Use a checkpoint from before the training diverged."
            )


def _try_samplers(denoiser: Denoiser) -> None:
    """Refuse a model that cannot generate by every sampler, or cannot be inverted.

    Raises:
        ValueError: If a sampler fails, or its result is not finite.
    """
    for sampler in (*SAMPLERS, "inversion"):
        try:
            if sampler == "inversion":
                subject = Subject(_example(denoiser)[0], None)
                states = invert(denoiser, subject, 1).states
            else:
                (trajectory,) = sample(denoiser, [Drawing(None, 0, sampler, 1)], 0)
                states = trajectory.states
        except Exception:  # as above
            states = None
        if states is None or not states.isfinite().all():
            schedule = denoiser.scheduler.config
            failure = "does not run" if states is None else "gives no numbers"
            raise ValueError(
                f"Sampling by {sampler.upper()} {failure} with the model's "
                f"{schedule.num_train_timesteps} timesteps of "
                f"{schedule.beta_schedule} betas. Check the scheduler's settings."
            )


def _try_autoencoder(denoiser: Denoiser) -> None:
    """Refuse an autoencoder that does not give the latents that the model takes.

    Raises:
        ValueError: If its latents do not fit, or are not finite.
    """
    if denoiser.autoencoder is None:
        return
    size = denoiser.shape[-1] * pixels_per_latent(denoiser.autoencoder)
    try:
        channels = denoiser.autoencoder.config.in_channels
        latents = denoiser.encode(torch.zeros(1, channels, size, size))
        images = denoiser.decode(latents)
    except Exception:  # as above
        latents = images = torch.zeros(0, 0, 0, 0)
    if latents.shape[1:] != denoiser.shape or images.shape[-1] != size:
        raise ValueError(
            f"The autoencoder does not turn images of {size}x{size} pixels into the "
            f"model's latents of {'x'.join(map(str, denoiser.shape))} and back. They "
            "do not belong together."
        )
    if not (latents.isfinite().all() and images.isfinite().all()):
        raise ValueError(
            "The autoencoder gives values that are not numbers (NaN or infinite) for a "
            "grey image. Give the one that the model was trained with."
        )
