"""Samples that models without some of the images drew again, from the same seeds.

Knows the evidence; no page and no model.
"""

import numpy as np
import pandas as pd

from core.answers import Redrawn
from core.evidence.left_out import control_share, groups_left_out
from core.evidence.stored import NOTHING, RANDOM, Evidence

Pictures = dict[int, np.ndarray]  # sample id -> uint8, shape (C, H, W)


def pictures_of(rows: pd.DataFrame) -> Pictures:
    """Return the images of rows that have one for each sample."""
    return {
        int(row.sample_id): np.frombuffer(row.pixels, np.uint8).reshape(row.shape)
        for row in rows.itertuples()
    }


def removal_rows(evidence: Evidence, fraction: float) -> list[tuple[str, Pictures]]:
    """Return what became of samples without what matters most for each of them.

    Returns:
        Per method its name and the images of the samples it was done for. The first
        is `NOTHING`, the same training with every image, the second `RANDOM`, the
        first random removal. Empty where nothing was removed or drawn.
    """
    drawn = evidence.pictures.query("kind == 'removed' and seed == 0")
    removed = drawn[drawn["fraction"] == fraction]
    own = removed[removed["about"] == removed["sample_id"]]
    own = own[~own["method"].isin([NOTHING, RANDOM])]
    samples = own["sample_id"].unique()
    if not len(samples):
        return []
    parts = {
        NOTHING: drawn[drawn["method"] == NOTHING],
        RANDOM: removed[(removed["method"] == RANDOM) & (removed["about"] == 0)],
        **dict(tuple(own.groupby("method", sort=False))),
    }
    return [
        (name, pictures_of(part[part["sample_id"].isin(samples)]))
        for name, part in parts.items()
    ]


def group_rows(evidence: Evidence) -> list[tuple[str, Pictures]]:
    """Return what became of samples without whole groups of images.

    Returns:
        Per group its name and the images. The first is `NOTHING`, the same training
        with every image; `RANDOM` follows where models drew after a random
        removal of the same size, the first of them. Empty where no group was left out,
        or one of the two is not drawn.
    """
    drawn = evidence.pictures.query("kind == 'removed' and seed == 0")
    names = groups_left_out(drawn)
    if not names or NOTHING not in set(drawn["method"]):
        return []
    shares = drawn[drawn["method"].isin(names)]["fraction"].map(control_share)
    random = drawn[(drawn["method"] == RANDOM) & (drawn["about"] == 0)]
    random = random[random["fraction"] == shares.max()]
    parts = {NOTHING: drawn[drawn["method"] == NOTHING]}
    if len(random):
        parts[RANDOM] = random
    parts |= {name: drawn[drawn["method"] == name] for name in names}
    return [(name, pictures_of(part)) for name, part in parts.items()]


def without_group(evidence: Evidence, name: str) -> dict[str, Pictures]:
    """Return what became of samples without one group, beside its null.

    Args:
        evidence: Of the collection.
        name: Of the group, as `core.evidence.left_out.group_name` calls it.

    Returns:
        The images of the model that saw every image under `NOTHING`, of the first one
        after a random removal of the size under `RANDOM`, where there is one, and of
        the one without the group under its name. Empty where one of the others is not
        drawn.
    """
    drawn = evidence.pictures.query("kind == 'removed' and seed == 0")
    own, every = (drawn[drawn["method"] == one] for one in (name, NOTHING))
    if own.empty or every.empty:
        return {}
    size = control_share(own["fraction"].iloc[0])
    random = drawn[(drawn["method"] == RANDOM) & (drawn["about"] == 0)]
    parts = {NOTHING: every, RANDOM: random[random["fraction"] == size], name: own}
    return {key: pictures_of(part) for key, part in parts.items() if len(part)}


def in_twins(
    evidence: Evidence, sample: int, measurement: str
) -> dict[tuple[str, int], Redrawn]:
    """Return what models without groups of images made of one sample of the gallery.

    Returns:
        By group (`NOTHING`, `RANDOM` or a name) and number of the random ones: the cost
        and, where it was drawn again, the image.
    """
    key = ["method", "fraction", "about"]
    groups = groups_left_out(evidence.measured)

    def own(table: pd.DataFrame) -> pd.DataFrame:
        rows = table[(table["kind"] == "removed") & (table["seed"] == 0)]
        return rows[rows["sample_id"] == sample].set_index(key)

    costs = own(evidence.measured)
    costs = costs[(costs["measurement"] == measurement) & (costs["low"] == -1)]
    sizes = {control_share(f) for name, f, _ in costs.index if name in groups}
    drawn = own(evidence.pictures)
    found = {}
    for name, fraction, about in costs.index:
        if name not in (NOTHING, *groups) and not (
            name == RANDOM and fraction in sizes
        ):
            continue
        place, pixels = (name, fraction, about), None
        if place in drawn.index:
            row = drawn.loc[place]
            pixels = np.frombuffer(row["pixels"], np.uint8).reshape(row["shape"])
        value = float(costs.at[place, "value"])
        found[name, int(about)] = Redrawn(pixels, value)
    return found


def disjoint_rows(evidence: Evidence) -> list[tuple[int, int, Pictures]]:
    """Return what pairs of models drew: (images trained on, 0 or 1, samples)."""
    drawn = evidence.pictures.query("kind == 'disjoint'")
    count = evidence.recipe["num_examples"]
    return [
        (int(fraction * count), int(side), pictures_of(part))
        for (fraction, side), part in drawn.groupby(["fraction", "subset"])
    ]
