"""A trained network of one's own, as a script hands it over to be attributed."""

from dataclasses import dataclass, field
from pathlib import Path

from diffusers import DDPMScheduler
from torch import nn

from core.model.checkpoint import denoiser_to_bytes
from core.model.denoiser import Denoiser
from core.model.model_folders import OWN
from core.model.own_unet import OwnUNet


@dataclass(frozen=True)
class OwnModel:
    """A trained network with all that attribution needs to know of it.

    The loss is the squared error of what the network predicts, summed over an image, at
    x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise.

    Attributes:
        net: The trained network, as for `OwnUNet`.
        make: What returns an untrained one without arguments, by its name in the file
            that `AFTERIMAGE_MODELS` names: a class or a function.
        shape: C, H and W of an image in [-1, 1].
        schedule: What differs from diffusers' DDPM schedule: `num_train_timesteps`,
            `beta_schedule`, `beta_start`, `beta_end`, `clip_sample`, and
            `prediction_type` ("epsilon", "v_prediction" or "sample").
        classes: How many there are; the network takes this number for "no class". None
            for a network without labels.
        layers: As for `OwnUNet`.
    """

    net: nn.Module
    make: str
    shape: tuple[int, int, int]
    schedule: dict = field(default_factory=dict)
    classes: int | None = None
    layers: tuple[str, ...] = ()

    def denoiser(self) -> Denoiser:
        """Return it as the rest of the program takes it."""
        unet = OwnUNet(self.net, self.make, self.shape, self.layers)
        given = {"variance_type": "fixed_small"} | self.schedule
        return Denoiser(unet, DDPMScheduler(**given), None, self.classes)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the folder that `import-model` and `core.api.build` read."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / OWN).write_bytes(denoiser_to_bytes(self.denoiser(), None))
