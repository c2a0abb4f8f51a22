"""Evidence about linear problems: costs that are sums over the images kept."""

import numpy as np
import pandas as pd

from core.evidence.evaluation import predicted_changes
from core.evidence.stored import GROUP_COLUMNS, OWN, RANDOM, Evidence, default_lens
from core.measure.draws import subset_masks

HOUSES = ("house=a", "house=b", "house=c")
PAIRS = [(fraction, side) for fraction in (0.05, 0.2, 0.5) for side in (0, 1)]
RECIPE = {
    "num_draws": 64,
    "form": "full",
    "dampings": {
        "ekfac": {"own": 1e-3, "mean_eigenvalue": 0.1},
        "trak": {"own": 1e-3, "mean_eigenvalue": 1.0},
    },
    "bytes_per_example": {"sketch": 12_000, "as asked": 1.9e6, "8-bit index": 1.9e6},
}


def scored(method, scores, measurement="loss", **changed) -> pd.DataFrame:
    """Return rows of scores (Q, N) under one lens."""
    lens = default_lens(Evidence(RECIPE, None, None, None), method, measurement)
    rows = [
        lens | changed | {"sample_id": i, "source": "exact", "scores": row}
        for i, row in enumerate(scores.astype(np.float32))
    ]
    return pd.DataFrame(rows)


def cost_rows(costs, kind, seed=0, measurement="loss", low=-1, high=-1):
    """Return rows of measured costs (Q, M); of the full model if M is one."""
    rows = [
        (kind, m if kind == "half" else -1, seed, i, measurement, low, high, cost, 0.1)
        for i, row in enumerate(costs)
        for m, cost in enumerate(row)
    ]
    columns = ["kind", "subset", "seed", "sample_id", "measurement", "low", "high"]
    table = pd.DataFrame(rows, columns=[*columns, "value", "standard_error"])
    return table.assign(method="", fraction=0.0, about=-1)


def full_evidence(
    settings: dict,
    num_examples: int,
    num_subsets: int = 16,
    num_samples: int = 4,
    edges: tuple[int, ...] = (0, 250, 500, 750, 1000),
    noise: float = 0.5,
    removals: bool = True,
    groups: tuple[str, ...] = HOUSES,
) -> Evidence:
    """Return evidence with a row in every table.

    Args:
        settings: Of the collection that was tested.
        num_examples: N.
        num_subsets: M; half of them with two seeds.
        num_samples: Q.
        edges: Of the bands of timesteps, which have terms of their own.
        noise: What each training adds to a cost, in standard deviations of what the
            images left out add.
        removals: Whether models were trained without the top influences.
        groups: Names of groups that models were trained without, then as well.
    """
    rng, masks = np.random.default_rng(1), subset_masks(num_examples, num_subsets, 0)
    shape = (num_samples, num_examples)
    bands = rng.normal(size=(len(edges) - 1, *shape))
    bands = 0.3 * bands + bands.mean(0)  # bands have something in common
    terms = {"loss": bands.sum(0), "elbo": bands[0] + 0.5 * rng.normal(size=shape)}
    measured = _measured(rng, masks, bands, terms, edges, noise)
    measured += _disjoint(rng, num_samples)
    pictures = [_drawn("disjoint", num_samples, fraction=f, subset=s) for f, s in PAIRS]
    predicted = pd.DataFrame(columns=GROUP_COLUMNS)
    if removals:
        measured += _removed(rng, terms["loss"], num_samples)
        pictures += _drawn_without(num_samples)
        predicted = _predicted(rng, num_samples, groups)
        measured += _without_groups(predicted)
        pictures += [
            _drawn("removed", num_samples, method=name, fraction=0.3) for name in groups
        ]
        random = {"method": RANDOM, "fraction": 0.3, "about": 0}
        pictures.append(_drawn("removed", num_samples, **random))
    measured = pd.concat(measured, ignore_index=True).fillna({"about": -1})
    scores = pd.concat(_scores(rng, bands, terms, edges), ignore_index=True)
    recipe = RECIPE | {"num_examples": num_examples, "settings": settings}
    pictures = pd.concat(pictures, ignore_index=True)
    return Evidence(recipe, masks, measured, scores, pictures, predicted)


def _predicted(rng, num_samples, groups) -> pd.DataFrame:
    """Return what two methods predict for groups; a sample's class is in one."""
    rows = []
    for method, measurement in (("ekfac", "loss"), ("ekfac", "elbo"), ("clip", OWN)):
        for sample in range(num_samples):
            for number, name in enumerate(groups):
                share = float(number == sample % len(groups))
                change = share + 0.1 * rng.normal()
                row = (name, sample, share, method, measurement, change, 0.05)
                rows.append(row)
    return pd.DataFrame(rows, columns=GROUP_COLUMNS)


def _without_groups(predicted) -> list[pd.DataFrame]:
    """Return costs that rise by twice what EK-FAC predicts, beyond chance.

    They are three with every image; without a random group of that size a half more.
    """
    own = predicted[predicted["method"] == "ekfac"]
    parts = []
    for measurement, rows in own.groupby("measurement"):
        for number in (0, 1):
            costs = np.full((rows["sample_id"].nunique(), 1), 3.4 + 0.2 * number)
            table = cost_rows(costs, "removed", measurement=measurement)
            parts.append(table.assign(method=RANDOM, fraction=0.3, about=number))
    for (name, measurement), rows in own.groupby(["group", "measurement"]):
        costs = 3.5 + 2 * rows.sort_values("sample_id")["predicted"].to_numpy()[:, None]
        table = cost_rows(costs, "removed", measurement=measurement)
        parts.append(table.assign(method=name, fraction=0.3))
    costs = np.full((own["sample_id"].nunique(), 1), 3.0)
    nothing = cost_rows(costs, "removed", measurement="elbo")
    return [*parts, nothing.assign(method="none")]


def _disjoint(rng, num_samples) -> list[pd.DataFrame]:
    """Return costs in pairs of models, nearer to each other the more they saw."""
    own, parts = rng.normal(size=(num_samples, 1)), []
    for fraction, side in PAIRS:
        costs = 3 + own + 0.3 / (20 * fraction) * rng.normal(size=own.shape)
        parts.append(
            cost_rows(costs, "disjoint").assign(fraction=fraction, subset=side)
        )
    return parts


def _drawn(kind, num_samples, **which) -> pd.DataFrame:
    """Return random images of every sample by one model."""
    rng = np.random.default_rng(sum(map(ord, str(which))))
    model = {"subset": -1, "seed": 0, "method": "", "fraction": 0.0, "about": -1}
    rows = [
        {"sample_id": i, "pixels": rng.bytes(3 * 8 * 8), "shape": [3, 8, 8]}
        for i in range(num_samples)
    ]
    return pd.DataFrame(rows).assign(kind=kind, **(model | which))


def _drawn_without(num_samples) -> list[pd.DataFrame]:
    """Return the images of the models of `_removed`."""
    parts = [_drawn("removed", num_samples, method="none")]
    for fraction in (0.02, 0.1):
        for method, count in ((RANDOM, 3), ("ekfac", num_samples)):
            for about in range(count):
                which = {"method": method, "fraction": fraction, "about": about}
                parts.append(_drawn("removed", num_samples, **which))
    return parts


def _measured(rng, masks, bands, terms, edges, noise) -> list[pd.DataFrame]:
    """Return the costs in the full model and in those trained on halves."""
    parts, half = [], len(masks) // 2

    def add(terms, level, measurement="loss", low=-1, high=-1):
        changes = predicted_changes(terms, masks)
        spread = noise * changes.std(-1, keepdims=True)
        first, second = (
            level + changes + spread * rng.normal(size=changes.shape) for _ in range(2)
        )
        full = np.full((len(changes), 1), level)
        parts.append(cost_rows(full, "full", 0, measurement, low, high))
        parts.append(cost_rows(first, "half", 0, measurement, low, high))
        parts.append(cost_rows(second[:, :half], "half", 1, measurement, low, high))

    add(terms["loss"], 3.0)
    add(terms["elbo"], 300.0, "elbo")
    add(terms["elbo"], 290.0, "log-probability")
    for band, low, high in zip(bands, edges[:-1], edges[1:], strict=True):
        add(band, 3.0 / len(bands), "loss", low, high)
    return parts


def _removed(rng, terms, num_samples) -> list[pd.DataFrame]:
    """Return the loss without the top influences, and without random images."""

    def rows(change, method, fraction, about):
        costs = 3 + change + 0.02 * rng.normal(size=(num_samples, 1))
        named = {"method": method, "fraction": fraction, "about": about}
        return cost_rows(costs, "removed").assign(**named)

    parts = [rows(0.0, "none", 0.0, -1)]
    for fraction in (0.02, 0.1):
        parts += [rows(fraction, RANDOM, fraction, number) for number in range(3)]
        for method, strength in (("ekfac", 4), ("trak", 2), ("clip", 1)):
            for about in range(num_samples):
                parts.append(rows(strength * fraction, method, fraction, about))
    return parts


def _scores(rng, bands, terms, edges) -> list[pd.DataFrame]:
    """Return scores that know the terms, with more or less noise."""

    def guess(terms, error):
        return terms + error * terms.std() * rng.normal(size=terms.shape)

    loss, elbo = terms["loss"], terms["elbo"]
    parts = [
        scored("ekfac", guess(loss, 0.5)),
        scored("ekfac", guess(elbo, 0.5), "elbo"),
        scored("kfac", guess(loss, 1.0)),
        scored("trak", guess(loss, 2.0)),
        scored("d-trak", guess(loss, 1.5), OWN),
        scored("clip", guess(loss, 6.0), OWN),
        scored(RANDOM, guess(loss, 1e6), OWN),
        scored("ekfac", guess(loss, 1.0), num_draws=16),
        scored("ekfac", guess(loss, 0.3), num_draws=256),
        scored("ekfac", guess(loss, 1.5), variant="sketch"),
        scored("ekfac", guess(loss, 0.3), variant="8-bit index", num_draws=256),
        scored("ekfac", guess(loss, 0.9), variant="32 training draws", num_draws=256),
        scored("ekfac", guess(loss, 0.4), variant="64 training draws", num_draws=256),
    ]
    for error, damping in zip((0.9, 0.6, 0.4, 0.8), (1e-7, 1e-5, 1e-2, 1), strict=True):
        parts.append(scored("ekfac", guess(loss, error), damping=damping))
        parts.append(scored("trak", guess(loss, 3 * error), damping=damping))
    for band, low, high in zip(bands, edges[:-1], edges[1:], strict=True):
        parts.append(scored("ekfac", guess(band, 0.5), low=low, high=high))
    return parts
