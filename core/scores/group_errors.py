"""Where the scores of one query are uncertain, so that sums over groups have errors.

How large the error of each score is, the answer says (`core.scores.errors`); here is
how the errors of several go together. Three causes, each as rows of
`core.answers.Uncertainty`, which are scaled to the errors of the answer. The query's
draws: its scores by each fold of them. Compression: its scores by each part of the
sketch. The training draws: how the folds of the training gradients differed on the
gallery's queries, which `build` leaves in a small file beside the collection, because
the folds themselves are twice as large as the full index. Of draws that all images
share, images that are alike have like errors. On 1,350 Glyphs images and the 64
samples of the gallery, each left out in turn, two standard errors held 94 to 95 of a
hundred sums over houses and subjects; taken as independent they held 47 to 74.
"""

from pathlib import Path

import numpy as np
import torch
from scipy.linalg import helmert
from torch import Tensor

from core.answers import Uncertainty
from core.collection.schema import build_command
from core.config import CollectionConfig, config_from_dict
from core.files.tensor_files import read_tensors, write_tensors
from core.files.whole import Damaged
from core.lenses import Lens
from core.methods import METHODS
from core.scores.influence import centred
from core.scores.scoring import Scores, Scoring

CENTRINGS = 20  # after which sizes and sums agree to a thousandth

INDEPENDENT = (
    "How the errors of like images go together is not recorded for this collection, "
    "so they count as independent and ± is too small for a group of like images. "
    "Build the collection again to record it."
)


def fold_contrasts(fold_scores: np.ndarray) -> np.ndarray:
    """Return the F - 1 independent causes of error of a mean over F folds.

    Squared and summed, a group's sums over them are the variance of its mean over the
    folds: the sum of (its sum by one fold - the mean)^2 over F (F - 1).

    Args:
        fold_scores: Scores by each fold of the draws, shape (F, ..., N).

    Returns:
        Shape (F - 1, ..., N); empty for a single fold, which has no spread.
    """
    num_folds = len(fold_scores)
    if num_folds < 2:
        return fold_scores[:0]
    turned = np.tensordot(helmert(num_folds), fold_scores, axes=1)
    return turned / (num_folds * (num_folds - 1)) ** 0.5


# --- the training draws -------------------------------------------------------------


def training_errors(fold_scores: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return how the training draws leave all scores wrong together, shape (R, N).

    Rows for a query whose spread is one, averaged over those given: there are few folds
    of the draws, and each query sees another side of their errors. Another measurement,
    or a part of one, is taken to see the same pattern.

    Args:
        fold_scores: Scores of M queries by each fold of the training draws, shape
            (F, M, N).
        spread: Size of the noise along each query, `TrainingNoise.spread`, shape (M,).
    """
    rows = fold_contrasts(centred(fold_scores))
    scale = np.sqrt(np.where(spread > 0, spread, np.inf) * len(spread))
    return (rows / scale[:, None]).reshape(-1, fold_scores.shape[-1])


def training_errors_path(root: Path, config: CollectionConfig) -> Path:
    """Return where the training draws' errors lie, beside the collection's file."""
    fingerprint = config.answers_fingerprint()
    return root / f"{config.name}-training-errors-{fingerprint}.safetensors"


def write_training_errors(path: Path, rows: np.ndarray) -> None:
    """Write rows (R, N) in half precision: they are sure to some percent only."""
    tensors = {"rows": torch.from_numpy(rows.astype(np.float16))}
    write_tensors(path, tensors, {"facts": {}})


def read_training_errors(path: Path, num_examples: int) -> np.ndarray | None:
    """Return the rows (R, N), float64, or None where there are none.

    Raises:
        ValueError: If the file is damaged or about other images.
    """
    if not path.exists():
        return None
    try:
        tensors, _ = read_tensors(path)
    except Damaged:
        tensors = {}
    rows = tensors.get("rows", torch.empty(0))
    if rows.ndim != 2 or rows.shape[1] != num_examples:
        raise ValueError(
            f"'{path.name}' is damaged or about other images. Delete it and make it "
            f"again with `{build_command(path)}`."
        )
    return rows.double().numpy()


# --- one query ----------------------------------------------------------------------


def find_uncertainty(
    scoring: Scoring, lens: Lens, folds: Tensor, answer: Scores
) -> Uncertainty:
    """Return what is uncertain about the scores of one query.

    Args:
        scoring: Of the collection.
        lens: How it was asked.
        folds: Its gradient by each fold of its draws, in the main eigenbasis, (F, P).
        answer: Its scores, their errors, and where they come from.
    """
    num_examples = len(scoring.whitened_norms)
    if not METHODS[lens.method].has_errors:
        return Uncertainty(np.empty((0, num_examples)), np.zeros(num_examples))
    vectors = scoring.preconditioned(folds, lens)
    gradients, mean = scoring.gradients(lens), vectors.mean(0)
    rows = [fold_contrasts(centred(gradients.products(vectors).astype(np.float64)))]
    if answer.source == gradients.source:
        rows.append(fold_contrasts(centred(gradients.estimates(mean))))
    config = config_from_dict(scoring.settings)
    path = training_errors_path(scoring.collection.path.parent, config)
    together = read_training_errors(path, num_examples)
    variance = np.square(answer.standard_errors)
    if together is None:
        return Uncertainty(np.empty((0, num_examples)), variance, INDEPENDENT)
    rows.append(together * scoring.noise.asked(vectors).spread ** 0.5)
    return Uncertainty(*of_these_sizes(np.concatenate(rows), variance))


def of_these_sizes(
    rows: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return causes of error that leave each score as wrong as its answer says.

    The rows tell how the errors of images go together, the answer how large they are:
    the error of a group of one image is the one beside the image. Errors of centred
    scores add up to nothing over all images, and do so here, too.

    Args:
        rows: Independent causes, shape (R, N).
        variance: Of each score, shape (N,).

    Returns:
        The rows (R, N), and the variance that no row tells (N,).
    """
    for _ in range(CENTRINGS):
        size = np.square(rows).sum(0)
        known = size > 0
        factor = np.sqrt(
            np.divide(variance, size, out=np.zeros_like(size), where=known)
        )
        rows = centred(rows * factor)
    size = np.square(rows).sum(0)
    factor = np.sqrt(np.divide(variance, size, out=np.zeros_like(size), where=size > 0))
    return rows * factor, np.where(size > 0, 0.0, variance)
