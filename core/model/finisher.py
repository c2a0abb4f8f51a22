"""The last step of drawing: a small network that takes the grain out of an image.

A model of patches draws each of them with a small error of its own, which shows as
grain and as a trace of the grid. The finisher learns to undo just that: from training
images whose latents have some noise added, back to the images. It sees 30 pixels at
once: it can sharpen an edge and even a ground, and does not know what an image shows.

It only decodes. x_0 stays linear in the pixels, the loss is a loss of x_0, and scores
know nothing of the finisher; it learns from the training images alone.
"""

from collections.abc import Sequence

import torch
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch import Tensor, nn

WIDTH = 48  # features: 72,780 weights for colour images
NOISE = 0.4  # standard deviation of the latents' errors that it mends, at most
BATCH, RATE = 16, 2e-3
WARM_UP = 0.05  # share of the steps in which the learning rate rises


class Finisher(nn.Module):
    """A residual network at half the size: images (B, C, H, W) in and out.

    Until it is fitted it returns what it is given.

    Args:
        channels: C of the images, whose sides are even.
        width: Features at each place.
    """

    def __init__(self, channels: int, width: int = WIDTH):
        super().__init__()
        self.width, places = width, 4 * channels
        self.first = nn.Conv2d(places, width, 3, padding=1)
        self.middle = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=reach, dilation=reach)
            for reach in (2, 2, 1)
        )
        self.last = nn.Conv2d(width, places, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return the images without grain."""
        features = self.first(nn.functional.pixel_unshuffle(images, 2))
        features = nn.functional.silu(features)
        for layer in self.middle:
            features = features + nn.functional.silu(layer(features))
        return images + nn.functional.pixel_shuffle(self.last(features), 2)

    @torch.no_grad()
    def finish(self, images: Tensor) -> Tensor:
        """Return images without grain, each computed alone: others change no bit."""
        return torch.cat([self(image[None].clamp(-1, 1)) for image in images])


def fit(
    finisher: Finisher,
    autoencoder,
    images: Tensor,
    steps: Sequence[int],
    generator: torch.Generator,
) -> Finisher:
    """Return the finisher, fitted to mend noise in the latents of images.

    Least absolute errors, so that edges stay edges. Images are mirrored half of the
    time.

    Args:
        finisher: New; its first weights depend on the generator alone.
        autoencoder: Makes latents of images and images of latents.
        images: In [-1, 1], shape (N, C, H, W).
        steps: Numbers of the steps of AdamW, gone through once, such as a range.
        generator: Of weights, batches and noise, on the CPU.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        for layer in (finisher.first, *finisher.middle):
            layer.reset_parameters()
    finisher.train().to(images.device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(finisher.parameters(), RATE)
    schedule = get_cosine_schedule_with_warmup(
        optimizer, round(WARM_UP * len(steps)), len(steps)
    )
    latents = autoencoder.encode(images)
    for _ in steps:
        index = torch.randint(len(images), (BATCH,), generator=generator)
        level = NOISE * torch.rand(BATCH, 1, 1, 1, generator=generator)
        noise = torch.randn(BATCH, *latents.shape[1:], generator=generator)
        mirrored = torch.rand((), generator=generator) < 0.5
        index = index.to(images.device)
        noisy = latents[index] + (level * noise).to(latents)
        given, wanted = autoencoder.linear_decode(noisy).clamp(-1, 1), images[index]
        if mirrored:
            given, wanted = given.flip(-1), wanted.flip(-1)
        given = given.contiguous(memory_format=torch.channels_last)
        loss = (finisher(given) - wanted).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return finisher.eval()
