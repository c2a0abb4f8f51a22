"""Twins: models trained again without a group of images, kept to be asked anything.

Retraining measures the gallery once; a twin also answers about an image that is new. A
folder `NAME-twins-FINGERPRINT` beside the collection holds a model without each group,
models without a random group as large (their null), and one of every image where the
full model is not that one already: it is with draws that all share
(`train.common_draws`).

Knows the files' headers; no model.
"""

from dataclasses import dataclass
from pathlib import Path

from core.config import CollectionConfig
from core.evidence.left_out import control_share
from core.evidence.stored import NOTHING, RANDOM
from core.files.tensor_files import read_header
from core.files.whole import Damaged


@dataclass(frozen=True)
class Twin:
    """A model that was trained like the full one, without some of the images.

    Attributes:
        group: The name of the group that it never saw (`core.evidence.left_out`),
            `RANDOM` for a random one, `NOTHING` for a model of every image.
        share: Of the images that it never saw.
        number: Which of the random ones.
        path: Its file.
    """

    group: str
    share: float
    number: int
    path: Path


def twins_folder(root: Path, config: CollectionConfig) -> Path:
    """Return where the twins of a collection's model lie, beside the collection."""
    return root / f"{config.name}-twins-{config.fingerprint('data', 'model', 'train')}"


def find_twins(folder: Path) -> list[Twin]:
    """Return the twins in a folder.

    Those without a group come first, by name; then those without a random group; then
    that of every image. Files that are not whole, or not made by `retrain --without`,
    are left out.
    """
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            why = read_header(path)["facts"]["removed"]
            group, share, number = why["method"], why["fraction"], why["about"]
            found.append(Twin(str(group), float(share), int(number), path))
        except (Damaged, KeyError, TypeError, ValueError):
            continue
    last = {RANDOM: 1, NOTHING: 2}
    return sorted(
        found, key=lambda one: (last.get(one.group, 0), one.group, one.number)
    )


def nulls_of(twin: Twin, twins: list[Twin]) -> list[Twin]:
    """Return the models without a random group as large as that of a twin."""
    size = control_share(twin.share)
    return [one for one in twins if one.group == RANDOM and one.share == size]
