"""Models of toy size: a real UNet, and a linear one where EK-FAC is exact."""

from types import SimpleNamespace

import torch
from diffusers import DDPMScheduler
from torch import Tensor, nn

from core.config import ModelConfig
from core.curvature.fit import Samples
from core.measure.draws import keyed_generator
from core.model.build import make_denoiser
from core.model.denoiser import Denoiser

TINY = ModelConfig(
    block_out_channels=(4, 4),
    attention=(False, True),
    attention_head_dim=2,
    norm_num_groups=2,
    num_train_timesteps=20,
    beta_end=0.3,
    clip_sample=False,
)


def tiny_denoiser(
    image_size: int = 4, channels: int = 1, num_classes: int = 2, **settings
) -> Denoiser:
    """Return an untrained UNet2DModel with attention, in float64."""
    config = ModelConfig(**{**TINY.__dict__, **settings})
    generator = keyed_generator(0, "toy")
    denoiser = make_denoiser(config, image_size, channels, num_classes, generator)
    denoiser = denoiser.double().eval()
    with torch.no_grad():  # diffusers starts some layers at zero: give them gradients
        for parameter in denoiser.unet.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.1 * noise.double())
    return denoiser


class LinearUNet(nn.Module):
    """A deep linear network on flattened pixels, blind to the timestep."""

    def __init__(self, size: int, widths: tuple[int, ...], bias: bool = True):
        super().__init__()
        self.config = SimpleNamespace(sample_size=size, in_channels=1)
        sides = (size**2, *widths, size**2)
        self.net = nn.Sequential(*[
            nn.Linear(a, b, bias) for a, b in zip(sides[:-1], sides[1:], strict=True)
        ])

    def forward(self, x_t: Tensor, timesteps: Tensor) -> SimpleNamespace:
        """Return the prediction in diffusers' manner."""
        return SimpleNamespace(sample=self.net(x_t.flatten(1)).view_as(x_t))


def linear_denoiser(
    size: int = 2, widths: tuple[int, ...] = (3,), bias: bool = True
) -> Denoiser:
    """Return a deep linear denoiser in float64, its weights keyed."""
    denoiser = Denoiser(
        LinearUNet(size, widths, bias), DDPMScheduler(num_train_timesteps=20)
    ).double()
    generator = keyed_generator(0, "linear toy")
    with torch.no_grad():
        for parameter in denoiser.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.5 * noise.double())
    return denoiser


class GaussianUNet(nn.Module):
    """The optimal denoiser of normally distributed data, which is linear.

    Args:
        mean: Of the flattened data, shape (D,).
        covariance: Shape (D, D).
        scheduler: Holds the noise schedule and the prediction type.
        size: Side of the square images, of D / side^2 channels.
    """

    def __init__(
        self, mean: Tensor, covariance: Tensor, scheduler: DDPMScheduler, size: int
    ):
        super().__init__()
        self.config = SimpleNamespace(
            sample_size=size, in_channels=len(mean) // size**2
        )
        self.mean, self.covariance = mean, covariance
        self.prediction_type = scheduler.config.prediction_type
        alphas = scheduler.alphas_cumprod.double()
        self.levels = ((1 - alphas) / alphas).log() / 2
        self.weight = nn.Parameter(torch.zeros(()))  # shifts the noise; optimal at 0

    def forward(self, x_t: Tensor, timesteps: Tensor) -> SimpleNamespace:
        """Return the prediction; between timesteps log(noise / signal) is linear."""
        below = timesteps.long().clamp(max=len(self.levels) - 2)
        share = timesteps - below
        level = self.levels[below] * (1 - share) + self.levels[below + 1] * share
        alpha = (1 / (1 + (2 * level).exp()))[:, None]
        flat = x_t.double().flatten(1)
        spread = alpha[..., None] * self.covariance
        spread = spread + (1 - alpha)[..., None] * torch.eye(len(self.mean))
        centred = flat - alpha.sqrt() * self.mean
        solved = torch.linalg.solve(spread, centred[..., None])[..., 0]
        noise = (1 - alpha).sqrt() * solved + self.weight
        clean = (flat - (1 - alpha).sqrt() * noise) / alpha.sqrt()
        velocity = alpha.sqrt() * noise - (1 - alpha).sqrt() * clean
        output = {"epsilon": noise, "sample": clean, "v_prediction": velocity}
        return SimpleNamespace(sample=output[self.prediction_type].view_as(x_t))


def gaussian_denoiser(
    prediction_type: str = "epsilon",
    latent: bool = True,
    diagonal: bool = False,
    size: int = 2,
    **schedule,
) -> Denoiser:
    """Return the optimal denoiser of keyed normal data of shape (1, size, size).

    Its images are latents of an autoencoder that does nothing, unless `latent` is
    false.
    """
    settings = {"num_train_timesteps": 20, "beta_end": 0.3} | schedule
    scheduler = DDPMScheduler(
        prediction_type=prediction_type, clip_sample=False, **settings
    )
    g = keyed_generator(0, "gaussian toy")
    dim = size**2
    mean = torch.randn(dim, generator=g).double() / 3
    root = torch.randn(dim, dim, generator=g).double() / dim
    covariance = root @ root.T + torch.eye(dim) / 10
    if diagonal:
        covariance = covariance.diagonal().diag()
    unet = GaussianUNet(mean, covariance, scheduler, size)
    autoencoder = nn.Identity() if latent else None
    return Denoiser(unet, scheduler, autoencoder).double()


def random_samples(denoiser: Denoiser, count: int, seed: int = 0) -> Samples:
    """Return noisy inputs with standard normal probes, in float64."""
    g = keyed_generator(seed, "toy samples")
    x_t = torch.randn(count, *denoiser.shape, generator=g).double()
    timesteps = torch.randint(denoiser.num_train_timesteps, (count,), generator=g)
    labels = None
    if denoiser.null_label is not None:
        labels = torch.randint(denoiser.null_label + 1, (count,), generator=g)
    probes = torch.randn(count, *denoiser.shape, generator=g).double()
    return Samples(x_t, timesteps, labels, probes)


def exact_samples(denoiser: Denoiser, samples: Samples) -> Samples:
    """Return each sample once per output entry, with probes sqrt(D) e_o.

    Their second moment is exactly the identity, so averages over them are exact where
    random probes leave Monte Carlo error.
    """
    size = torch.tensor(denoiser.shape).prod().item()
    count = len(samples.x_t)
    probes = (size**0.5 * torch.eye(size, dtype=torch.float64)).repeat(count, 1)
    return Samples(
        samples.x_t.repeat_interleave(size, 0),
        samples.timesteps.repeat_interleave(size, 0),
        None if samples.labels is None else samples.labels.repeat_interleave(size, 0),
        probes.view(-1, *denoiser.shape),
    )
