"""What a model needs to draw one image: a class, a seed, and how it samples."""

from dataclasses import dataclass

GUIDANCE = 2.0  # of a new image, where nobody says another


@dataclass(frozen=True)
class Drawing:
    """The settings of one generated image; equal settings give the equal image.

    Attributes:
        label: Class index, or None for no class.
        seed: Of the noise.
        sampler: One of `core.config.SAMPLERS`.
        num_steps: Denoising steps, 1 to T.
        guidance_scale: 1 follows the model; more exaggerates the class.
    """

    label: int | None
    seed: int
    sampler: str = "ddim"
    num_steps: int = 50
    guidance_scale: float = 1.0
