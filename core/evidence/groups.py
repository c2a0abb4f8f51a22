"""What did leaving whole groups out change, and was it predicted?"""

import numpy as np
import pandas as pd

from core.evidence.evaluation import lds, mean_and_error
from core.evidence.left_out import control_share, groups_left_out
from core.evidence.names import cost_name, method_name
from core.evidence.stored import NOTHING, OWN, PREDICTED_BY, RANDOM, Evidence
from core.files.texts import minus
from core.numbers import listed, number, plus_minus

LARGEST = 0.5  # of a sample's class, which its own group holds more than


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

    `before` is the cost in the model that saw every image, `change` how much more it is
    in the one of the same seed without the group. Training without it was shorter, too,
    so the `controls` count: how many models were trained without a random group of the
    size. `random` is the mean of their changes, `chance` the largest, `measured` the
    change beyond the mean; without any control the two are NaN, and `measured` the
    change itself.

    Empty where no group was left out, or the model with every image is not measured
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
    chance = chance["value"].agg(["mean", "max", "count"])
    rows = costs[costs["method"].isin(names)]
    control = rows["fraction"].map(control_share)
    places = pd.MultiIndex.from_arrays([control, rows["sample_id"]])
    control = chance.reindex(places)
    own = before.reindex(rows["sample_id"]).to_numpy()
    change = rows["value"].to_numpy() - own
    random = control["mean"].to_numpy() - own
    table = pd.DataFrame({
        "group": rows["method"].to_numpy(),
        "sample_id": rows["sample_id"].to_numpy(),
        "before": own,
        "change": change,
        "random": random,
        "chance": control["max"].to_numpy() - own,
        "measured": np.where(np.isnan(random), change, change - random),
        "controls": control["count"].fillna(0).to_numpy(int),
    })
    return table.sort_values(["group", "sample_id"]).set_index(["group", "sample_id"])


def by_sample(rows: pd.DataFrame) -> list[np.ndarray]:
    """Return predicted, measured and share of one method's rows, (Q, G) each."""
    values = ["predicted", "measured", "share"]
    wide = rows.pivot(index="sample_id", columns="group", values=values)
    return [wide[name].to_numpy() for name in values]


def group_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method of a `group_table`: how well it predicts what happens.

    `correlation` is Spearman's over all pairs of group and sample; `within` the mean
    over samples of that over the groups, with its error (NaN for less than three);
    `first` the share of samples for which the group of the largest predicted change is
    the one of the largest measured, `own` the share for which that one holds most of
    the sample's class; `chance` what guessing gives. `size` is the slope
    of the measured change over the predicted one, through zero; `controls` how many
    models tell what random removals of the same size do.
    """
    rows = []
    for method, part in table.groupby("method", sort=False):
        predicted, measured, share = by_sample(part)
        largest = measured.argmax(1)
        own = np.take_along_axis(share, largest[:, None], 1) > LARGEST
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


_WITHIN = ["within", "standard_error"]


def group_finding(summary: pd.DataFrame, measurement: str) -> str:
    """Return how well it was predicted what leaving out whole groups does.

    Args:
        summary: Of `core.evidence.groups.group_summary`.
        measurement: What was measured.
    """
    if summary.empty:
        return "No model was trained without a whole group of images."
    count = int(summary["num_groups"].iloc[0])
    without = "a group" if count == 1 else f"each of {count} groups"
    if np.isfinite(summary["within"]).all():
        ranked = summary.sort_values("within", ascending=False)
        within = "among the groups, for one sample, "
        figures = [plus_minus(*row) for row in ranked[_WITHIN].itertuples(index=False)]
    else:
        ranked = summary.sort_values("correlation", ascending=False)
        within, figures = "", [number(value) for value in ranked["correlation"]]
    named = [method_name(method) for method in ranked["method"]]
    parts = [f"{name} {text}" for name, text in zip(named, figures, strict=True)]
    controls = ranked["controls"].iloc[0]
    beyond = ", beyond that of random removals of the same size," if controls else ""
    text = (
        f"Trained again without {without}, {ranked['num_samples'].iloc[0]} samples: "
        f"{within}predicted and measured change of the {cost_name(measurement)}"
        f"{beyond} have a rank correlation of {listed(parts)}."
    )
    if count > 1:
        firsts = [
            f"{row['first']:.0%} of the samples by {method_name(row['method'])}"
            for _, row in ranked.iterrows()
        ]
        text += (
            " The group that was predicted to matter most is the one that did for "
            f"{listed(firsts)}; guessing gives {ranked['chance'].iloc[0]:.0%}"
        )
        own = ranked["own"].iloc[0]
        text += f", the sample's own group {own:.0%}." if own > 0 else "."
    own = summary[summary["method"] == "ekfac"]
    size = own["size"].iloc[0] if len(own) else np.nan
    if np.isfinite(size):
        text += f" EK-FAC's sizes have to be taken times {minus(f'{size:.2g}')}."
    return text
