"""Does removing the top images cost more than removing random ones?"""

import pandas as pd

from core.evidence.evaluation import mean_and_error
from core.evidence.names import cost_name, method_name, unit_of
from core.evidence.stored import NOTHING, RANDOM, Evidence
from core.numbers import change_of, listed


def removal_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return how each cost changed when what matters most for a sample was left out.

    A row per method, fraction and sample; sample -1 is the mean over samples. `change`
    is against the model without removal, `random` that of random removals as large,
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


def removal_finding(table: pd.DataFrame, measurement: str) -> str:
    """Return what leaving out the top influences did, against random images."""
    means = table[table["sample_id"] == -1]
    if means.empty:
        return "No model was trained without the images that matter most."
    rows = means[means["fraction"] == means["fraction"].max()]
    rows = rows.sort_values("excess", ascending=False)
    parts = [
        f"{method_name(row['method'])} "
        f"{change_of(row['excess'], row['standard_error'])}"
        for _, row in rows.iterrows()
    ]
    unit = unit_of(measurement)
    return (
        f"How much more a sample's {cost_name(measurement)} rises without the "
        f"{rows['fraction'].iloc[0]:.0%} of the images that matter most for it than "
        f"after a random removal of the same size{unit and f', in {unit}'}: "
        f"{listed(parts)}."
    )
