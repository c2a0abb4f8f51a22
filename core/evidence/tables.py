"""The tables of the evidence, each a data frame per measurement.

What `python -m precompute evidence --table` prints and the page Evidence shows. Knows
numpy and pandas; no model.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from core.evidence.evaluation import (
    Calibration,
    calibrate,
    jackknife_error,
    lds,
    lds_without_each,
    mean_and_error,
)
from core.evidence.stored import (
    CEILING,
    FIGURES,
    NOTHING,
    OWN,
    PREDICTED_BY,
    RANDOM,
    Evidence,
    ceiling,
    control_share,
    default_lens,
    default_rows,
    figures,
    groups_left_out,
    same_lens,
)


def lds_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method: how well it ranks subsets by a measured cost (Eq. 13).

    `standard_error` is that of the mean over samples, as in the paper; `subset_error`
    is that of having few subsets; `scored` is the measurement that was scored, "own"
    for a method that knows only one. The last row, "retraining", is the ceiling:
    another seed's models on the same subsets as the prediction.
    """
    target = evidence.target(measurement)
    rows = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            scored = {"scored": lens["measurement"] or "own"}
            found = figures(predicted, target.to_numpy())
            rows.append({"method": method} | found | scored)
    rows.sort(key=lambda row: -row["lds"])
    held_out = ceiling(evidence, measurement)
    if held_out is not None:
        rows.append({"method": CEILING, "scored": measurement} | held_out)
    return pd.DataFrame(rows, columns=["method", *FIGURES, "scored"])


def damping_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return a row per method and damping; `default` marks the method's own.

    `relative` is the damping over the mean eigenvalue of what is inverted.
    """
    target, rows = evidence.target(measurement), []
    swept = evidence.scores[evidence.scores["damping"].notna()]["method"].unique()
    for lens in evidence.lenses():
        scored = lens["measurement"] and PREDICTED_BY.get(measurement, measurement)
        plain = default_lens(evidence, lens["method"], scored)
        if lens["method"] not in swept or not same_lens(lens, plain, "damping"):
            continue
        predicted = evidence.predicted(lens, target)
        if predicted is None:
            continue
        default = bool(np.isnan(lens["damping"]))
        known = evidence.recipe["dampings"][lens["method"]]
        damping = known["own"] if default else lens["damping"]
        facts = {
            "method": lens["method"],
            "damping": damping,
            "relative": damping / known["mean_eigenvalue"],
            "default": default,
        }
        rows.append(facts | figures(predicted, target.to_numpy()))
    columns = ["method", "damping", "relative", "default", *FIGURES]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["method", "damping"], ignore_index=True)


def ablation_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return what EK-FAC's LDS becomes when one thing about the question is changed.

    `changed` is "query draws", "scored" (another measurement's scores in its place) or
    a variant of the index; `setting` its value, `bytes` the size per training picture
    where that is what changed. `num_draws` are the query's, more where the variants of
    the index are compared: rows of equal draws differ in one thing only.
    """
    target, rows = evidence.target(measurement), []
    plain = default_lens(evidence, "ekfac", PREDICTED_BY.get(measurement, measurement))
    sizes = evidence.recipe.get("bytes_per_example", {})
    for lens in evidence.lenses():
        for column, changed in {
            "num_draws": "query draws",
            "measurement": "scored",
            "variant": "gradients",
        }.items():
            # Gradients that are kept otherwise were asked with more draws.
            free = ("variant", "num_draws") if lens["variant"] else (column,)
            if column not in free[:1] or not same_lens(lens, plain, *free):
                continue
            predicted = evidence.predicted(lens, target)
            if predicted is None:
                continue
            setting = lens[column] or "as asked"
            facts = {
                "changed": changed,
                "setting": setting,
                "default": lens[column] == plain[column],
                "bytes": sizes.get(setting, float("nan")),
                "num_draws": lens["num_draws"],
            }
            rows.append(facts | figures(predicted, target.to_numpy()))
    columns = ["changed", "setting", "default", "bytes", "num_draws", *FIGURES]
    return pd.DataFrame(rows, columns=columns).sort_values(
        ["changed", "default", "lds"], ascending=[True, False, False], ignore_index=True
    )


def calibration(evidence: Evidence, method: str, measurement: str) -> Calibration:
    """Return the map from a method's predicted changes to measured ones.

    Raises:
        LookupError: If there are no scores of this method for this measurement.
    """
    target = evidence.target(measurement)
    for name, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target) if name == method else None
        if predicted is not None:
            return calibrate(predicted, target.to_numpy())
    raise LookupError(
        f"There are no scores of '{method}' for '{measurement}' to calibrate. Compute "
        "them with `python -m precompute evidence`."
    )


def calibration_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how well a monotone map of each method's scores predicts the change.

    `error` is the root mean square left on subsets that were held out, `spread` that of
    the changes themselves, `half_width` half of the interval that covers nine of ten.
    """
    columns = ["method", "error", "spread", "explained", "half_width", "knots"]
    rows = []
    for method, _ in default_rows(evidence, measurement):
        found = calibration(evidence, method, measurement)
        facts = {name: getattr(found, name) for name in columns[1:-1]}
        rows.append({"method": method} | facts | {"knots": len(found.knots)})
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("error", ignore_index=True)


def sample_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return the LDS of each sample under each method, as `lds_table` averages it."""
    target = evidence.target(measurement)
    parts = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            found = {"lds": lds(predicted, target.to_numpy())}
            table = pd.DataFrame(found, index=target.index).reset_index()
            parts.append(table.assign(method=method))
    columns = ["method", "sample_id", "lds"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


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


def changes_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return predicted and measured change of each sample in each retrained model.

    Measured is against the model that was trained on everything; predicted is relative
    to an average subset.
    """
    target = evidence.target(measurement)
    full = evidence.measured[
        (evidence.measured["kind"] == "full")
        & (evidence.measured["measurement"] == measurement)
        & (evidence.measured["low"] == -1)
    ].set_index("sample_id")["value"]
    measured = target.sub(full.loc[target.index], axis=0)
    parts = []
    for method, lens in default_rows(evidence, measurement):
        predicted = evidence.predicted(lens, target)
        if predicted is not None:
            table = pd.DataFrame(predicted, target.index, target.columns)
            both = {"predicted": table.stack(), "measured": measured.stack()}
            parts.append(pd.DataFrame(both).reset_index().assign(method=method))
    columns = ["method", "sample_id", "subset", "predicted", "measured"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


def observations_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return what the paper observed, as found here: a figure per row, with its error.

    Errors are those of having few subsets.

    - "share of rises": of the measured changes after half of the pictures were left
      out, how many are positive, against the model that drew the samples. "... trained
      again": against one trained again on every picture, where there is one: part of
      the rise is that no other model has drawn these samples. "... predicted": of the
      changes that EK-FAC predicts.
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


def _rises(evidence: Evidence, measurement: str, target: pd.DataFrame) -> list[tuple]:
    """Return the rows of the observations that are shares of rises."""
    costs = evidence.measured.query("measurement == @measurement and low == -1")
    changes = {}
    for end, kind, method in (
        ("", "full", ""),
        (", trained again", "removed", NOTHING),
    ):
        before = costs[(costs["kind"] == kind) & (costs["method"] == method)]
        before = before.groupby("sample_id")["value"].mean().reindex(target.index)
        if before.notna().all():
            changes[end] = target.sub(before, axis=0).to_numpy()
    lens = default_lens(evidence, "ekfac", PREDICTED_BY.get(measurement, measurement))
    changes[", predicted"] = evidence.predicted(lens, target)
    return [
        (f"share of rises{end}", *mean_and_error((values > 0).mean(0)), len(values[0]))
        for end, values in changes.items()
        if values is not None
    ]


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
    parts, alone = {"own": [], "higher": [], "lower": []}, {}
    for scored, change in predicted.items():
        for band, target in targets.items():
            which = "own" if scored == band else "higher" if scored > band else "lower"
            found = _jackknifed(change, target.to_numpy())
            parts[which].append(found)
            if scored == band:
                alone["timesteps {}:{} predict themselves".format(*band)] = found
    if not all(parts.values()):
        return []
    means = {name: np.mean(values, axis=0) for name, values in parts.items()}
    rows = {f"{name} timesteps": values for name, values in means.items()}
    rows["higher less lower"] = means["higher"] - means["lower"]
    count = next(iter(targets.values())).shape[1]
    return [
        (name, values[0], jackknife_error(values[1:]), count)
        for name, values in (rows | alone).items()
    ]


def _jackknifed(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Return the mean LDS, then those without each subset, shape (1 + M,)."""
    whole = lds(predicted, measured).mean()
    return np.array([whole, *lds_without_each(predicted, measured)])


def removal_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how each cost changed when what matters most for a sample was left out.

    A row per method, fraction and sample; sample -1 is the mean over samples. `change`
    is against the model without removal, `random` that of as many random pictures,
    `excess` the difference. The error of one sample is the spread over random removals,
    that of the mean the spread over samples. What has nothing to be compared with yet,
    as while models are still being measured, is left out.
    """
    removed = evidence.measured.query(
        "kind == 'removed' and measurement == @measurement and low == -1"
    )
    columns = ["method", "fraction", "sample_id", "change", "random", "excess"]
    columns += ["standard_error"]
    if NOTHING not in set(removed["method"]):
        return pd.DataFrame(columns=columns)
    before = removed[removed["method"] == NOTHING].set_index(["seed", "sample_id"])
    keys = pd.MultiIndex.from_frame(removed[["seed", "sample_id"]])
    change = removed["value"].to_numpy() - before["value"].reindex(keys).to_numpy()
    removed = removed.assign(change=change)
    chance = removed[removed["method"] == RANDOM].groupby(["fraction", "sample_id"])
    chance = chance["change"].agg(["mean", "std", "count"])
    about = removed[removed["about"] == removed["sample_id"]]
    about = about[~about["method"].isin([RANDOM, NOTHING])]
    rows = []
    for key, part in about.groupby(["method", "fraction", "sample_id"]):
        if key[1:] not in chance.index:
            continue
        mean, spread, count = chance.loc[key[1:]]
        value = part["change"].mean()
        error = spread * (1 / len(part) + 1 / count) ** 0.5
        rows.append((*key, value, mean, value - mean, error))
    table = pd.DataFrame(rows, columns=columns)
    for key, part in table.groupby(["method", "fraction"]):
        excess = mean_and_error(part["excess"].to_numpy())
        means = part[["change", "random"]].mean()
        table.loc[len(table)] = (*key, -1, *means, *excess)
    return table.sort_values(["fraction", "method", "sample_id"], ignore_index=True)


def group_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return predicted and measured change of each sample when a group is left out.

    A row per group, sample and method. `predicted` is the sum of the group's scores
    over N, with its error; as scores are centred, it is the change beyond that of an
    average group of the size. So is `measured` where there are `controls`, else it is
    the `change` itself, as in `group_changes`. `share` is how much of the sample's
    class is in the group.
    """
    columns = ["group", "sample_id", "share", "method", "predicted"]
    columns += ["standard_error", "measured", "change", "random", "controls"]
    changes = group_changes(evidence, measurement)
    if evidence.groups.empty or changes.empty:
        return pd.DataFrame(columns=columns)
    scored = (PREDICTED_BY.get(measurement, measurement), OWN)
    rows = evidence.groups[evidence.groups["measurement"].isin(scored)]
    rows = rows.join(changes, ["group", "sample_id"], validate="many_to_one")
    return rows[columns].reset_index(drop=True)


def group_changes(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return what leaving out groups changed, indexed by `group` and `sample_id`.

    `change` is the cost in the model without the group less that in the one of the same
    seed that saw every picture. Training without it was shorter, too, so the `controls`
    count: models as many of which were trained without as many random pictures.
    `random` is the mean of their changes, `measured` the change beyond it; without any
    control that is NaN, and `measured` the change itself.

    Empty where no group was left out, or the model with every picture is not measured
    yet.
    """
    costs = evidence.measured.query(
        "kind == 'removed' and measurement == @measurement and low == -1"
    )
    names = groups_left_out(costs)
    if not names or NOTHING not in set(costs["method"]):
        return pd.DataFrame()
    before = costs[costs["method"] == NOTHING].groupby("sample_id")["value"].mean()
    chance = costs[costs["method"] == RANDOM].groupby(["fraction", "sample_id"])
    chance = chance["value"].agg(["mean", "count"])
    rows = costs[costs["method"].isin(names)]
    control = rows["fraction"].map(control_share)
    places = pd.MultiIndex.from_arrays([control, rows["sample_id"]])
    found = chance.reindex(places)
    own = before.reindex(rows["sample_id"]).to_numpy()
    change = rows["value"].to_numpy() - own
    random = found["mean"].to_numpy() - own
    table = pd.DataFrame({
        "group": rows["method"].to_numpy(),
        "sample_id": rows["sample_id"].to_numpy(),
        "change": change,
        "random": random,
        "measured": np.where(np.isnan(random), change, change - random),
        "controls": found["count"].fillna(0).to_numpy(int),
    })
    return table.sort_values(["group", "sample_id"]).set_index(["group", "sample_id"])


def group_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method of a `group_table`: how well it foretells what happens.

    `correlation` is Spearman's over all pairs of group and sample; `within` the mean
    over samples of that over the groups, with its error (NaN for less than three);
    `first` the share of samples for which the group of the largest predicted change is
    the one of the largest measured, `own` the share for which that one holds most of
    the sample's class; `chance` what guessing gives. `size` is the slope
    of the measured change over the predicted one, through zero; `controls` how many
    models tell what leaving out as many random pictures does.
    """
    rows = []
    for method, part in table.groupby("method", sort=False):
        predicted, measured, share = (
            part.pivot(index="sample_id", columns="group", values=name).to_numpy()
            for name in ("predicted", "measured", "share")
        )
        largest = measured.argmax(1)
        own = np.take_along_axis(share, largest[:, None], 1) > 0.5
        every = lds(predicted.reshape(1, -1), measured.reshape(1, -1))
        within, error = np.nan, np.nan
        if predicted.shape[1] > 2:
            within, error = mean_and_error(lds(predicted, measured))
        rows.append({
            "method": method,
            "correlation": float(every[0]),
            "within": within,
            "standard_error": error,
            "first": float((predicted.argmax(1) == largest).mean()),
            "own": float(own.mean()),
            "chance": 1 / predicted.shape[1],
            "size": float((predicted * measured).sum() / np.square(predicted).sum()),
            "controls": int(part["controls"].min()),
            "num_samples": len(predicted),
            "num_groups": predicted.shape[1],
        })
    columns = ["method", "correlation", "within", "standard_error", "first", "own"]
    columns += ["chance", "size", "controls", "num_samples", "num_groups"]
    return pd.DataFrame(rows, columns=columns)


def collapse_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how alike two models are that share no picture, by their size (Obs. 3).

    `correlation` is Pearson's over the samples, between the two models' costs;
    `difference` the mean absolute one, with the standard error of that over the samples
    (there is one pair of each size), `spread` the costs' standard deviation over the
    samples, against which it is small or large. `drawn` is the root mean square
    difference between the pictures that both drew from the same seeds, over that
    between pictures of different seeds: 0 is the same picture, 1 another one.
    """
    rows = []
    measured = evidence.measured.query(
        "kind == 'disjoint' and measurement == @measurement and low == -1"
    )
    for fraction, part in measured.groupby("fraction"):
        table = part.pivot_table("value", "sample_id", "subset")
        if table.shape[1] < 2:
            continue
        first, second = table.to_numpy().T
        difference, error = mean_and_error(np.abs(first - second))
        rows.append({
            "num_pictures": int(fraction * evidence.recipe["num_examples"]),
            "correlation": float(np.corrcoef(first, second)[0, 1]),
            "difference": difference,
            "standard_error": error,
            "spread": float(np.concatenate([first, second]).std()),
            "drawn": drawn_apart(evidence, fraction),
            "num_samples": len(table),
        })
    columns = ["num_pictures", "correlation", "difference", "standard_error", "spread"]
    return pd.DataFrame(rows, columns=[*columns, "drawn", "num_samples"])


def drawn_apart(evidence: Evidence, fraction: float) -> float:
    """Return how far apart the pictures of two disjoint models are, as in the table."""
    pictures = evidence.pictures.query("kind == 'disjoint' and fraction == @fraction")
    sides = [
        np.stack([np.frombuffer(pixels, np.uint8) for pixels in side["pixels"]])
        for _, side in pictures.sort_values("sample_id").groupby("subset")
    ]
    if len(sides) < 2:
        return float("nan")
    first, second = (side.astype(np.float64) for side in sides)
    squares = np.square(first[:, None] - second[None]).mean(2)
    others = ~np.eye(len(first), dtype=bool)
    return float(np.sqrt(np.diag(squares).mean() / squares[others].mean()))


TABLES: dict[str, Callable[[Evidence, str], pd.DataFrame]] = {
    "lds": lds_table,
    "samples": sample_table,
    "damping": damping_table,
    "ablation": ablation_table,
    "calibration": calibration_table,
    "timesteps": timestep_table,
    "changes": changes_table,
    "removal": removal_table,
    "observations": observations_table,
    "collapse": collapse_table,
    "groups": group_table,
}


def make_table(evidence: Evidence, table: str, measurement: str) -> pd.DataFrame:
    """Return a table by its name.

    Raises:
        LookupError: If there is no such table; the message lists those there are.
    """
    if table not in TABLES:
        raise LookupError(
            f"There is no table '{table}'. Choose one of {', '.join(TABLES)}."
        )
    return TABLES[table](evidence, measurement)
