"""What can be measured of an image: one entry holds all facts of a measurement.

Light: an entry names its functions as "module:function", which load when first asked.
How to add one: core/README.md.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """A cost of an image.

    Attributes:
        title: Its one name, everywhere.
        unit: Of the value, in words.
        meaning: What it says about an image, in plain words.
        cost: What to call the value, which rises as an image gets less likely, inside
            a sentence. Of a bound or a probability it is the negative.
        costs: The function that computes it; its arguments depend on `over`.
        over: "draws": a mean over timesteps and noise, of `costs(denoiser, x_0, label,
            draws, mask)`, shape (S,). "steps": a sum over sampling steps, of
            `costs(denoiser, subject, steps, mask)`, shape (S,). "image": a value only,
            with its error, `costs(denoiser, subject, seed, on_step)`.
        weights: What each timestep counts for beside the same squared error of the
            predicted noise, `weights(denoiser)`, shape (T,); only ratios count.
        proposal: How often queries draw each timestep, `proposal(denoiser)`, shape
            (T,); None: all alike.
        constant: What is added to the mean over all draws, `constant(denoiser, x_0,
            mask)`.
        tested: Whether retrained models are measured by it, so that evidence says how
            well its scores predict.
    """

    title: str
    unit: str
    meaning: str
    cost: str
    costs: str
    over: str = "draws"
    weights: str | None = None
    proposal: str | None = None
    constant: str | None = None
    tested: bool = False

    @property
    def attributable(self) -> bool:
        """Whether training images can be scored for it, by its gradient."""
        return self.over != "image"


MEASUREMENTS = {
    "loss": Measurement(
        "Training loss",
        "squared error",
        "How hard the image is for the model, as it was trained to see it.",
        "training loss",
        "core.measure.costs:loss",
        weights="core.measure.costs:loss_weights",
        tested=True,
    ),
    "noise-loss": Measurement(
        "Noise loss",
        "squared error of the noise",
        "How badly the model guesses the noise that was added to the image.",
        "noise loss",
        "core.measure.costs:noise_loss",
        weights="core.measure.costs:even_weights",
    ),
    "elbo": Measurement(
        "ELBO",
        "nats",
        "A bound on how unlikely the image is under the model; fine detail counts "
        "most.",
        "negative ELBO",
        "core.measure.costs:elbo",
        weights="core.measure.costs:elbo_weights",
        proposal="core.measure.costs:elbo_proposal",
        constant="core.measure.costs:elbo_constant",
        tested=True,
    ),
    "trajectory": Measurement(
        "Sampling trajectory",
        "nats",
        "How unlikely the exact steps are in which the image was drawn.",
        "negative log-probability of its sampling steps",
        "core.measure.trajectory:path_costs",
        over="steps",
    ),
    "log-probability": Measurement(
        "Log-probability",
        "nats",
        "How unlikely the image is under the model, exact up to a random trace, "
        "whose error is its ±; too slow to score training images with.",
        "negative log-probability",
        "core.measure.likelihood:probability_cost",
        over="image",
    ),
}


def tested_measurements() -> list[str]:
    """Return the measurements that retrained models are measured by."""
    return [name for name, facts in MEASUREMENTS.items() if facts.tested]


def check_measurement(measurement: str) -> None:
    """Refuse a measurement that does not exist.

    Raises:
        ValueError: If there is none of that name; the message lists those there are.
    """
    if measurement not in MEASUREMENTS:
        raise ValueError(
            f"There is no measurement '{measurement}'. Choose one of "
            f"{', '.join(MEASUREMENTS)}."
        )


def check_attributable(measurement: str) -> None:
    """Refuse to score training images for a measurement that is a value only.

    Raises:
        ValueError: If the measurement has no gradient; the message lists those with.
    """
    if not MEASUREMENTS[measurement].attributable:
        others = [name for name, facts in MEASUREMENTS.items() if facts.attributable]
        raise ValueError(
            f"The measurement '{measurement}' gives a value for an image but no "
            f"scores of training images. Choose one of {', '.join(others)}."
        )
