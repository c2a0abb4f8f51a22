"""Do scores for one noise level serve another? The paper's first observation."""

import numpy as np
import pandas as pd

from core.evidence.changes import _rises
from core.evidence.evaluation import jackknife_error, lds, lds_without_each
from core.evidence.lds import ERRORS
from core.evidence.stored import (
    FIGURES,
    Evidence,
    default_lens,
    default_rows,
    figures,
    same_lens,
)
from core.numbers import number, plus_minus


def timestep_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return which scores predict the cost at which timesteps.

    A row per pair of bands for EK-FAC, whose scores were also computed band by band,
    and a row per band of the cost for every other method; the band -1:-1 is the whole.
    """
    bands = evidence.measured[evidence.measured["measurement"] == measurement]
    bands = bands[["low", "high"]].drop_duplicates().sort_values(["low", "high"])
    plain = default_lens(evidence, "ekfac", measurement)
    asked = [
        ("ekfac", lens)
        for lens in evidence.lenses()
        if same_lens(lens, plain, "low", "high")
    ]
    asked += [
        (method, lens)
        for method, lens in default_rows(evidence, measurement)
        if method != "ekfac"
    ]
    rows = []
    for low, high in bands.itertuples(index=False):
        target = evidence.target(measurement, low, high)
        for method, lens in asked:
            predicted = evidence.predicted(lens, target)
            if predicted is not None:
                scored = {"scored_low": lens["low"], "scored_high": lens["high"]}
                measured = {"low": low, "high": high}
                facts = figures(predicted, target.to_numpy())
                rows.append({"method": method} | scored | measured | facts)
    columns = ["method", "scored_low", "scored_high", "low", "high", *FIGURES]
    return pd.DataFrame(rows, columns=columns)


def observations_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return what the paper observed, as found here: a figure per row, with its error.

    Errors are those of having few subsets.

    - "share of rises": of the measured changes after half of the images were left
      out, how many are positive, against the model that drew the samples. "... trained
      again": against one trained again on every image, where there is one: part of
      the rise is that no other model has drawn these samples. "... predicted": of the
      changes that EK-FAC predicts, by scores that were not centred; "... by centred
      scores" is about a half by construction.
    - "own", "higher" and "lower timesteps": the mean LDS of EK-FAC's scores for a range
      of timesteps, by the cost in the same, a lower and a higher range; "higher less
      lower" is the difference.
    - "timesteps A:B predict themselves": the same for each range alone.
    """
    target = evidence.target(measurement)
    rows = _rises(evidence, measurement, target)
    rows += _proxies(evidence, measurement)
    columns = ["observation", "figure", "standard_error", "num_subsets"]
    return pd.DataFrame(rows, columns=columns)


# The observations on ranges of timesteps that stand in for others.
STAND_INS = {name: f"{name} timesteps" for name in ("own", "higher", "lower")}
GAP = "higher less lower"


def _proxies(evidence: Evidence, measurement: str) -> list[tuple]:
    """Return the rows of the observations on timesteps that stand in for others."""
    costs = evidence.measured.query("measurement == @measurement and low >= 0")
    bands = sorted(set(zip(costs["low"], costs["high"], strict=True)))
    targets = {band: evidence.target(measurement, *band) for band in bands}
    lens = default_lens(evidence, "ekfac", measurement)
    predicted = {
        (low, high): evidence.predicted(
            lens | {"low": low, "high": high}, targets[low, high]
        )
        for low, high in bands
    }
    if any(change is None for change in predicted.values()):
        return []
    parts, alone = {name: [] for name in STAND_INS}, {}
    for scored, change in predicted.items():
        for band, target in targets.items():
            which = "own" if scored == band else "higher" if scored > band else "lower"
            with_parts = _jackknifed(change, target.to_numpy())
            parts[which].append(with_parts)
            if scored == band:
                alone["timesteps {}:{} predict themselves".format(*band)] = with_parts
    if not all(parts.values()):
        return []
    means = {name: np.mean(values, axis=0) for name, values in parts.items()}
    rows = {STAND_INS[name]: values for name, values in means.items()}
    rows[GAP] = means["higher"] - means["lower"]
    count = next(iter(targets.values())).shape[1]
    return [
        (name, values[0], jackknife_error(values[1:]), count)
        for name, values in (rows | alone).items()
    ]


def _jackknifed(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Return the mean LDS, then those without each subset, shape (1 + M,)."""
    whole = lds(predicted, measured).mean()
    return np.array([whole, *lds_without_each(predicted, measured)])


_SCORED = ["scored_low", "scored_high"]


def proxy_finding(observations: pd.DataFrame) -> str:
    """Return whether scores for much noise stand in for little noise, or the reverse.

    The paper's Observation 1; "" where the noise levels were not scored one by one.
    """
    rows = observations.set_index("observation")
    if GAP not in rows.index:
        return ""
    own, higher, lower, gap = (rows.loc[name] for name in (*STAND_INS.values(), GAP))
    text = (
        "Scores for higher noise levels predict the cost at lower ones with LDS "
        f"{plus_minus(higher['figure'], higher['standard_error'])}, the reverse gives "
        f"{plus_minus(lower['figure'], lower['standard_error'])} (jackknife over "
        "halves). The paper's observation that higher levels are the better stand-ins "
    )
    clear = abs(gap["figure"]) > ERRORS * gap["standard_error"]
    if not clear:
        text += "can neither be confirmed nor refuted here"
    else:
        text += "holds here" if gap["figure"] > 0 else "is the other way round here"
    better = "still better" if own["figure"] > higher["figure"] else "no better"
    return f"{text}; a level's own scores are {better}, with {number(own['figure'])}."


def timestep_finding(table: pd.DataFrame) -> str:
    """Return whether the scores of some noise levels predict the cost there."""
    bands = table[(table["low"] >= 0) & (table["scored_low"] >= 0)]  # of EK-FAC alone
    bands = bands[bands["lds"].notna()]
    same = (bands[["low", "high"]].to_numpy() == bands[_SCORED].to_numpy()).all(1)
    if not same.any():
        return "The noise levels were not scored one by one for this measurement."
    best = bands.loc[bands.groupby(["low", "high"])["lds"].idxmax()]
    own = (best[["low", "high"]].to_numpy() == best[_SCORED].to_numpy()).all(1)
    text = (
        "Scores for a range of noise levels predict the cost in that range with LDS "
        f"{number(bands.loc[same, 'lds'].mean())} on average"
    )
    if (~same).any():
        text += (
            f", the cost in other ranges with {number(bands.loc[~same, 'lds'].mean())}"
        )
    return f"{text}; its own scores are the best for {own.sum()} of {len(best)} ranges."
