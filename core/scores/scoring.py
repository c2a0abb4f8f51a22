"""From the gradient of a query to scores of all training examples, with their errors.

Everything is in the main Kronecker eigenbasis, a rotation, so inner products, norms and
projections are those of the plain gradients. An influence is the inner product of Eq.
6: of a preconditioned query gradient with a training gradient. Training gradients are
read from the full index, or estimated from the sketch or from the projections that
other methods are made of; all serve any preconditioner. Methods from other papers go
through `core.scores.baselines`. Knows nothing of pictures: what is measured came
before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from core.collection.store import Collection
from core.config import config_from_dict
from core.curvature.basis import Curvature, Eigenbasis, kfac_eigenvalues
from core.index.sketch import collection_sketch
from core.lenses import Lens
from core.scores.baselines import (
    cosine_scores,
    das_scores,
    datainf_scores,
    preconditioned,
    relatif_scores,
    trak_damping,
    trak_scores,
)
from core.scores.beside import open_index
from core.scores.errors import (
    ErrorModel,
    errors_path,
    read_model,
    typical_model,
)
from core.scores.influence import centred
from core.scores.method_files import FILE_OF, load_method
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
    """

    scores: np.ndarray
    standard_errors: np.ndarray
    source: str

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
        variance = noise.variance(one, own) + gradients.variance(mean, own)
        found.append(Scores(own, np.sqrt(variance), gradients.source))
        if on_rows is not None:
            on_rows(len(found), len(folds))
    return found


BY_FEATURES = ("trak", "d-trak", "datainf", "das")  # of whole queries, not of folds


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
        if lens.method in FILE_OF and lens.method != "gradient":
            self.method_file(lens.method)
        if lens.method not in BY_FEATURES:
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
        if lens.form == "auto" and lens.method in ("gradient", "cosine"):
            try:
                return FromFeatures(self.method_file(lens.method))
            except LookupError:
                return self.sketched
        return self.sketched

    def preconditioned(self, folds: Tensor, lens: Lens) -> Tensor:
        """Return what Eq. 6 multiplies with a training gradient, shape (F, P)."""
        kind = lens.method.removesuffix("-reduce").removesuffix("-fisher")
        if lens.method in ("gradient", "cosine"):
            return folds
        if kind != lens.method:
            return self._elsewhere(folds, lens, kind)
        values = self.eigenvalues["ekfac" if kind == "relatif" else kind]
        damping = self.own_damping if lens.damping is None else lens.damping
        return folds / (values + damping)

    def _elsewhere(self, folds: Tensor, lens: Lens, kind: str) -> Tensor:
        """Return gradients preconditioned by a curvature with another eigenbasis."""
        curvature = self._curvature(lens.method, kind)
        damping = lens.damping
        if damping is None:
            relative = self.settings["gradients"]["relative_damping"]
            damping = relative * float(curvature.eigenvalues.double().mean())
        return preconditioned(
            folds.to(self.device), self.basis, curvature, damping
        ).cpu()

    def _read_curvature(self, method: str, kind: str) -> Curvature:
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
        if lens.method in BY_FEATURES:
            means = torch.stack([one.mean(0) for one in folds])
            file = self.method_file(lens.method)
            rows = self.feature_scores(
                lens, file.query_features(means, self.basis.layout)
            )
            nothing = np.full(rows.shape[1], np.nan)
            return [Scores(row, nothing, FromFeatures.source) for row in rows]
        about_mean = lens.method != "cosine"  # its zero means something
        found = linear_scores(
            [self.preconditioned(one, lens) for one in folds],
            self.gradients(lens),
            self.noise,
            on_rows,
            about_mean,
        )
        return [
            self._normalised(lens, scores, one)
            for scores, one in zip(found, folds, strict=True)
        ]

    def feature_scores(self, lens: Lens, features: Tensor) -> np.ndarray:
        """Return scores (Q, N) of query features (Q, k), by the lens's method."""
        file = self.method_file(lens.method)
        if lens.method == "datainf":
            return centred(datainf_scores(features, file.features).double().numpy())
        damping = lens.damping or trak_damping(file.features)
        if lens.method == "das":  # never negative: zero means something
            residuals = file.tensors["residual"]
            return (
                das_scores(features, file.features, residuals, damping).double().numpy()
            )
        return centred(trak_scores(features, file.features, damping).double().numpy())

    def _normalised(self, lens: Lens, scores: Scores, folds: Tensor) -> Scores:
        """Return what RelatIF and the cosine make of inner products."""
        if lens.method == "relatif":
            return scores.each(lambda v: relatif_scores(v, self.whitened_norms))
        if lens.method == "cosine":
            norms = FromFeatures(self.method_file("cosine")).norms
            length = np.array([float(folds.mean(0).norm())])
            return scores.each(lambda v: cosine_scores(v[None], length, norms)[0])
        return scores
