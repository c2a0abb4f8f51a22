"""Settings of commands besides those of a collection, and the rules of each."""

import hashlib
import json
from dataclasses import asdict, dataclass

from core.lenses import QUERY_FOLDS
from core.rules import Number, Several, Whole

FIDELITY_EXAMPLES = 240  # training images whose scores are compared in every format


@dataclass(frozen=True)
class MeasureConfig:
    """How every retrained model is measured."""

    num_samples: int = 20  # the first of the gallery
    num_draws: int = 256  # of timesteps and noise, per sample and measurement
    num_bands: int = 8  # of timesteps, for the loss
    num_pictures: int = 64  # samples drawn again; models of random halves draw none
    probability_draws: int = 2  # of the log-probability; 0 leaves it out
    # Of its solver. All models share its draws and most of its error, so it need not be
    # as small as for a value that stands alone.
    probability_tolerance: float = 1e-3

    def fingerprint(self) -> str:
        """Return 12 hex digits that identify the settings."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


MEASURE_RULES = {
    "num_samples": Whole(1),
    "num_draws": Whole(QUERY_FOLDS, step=QUERY_FOLDS),
    "num_bands": Whole(1),
    "num_pictures": Whole(0),
    "probability_draws": Whole(0),
    "probability_tolerance": Number(0, 1, above=True, below=True),
}


@dataclass(frozen=True)
class SameSeedConfig:
    """Random removals from models that share all draws."""

    fractions: tuple[float, ...] = (0.02, 0.05, 0.1, 0.5)  # of the images, left out
    num_subsets: int = 16  # of each size
    num_seeds: int = 2  # each with a full model of its own
    num_repeated: int = 3  # subsets of each size that seeds after the first have


SAME_SEED_RULES = {
    "fractions": Several(Number(0, 1, above=True, below=True), 1),
    "num_subsets": Whole(1),
    "num_seeds": Whole(1),
    "num_repeated": Whole(0),
}
