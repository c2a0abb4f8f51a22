"""How do the errors of scores grow? Laws fitted on the folds of a build's gallery.

Every build knows the gallery's scores by each fold of the training draws and by each
fold of a query's draws; what those differ by, `core.scores.errors` makes a law of.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from core.collection.schema import StoredAnswer, lens_key
from core.collection.store import Collection
from core.config import DATA_DIR
from core.explorer.explorer import Explorer, open_explorer
from core.index.sketch import Sketch
from core.lenses import Lens, stored_key
from core.methods import METHODS
from core.scores.error_files import errors_path, read_model, write_model
from core.scores.errors import Asked, ErrorModel, fit_law, fit_sketch, held_out
from core.scores.group_errors import (
    INDEPENDENT,
    fold_contrasts,
    read_training_errors,
    training_errors_path,
)
from core.scores.influence import centred, fold_statistics
from core.scores.stored import FromSketch, Noise
from precompute.machinery.progress import Bar
from precompute.machinery.rows import Rows
from precompute.machinery.workspace import load_tensors, save_tensors
from precompute.stages.fidelity import gallery_part
from precompute.stages.gradients import GradientStage

# Of every build; what was asked again with all draws new comes from `repeats`.
HELD_OUT = "loss, exact; other draws of the training gradients"


def by_fold(rows: Rows, name: str) -> np.ndarray:
    """Return the gallery's scores per fold, shape (F, M, N), float64."""
    return rows.arrays[name].transpose(2, 1, 0).astype(np.float64)


def gallery_answers(
    rows: Rows, asked: list[Asked], model: ErrorModel
) -> tuple[np.ndarray, np.ndarray]:
    """Return centred scores (M, N) of the gallery and their standard errors (M, N).

    Args:
        rows: Every example's results.
        asked: Of every sample.
        model: How errors grow with the scores.
    """
    scores = centred(by_fold(rows, "panel_train").mean(0))
    level, lengths = of_images(rows)
    variance = [
        model.variance(own, one, level, lengths)
        for own, one in zip(scores, asked, strict=True)
    ]
    return scores, np.sqrt(variance)


def of_images(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return the level of noise and the length of every training gradient, (N,)."""
    level, lengths = rows.arrays["level"], rows.arrays["norm"]
    return level.astype(np.float64), lengths.astype(np.float64)


def fit_errors(
    stage: GradientStage,
    queries: Tensor,
    rows: Rows,
    statistics: dict[str, Tensor],
    sketch: Sketch,
) -> tuple[ErrorModel, list[Asked], float]:
    """Return the laws of the errors, what they need of each sample, and a factor.

    The factor is that of observed over expected variance on average, which stands for
    the laws where the file beside the collection is lost.
    """
    scores = centred(by_fold(rows, "panel_train").mean(0))
    level, lengths = of_images(rows)
    asked = gallery_asked(stage, queries, statistics)
    contrasts = fold_contrasts(centred(by_fold(rows, "panel_train")))
    trained = np.square(contrasts).sum(0)
    measured = np.square(fold_statistics(centred(by_fold(rows, "panel_query")))[1])
    base = np.outer([one.spread for one in asked], level)
    own = np.outer([one.noise for one in asked], np.square(lengths))
    relative = np.array([[one.relative] for one in asked])
    size, law = fit_sketch(scores, *gallery_sketch(stage, queries, rows, sketch))
    model = ErrorModel(
        fit_law(scores, base, trained),
        fit_law(scores, own, measured, relative),
        law,
        size,
        stood_held_out(scores, base, contrasts),
    )
    return model, asked, float(trained.mean() / base.mean())


def stood_held_out(scores: np.ndarray, base: np.ndarray, contrasts: np.ndarray) -> dict:
    """Return what is kept of `held_out`, whose arguments these are."""
    found = held_out(scores, base, contrasts)
    return {"kinds": {HELD_OUT: found} if found else {}}


def gallery_sketch(
    stage: GradientStage, queries: Tensor, rows: Rows, sketch: Sketch
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gallery's centred scores by the sketch, and `FromSketch.base` of each.

    Both have the shape (M, N).
    """
    damped = stage.curvature.eigenvalues.cpu() + stage.damping
    bits, scales = (np.array(rows.arrays[name]) for name in ("bits", "scale"))
    form = FromSketch(sketch, bits, scales, damped.sqrt(), of_images(rows)[1])
    vectors = queries.mean(1).cpu() / damped
    base = np.stack([form.base(vector) for vector in vectors])
    return centred(form.products(vectors)), base


def error_agreement(rows: Rows, errors: np.ndarray) -> float:
    """Return how the order of errors (M, N) agrees with that of the folds' spread."""
    _, observed = fold_statistics(centred(by_fold(rows, "panel_train")))
    squares = np.square(observed).mean(0), np.square(errors).mean(0)
    return float(spearmanr(*squares).statistic)


def gallery_asked(
    stage: GradientStage, queries: Tensor, statistics: dict[str, Tensor]
) -> list[Asked]:
    """Return what of each sample decides its errors.

    In float32 the last bit of so long a sum would depend on the number of threads.
    """
    damped = stage.curvature.eigenvalues.cpu() + stage.damping
    noise = Noise(
        statistics["noise"].double().sqrt(), damped.double().sqrt(), None, None, None
    )
    return [noise.asked(folds.cpu().double() / damped) for folds in queries]


# --- a collection that was built before there were laws -------------------------------


def tell_errors(root: Path, name: str, work: Path | None = None) -> Path:
    """Write the laws of a published collection beside it, without new gradients of it.

    What the build left is enough: the gallery's scores, and how the folds of the
    training gradients differed on them. Part of the gallery is asked again, for what
    the query's draws and the sketch leave. Resumable.

    Args:
        root: Folder of the published collections.
        name: Of the collection.
        work: Folder of unfinished work; None for `data/work`.

    Returns:
        The file; one that is there is left as it is, with what repeats told since.

    Raises:
        LookupError: If how the training gradients' folds differed is not recorded.
    """
    explorer = open_explorer(name, root)
    path = errors_path(root, explorer.config)
    if read_model(path) is not None:
        explorer.close()
        return path
    collection, scoring = explorer.engine.collection, explorer.engine.scoring
    together = read_training_errors(
        training_errors_path(root, explorer.config), explorer.num_examples
    )
    if together is None:
        raise LookupError(INDEPENDENT)
    folder = (work or DATA_DIR / "work") / name / f"errors-{explorer.fingerprint[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    samples = sorted(map(int, explorer.gallery.index))
    stored = OldErrors(collection)
    answers = [collection.answer(sample, stored_key(Lens())) for sample in samples]
    scores = np.stack([answer.scores for answer in answers])
    written = np.stack([stored.parts(answer) for answer in answers])
    noise, spread = scoring.noise, written[:, 0]
    contrasts = together.reshape(-1, *scores.shape)
    contrasts = contrasts * (np.sqrt(spread * len(samples)))[:, None]
    base = np.outer(spread, noise.level)
    some = gallery_part(len(samples))
    asked = [
        asked_again(explorer, samples[place], folder) for place in Bar(some, "queries")
    ]
    own = np.outer([one.asked.noise for one in asked], np.square(noise.lengths))
    relative = np.array([[one.asked.relative] for one in asked])
    measured = np.stack([one.squares for one in asked])
    sketched = (
        np.stack([getattr(one, what) for one in asked]) for what in ("products", "base")
    )
    size, law = fit_sketch(scores[some], *sketched)
    noises = [one.asked.noise for one in asked] / written[some, 1]
    lengths = [one.asked.noise / one.asked.relative for one in asked] / spread[some]
    found = np.median(noises), np.median(lengths)
    model = ErrorModel(
        fit_law(scores, base, np.square(contrasts).sum(0)),
        fit_law(scores[some], own, measured, relative),
        law,
        size,
        stood_held_out(scores, base, contrasts),
        answers={
            lens_key(lens): {
                str(sample): stored.asked(collection.answer(sample, lens), *found)
                for sample in samples
            }
            for lens in collection.lenses(samples[0])
            if METHODS[lens["method"]].has_errors
        },
    )
    write_model(path, model)
    explorer.close()
    return path


class OldErrors:
    """What the errors say that builds of before there were laws wrote.

    Their variance was a calibrated spread times the level of an image, plus a number
    times its squared length: both can be read off again, to the last digit.
    """

    def __init__(self, collection: Collection):
        """Read levels and lengths of a collection's training gradients."""
        level, lengths = map(collection.array, ("noise_level", "whitened_norm"))
        self._images = np.stack([level, np.square(lengths.astype(np.float64))], 1)
        self._calibration = collection.meta("noise_calibration")

    def parts(self, answer: StoredAnswer) -> np.ndarray:
        """Return spread, and variance by the query's draws per squared length, (2,).

        Raises:
            ValueError: If the errors were not written like that.
        """
        scale = self._images.mean(0)
        variance = np.square(answer.standard_errors)
        found, *_ = np.linalg.lstsq(self._images / scale, variance, rcond=None)
        if not np.allclose(self._images @ (found / scale), variance, rtol=1e-3):
            raise ValueError(
                "The stored errors are not a sum of two parts, as builds from before "
                "the laws wrote them, so they cannot be read off. Build the collection "
                "again."
            )
        return np.maximum(found / scale / [self._calibration, 1], 0)

    def asked(self, answer: StoredAnswer, noise: float, length: float) -> Asked:
        """Return what decides an answer's errors.

        Args:
            answer: As stored.
            noise: What `Asked.noise` is of that variance, on samples that were asked.
            length: What a query's squared length, per coordinate, is of its spread.
        """
        spread, pooled = self.parts(answer).tolist()
        if pooled * self._images[:, 1].mean() < 1e-6 * spread * self._calibration:
            return Asked(spread)  # it took no draws: what is left is rounding
        return Asked(spread, pooled * noise, pooled * noise / (spread * length))


@dataclass(frozen=True)
class AskedAgain:
    """What a sample's question leaves open.

    Attributes:
        asked: What of it decides its errors.
        squares: Variance of its scores by the folds of its draws, less what the sketch
            adds to that, shape (N,).
        products: Its centred scores by the sketch, uncorrected, shape (N,).
        base: `FromSketch.base` of it, shape (N,).
    """

    asked: Asked
    squares: np.ndarray
    products: np.ndarray
    base: np.ndarray


def asked_again(explorer: Explorer, sample: int, folder: Path) -> AskedAgain:
    """Return what a sample's question leaves open; from a file if asked before."""
    path = folder / f"{sample}.safetensors"
    if not path.exists():
        draws = explorer.config.samples.num_draws
        scoring, query = explorer.engine.scoring, explorer.query_from_gallery(sample)
        asked = Lens(num_draws=draws)
        (measured,) = explorer.engine.gradients(query, asked)
        vectors = scoring.preconditioned(measured.folds, asked)
        form = replace(scoring.sketched, size=1.0)
        by_fold = centred(form.products(vectors).astype(np.float64))
        apart = (vectors - vectors.mean(0)) / (len(vectors) - 1) ** 0.5
        squares = np.square(fold_statistics(by_fold)[1])
        squares -= sum(map(form.base, apart)) / len(vectors)
        tensors = {
            "squares": squares,
            "products": by_fold.mean(0),
            "base": form.base(vectors.mean(0)),
        }
        tensors = {key: torch.from_numpy(value) for key, value in tensors.items()}
        save_tensors(path, tensors, **asdict(scoring.noise.asked(vectors)))
    tensors, facts = load_tensors(path)
    return AskedAgain(
        Asked(**facts), **{key: value.numpy() for key, value in tensors.items()}
    )
