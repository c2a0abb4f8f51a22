"""Do standard errors hold? Answers held against the same, asked with all draws new.

An answer as shown, its ten images with the largest scores, is compared with the mean of
repeats: other draws of the query, other draws of the training gradients of those images
and of some drawn at random. Nothing else is renewed: model, curvature and damping are
what an error is conditioned on. The scores of a repeat are exact, so that of an answer
by the sketch the sketch's error is tested, too. Both are centred on the random images.
Every repeat is kept: a killed run goes on.
"""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from core.collection.schema import bytes_sha256
from core.config import DATA_DIR, CollectionConfig
from core.curvature.basis import Curvature
from core.data.datasets import load_dataset
from core.explorer.explorer import Answer, Explorer, Lens, open_explorer
from core.index.sketch import make_sketch, pack_signs, packed_products
from core.measure.draws import Augmentation, keyed_generator, make_draws
from core.scores.errors import (
    TOP,
    ErrorModel,
    errors_path,
    fit_unseen,
    question_kind,
    read_model,
    stood,
    write_model,
)
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import load_tensors, open_workspace, save_tensors
from precompute.stages.gradients import GradientStage, measured_proposal
from precompute.stages.train import encode_all

RANDOM = 24  # images, drawn from all
CHUNK = 8  # images
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

    Half of the samples tell what errors folds do not show (`ErrorModel.unseen`); the
    figures are of the other half, with errors as told then.
    Both go into the file of the collection's laws, if there is one.

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
            found, *_ = repeated(explorer, work, replace(trial, half=FITTED))
            model = replace(model, unseen=fit_unseen(excess(found, model)))
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

    def missing(self) -> float:
        """Return what is missing in the printed variance, over the mean square score.

        The mean of R repeats is off by 1 / R of the same variance.
        """
        real = np.square(self.off).mean() / (1 + 1 / self.repeats)
        printed = np.square(self.error).mean()
        return float((real - printed) / np.square(self.scores).mean())


Deviations = dict[str, dict[str, list[Deviation]]]  # by kind of answer; "top" and "all"


def excess(found: Deviations, model: ErrorModel) -> dict[str, list[float]]:
    """Return what exact answers' errors lack, relative and squared, by question's kind.

    Of the ten images that are shown. A sketch adds errors of its own, which would hide
    what is missing.

    Args:
        found: Of `repeated`.
        model: Of the errors there.
    """
    missing: dict[str, list[float]] = {}
    for answered, parts in found.items():
        kind, source = answered.split(", ")
        if source != "sketch":
            printed = model.unseen_of(kind)
            each = missing.setdefault(kind, [])
            each += [printed + one.missing() for one in parts["top"]]
    return missing


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


class Repeats:
    """Scores of some images for some questions, with all draws new.

    Args:
        explorer: The collection.
        work: Folder of unfinished work.
        questions: Samples and lenses.
        chosen: Positions of the images, shape (K,).
        dims: Sketches to try beside the collection's own, in buckets.
    """

    def __init__(
        self,
        explorer: Explorer,
        work: Path,
        questions: list[tuple[int, Lens]],
        chosen: np.ndarray,
        dims: tuple[int, ...] = (),
    ):
        self.explorer, self.questions, self.chosen = explorer, questions, chosen
        self.config, self.engine = explorer.config, explorer.engine
        scoring = self.engine.scoring
        curvature = Curvature(self.engine.basis, scoring.eigenvalues["ekfac"])
        dataset, denoiser = load_dataset(self.config.data), self.engine.denoiser
        x_0 = encode_all(denoiser, dataset)
        self.stage = GradientStage(self.config, dataset, denoiser, curvature, None, x_0)
        self.proposal = measured_proposal(self.stage, open_workspace(self.config, work))
        self.dims = (self.config.gradients.sketch_dim, *dims)
        named = repr((questions, chosen.tolist(), explorer.fingerprint, self.dims))
        digest = bytes_sha256(named.encode())[:12]
        self.folder = work / explorer.name / f"repeats-{digest}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def seed(self, number: int) -> int:
        """Return the seed of a repeat, far from any a person would choose."""
        return self.config.seed + 1_000_003 * (number + 1)

    def queries(self, number: int) -> Tensor:
        """Return the whitened query of every question in a repeat, shape (Q, P)."""
        path = self.folder / f"queries-{number}.safetensors"
        if not path.exists():
            scoring, vectors = self.engine.scoring, []
            for sample, lens in Bar(self.questions, f"queries {number + 1}"):
                query = self.explorer.query_from_gallery(sample)
                question = replace(
                    self.engine.question(query, lens), seed=self.seed(number)
                )
                placed = question.to(self.engine.denoiser)
                gradient = placed.gradient(self.engine.basis)
                vector = scoring.preconditioned(gradient.folds.cpu(), lens).mean(0)
                vectors.append(vector * scoring.whitening)
            save_tensors(path, {"queries": torch.stack(vectors)})
        return load_tensors(path)[0]["queries"]

    def products(self, number: int) -> np.ndarray:
        """Return the exact scores of a repeat, shape (Q, K)."""
        return self._repeat(number)["products"].double().numpy()

    def _repeat(self, number: int) -> dict[str, Tensor]:
        path = self.folder / f"images-{number}.safetensors"
        if not path.exists():
            queries = self.queries(number)
            basis, whitening = self.engine.basis, self.engine.scoring.whitening
            draws = make_draws(
                self.config.gradients.num_draws,
                self.engine.denoiser.shape,
                self.engine.denoiser.num_train_timesteps,
                keyed_generator(self.seed(number), "training draws"),
                Augmentation(
                    self.config.model.drops, self.config.train.horizontal_flip
                ),
                num_folds=self.config.gradients.num_folds,
                proposal=self.proposal,
            ).to(self.engine.device)
            stage = replace(self.stage, draws=draws)
            sketches = {
                dim: make_sketch(
                    len(whitening), dim, keyed_generator(self.seed(number), "sketch")
                )
                for dim in self.dims
            }
            short = {dim: sketch.apply(queries) for dim, sketch in sketches.items()}
            products = {name: [] for name in ("products", *map(sketched, self.dims))}
            parts = np.array_split(self.chosen, -(-len(self.chosen) // CHUNK))
            for part in Bar(parts, f"images {number + 1}"):
                folds = torch.stack([stage.folds(int(i)).mean(0) for i in part])
                whitened = basis.rotate(folds).cpu() / whitening
                products["products"].append(queries @ whitened.T)
                for dim, sketch in sketches.items():
                    packed = pack_signs(sketch.apply(whitened))
                    found = torch.from_numpy(packed_products(short[dim], *packed))
                    products[sketched(dim)].append(found)
            save_tensors(
                path, {name: torch.cat(parts, 1) for name, parts in products.items()}
            )
        return load_tensors(path)[0]

    def agreement(self, numbers: range, among: list[int]) -> dict[str, float]:
        """Return Spearman between repeats over random images, all draws new.

        "exact": by the gradients themselves; "sketch": each by a sketch of its own.
        """
        if len(numbers) < 2:
            return {}
        own = sketched(self.dims[0])
        return {
            "exact": self._between(numbers, among, "products"),
            "sketch": self._between(numbers, among, own),
        }

    def sizes(self, numbers: range, among: list[int], dims: tuple[int, ...]) -> dict:
        """Return the same by bytes an image, for sketches of other sizes."""
        if len(numbers) < 2:
            return {}
        return {
            str(-(-dim // 8)): self._between(numbers, among, sketched(dim))
            for dim in dims
        }

    def _between(self, numbers: range, among: list[int], name: str) -> float:
        rows = [self._repeat(number)[name][:, among] for number in numbers]
        return float(
            np.mean([
                spearmanr(a, b).statistic
                for i, first in enumerate(rows)
                for second in rows[:i]
                for a, b in zip(first, second, strict=True)
            ])
        )


def sketched(dim: int) -> str:
    """Return the name of what sketches of a size say, in the file of a repeat."""
    return f"sketched-{dim}"
