"""A network of one's own in the place of a UNet: any module that predicts.

Its weights travel with a collection; its code does not, since a collection may come
from anyone. Whoever opens one names their own Python file in the environment.
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

from torch import Tensor, nn

from core.model.denoiser import Denoiser

VARIABLE = "AFTERIMAGE_MODELS"  # names the Python file that has the code


class OwnUNet(nn.Module):
    """A network behind the face of a UNet.

    Args:
        net: The network; called with noisy images (B, C, H, W), timesteps (B,) and, if
            it has classes, labels (B,); returns its prediction, (B, C, H, W).
        make: Its name in the Python file.
        shape: C, H and W of an image; H equals W.
        layers: The layers that are attributed, by their path in the network, with all
            that is below them; none means every Linear and Conv2d.

    Raises:
        ValueError: If a layer is not in the network, or the shape is not square.
    """

    def __init__(
        self,
        net: nn.Module,
        make: str,
        shape: tuple[int, int, int],
        layers: tuple[str, ...] = (),
    ):
        super().__init__()
        channels, height, width = shape
        if height != width:
            raise ValueError(f"Images of {height}x{width} pixels are not square.")
        self.net, self.make, self.layers = net, make, tuple(layers)
        self.config = SimpleNamespace(in_channels=channels, sample_size=width)
        known = dict(net.named_modules())
        for layer in self.layers:
            if layer not in known:
                there = ", ".join(filter(None, known))
                raise ValueError(f"'{make}' has no layer '{layer}'. It has {there}.")
        for name, parameter in net.named_parameters():
            inside = any(name.startswith(f"{layer}.") for layer in self.layers)
            parameter.requires_grad_(inside or not self.layers)

    @property
    def description(self) -> dict:
        """What it takes besides the code and the weights to make it again."""
        side = self.config.sample_size
        shape = [self.config.in_channels, side, side]
        return {"make": self.make, "shape": shape, "layers": list(self.layers)}

    def forward(
        self, x_t: Tensor, timesteps: Tensor, class_labels: Tensor | None = None
    ) -> SimpleNamespace:
        """Return the prediction in diffusers' manner."""
        labels = () if class_labels is None else (class_labels,)
        return SimpleNamespace(sample=self.net(x_t, timesteps, *labels))


def own_unet(description: dict) -> OwnUNet:
    """Return the untrained network that a file describes.

    Raises:
        ValueError: If its code is not at hand.
    """
    make, path = description["make"], os.environ.get(VARIABLE)
    if not path:
        raise ValueError(
            f"The model '{make}' is its maker's own code, which no collection brings. "
            f"Set {VARIABLE} to the Python file that has it."
        )
    code = _code(Path(path).expanduser().absolute())
    found = getattr(code, make, None)
    # What the file only imported is not offered: a collection chooses the name.
    if not callable(found) or getattr(found, "__module__", "") != code.__name__:
        raise ValueError(
            f"'{path}' has no class or function '{make}'. Set {VARIABLE} to the "
            "Python file that has it."
        )
    layers = tuple(description["layers"])
    return OwnUNet(found(), make, tuple(description["shape"]), layers)


def load_weights(denoiser: Denoiser, weights: dict[str, Tensor], make: str) -> None:
    """Put weights into a denoiser.

    Raises:
        ValueError: If they are those of another network.
    """
    try:
        denoiser.load_state_dict(weights)
    except RuntimeError:
        raise ValueError(
            f"The weights are not those of '{make}' as {VARIABLE} has it. Name the "
            "file as it was when the model was trained."
        ) from None


def _code(path: Path) -> ModuleType:
    """Return a Python file as a module, run once in a process.

    Raises:
        ValueError: If there is no such file.
    """
    name = f"own_models_{path.stem}_{abs(hash(path))}"
    if name not in sys.modules:
        if not path.is_file():
            raise ValueError(f"{VARIABLE} names '{path}', which is not a file.")
        spec = spec_from_file_location(name, path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]
