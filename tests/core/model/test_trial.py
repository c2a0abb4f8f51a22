"""The trial pass of a model that is brought: what attribution could not compute."""

import pytest
import torch
from diffusers import DDPMScheduler
from torch import nn

from core.model.denoiser import Denoiser
from core.model.trial import try_out
from tests.core.model.test_pipelines import unet


class Wayward(nn.Module):
    """A UNet whose pass has a way of its own; `wrong` names it."""

    def __init__(self, wrong: str):
        super().__init__()
        self.unet, self.wrong = unet(8), wrong
        self.more = nn.Conv2d(3, 3, 1)

    @property
    def config(self):
        """The UNet's settings."""
        return self.unet.config

    def forward(self, x_t, timesteps):
        """Return the UNet's output, and what one layer more makes of it."""
        output = self.unet(x_t, timesteps)
        if self.wrong == "never":
            return output
        output.sample = self.more(output.sample)
        if self.wrong == "twice":
            output.sample = self.more(output.sample)
        if self.wrong == "gradient":  # that of a root at 0 is infinite
            output.sample = output.sample + (0 * output.sample).square().sum().sqrt()
        if self.wrong == "late" and timesteps[0] > 900:
            output.sample = output.sample / 0
        return output


@pytest.mark.parametrize(
    "wrong, said",
    {
        "twice": "The layer 'more' is used 2 times in one pass.",
        "never": "The layer 'more' is not used in a pass.",
        "gradient": "The gradient of the layer 'unet.conv_in' is not finite",
        "late": "Sampling by DDIM gives no numbers with the model's 1000 timesteps of "
        "linear betas.",
    }.items(),
)
def test_a_model_that_cannot_be_attributed_is_refused_in_a_sentence(wrong, said):
    with pytest.raises(ValueError, match="^[^\n]*[.]$") as found:
        try_out(Denoiser(Wayward(wrong), DDPMScheduler()))
    assert said in str(found.value)


def test_a_model_that_can_is_left_as_it_was():
    """No gradient, hook or number of it stays behind."""
    denoiser = Denoiser(Wayward("nothing"), DDPMScheduler())
    before = {name: value.clone() for name, value in denoiser.state_dict().items()}
    state = torch.get_rng_state()
    try_out(denoiser)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[n], v) for n, v in denoiser.state_dict().items())
    assert all(p.grad is None for p in denoiser.parameters())
    assert not any(module._forward_hooks for module in denoiser.modules())
