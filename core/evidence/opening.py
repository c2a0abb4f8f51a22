"""What comes first about trust: one experiment that needs no term explained.

The model is trained again without the images that a method named for a generated image.
The more that image suffers, the more the method knew. Where that was not tried, how
much of what can be predicted at all each method predicts. Knows no model.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.columns import parted
from core.evidence.evaluation import mean_and_error
from core.evidence.groups import group_summary, group_table
from core.evidence.lds import lds_table
from core.evidence.names import method_name
from core.evidence.removal import removal_table
from core.evidence.stored import CEILING, NOTHING, RANDOM, REACHABLE, Evidence

MEASURED = "loss"  # an error, of which a share means something to anybody
SHOWN = ("ekfac", "trak", "clip", RANDOM)
RANDOM_REMOVAL = "a random removal"
GUESSING = "guessing"


@dataclass(frozen=True)
class Opening:
    """A figure of few values, and the sentence that it amounts to.

    Attributes:
        rows: Columns `name`, `value` and `error`, in per cent; the best first.
        axis: What the values are.
        finding: A plain sentence or two.
        title: The question that it answers.
        how: How it was measured, in a few words.
        note: What they rest on.
    """

    rows: pd.DataFrame
    axis: str
    finding: str
    note: str
    title: str = "Do the images named really matter?"
    how: str = "The model is trained again without the images that a method names"


def opening(evidence: Evidence) -> Opening | None:
    """Return what comes first about a collection, or None where nothing was measured.

    Errors of `Evidence.target` pass through.
    """
    return (
        without_the_named(evidence)
        or right_group(evidence)
        or predicted_share(evidence)
    )


def without_the_named(evidence: Evidence) -> Opening | None:
    """Return how much worse images become without those that each method named."""
    table = removal_table(evidence, MEASURED)
    table = table[table["sample_id"] >= 0]
    if table.empty:
        return None
    fraction = table["fraction"].max()
    table = table[table["fraction"] == fraction]
    rows = evidence.measured
    before = rows[(rows["kind"] == "removed") & (rows["method"] == NOTHING)]
    before = before[(before["measurement"] == MEASURED) & (before["low"] == -1)]
    before = before.groupby("sample_id")["value"].mean()
    table = table.assign(cost=table["sample_id"].map(before))
    changes = {
        name: 100 * (part["change"] / part["cost"]).to_numpy()
        for name, part in table.groupby("method")
    }
    once = table.drop_duplicates("sample_id")
    changes[RANDOM] = 100 * (once["random"] / once["cost"]).to_numpy()
    rows = _rows(changes)
    named = rows[rows["name"] != RANDOM_REMOVAL]
    best, others = named.iloc[0], rows[rows["name"] != named["name"].iloc[0]]
    finding = (
        f"A model trained again without the {fraction:.0%} of images that "
        f"{best['name']} named is {_worse(best['value'])} at the generated image. "
    )
    parts = [f"{row['name']}: {_worse(row['value'])}" for _, row in others.iterrows()]
    finding += f"{'; '.join(parts)}."
    return Opening(
        rows,
        "how much larger its error becomes, %",
        finding,
        f"{len(once)} generated images, each with models of its own. Error is the "
        "training loss.",
    )


def right_group(evidence: Evidence) -> Opening | None:
    """Return how often each method names the group that matters most to an image.

    None where halves were retrained, which test single images, or no groups were.
    """
    table = group_table(evidence, MEASURED)
    columns = {parted(name, "=")[0] for name in table["group"].unique()}
    if evidence.num_halves or len(columns) != 1 or table["group"].nunique() < 2:
        return None
    summary = group_summary(table)
    shares = dict(zip(summary["method"], summary["first"], strict=True))
    count = int(summary["num_samples"].iloc[0])
    rows = pd.DataFrame({
        "name": [*map(method_name, shares), GUESSING],
        "value": [100 * share for share in (*shares.values(), summary["chance"][0])],
        "error": [
            100 * (share * (1 - share) / count) ** 0.5 for share in shares.values()
        ]
        + [0.0],
    }).sort_values("value", ascending=False, ignore_index=True)
    parts = [
        f"{row.name}: {row.value:.0f}%" for row in rows[1:].itertuples(index=False)
    ]
    finding = (
        f"The model was trained again without each of {table['group'].nunique()} "
        f"groups. {rows['name'][0]} names the group that matters most to an image in "
        f"{rows['value'][0]:.0f}% of cases; {'; '.join(parts)}."
    )
    return Opening(
        rows,
        "images whose most important group is named, %",
        finding,
        f"{count} generated images. Errors are those of counting so many.",
        "Does it name what matters most?",
        "The model is trained again without each whole group",
    )


def predicted_share(evidence: Evidence) -> Opening | None:
    """Return how much of what can be predicted at all each method predicts."""
    table = lds_table(evidence, MEASURED).set_index("method")
    if REACHABLE not in table.index:
        return None
    most = table.at[REACHABLE, "lds"]
    shown = [name for name in SHOWN if name in table.index]
    best = table.drop(index=[CEILING, REACHABLE])["lds"].idxmax()
    shown = list(dict.fromkeys([best, *shown]))
    rows = pd.DataFrame({
        "name": [method_name(name) for name in shown],
        "value": [100 * table.at[name, "lds"] / most for name in shown],
        "error": [100 * table.at[name, "standard_error"] / most for name in shown],
    }).sort_values("value", ascending=False, ignore_index=True)
    top = rows.iloc[0]
    finding = (
        f"The model was trained again without half of the training images, many times. "
        f"{top['name']} predicts which halves an image misses most {top['value']:.0f}% "
        f"as well as anything can; {rows.iloc[-1]['name']} "
        f"{rows.iloc[-1]['value']:.0f}%."
    )
    return Opening(
        rows,
        "share of what can be predicted, %",
        finding,
        f"{int(table.at[best, 'num_subsets'])} halves; 0% is chance.",
        how="The model is trained again without random halves of the images",
    )


def _rows(values: dict[str, np.ndarray]) -> pd.DataFrame:
    figures = {name: mean_and_error(one) for name, one in values.items()}
    table = pd.DataFrame({
        "name": [
            RANDOM_REMOVAL if name == RANDOM else method_name(name) for name in figures
        ],
        "value": [mean for mean, _ in figures.values()],
        "error": [error for _, error in figures.values()],
    })
    return table.sort_values("value", ascending=False, ignore_index=True)


def _worse(percent: float) -> str:
    """Return a change of the error in words: "8% worse", "no worse"."""
    return f"{percent:.0f}% worse" if percent >= 0.5 else "no worse"
