"""Which lenses evidence is wanted for: methods, measurements, dampings, draws."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from core.evidence.stored import OWN
from core.explorer.explorer import Explorer
from core.lenses import Lens
from core.measurements import tested_measurements
from core.methods import METHODS, measures
from core.scores.baselines import mean_eigenvalue, trak_damping

# Of the mean eigenvalue. Features need larger ones before their ranking gets worse.
RELATIVE_DAMPINGS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)
LARGE_DAMPINGS = (1e3, 1e4, 1e5)
PAPER_DAMPING = 1e-8  # App. J.5
QUERY_DRAWS = (16, 64, 256)  # the app's own is one of them, and asked anyway


@dataclass(frozen=True)
class Asked:
    """A lens, and the name of what is varied besides it."""

    lens: Lens
    variant: str = ""

    def record(self) -> dict:
        """Return a value for each column of `LENS`."""
        lens, fixed = self.lens, not measures(self.lens.method)
        low, high = lens.timesteps or (-1, -1)
        return {
            "method": lens.method,
            "measurement": OWN if fixed else lens.measurement,
            "low": low,
            "high": high,
            "damping": float("nan") if lens.damping is None else lens.damping,
            "num_draws": lens.num_draws,
            "variant": self.variant,
        }


def default_form(explorer: Explorer) -> str:
    """Return "full" where the full index came along, else "sketch"."""
    return "full" if explorer.engine.scoring.indexed is not None else "sketch"


def dampings(explorer: Explorer, method: str) -> dict[str, float]:
    """Return a method's own damping, and the mean eigenvalue it is a multiple of."""
    scoring, facts = explorer.engine.scoring, METHODS[method]
    kind = facts.preconditioner
    if kind is not None and facts.file is None:
        mean = float(scoring.eigenvalues[kind].cpu().double().numpy().mean())
        return {"own": scoring.own_damping, "mean_eigenvalue": mean}
    if kind is not None:  # a curvature with an eigenbasis of its own
        values = scoring.method_file(method).tensors[kind]
        mean = float(values.cpu().double().numpy().mean())
        relative = explorer.engine.settings["gradients"]["relative_damping"]
        return {"own": relative * mean, "mean_eigenvalue": mean}
    return feature_dampings(scoring.method_file(method).features)


def feature_dampings(features: Tensor) -> dict[str, float]:
    """Return the same of features (N, k)."""
    mean = float(mean_eigenvalue(features))
    return {"own": float(trak_damping(features)), "mean_eigenvalue": mean}


def swept(method: str, known: dict[str, float]) -> list[float]:
    """Return the dampings to try besides a method's own; none where it has none."""
    facts = METHODS[method]
    if not facts.damped:
        return []
    relative = [*RELATIVE_DAMPINGS]
    if facts.preconditioner is None:
        relative += LARGE_DAMPINGS
    tried = [PAPER_DAMPING, *(known["mean_eigenvalue"] * one for one in relative)]
    return [one for one in tried if not np.isclose(one, known["own"], 1e-3, 0)]


def asked_measurements(method: str) -> list[str]:
    """Return the measurements of retrained models that a method is asked about."""
    return tested_measurements() if measures(method) else [Lens.measurement]


def asked_lenses(explorer: Explorer) -> list[Asked]:
    """Return every lens that the app itself answers, of the methods there are.

    Other dampings of methods that read features are asked all samples at once:
    `precompute.retraining.strength`.
    """
    facts = explorer.method_facts()
    methods = facts[facts["available"]]["method"].tolist()
    form, lenses = default_form(explorer), []
    for method in methods:
        for measurement in asked_measurements(method):
            lens = Lens(method, measurement, form=form)
            lenses.append(Asked(lens))
            if METHODS[method].damped and METHODS[method].reads != "features":
                tried = swept(method, dampings(explorer, method))
                lenses += [Asked(replace(lens, damping=one)) for one in tried]
    for measurement in tested_measurements():
        lens = Lens("ekfac", measurement, form=form)
        others = [count for count in QUERY_DRAWS if count != lens.num_draws]
        lenses += [Asked(replace(lens, num_draws=count)) for count in others]
        if form != "sketch":
            lenses.append(Asked(replace(lens, form="sketch"), "sketch"))
    return lenses
