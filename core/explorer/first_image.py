"""In which order a gallery is shown, and which of its images opens first.

From stored answers alone: no model is asked. Nothing here depends on chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.evidence.groups import LARGEST, group_table
from core.evidence.stored import Evidence

CLEAREST = 24  # gallery images that are shown first, and may open first
TOP = 10  # training images whose labels are compared


@dataclass(frozen=True)
class FirstImage:
    """The gallery image that opens first, and why.

    Attributes:
        sample: Its id.
        influence: Mean over label columns of the share of its ten most influential
            images that have its own label; NaN where it is just the clearest.
        similarity: The same of the ten most similar ones.
    """

    sample: int
    influence: float = float("nan")
    similarity: float = float("nan")

    @property
    def by_labels(self) -> bool:
        """Whether labels chose it."""
        return bool(np.isfinite(self.influence))


def clearest_first(
    losses: Mapping[int, float], similarities: Mapping[int, np.ndarray]
) -> list[int]:
    """Return the samples of a gallery, the clearest first.

    By the sum of two ranks: how low the loss is, and how similar to CLIP the nearest
    training image. Either alone misleads: the lowest loss is often an empty image, and
    what is nearest to a training image may be a dim one. Ties keep the order given.

    Args:
        losses: Of every sample, the gallery's order.
        similarities: To all training images, of the samples that have a stored answer.
    """
    nearest = {i: -similarities[i].max() for i in losses if i in similarities}
    table = pd.DataFrame({"loss": pd.Series(losses), "nearest": pd.Series(nearest)})
    ranks = table.rank(method="min", na_option="bottom").sum(axis=1)
    return [int(i) for i in ranks.sort_values(kind="stable").index]


def alike_in_top(
    scores: np.ndarray, labels: pd.DataFrame, own: Mapping[str, str]
) -> dict[str, int]:
    """Return how many of the ten strongest images have its own label, by column.

    Args:
        scores: Of all training images, shape (N,); ties go to the first.
        labels: Their label columns, in the same order.
        own: The labels that count, by column.
    """
    top = labels.iloc[np.argsort(-scores, kind="stable")[:TOP]]
    return {name: int((top[name].astype(str) == own[name]).sum()) for name in own}


def label_share(scores: np.ndarray, labels: pd.DataFrame, own: Mapping) -> float:
    """Return the mean share over label columns of the top ten that have a label.

    The arguments are those of `alike_in_top`.
    """
    counts = alike_in_top(scores, labels, own)
    return float(np.mean([count / min(TOP, len(scores)) for count in counts.values()]))


def first_image(
    order: list[int],
    own: Mapping[int, Mapping],
    labels: pd.DataFrame,
    influence: Mapping[int, np.ndarray],
    similarity: Mapping[int, np.ndarray],
    evidence: Evidence | None = None,
) -> FirstImage:
    """Return the image that opens first.

    Among the clearest, the one whose ten most influential images have its labels more
    often than CLIP's ten do, by the largest margin; of equal ones, the clearer. Where
    models were retrained without its own group, prediction and retraining have to agree
    in sign. Without such an image, the clearest.

    Args:
        order: The samples, the clearest first.
        own: The labels of each sample by column; none for a sample without a class.
        labels: Label columns of the training images.
        influence: Stored scores by influence.
        similarity: Stored scores by CLIP.
        evidence: What was measured by retraining.
    """
    agree = _signs_agree(evidence)
    best = FirstImage(order[0])
    most = 0.0
    for sample in order[:CLEAREST]:
        known = sample in influence and sample in similarity and own.get(sample)
        if not known or not agree.get(sample, True):
            continue
        shares = [
            label_share(scores[sample], labels, own[sample])
            for scores in (influence, similarity)
        ]
        if (margin := round(shares[0] - shares[1], 9)) > most:
            best, most = FirstImage(sample, *shares), margin
    return best


def _signs_agree(evidence: Evidence | None) -> dict[int, bool]:
    """Return for which samples a group's predicted and measured change agree in sign.

    The group is the sample's own; samples of which it is not known are left out.
    """
    if evidence is None:
        return {}
    table = group_table(evidence, "loss")
    table = table[(table["method"] == "ekfac") & (table["share"] > LARGEST)]
    agree = np.sign(table["predicted"]) == np.sign(table["measured"])
    return dict(zip(table["sample_id"].astype(int), agree, strict=True))
