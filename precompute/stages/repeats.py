"""Do standard errors hold? Answers held against the same, asked with all draws new.

An answer as shown, its ten images with the largest scores, is compared with the mean of
repeats: other draws of the query, other draws of the training gradients of those images
and of some drawn at random. Nothing else is renewed: model, curvature and damping are
what an error is conditioned on. The scores of a repeat are exact, so that of an answer
by the sketch the sketch's error is tested, too. Both are centred on the random images.
Every repeat is kept: a killed run goes on.
"""

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
from core.scores.errors import TOP, errors_path, read_model, stood, write_model
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import load_tensors, open_workspace, save_tensors
from precompute.stages.gradients import GradientStage, measured_proposal
from precompute.stages.train import encode_all

RANDOM = 24  # images, drawn from all
CHUNK = 8  # images


@dataclass(frozen=True)
class Trial:
    """What is repeated.

    Attributes:
        lenses: How each query is asked.
        queries: Samples, spread over the gallery.
        repeats: Independent sets of draws, of queries and of images each.
    """

    lenses: tuple[Lens, ...] = (Lens(), Lens(form="sketch"))  # with the gallery's draws
    queries: int = 8
    repeats: int = 2


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

    The figures go into the file of its laws, too, if there is one.

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
    explorer = open_explorer(name, root)
    try:
        figures = compared(explorer, work or DATA_DIR / "work", trial)
        path = errors_path(root, explorer.config)
        model = read_model(path)
        if model is not None:
            kinds = {**model.coverage.get("kinds", {}), **figures["kinds"]}
            write_model(path, replace(model, coverage={**figures, "kinds": kinds}))
        return figures
    finally:
        explorer.close()


def compared(explorer: Explorer, work: Path, trial: Trial) -> dict:
    """Return the figures of `measure_coverage` for an open collection."""
    shown = answers_shown(explorer, trial)
    some = random_images(explorer)
    chosen = np.unique(np.concatenate([some, *(one.top for one in shown)]))
    questions = list(dict.fromkeys(one.question for one in shown))
    repeats = Repeats(explorer, work, questions, chosen)
    exact = np.stack([
        repeats.products(number) for number in Bar(range(trial.repeats), "repeats")
    ])
    column_of = {position: number for number, position in enumerate(chosen.tolist())}
    among = [column_of[position] for position in some.tolist()]
    mean = exact.mean(0)  # (questions, images)
    mean = mean - mean[:, among].mean(1, keepdims=True)
    off: dict[str, dict[str, list]] = {}
    for one in shown:
        again = mean[questions.index(one.question)]
        scores = one.answer.scores - one.answer.scores[some].mean()
        error = one.answer.standard_errors * (1 + 1 / trial.repeats) ** 0.5
        kept = off.setdefault(kind_of(one.answer), {"top": [], "all": []})
        for what, positions in (("top", one.top), ("all", some)):
            columns = [column_of[position] for position in positions.tolist()]
            kept[what] += ((scores[positions] - again[columns]) / error[positions],)
    figures = {
        kind: {what: stood(np.concatenate(z)) for what, z in parts.items()}
        for kind, parts in off.items()
    }
    return {
        "queries": trial.queries,
        "repeats": trial.repeats,
        "kinds": figures,
        "agreement": repeats.agreement(trial.repeats, among),
    }


def kind_of(answer: Answer) -> str:
    """Return what an answer is called in the figures: its lens and its source."""
    lens = answer.lens
    words = [lens.measurement]
    if lens.method != Lens.method:
        words.insert(0, lens.method)
    if lens.region is not None:
        words.append("region")
    if lens.timesteps is not None:
        words.append("band")
    return f"{' '.join(words)}, {answer.source}"


def answers_shown(explorer: Explorer, trial: Trial) -> list[Shown]:
    """Return the answers that the app gives about part of the gallery."""
    samples = sorted(map(int, explorer.gallery.index))
    count, shown = min(trial.queries, len(samples)), []
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
    """

    def __init__(
        self,
        explorer: Explorer,
        work: Path,
        questions: list[tuple[int, Lens]],
        chosen: np.ndarray,
    ):
        self.explorer, self.questions, self.chosen = explorer, questions, chosen
        self.config, self.engine = explorer.config, explorer.engine
        scoring = self.engine.scoring
        curvature = Curvature(self.engine.basis, scoring.eigenvalues["ekfac"])
        dataset, denoiser = load_dataset(self.config.data), self.engine.denoiser
        x_0 = encode_all(denoiser, dataset)
        self.stage = GradientStage(self.config, dataset, denoiser, curvature, None, x_0)
        self.proposal = measured_proposal(self.stage, open_workspace(self.config, work))
        named = repr((questions, chosen.tolist(), explorer.fingerprint))
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
            dim = self.config.gradients.sketch_dim
            generator = keyed_generator(self.seed(number), "sketch")
            sketch = make_sketch(len(whitening), dim, generator)
            sketched, exact, short = sketch.apply(queries), [], []
            parts = np.array_split(self.chosen, -(-len(self.chosen) // CHUNK))
            for part in Bar(parts, f"images {number + 1}"):
                folds = torch.stack([stage.folds(int(i)).mean(0) for i in part])
                whitened = basis.rotate(folds).cpu() / whitening
                exact.append(queries @ whitened.T)
                packed = pack_signs(sketch.apply(whitened))
                short.append(torch.from_numpy(packed_products(sketched, *packed)))
            tensors = {"products": torch.cat(exact, 1)}
            save_tensors(path, tensors | {"sketched": torch.cat(short, 1)})
        return load_tensors(path)[0]

    def agreement(self, repeats: int, among: list[int]) -> dict[str, float]:
        """Return Spearman between repeats over random images, all draws new.

        "exact": by the gradients themselves; "sketch": each by a sketch of its own.
        """
        agreement = {}
        for name, key in (("exact", "products"), ("sketch", "sketched")):
            rows = [self._repeat(number)[key] for number in range(repeats)]
            rows = [row[:, among] for row in rows]
            pairs = [
                spearmanr(a, b).statistic
                for i, first in enumerate(rows)
                for second in rows[:i]
                for a, b in zip(first, second, strict=True)
            ]
            if pairs:
                agreement[name] = float(np.mean(pairs))
        return agreement
