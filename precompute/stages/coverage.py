"""Do standard errors hold? Answers held against the same, asked with all draws new.

An answer as shown, its ten images with the largest scores, is compared with the mean of
repeats: other draws of the query, other draws of the training gradients of those images
and of some drawn at random. Nothing else is renewed: model, curvature and damping are
what an error is conditioned on. The scores of a repeat are exact, so that of an answer
by the sketch the sketch's error is tested, too. Both are centred on the random images.
"""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from core.config import DATA_DIR, CollectionConfig
from core.explorer.explorer import Answer, Explorer, Lens, open_explorer
from core.measure.draws import keyed_generator
from core.scores.error_files import errors_path, read_model, write_model
from core.scores.errors import TOP, ErrorModel, fit_repeated, question_kind, stood
from precompute.machinery.progress import Bar
from precompute.stages.repeats import Repeats

RANDOM = 24  # images, drawn from all
TESTED, FITTED = 0, 1  # halves of the samples


@dataclass(frozen=True)
class Trial:
    """What is repeated.

    Attributes:
        lenses: How each query is asked.
        queries: Samples, spread over the gallery.
        repeats: Independent sets of draws, of queries and of images each.
        dims: Sketches to try beside the collection's own, in buckets.
        first: Number of the first repeat: others have other draws.
        half: Which half of the samples: 0 and 1 share none; None for all.
    """

    lenses: tuple[Lens, ...] = (Lens(), Lens(form="sketch"))  # with the gallery's draws
    queries: int = 8
    repeats: int = 2
    dims: tuple[int, ...] = ()
    first: int = 0
    half: int | None = None

    @property
    def numbers(self) -> range:
        """Return the numbers of the repeats."""
        return range(self.first, self.first + self.repeats)


def affordable(config: CollectionConfig, num_examples: int) -> Trial | None:
    """Return what may be repeated for an eighth of what the training gradients took.

    Args:
        config: Of the collection.
        num_examples: N.

    Returns:
        At most the usual trial; None where there is no room for two queries.
    """
    usual, draws = Trial(), config.gradients.num_draws
    room = num_examples * draws / 8 - usual.repeats * RANDOM * draws
    one = (usual.repeats + 1) * config.samples.num_draws + usual.repeats * TOP * draws
    queries = min(usual.queries, config.samples.num_samples, int(room / one))
    return replace(usual, queries=queries) if queries >= 2 else None


@dataclass(frozen=True)
class Shown:
    """One answer, and whom it is about.

    Attributes:
        sample: The gallery sample that was asked about.
        answer: What was answered.
        top: Positions of the images it shows, shape (10,).
    """

    sample: int
    answer: Answer
    top: np.ndarray

    @property
    def question(self) -> tuple[int, Lens]:
        """Return what was asked, whatever it was answered from."""
        return self.sample, replace(self.answer.lens, form="auto")


def measure_coverage(
    root: Path, name: str, work: Path | None = None, trial: Trial = Trial()
) -> dict:
    """Return how the errors of a collection stand a test by other draws; resumable.

    Half of the samples tell what folds do not (`ErrorModel.repeated`); the figures are
    of the other half, with errors as told then. Both go into the file of the
    collection's laws, if there is one.

    Args:
        root: Folder of the published collections.
        name: Of the collection.
        work: Folder of unfinished work; None for `data/work`.
        trial: What is repeated.

    Returns:
        By kind of answer, "top" and "all": `coverage` of 90% intervals, `ratio` of real
        over printed error and `count`, of the ten images that answers show and of
        random images; and what was repeated.
    """
    work = work or DATA_DIR / "work"
    with closing(open_explorer(name, root)) as explorer:
        path = errors_path(root, explorer.config)
        model = read_model(path)
    if model is not None:
        model = replace(model, again={}, unseen={})
        write_model(path, model)  # errors by the laws alone are what is corrected
        with closing(open_explorer(name, root)) as explorer:
            found, *_ = repeated(explorer, work, replace(trial, half=FITTED))
        model = fitted(found, model)
        write_model(path, model)
    with closing(open_explorer(name, root)) as explorer:
        found = compared(explorer, work, replace(trial, half=TESTED))
    if model is not None:
        kinds = {**model.coverage.get("kinds", {}), **found["kinds"]}
        write_model(path, replace(model, coverage={**found, "kinds": kinds}))
    return found


@dataclass(frozen=True)
class Deviation:
    """How far some scores of one answer are from the mean of its repeats.

    Attributes:
        off: Shown less repeated, shape (K,).
        error: As printed, shape (K,).
        scores: As shown, shape (K,).
        repeats: How many; their mean has an error, too.
    """

    off: np.ndarray
    error: np.ndarray
    scores: np.ndarray
    repeats: int

    @property
    def z(self) -> np.ndarray:
        """Real over printed error, shape (K,)."""
        return self.off / (self.error * (1 + 1 / self.repeats) ** 0.5)

    @property
    def variance(self) -> np.ndarray:
        """What repeats find, of each score; the mean of R of them has 1 / R of it."""
        return np.square(self.off) / (1 + 1 / self.repeats)


Deviations = dict[str, dict[str, list[Deviation]]]  # by kind of answer; "top" and "all"


def fitted(found: Deviations, model: ErrorModel) -> ErrorModel:
    """Return the model of the laws alone with what repeats of exact answers say.

    A sketch adds errors of its own, which would hide what is missing.

    Args:
        found: Of `repeated`, with the errors that `model` tells.
        model: As yet without anything from repeats.
    """
    ratios, shown = {}, {}
    for answered, parts in found.items():
        kind, source = answered.split(", ")
        if source == "sketch":
            continue
        for one in parts["all"]:
            ratio = np.mean(one.variance / np.square(one.error))
            ratios.setdefault(kind, []).append(float(ratio))
        for one in parts["top"]:
            means = one.variance, np.square(one.error), np.square(one.scores)
            shown.setdefault(kind, []).append(tuple(float(x.mean()) for x in means))
    return fit_repeated(model, ratios, shown)


def compared(explorer: Explorer, work: Path, trial: Trial) -> dict:
    """Return the figures of `measure_coverage` for an open collection."""
    found, repeats, among = repeated(explorer, work, trial)
    return {
        "queries": len(next(iter(found.values()))["top"]),
        "repeats": trial.repeats,
        "kinds": {
            kind: {
                what: stood(np.concatenate([one.z for one in each]))
                for what, each in parts.items()
            }
            for kind, parts in found.items()
        },
        "agreement": repeats.agreement(trial.numbers, among),
        "sizes": repeats.sizes(trial.numbers, among, trial.dims),
    }


def repeated(
    explorer: Explorer, work: Path, trial: Trial
) -> tuple[Deviations, "Repeats", list[int]]:
    """Return how far answers are off, their repeats, and where random images are there.

    "top" is of the ten images with the largest scores, "all" of random ones.
    """
    shown = answers_shown(explorer, trial)
    some = random_images(explorer)
    chosen = np.unique(np.concatenate([some, *(one.top for one in shown)]))
    questions = list(dict.fromkeys(one.question for one in shown))
    repeats = Repeats(explorer, work, questions, chosen, trial.dims)
    exact = np.stack([repeats.products(i) for i in Bar(trial.numbers, "repeats")])
    place = {position: number for number, position in enumerate(chosen.tolist())}
    among = [place[position] for position in some.tolist()]
    mean = exact.mean(0)  # (questions, images)
    mean = mean - mean[:, among].mean(1, keepdims=True)
    found: Deviations = {}
    for one in shown:
        again = mean[questions.index(one.question)]
        scores = one.answer.scores - one.answer.scores[some].mean()
        kept = found.setdefault(kind_of(one.answer), {"top": [], "all": []})
        for what, positions in (("top", one.top), ("all", some)):
            places = [place[position] for position in positions.tolist()]
            error = one.answer.standard_errors[positions]
            kept[what].append(
                Deviation(
                    scores[positions] - again[places],
                    error,
                    one.answer.scores[positions],
                    trial.repeats,
                )
            )
    return found, repeats, among


def kind_of(answer: Answer) -> str:
    """Return what an answer is called in the figures: its question and its source."""
    lens = answer.lens
    method = "" if lens.method == Lens.method else f"{lens.method} "
    return f"{method}{question_kind(lens)}, {answer.source}"


def answers_shown(explorer: Explorer, trial: Trial) -> list[Shown]:
    """Return the answers that the app gives about part of the gallery."""
    samples = sorted(map(int, explorer.gallery.index))
    if trial.half is not None:
        samples = samples[trial.half :: 2]
    queries = trial.queries if trial.half is None else -(-trial.queries // 2)
    count, shown = min(queries, len(samples)), []
    draws = explorer.config.samples.num_draws
    for number in range(count):
        sample = samples[number * len(samples) // count]
        query = explorer.query_from_gallery(sample)
        for lens in trial.lenses:
            answer = explorer.answer(query, replace(lens, num_draws=draws))
            shown.append(Shown(sample, answer, answer.top(TOP)))
    return shown


def random_images(explorer: Explorer) -> np.ndarray:
    """Return positions of images drawn at random, all there are of a small set."""
    generator = keyed_generator(explorer.config.seed, "repeated images")
    order = torch.randperm(explorer.num_examples, generator=generator)
    return order[:RANDOM].numpy()
