"""Methods that read features, at every damping and number of features and draws.

`precompute methods --dim --draws` makes a file for each number of features and draws.
The app reads the strongest; here all of them are asked, all samples at once, since the
inverse is what takes time. Two halves of the features say what projecting leaves of
error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pkgutil import resolve_name

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from core.explorer.explorer import Explorer, Query
from core.lenses import Lens
from core.methods import METHODS
from core.scores.influence import centred, split_reliability
from core.scores.method_files import MethodFile, method_files
from precompute.machinery.progress import Bar
from precompute.retraining.asked import (
    Asked,
    asked_measurements,
    feature_dampings,
    swept,
)

USUAL = ""  # the variant that the app reads


@dataclass(frozen=True)
class Strength:
    """A method with one of its files.

    Attributes:
        method: Its name.
        file: The features of all training images.
        variant: What to call it in place of the app's; `USUAL` for the app's.
    """

    method: str
    file: MethodFile
    variant: str

    def dampings(self) -> dict[str, float]:
        """Return the method's own damping and the mean eigenvalue; {} without one."""
        if not METHODS[self.method].damped:
            return {}
        return feature_dampings(self.file.features)

    def facts(self) -> dict:
        """Return how strong it is: plain values."""
        settings, facts = self.file.facts["settings"]["method"], self.file.facts
        found = {"features": settings["dim"], "projection": settings["projection"]}
        return found | {"draws": facts["draws"]} | self.dampings()

    def queries(self, explorer: Explorer, queries: list[Query], lens: Lens) -> Tensor:
        """Return the features of queries, shape (Q, k)."""
        means = []
        for query in queries:
            (measured,) = explorer.engine.gradients(query, lens)
            means.append(measured.folds.mean(0))
        layout = explorer.engine.basis.layout
        return self.file.query_features(torch.stack(means), layout)

    def scores(self, features: Tensor, damping: float | None) -> np.ndarray:
        """Return scores (Q, N) of query features (Q, k)."""
        facts = METHODS[self.method]
        rows = resolve_name(facts.scores)(features, self.file, damping)
        rows = rows.double().numpy()
        return centred(rows) if facts.centred else rows

    def agreement(self, features: Tensor) -> float:
        """Return how alike two halves of the features order the images (Spearman).

        Each half is a projection of its own. Times the root of two its inner products
        are as large as those of the whole, so that one damping serves both.
        """
        damping = self.dampings().get("own")
        first, second = (
            replace(self, file=half).scores(features[:, columns] * 2**0.5, damping)
            for columns, half in halves(self.file, features.shape[1])
        )
        return split_reliability(first, second)


def halves(file: MethodFile, dim: int) -> Iterator[tuple[slice, MethodFile]]:
    """Yield (columns, file) of the first and the second half of a file's features."""
    middle = dim // 16 * 8  # signs are packed, eight to a byte
    for columns in (slice(0, middle), slice(middle, 2 * middle)):
        if "signs" in file.tensors:
            bytes_of = slice(columns.start // 8, columns.stop // 8)
            part = {"signs": file.tensors["signs"][:, bytes_of].contiguous()}
        else:
            part = {"codes": file.tensors["codes"][:, columns].contiguous()}
        part["scale"] = file.tensors["scale"] * 2**0.5
        yield columns, replace(file, tensors=file.tensors | part)


def strengths(explorer: Explorer) -> list[Strength]:
    """Return every file of features there is, the app's of each method first."""
    found = []
    for method, facts in METHODS.items():
        if facts.reads != "features":
            continue
        try:
            files = method_files(explorer.engine.collection, method)
        except LookupError:  # was not made
            continue
        for number, file in enumerate(files):
            dim, draws = file.facts["settings"]["method"]["dim"], file.facts["draws"]
            name = f"{dim:,} features, {draws} draws" if number else USUAL
            found.append(Strength(method, file, name))
    return found


def feature_rows(
    explorer: Explorer, queries: list[Query]
) -> tuple[pd.DataFrame, dict[str, dict]]:
    """Return scores of all methods that read features, and how strong each file is.

    Args:
        explorer: The collection.
        queries: The samples, in the order of their ids.

    Returns:
        The columns of `Evidence.scores` (without what the app itself answers), and for
        each method facts by variant.
    """
    tables, known = [], {}
    for one in Bar(strengths(explorer), "features"):
        facts = one.facts()
        known.setdefault(one.method, {})[one.variant] = facts
        for measurement in asked_measurements(one.method):
            lens = Lens(one.method, measurement)
            features = one.queries(explorer, queries, lens)
            if "halves_agree" not in facts:
                facts["halves_agree"] = one.agreement(features)
            for damping in [None, *swept(one.method, one.dampings())]:
                if (one.variant, damping) == (USUAL, None):
                    continue
                record = Asked(replace(lens, damping=damping), one.variant).record()
                rows = one.scores(features, damping).astype(np.float32)
                # Undamped, features that outnumber the images explain each image by
                # itself, and DAS divides nothing by nothing.
                if damping is not None and not np.isfinite(rows).all():
                    continue
                table = pd.DataFrame({"sample_id": range(len(rows))})
                named = record | {"source": "projection", "mean": np.nan}
                tables.append(table.assign(**named, scores=list(rows)))
    empty = pd.DataFrame(columns=[*Asked(Lens()).record(), "sample_id", "scores"])
    return pd.concat(tables, ignore_index=True) if tables else empty, known
