"""From the gradient of a query to scores of all training examples, with their errors.

Everything is in the main Kronecker eigenbasis, a rotation, so inner products, norms and
projections are those of the plain gradients. An influence is the inner product of Eq.
6: of a preconditioned query gradient with a training gradient. Training gradients are
read from the full index, or estimated from the sketch or from the projections that
other methods are made of; all serve any preconditioner. What is a method's own says
its entry in `core.methods`. Knows nothing of images: what is measured came before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pkgutil import resolve_name

import numpy as np
import torch
from torch import Tensor

from core.collection.store import Collection
from core.config import config_from_dict
from core.curvature.basis import (
    Curvature,
    Eigenbasis,
    kfac_eigenvalues,
    precondition,
)
from core.index.sketch import collection_sketch
from core.lenses import Lens
from core.methods import METHODS
from core.scores.beside import open_index
from core.scores.error_files import errors_path, read_model
from core.scores.errors import ErrorModel, question_kind, typical_model
from core.scores.influence import centred
from core.scores.method_files import load_method
from core.scores.stored import (
    FromFeatures,
    FromIndex,
    FromSketch,
    Noise,
    TrainingGradients,
)


@dataclass(frozen=True)
class Scores:
    """Scores of all training examples.

    Attributes:
        scores: Shape (N,), float64.
        standard_errors: Shape (N,), float64, NaN where there is none.
        source: Where they come from, in words.
        value: The measured cost of the query; NaN where none was measured.
        value_error: Its standard error, NaN where there is none.
    """

    scores: np.ndarray
    standard_errors: np.ndarray
    source: str
    value: float = float("nan")
    value_error: float = float("nan")

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Scores":
        """Return scores and errors changed alike."""
        return Scores(change(self.scores), change(self.standard_errors), self.source)


def linear_scores(
    folds: list[Tensor],
    gradients: TrainingGradients,
    noise: Noise,
    on_rows: Callable[[int, int], None] | None = None,
    about_mean: bool = True,
) -> list[Scores]:
    """Return inner products with all training gradients, and their standard errors.

    The training gradients are read once for all queries. The error adds three variances
    (`core.scores.errors`): of the training draws, of the query's draws, and of the
    short form, where one is used.

    Args:
        folds: Per query, preconditioned gradients, shape (F, P), float32.
        gradients: The training gradients.
        noise: Of both kinds of draws.
        on_rows: Called with (examples done, examples in all), then with (queries done,
            queries in all); may raise to stop.
        about_mean: Whether they are centred, see `core.scores.influence.centred`.
    """
    means = torch.stack([one.mean(0) for one in folds])
    products = gradients.products(means, on_rows).astype(np.float64)
    if about_mean:
        products = centred(products)
    found = []
    for one, mean, own in zip(folds, means, products, strict=True):
        law = noise.variance(one, own) + gradients.variance(mean, own)
        variance = noise.repeated(law, own, gradients.source)
        found.append(Scores(own, np.sqrt(variance), gradients.source))
        if on_rows is not None:
            on_rows(len(found), len(folds))
    return found


class Scoring:
    """All that turns query gradients of one collection into scores.

    Args:
        collection: An open collection.
        basis: Its main eigenbasis, on the device that computes.
    """

    def __init__(self, collection: Collection, basis: Eigenbasis):
        self.collection, self.basis = collection, basis
        self.device = basis.input_eigenvectors[0].device
        self.settings = collection.meta("settings")
        self.own_damping = float(collection.meta("damping"))
        # Files are read once: they do not change while a collection is open.
        self.method_file = cache(lambda method: load_method(collection, method))
        self._curvature = cache(self._read_curvature)

    @cached_property
    def eigenvalues(self) -> dict[str, Tensor]:
        """Eigenvalues (P,) in the main eigenbasis, of EK-FAC and of K-FAC."""
        columns, rows = (
            torch.from_numpy(self.collection.array(f"kfac_{side}_eigenvalues"))
            for side in ("gradient", "input")
        )
        return {
            "ekfac": torch.from_numpy(self.collection.array("eigenvalues")),
            "kfac": kfac_eigenvalues(self.basis.layout, columns, rows),
        }

    @cached_property
    def whitening(self) -> Tensor:
        """What the stored sketches and noise levels were divided by, shape (P,)."""
        return (self.eigenvalues["ekfac"] + self.own_damping).sqrt()

    @cached_property
    def noise(self) -> Noise:
        """What draws leave of noise in scores."""
        whitened = torch.from_numpy(self.collection.array("whitened_noise")).float()
        return Noise(
            whitened * self.whitening,
            self.whitening,
            self.collection.array("noise_level").astype(np.float64),
            self.whitened_norms,
            self.error_model,
        )

    @cached_property
    def error_model(self) -> ErrorModel:
        """How errors grow with the scores, as far as the collection says."""
        config = config_from_dict(self.settings)
        found = read_model(errors_path(self.collection.path.parent, config))
        return found or typical_model(self.collection.meta("noise_calibration"))

    @cached_property
    def whitened_norms(self) -> np.ndarray:
        """Lengths of the whitened training gradients, shape (N,), float64."""
        return self.collection.array("whitened_norm").astype(np.float64)

    @cached_property
    def sketched(self) -> FromSketch:
        """The training gradients that travel inside the collection.

        Raises:
            ValueError: If this program draws other random numbers than the one that
                made the collection.
        """
        facts = self.collection.meta("sketch")
        num_params = self.basis.layout.num_params
        sketch = collection_sketch(self.settings["seed"], num_params, facts["dim"])
        if sketch.checksum() != facts["checksum"]:
            raise ValueError(
                "This version of torch draws other random numbers than the one that "
                f"made the collection: sketch {sketch.checksum()} here, "
                f"{facts['checksum']} there. Build the collection again."
            )
        return FromSketch(
            sketch,
            self.collection.array("sketch_bits"),
            self.collection.array("sketch_scale"),
            self.whitening,
            self.whitened_norms,
            self.error_model.sketch_size,
            self.error_model.sketch,
        )

    @cached_property
    def indexed(self) -> FromIndex | None:
        """The full index, or None; errors of `open_index` pass through."""
        index = open_index(self.collection, self.basis.layout.num_params)
        return None if index is None else FromIndex(index, self.device)

    def require(self, lens: Lens) -> None:
        """Open what a lens is answered with, before anything is measured for it.

        What did not come along raises a LookupError that says how to make it.
        """
        method = METHODS[lens.method]
        if method.file is not None and method.file_required:
            self.method_file(lens.method)
        if method.reads == "gradients":
            self.gradients(lens)

    def gradients(self, lens: Lens) -> TrainingGradients:
        """Return the training gradients that a lens is answered with.

        Raises:
            LookupError: If the full index is asked for and is not there.
        """
        if lens.form == "full":
            if self.indexed is None:
                raise LookupError(
                    "The full index did not come with this collection. Ask with the "
                    "sketch, or build the collection here: `python -m precompute "
                    "build`."
                )
            return self.indexed
        # The sketch is of whitened gradients: good for influence, poor without
        # curvature.
        method = METHODS[lens.method]
        if lens.form == "auto" and method.file and method.preconditioner is None:
            try:
                return FromFeatures(self.method_file(lens.method))
            except LookupError:
                return self.sketched
        return self.sketched

    def preconditioned(self, folds: Tensor, lens: Lens) -> Tensor:
        """Return what Eq. 6 multiplies with a training gradient, shape (F, P)."""
        method = METHODS[lens.method]
        if method.preconditioner is None:
            return folds
        if method.file is None:
            damping = self.own_damping if lens.damping is None else lens.damping
            return precondition(folds, self.eigenvalues[method.preconditioner], damping)
        # Another curvature has an eigenbasis of its own.
        curvature, damping = self._curvature(lens.method), lens.damping
        if damping is None:
            relative = self.settings["gradients"]["relative_damping"]
            damping = relative * float(curvature.eigenvalues.double().mean())
        return curvature.solve_in(self.basis, folds.to(self.device), damping).cpu()

    def _read_curvature(self, method: str) -> Curvature:
        kind = METHODS[method].preconditioner
        found = self.method_file(method).curvature(self.basis.layout, kind)
        return Curvature(found.basis.to(self.device), found.eigenvalues.to(self.device))

    def scores(
        self,
        lens: Lens,
        folds: list[Tensor],
        on_rows: Callable[[int, int], None] | None = None,
    ) -> list[Scores]:
        """Return the scores of all training examples for several query gradients.

        Args:
            lens: How to score; the gradients are of its measurement.
            folds: Per query, gradients in the main eigenbasis, shape (F, P).
            on_rows: Called with (examples done, examples in all); may raise to stop.
        """
        method = METHODS[lens.method]
        if method.reads == "features":
            means = torch.stack([one.mean(0) for one in folds])
            file = self.method_file(lens.method)
            rows = self.feature_scores(
                lens, file.query_features(means, self.basis.layout)
            )
            return [without_errors(row) for row in rows]
        found = linear_scores(
            [self.preconditioned(one, lens) for one in folds],
            self.gradients(lens),
            replace(self.noise, kind=question_kind(lens)),
            on_rows,
            method.centred,
        )
        if method.scores is None:
            return found
        change = resolve_name(method.scores)
        return [
            scores.each(partial(change, folds=one, scoring=self))
            for scores, one in zip(found, folds, strict=True)
        ]

    def feature_scores(self, lens: Lens, features: Tensor) -> np.ndarray:
        """Return scores (Q, N) of query features (Q, k), by the lens's method."""
        method, file = METHODS[lens.method], self.method_file(lens.method)
        scores = resolve_name(method.scores)(features, file, lens.damping)
        rows = scores.double().numpy()
        return centred(rows) if method.centred else rows


def without_errors(row: np.ndarray, source: str = FromFeatures.source) -> Scores:
    """Return scores (N,) that have no standard errors."""
    return Scores(row, np.full(len(row), np.nan), source)
