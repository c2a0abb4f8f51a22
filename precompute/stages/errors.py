"""How do the errors of scores grow? Laws fitted on the folds of a build's gallery.

Every build knows the gallery's scores by each fold of the training draws and by each
fold of a query's draws; what those differ by, `core.scores.errors` makes a law of.
"""

from contextlib import closing
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from torch import Tensor

from core.explorer.explorer import open_explorer
from core.index.sketch import Sketch
from core.scores.error_files import errors_path
from core.scores.errors import Asked, ErrorModel, fit_law, fit_sketch, held_out
from core.scores.group_errors import fold_contrasts
from core.scores.influence import centred, fold_statistics
from core.scores.stored import FromSketch, Noise
from precompute.machinery.rows import Rows
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
        model.variance(row, one, level, lengths)
        for row, one in zip(scores, asked, strict=True)
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
    by_query = np.outer([one.noise for one in asked], np.square(lengths))
    relative = np.array([[one.relative] for one in asked])
    size, law = fit_sketch(scores, *gallery_sketch(stage, queries, rows, sketch))
    kept = held_out(scores, base, contrasts)
    model = ErrorModel(
        fit_law(scores, base, trained),
        fit_law(scores, by_query, measured, relative),
        law,
        size,
        {"kinds": {HELD_OUT: kept} if kept else {}},
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


def laws_of(root: Path, name: str) -> Path:
    """Return the file of a collection's laws, which a build leaves beside it.

    Raises:
        LookupError: If it did not come along.
    """
    with closing(open_explorer(name, root)) as explorer:
        path = errors_path(root, explorer.config)
    if not path.exists():
        raise LookupError(
            f"'{path.name}' is not beside the collection. Get it from where the "
            "collection came, or build the collection again."
        )
    return path
