"""What D-TRAK, DAS and Journey-TRAK differentiate: not the training loss.

Costs of one example at every draw, with the signature of `core.measure.costs`, and the
sampling steps of Journey-TRAK. "Noise" is always the predicted noise, also of a model
that was trained to predict velocity or sample, because the papers' models predict
noise.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from core.measure.costs import masked_total, noising
from core.measure.draws import Draws
from core.measure.gradients import Costs
from core.model.denoiser import Denoiser


@dataclass(frozen=True)
class Prediction:
    """What the model gives at the draws of one example.

    Attributes:
        output: Of the model, shape (S, C, H, W).
        target: What it was trained to give, same shape.
        predicted_noise: The same statement as a noise, same shape.
        noise: The true one, same shape.
    """

    output: Tensor
    target: Tensor
    predicted_noise: Tensor
    noise: Tensor

    def losses(self) -> Tensor:
        """Return the training losses, shape (S,)."""
        return (self.output - self.target).square().sum((1, 2, 3))

    def square_norms(self, mask: Tensor | None = None) -> Tensor:
        """Return the squared norms of the predicted noise, shape (S,): D-TRAK's.

        Args:
            mask: Which entries count, boolean, shape (H, W); None means all.
        """
        return masked_total(self.predicted_noise.square(), mask)

    def sizes(self, mask: Tensor | None = None) -> Tensor:
        """Return the sums of sizes of the predicted noise, shape (S,): DAS's output.

        The authors' earlier script takes the plain mean of the entries, which nearly
        cancels between draws of opposite noise.

        Args:
            mask: Which entries count, boolean, shape (H, W); None means all.
        """
        return masked_total(self.predicted_noise.abs(), mask)

    def residual(self) -> Tensor:
        """Return the root mean square error of the predicted noise, a scalar."""
        return (self.predicted_noise - self.noise).square().mean().sqrt()


def predict(
    denoiser: Denoiser, x_0: Tensor, label: int | None, draws: Draws
) -> Prediction:
    """Return what the model gives for one example at every draw.

    Args:
        denoiser: The model.
        x_0: Clean example, shape (C, H, W).
        label: Class index; None means no label.
        draws: S draws, on the device of the model.
    """
    clean, noise, timesteps, labels = noising(denoiser, x_0, label, draws)
    x_t = denoiser.add_noise(clean, noise, timesteps)
    output = denoiser.predict(x_t, timesteps, labels)
    alpha = denoiser.alphas_cumprod[timesteps].to(x_t.dtype)[:, None, None, None]
    return Prediction(
        output,
        denoiser.target(clean, noise, timesteps),
        denoiser.clean_and_noise(output, x_t, alpha)[1],
        noise,
    )


def _costs(output: Callable[..., Tensor]) -> Costs:
    """Return the costs (S,) that are an output of the prediction of one example."""

    def costs(denoiser, x_0, label, draws, mask=None):
        return output(predict(denoiser, x_0, label, draws), mask)

    return costs


square_norm = _costs(Prediction.square_norms)  # D-TRAK's
output_size = _costs(Prediction.sizes)  # what stands for the model's output in DAS
