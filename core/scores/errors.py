"""How wrong a score may be: one law for every answer, fitted where folds disagree.

A score is s = <P q, g>: a query's gradient q, preconditioned, times a training gradient
g, both known only as means over draws, q + e and g + d. What a visitor sees is off by

    <P (q + e), g + d> - <P q, g>  =  <P q, d> + <P e, g> + <P e, d>,

plus what a sketch adds. *Random* are the draws of the training gradients, which all
images share; those of the query; the signs and places of the sketch. *Conditioned on*
are the trained model, its training images, the query's image, curvature and damping: no
other training is in the error.

**The law.** Were d unrelated to q, <P q, d> would have the variance x of unrelated
directions: the noise along each coordinate times the query's square. But where query
and image are alike, d and q are made of the same parts: a draw that shows the image's
blue too strongly shows the query's too strongly. This noise multiplies what the two
share, and so grows with the score. With correlation between none and all the variance
lies between a x + c s^2 and (sqrt(a x) + sqrt(c s^2))^2, hence

    v(s) = a x + b |s| sqrt(x) + c s^2,   a, b, c >= 0.

For the query's draws x is the size of e per coordinate times the squared length of g
(both whitened), and s is taken relative to the query's own length: e shrinks with the
draws, and so must all three terms. For a sketch x is the variance of the count sketch
and of its one bit, b = 0, and c is how much the size of its products differs from query
to query. The three causes are independent given q and g, so their variances add. The
product <P e, d> is in the contrasts of both folds: counted twice, which errs on the
careful side and is of second order.

**The fit.** Draws come in folds, complete estimates each. The contrasts of F folds (the
F - 1 rows of `core.scores.influence.fold_contrasts`), squared and summed, have the
expectation v and, given q and g, do not depend on the mean, which is what is shown. So
their mean at a *shown* score is the variance there: fitted are a, b, c by the
likelihood of a normal contrast, over all of the gallery's answers. A pair counts by one
over its rank in its answer: the ten images a strip shows weigh as much as the next
hundred, though there are two thousand.

**What folds do not show.** All images share one set of training draws, so however many
pairs are fitted, the contrast of two folds is one realisation of their noise; and an
answer shows the images that this realisation raised. Repeats of the whole estimate tell
what is wrong with it. So every variance is the law's times a factor, `again`, plus a
term `unseen` times s^2: the first from how far images drawn at random were off, the
second from the ten that are shown. Both are told for each kind of answer, which is a
question and what it is answered from: a sketch's variance is part of the law there.
They are conditioned on the training draws that are stored: what these raised, some
samples tell of all others.

**Chosen by their score.** The ten largest shown scores are too large on average (the
winner's curse): by v times the slope of the log density of scores at s. Repeats of
Glyphs' losses are as large as what is shown, but those of its ELBOs, and of its
trajectories by the sketch, are smaller by a third, which is about their error. Shown
scores are not shrunk: `unseen` holds the square of that, so that an interval covers
what is true, if not in its middle.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from core.lenses import Lens

# Where a collection does not say how its errors grow: as on the two that are shipped.
TYPICAL = 0.1  # relative error of a large score
TYPICAL_COUNTS = 1  # answers that it stands for where some were repeated

LEAST = 0.01  # factor: so small a one would be chance

TOP = 10  # images that an answer shows first
SHORT_FORMS = "sketch", "projection"  # add errors of their own
NORMAL_90 = 1.6449  # 90% of a normal distribution lie within so many deviations


@dataclass(frozen=True)
class Law:
    """The variance that one cause leaves in a score, by the size of the score.

    Attributes:
        apart: a, of what query and image do not share.
        partly: b, of what they share in part.
        alike: c, the squared relative error of what they share.
    """

    apart: float
    partly: float = 0.0
    alike: float = 0.0

    def variance(
        self, base: np.ndarray, scores: np.ndarray, relative: float = 1.0
    ) -> np.ndarray:
        """Return the variance of scores (..., N).

        Args:
            base: x, the variance of unrelated directions, shape (..., N).
            scores: As shown, shape (..., N).
            relative: What scales the error of a shared part: 1, or the squared relative
                error of the query itself.
        """
        return np.stack(_terms(base, scores, relative), -1) @ [
            self.apart,
            self.partly,
            self.alike,
        ]


def _terms(base, scores, relative) -> list[np.ndarray]:
    shared = np.square(scores) * relative
    return [base + 0 * shared, np.sqrt(base * shared), shared]


def fit_law(
    scores: np.ndarray,
    base: np.ndarray,
    squares: np.ndarray,
    relative: np.ndarray | float = 1.0,
    partly: bool = True,
) -> Law:
    """Return the law that squared contrasts of folds follow.

    Args:
        scores: Shape (M, N).
        base: As in `Law.variance`, shape (M, N).
        squares: Squared contrasts, summed over the folds: each an estimate of the
            variance of its score, shape (M, N).
        relative: As in `Law.variance`, broadcast against (M, N).
        partly: Whether b may be other than 0.

    Raises:
        ValueError: If the contrasts or the expected noise are zero everywhere.
    """
    terms = np.stack([term.ravel() for term in _terms(base, scores, relative)], 1)
    if not squares.any() or not terms[:, 0].any():
        raise ValueError(
            "All folds agree to the last digit, so there is no error to fit. Give at "
            "least two folds of different draws."
        )
    weights = 1 / (1 + np.argsort(np.argsort(-np.abs(scores), -1), -1)).ravel()
    known = terms.any(1)  # of a gradient that is zero there is nothing to learn
    terms, squares, weights = terms[known], squares.ravel()[known], weights[known]
    weights = weights / weights.sum()
    # In units of what each term would be alone, so that all start alike.
    alone = weights @ terms
    sizes = np.divide(weights @ squares, alone, out=0 * alone, where=alone > 0)
    sizes *= [1, partly, 1]
    units = terms * sizes

    def cost(logs: np.ndarray) -> tuple[float, np.ndarray]:
        variance = units @ np.exp(logs)
        excess = squares / variance
        gradient = np.exp(logs) * (units.T @ (weights * (1 - excess) / variance))
        return weights @ (np.log(variance) + excess), gradient

    from scipy.optimize import minimize  # slow to load, and the first page does not fit

    found = minimize(
        cost, np.full(3, -1.0), jac=True, method="L-BFGS-B", bounds=[(-18, 6)] * 3
    )
    return Law(*(np.exp(found.x) * sizes).tolist())


def fit_sketch(
    scores: np.ndarray, products: np.ndarray, base: np.ndarray
) -> tuple[float, Law]:
    """Return what products by a sketch are of exact scores, and how far they scatter.

    Args:
        scores: Exact, shape (M, N).
        products: By the sketch, shape (M, N).
        base: Variance of products with images unlike the query, shape (M, N).
    """
    weights = np.divide(1, base, out=np.zeros_like(base), where=base > 0)
    size = float((weights * scores * products).sum() / (weights * scores**2).sum())
    shown = products / size
    return size, fit_law(shown, base, np.square(shown - scores), partly=False)


@dataclass(frozen=True)
class Asked:
    """What of one question decides its errors.

    Attributes:
        spread: Size of the training draws' noise along the query.
        noise: Size of the query's own noise, per coordinate; 0 where it has no draws.
        relative: Its squared error relative to its squared length.
    """

    spread: float
    noise: float = 0.0
    relative: float = 0.0


@dataclass(frozen=True)
class ErrorModel:
    """How the errors of one collection's scores grow.

    Attributes:
        training: Of the training gradients' draws.
        query: Of the query's draws.
        sketch: Of the sketch.
        sketch_size: What a product by the sketch is of the exact one, on average.
        coverage: How the errors stood a test by other draws; empty without one.
        answers: By lens and sample: the stored answers whose errors were written by an
            earlier model, and which are told anew from this.
        again: Variance by repeats over that of the laws, by `answer_kind`.
        unseen: Squared relative error beyond that, of images that are shown.
    """

    training: Law
    query: Law
    sketch: Law = Law(1.0)
    sketch_size: float = 1.0
    coverage: dict = field(default_factory=dict)
    answers: dict[str, dict[str, Asked]] = field(default_factory=dict)
    again: dict[str, float] = field(default_factory=dict)
    unseen: dict[str, float] = field(default_factory=dict)

    def repeated(self, variance: np.ndarray, scores: np.ndarray, kind: str):
        """Return what repeats make of a variance by the laws, both (N,)."""
        again, unseen = self._told(kind)
        return again * variance + unseen * np.square(scores)

    def by_laws(self, variance: np.ndarray, scores: np.ndarray, kind: str):
        """Return the variance by the laws that `repeated` made this of, both (N,)."""
        again, unseen = self._told(kind)
        return (variance - unseen * np.square(scores)) / again

    def _told(self, kind: str) -> tuple[float, float]:
        return _of_kind(self.again, kind, 1.0), _of_kind(self.unseen, kind, 0.0)

    def variance(
        self,
        scores: np.ndarray,
        asked: Asked,
        level: np.ndarray,
        lengths: np.ndarray,
    ) -> np.ndarray:
        """Return the variance that both kinds of draws leave, by the laws, (N,).

        Args:
            scores: As shown, shape (N,).
            asked: Of the question.
            level: Of each image's noise relative to the average, shape (N,).
            lengths: Of the whitened training gradients, shape (N,).
        """
        training = self.training.variance(asked.spread * level, scores)
        base = asked.noise * np.square(lengths)
        return training + self.query.variance(base, scores, asked.relative)


def typical_model(calibration: float) -> ErrorModel:
    """Return what is taken for a collection that records no laws of its errors.

    Args:
        calibration: What it does record, observed over predicted variance on average.
    """
    return ErrorModel(
        Law(calibration, 0.0, TYPICAL**2), Law(calibration, 0.0, calibration)
    )


def question_kind(lens: Lens) -> str:
    """Return what kind of question a lens asks, in words: "loss", "elbo region"."""
    words = [lens.measurement]
    if lens.region is not None:
        words.append("region")
    if lens.timesteps is not None:
        words.append("band")
    return " ".join(words)


def answer_kind(question: str, source: str) -> str:
    """Return what kind of answer one is whose error is told: "loss", "loss, sketch".

    Args:
        question: Its `question_kind`.
        source: Where it comes from; stored answers and the full index are alike.
    """
    return f"{question}, {source}" if source in SHORT_FORMS else question


def _of_kind(values: dict[str, float], kind: str, none: float) -> float:
    """Return the value of a kind of answer, that of an average one if unknown.

    The average is over answers from the same form; where none was repeated, the laws
    stand alone.
    """
    form = kind.partition(", ")[2]
    like = [x for name, x in values.items() if name.partition(", ")[2] == form]
    average = float(np.mean(like)) if like else none
    return values.get(kind, average)


def fit_repeated(
    model: ErrorModel, ratios: dict[str, list[float]], shown: dict[str, list[tuple]]
) -> ErrorModel:
    """Return the model with what repeats say, by `answer_kind`.

    Where the images that are shown are off by less than random ones say, both tell the
    factor together, and there is nothing unseen.

    Args:
        model: How errors grow.
        ratios: Variance by repeats over the law's, of random images, per answer.
        shown: Of the ten images that are shown, per answer: the mean variance by
            repeats, the mean of the law's, and the mean square score.
    """

    def mean(typical: float, each: list[float]) -> float:
        total = TYPICAL_COUNTS * typical + sum(each)
        return total / (TYPICAL_COUNTS + len(each))

    again, unseen = {}, {}
    for kind, top in shown.items():
        factor = max(LEAST, mean(1.0, ratios[kind]))
        beyond = mean(TYPICAL**2, [(a - factor * b) / c for a, b, c in top])
        if beyond < 0:
            both = (factor + mean(1.0, [a / b for a, b, _ in top])) / 2
            factor, beyond = max(LEAST, both), 0.0
        again[kind], unseen[kind] = factor, beyond
    return replace(model, again=again, unseen=unseen)


def stood(z: np.ndarray) -> dict:
    """Return coverage of 90% intervals and real over printed error of deviates."""
    return {
        "coverage": float(np.mean(np.abs(z) < NORMAL_90)),
        "ratio": float(np.sqrt(np.mean(np.square(z)))),
        "count": len(z),
    }


def held_out(
    scores: np.ndarray, base: np.ndarray, contrasts: np.ndarray
) -> dict[str, dict]:
    """Return how laws stand the samples that they were not fitted on.

    Fitted on every second sample, tried on the others, and the other way round.

    Args:
        scores: As in `fit_law`, shape (M, N).
        base: As there.
        contrasts: Of R + 1 folds, shape (R, M, N).

    Returns:
        What stood, of the ten images with the largest scores, "top", and of "all";
        nothing for a single sample.
    """
    if len(scores) < 2:  # nothing is left to try them on
        return {}
    deviates = {"top": [], "all": []}
    for other in range(2):
        fitted, tried = slice(1 - other, None, 2), slice(other, None, 2)
        squares = np.square(contrasts[:, fitted]).sum(0)
        law = fit_law(scores[fitted], base[fitted], squares)
        variance = law.variance(base[tried], scores[tried]) / len(contrasts)
        z = contrasts[:, tried] / np.sqrt(variance)
        top = np.argsort(-scores[tried], -1)[None, :, :TOP]
        deviates["all"].append(z.ravel())
        deviates["top"].append(np.take_along_axis(z, top, -1).ravel())
    return {what: stood(np.concatenate(z)) for what, z in deviates.items()}
