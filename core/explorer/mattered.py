"""The question turned around: in which generated images did a group matter?

What an artist asks of a model: was I in it, and what did that do? Predicted for every
image of the gallery from its stored scores, measured where models were trained without
the group. Both stand against random removals of the same size.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from core.collection.schema import StoredAnswer
from core.evidence.evaluation import predicted_changes
from core.explorer.groups import random_members, share_below


def where_it_mattered(
    answers: Mapping[int, StoredAnswer],
    members: np.ndarray,
    seed: int,
    changes: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return what removing a group does to each image of a gallery, the most first.

    Args:
        answers: By sample, of a measurement of influence.
        members: Who is in the group, bool, shape (N,).
        seed: Of the random groups, the collection's.
        changes: What models without the group measured, indexed by `sample_id`, with
            the columns `before`, `change` and `chance` of `group_changes`.

    Returns:
        Columns `sample_id`; `cost` in the full model; `predicted`, the change beyond
        that of an average group of the size; `below`, the share of random groups with a
        smaller one; `before`, `change` and `chance` as given, NaN where nothing was
        measured. Ordered by the share of the cost that was measured,
        or is predicted.
    """
    samples = sorted(answers)
    scores = np.stack([answers[i].scores for i in samples])
    random = random_members(len(members), int(members.sum()), seed)
    change = predicted_changes(scores, ~np.vstack([members, random]))
    average = members.sum() * scores.mean(1) / len(members)
    table = pd.DataFrame({
        "sample_id": samples,
        "cost": [answers[i].value for i in samples],
        "predicted": change[:, 0] - average,
        "below": [share_below(row[0], row[1:]) for row in change],
    })
    columns = ["before", "change", "chance"]
    if changes is None:
        changes = pd.DataFrame(columns=columns, dtype=float)
    table = table.join(changes[columns], on="sample_id")
    share = table["change"] / table["before"]
    if share.isna().any():
        share = table["predicted"] / table["cost"]
    order = np.argsort(-share.to_numpy(), kind="stable")
    return table.iloc[order].reset_index(drop=True)
