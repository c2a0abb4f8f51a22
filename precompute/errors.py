"""How do the errors of scores grow? Laws fitted on the folds of a build's gallery.

Every build knows the gallery's scores by each fold of the training draws and by each
fold of a query's draws; what those differ by, `core.errors` makes a law of.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from core.config import DATA_DIR
from core.errors import (
    Asked,
    ErrorModel,
    errors_path,
    fit_law,
    fit_sketch,
    write_model,
)
from core.explorer import Explorer, open_explorer
from core.group_errors import (
    INDEPENDENT,
    read_training_errors,
    training_errors_path,
)
from core.influence import centred, fold_statistics
from core.lenses import METHODS, Lens, stored_key
from core.scoring import FromSketch, Noise
from core.sketch import Sketch
from core.store import Collection, lens_key
from precompute.gradients import GradientStage, Rows
from precompute.progress import Bar
from precompute.workspace import load_tensors, save_tensors


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
    trained, measured = (
        np.square(fold_statistics(centred(by_fold(rows, name)))[1])
        for name in ("panel_train", "panel_query")
    )
    base = np.outer([one.spread for one in asked], level)
    own = np.outer([one.noise for one in asked], np.square(lengths))
    relative = np.array([[one.relative] for one in asked])
    size, law = fit_sketch(scores, *gallery_sketch(stage, queries, rows, sketch))
    model = ErrorModel(
        fit_law(scores, base, trained),
        fit_law(scores, own, measured, relative),
        law,
        size,
    )
    return model, asked, float(trained.mean() / base.mean())


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
    training gradients differed on them. The gallery is asked again, for what the
    query's draws and the sketch leave. Resumable.

    Args:
        root: Folder of the published collections.
        name: Of the collection.
        work: Folder of unfinished work; None for `data/work`.

    Returns:
        The file.

    Raises:
        LookupError: If how the training gradients' folds differed is not recorded.
    """
    explorer = open_explorer(name, root)
    collection, scoring = explorer.engine.collection, explorer.engine.scoring
    together = read_training_errors(
        training_errors_path(root, explorer.config), explorer.num_examples
    )
    if together is None:
        raise LookupError(INDEPENDENT)
    folder = (work or DATA_DIR / "work") / name / f"errors-{explorer.fingerprint[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    samples = sorted(map(int, explorer.gallery.index))
    lenses = [
        Lens(lens["method"], lens["measurement"])
        for lens in collection.lenses(samples[0])
        if METHODS[lens["method"]].has_errors
    ]
    found = {
        lens: [
            asked_again(explorer, sample, lens, folder)
            for sample in Bar(samples, lens.measurement)
        ]
        for lens in lenses
        if lens.measurement != "trajectory"
    }
    first = found[Lens()]
    scores = np.stack([
        collection.answer(sample, stored_key(Lens())).scores for sample in samples
    ])
    spread = np.array([one.asked.spread for one in first])
    contrasts = together.reshape(-1, *scores.shape)
    trained = np.square(contrasts).sum(0) * (spread * len(samples))[:, None]
    noise = scoring.noise
    own = np.outer([one.asked.noise for one in first], np.square(noise.lengths))
    relative = np.array([[one.asked.relative] for one in first])
    products = np.stack([one.products for one in first])
    size, law = fit_sketch(scores, products, np.stack([one.base for one in first]))
    model = ErrorModel(
        fit_law(scores, np.outer(spread, noise.level), trained),
        fit_law(scores, own, np.stack([one.squares for one in first]), relative),
        law,
        size,
        answers={
            lens_key(stored_key(lens)): {
                str(sample): one.asked
                for sample, one in zip(samples, some, strict=True)
            }
            for lens, some in found.items()
        },
    )
    path = errors_path(root, explorer.config)
    write_model(path, model)
    explorer.close()
    return path


def without_draws(collection: Collection, sample: int, lens: Lens) -> Asked:
    """Return what decides the errors of a stored answer that took no draws.

    Its errors were of the training draws alone, in proportion to the images' levels.
    """
    level = collection.array("noise_level").astype(np.float64)
    errors = collection.answer(sample, stored_key(lens)).standard_errors
    size = float(np.median(np.square(errors) / level))
    return Asked(size / collection.meta("noise_calibration"))


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


def asked_again(
    explorer: Explorer, sample: int, lens: Lens, folder: Path
) -> AskedAgain:
    """Return what a sample's question leaves open; from a file if asked before."""
    path = folder / f"{sample}-{lens.measurement}.safetensors"
    if not path.exists():
        draws = explorer.provenance["settings"]["samples"]["num_draws"]
        scoring, query = explorer.engine.scoring, explorer.query_from_gallery(sample)
        asked = replace(lens, num_draws=draws)
        (measured,) = explorer.engine.gradients(query, asked)
        vectors = scoring.preconditioned(measured.folds, asked)
        form = replace(scoring.sketched, size=1.0)
        by_fold = centred(form.products(vectors).astype(np.float64))
        squares = np.zeros(explorer.num_examples)
        if len(vectors) > 1:
            squares = np.square(fold_statistics(by_fold)[1])
            apart = (vectors - vectors.mean(0)) / (len(vectors) - 1) ** 0.5
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
