"""Do standard errors hold? Answers held against the same, asked with all draws new.

An answer as shown, its ten images with the largest scores, is compared with the mean of
repeats: other draws of the query, other draws of the training gradients of those images
and of some drawn at random. Nothing else is renewed: model, curvature and damping are
what an error is conditioned on. The scores of a repeat are exact, so that of an answer
by the sketch the sketch's error is tested, too. Both are centred on the random images.

Each half of the samples tests the errors that the other half told, with other draws;
what is printed afterwards is told by both. What is shown is one realisation of the
training draws' noise, which raised the same images for many samples: what the repeats
of some samples say of it holds for the others.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from core.config import DATA_DIR, CollectionConfig
from core.explorer.explorer import Answer, Explorer, Lens, open_explorer
from core.measure.draws import keyed_generator
from core.scores.error_files import errors_path, read_model, write_model
from core.scores.errors import (
    TOP,
    ErrorModel,
    answer_kind,
    fit_repeated,
    question_kind,
    stood,
)
from precompute.machinery.progress import Bar
from precompute.stages.errors import HELD_OUT
from precompute.stages.repeats import Repeats

RANDOM = 24  # images, drawn from all
HALVES = (0, 1)  # of the samples
APART = 100  # more repeats than a half has; the second half's begin with this number


@dataclass(frozen=True)
class Trial:
    """What is repeated.

    Attributes:
        lenses: How each query is asked.
        queries: Samples, spread over the gallery.
        repeats: Independent sets of draws, of queries and of images each.
        dims: Sketches to try beside the collection's own, in buckets.
        half: Which half of the samples: 0 and 1 share none, and no draws either.
    """

    lenses: tuple[Lens, ...] = (Lens(), Lens(form="sketch"))  # with the gallery's draws
    queries: int = 8
    repeats: int = 2
    dims: tuple[int, ...] = ()
    half: int = 0

    def __post_init__(self):
        if not 2 <= self.repeats <= APART:
            raise ValueError(
                f"{self.repeats} repeats do not say how far repeats scatter. Give 2 to "
                f"{APART}."
            )

    @property
    def numbers(self) -> range:
        """Return the numbers of the repeats: other numbers, other draws."""
        first = APART * self.half
        return range(first, first + self.repeats)


def all_lenses(explorer: Explorer) -> tuple[Lens, ...]:
    """Return every kind of question, answered in every way that is there.

    Of the gallery's measurements all, a region and a band of noise levels: stored where
    they are, by the sketch, and by the full index if the collection has it.
    """
    side, steps = explorer.config.data.image_size, explorer.num_train_timesteps
    middle = (side // 4, side // 4, 3 * side // 4, 3 * side // 4)
    measurements = ["loss", "elbo"]
    if explorer.config.samples.sampler == "ddpm":  # DDIM's steps have no probability
        measurements.append("trajectory")
    whole = [Lens(measurement=name) for name in measurements]
    parts = [Lens(region=middle), Lens(timesteps=(0, steps // 4))]
    forms = ["sketch"]
    if explorer.engine.scoring.indexed is not None:
        forms.append("full")
    return (
        *whole,
        *(replace(lens, form=form) for lens in (*whole, *parts) for form in forms),
    )


def thorough(explorer: Explorer, repeats: int = 4) -> Trial:
    """Return what tells the errors of every kind of answer.

    Eight samples of each half. With four repeats each that takes one core 45
    minutes for Glyphs, 15 for Fashion-2.
    """
    return Trial(all_lenses(explorer), queries=16, repeats=repeats)


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
    root: Path,
    name: str,
    work: Path | None = None,
    plan: Callable[[Explorer], Trial] = thorough,
) -> dict:
    """Return how the errors of a collection stand a test by other draws; resumable.

    What repeats say that folds do not (`ErrorModel.repeated`) and the figures of
    `crossed` go into the file of the collection's laws, if there is one, and at once:
    whoever reads it, and whenever this is killed, finds all of the old or all of the
    new.

    Args:
        root: Folder of the published collections.
        name: Of the collection.
        work: Folder of unfinished work; None for `data/work`.
        plan: Returns what is repeated.

    Returns:
        The figures of `crossed`.
    """
    work = work or DATA_DIR / "work"
    with closing(open_explorer(name, root)) as explorer:
        path = errors_path(root, explorer.config)
        model, found = crossed(explorer, work, plan(explorer))
    before = read_model(path)
    if before is not None:
        kept = before.coverage.get("kinds", {})
        held = {kind: kept[kind] for kind in kept if kind == HELD_OUT}
        kinds = {**held, **found["kinds"]}
        write_model(path, replace(model, coverage={**found, "kinds": kinds}))
    return found


def crossed(explorer: Explorer, work: Path, trial: Trial) -> tuple[ErrorModel, dict]:
    """Return the errors that all samples tell, and how those stood that a half told.

    Args:
        explorer: The collection.
        work: Folder of unfinished work.
        trial: What is repeated, in each half.

    Returns:
        The collection's laws with what both halves say; and by kind of answer, "top"
        and "all": `coverage` of 90% intervals, `ratio` of real over printed error and
        `count`, of the ten images that answers show and of random images, each half of
        the samples with errors that the other half told; and what was repeated.
    """
    laws = replace(explorer.engine.scoring.error_model, again={}, unseen={})
    halves = [asked_again(explorer, work, replace(trial, half=half)) for half in HALVES]
    told = [half.deviations(laws) for half in halves]
    crosswise = zip(halves, reversed(told), strict=True)
    tested = joined(
        *(half.deviations(fitted(other, laws)) for half, other in crosswise)
    )
    parts = [(half.repeats, half.numbers, half.random) for half in halves]
    agreement = [repeats.agreement(*where) for repeats, *where in parts]
    sizes = [repeats.sizes(*where, trial.dims) for repeats, *where in parts]
    figures = {
        "queries": sum(len(half.samples) for half in halves),
        "repeats": trial.repeats,
        "kinds": {
            kind: {
                what: stood(np.concatenate([one.z for one in each]))
                for what, each in parts.items()
            }
            for kind, parts in tested.items()
        },
        "agreement": mean_of(agreement),
        "sizes": mean_of(sizes),
    }
    return fitted(joined(*told), laws), figures


def mean_of(each: list[dict]) -> dict:
    """Return the mean of every value that any of some dictionaries has."""
    keys = dict.fromkeys(key for one in each for key in one)
    return {k: float(np.mean([one[k] for one in each if k in one])) for k in keys}


@dataclass(frozen=True)
class Deviation:
    """How far some scores of one answer are from the mean of its repeats.

    Attributes:
        off: Shown less repeated, shape (K,).
        error: As printed, shape (K,).
        scores: As shown, shape (K,).
        beyond: Variance of the mean of the repeats, shape (K,).
    """

    off: np.ndarray
    error: np.ndarray
    scores: np.ndarray
    beyond: np.ndarray

    @property
    def z(self) -> np.ndarray:
        """Real over printed error, shape (K,)."""
        return self.off / np.sqrt(np.square(self.error) + self.beyond)

    @property
    def variance(self) -> np.ndarray:
        """What repeats find, of each score, unbiased and so at times negative, (K,)."""
        return np.square(self.off) - self.beyond


Deviations = dict[str, dict[str, list[Deviation]]]  # by kind of answer; "top" and "all"


def joined(first: Deviations, second: Deviations) -> Deviations:
    """Return the deviations of both."""
    return {
        kind: {
            what: first.get(kind, {}).get(what, []) + second.get(kind, {}).get(what, [])
            for what in ("top", "all")
        }
        for kind in {**first, **second}
    }


def fitted(found: Deviations, laws: ErrorModel) -> ErrorModel:
    """Return the model of the laws alone with what repeats say.

    Args:
        found: Of `AskedAgain.deviations`, with the errors that `laws` tell.
        laws: Without anything from repeats.
    """
    ratios, shown = {}, {}
    for answered, parts in found.items():
        question, source = answered.split(", ")
        kind = answer_kind(question, source)
        for one in parts["all"]:
            ratio = np.mean(one.variance / np.square(one.error))
            ratios.setdefault(kind, []).append(float(ratio))
        for one in parts["top"]:
            means = one.variance, np.square(one.error), np.square(one.scores)
            shown.setdefault(kind, []).append(tuple(float(x.mean()) for x in means))
    return fit_repeated(laws, ratios, shown)


@dataclass(frozen=True)
class AskedAgain:
    """Answers about some samples, and exact scores of the same questions asked again.

    Attributes:
        explorer: The collection.
        shown: The answers.
        repeats: Asks again.
        numbers: Of the repeats.
        chosen: Positions of the images that were scored again, shape (K,).
        random: Where the random images are among them.
        scores: Of each repeat, question and image, shape (R, questions, K), centred on
            the random images.
    """

    explorer: Explorer
    shown: list[Shown]
    repeats: Repeats
    numbers: range
    chosen: np.ndarray
    random: list[int]
    scores: np.ndarray

    @property
    def samples(self) -> set[int]:
        """Return the samples that were asked about."""
        return {one.sample for one in self.shown}

    def deviations(self, model: ErrorModel) -> Deviations:
        """Return how far the answers are off, with the errors that a model tells."""
        found: Deviations = {}
        for one in self.shown:
            parts = found.setdefault(kind_of(one.answer), {"top": [], "all": []})
            for what, places in (
                ("top", np.searchsorted(self.chosen, one.top)),
                ("all", self.random),
            ):
                parts[what].append(self._deviation(one, model, places))
        return found

    def _deviation(self, one: Shown, model: ErrorModel, places: Iterable) -> Deviation:
        """Return how far one answer is off, of the images at some places."""
        answer, chosen = one.answer, self.chosen
        kind = answer_kind(question_kind(answer.lens), answer.source)
        again = self.scores[:, self.repeats.questions.index(one.question)]
        scores, printed = answer.scores[chosen], answer.standard_errors[chosen]
        own = self.explorer.engine.scoring.error_model
        law = own.by_laws(np.square(printed), scores, kind)
        variance = model.repeated(law, scores, kind).clip(0)  # rounding may be below
        centre = scores[self.random].mean()
        values = (
            scores - centre - again.mean(0),
            np.sqrt(variance),
            scores,
            again.var(0, ddof=1) / len(again),
        )
        return Deviation(*(value[places] for value in values))


def asked_again(explorer: Explorer, work: Path, trial: Trial) -> AskedAgain:
    """Return the answers about one half of the samples, and their repeats.

    Args:
        explorer: The collection.
        work: Folder of unfinished work.
        trial: What is repeated.
    """
    shown = answers_shown(explorer, trial)
    some = random_images(explorer)
    chosen = np.unique(np.concatenate([some, *(one.top for one in shown)]))
    questions = list(dict.fromkeys(one.question for one in shown))
    repeats = Repeats(explorer, work, questions, chosen, trial.dims)
    exact = np.stack([repeats.products(i) for i in Bar(trial.numbers, "repeats")])
    among = np.searchsorted(chosen, some)
    exact -= exact[..., among].mean(-1, keepdims=True)
    return AskedAgain(
        explorer, shown, repeats, trial.numbers, chosen, among.tolist(), exact
    )


def kind_of(answer: Answer) -> str:
    """Return what an answer is called in the figures: its question and its source."""
    lens = answer.lens
    method = "" if lens.method == Lens.method else f"{lens.method} "
    return f"{method}{question_kind(lens)}, {answer.source}"


def answers_shown(explorer: Explorer, trial: Trial) -> list[Shown]:
    """Return the answers that the app gives about part of the gallery."""
    samples = sorted(map(int, explorer.gallery.index))
    samples = samples[trial.half :: 2]
    count, shown = min(-(-trial.queries // 2), len(samples)), []
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
