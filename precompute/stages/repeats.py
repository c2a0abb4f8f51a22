"""Scores of some images for some questions, asked again with all draws new.

Nothing else is renewed: model, curvature and damping are what an error is conditioned
on. Every repeat is kept: a killed run goes on.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from core.collection.schema import bytes_sha256
from core.curvature.basis import Curvature
from core.data.datasets import load_dataset
from core.explorer.explorer import Explorer, Lens
from core.index.sketch import make_sketch, pack_signs, packed_products
from core.measure.draws import Augmentation, keyed_generator, make_draws
from core.scores.errors import question_kind
from precompute.machinery.progress import Bar
from precompute.machinery.workspace import load_tensors, open_workspace, save_tensors
from precompute.stages.gradients import GradientStage, measured_proposal
from precompute.stages.train import encode_all

CHUNK = 8  # images


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
        # Of the default question: others agree less, a band least.
        asked = [
            i for i, (_, lens) in enumerate(self.questions) if not is_special(lens)
        ]
        rows = [self._repeat(number)[name][asked][:, among] for number in numbers]
        return float(
            np.mean([
                spearmanr(a, b).statistic
                for i, first in enumerate(rows)
                for second in rows[:i]
                for a, b in zip(first, second, strict=True)
            ])
        )


def is_special(lens: Lens) -> bool:
    """Return whether a lens asks anything but the default question."""
    return question_kind(lens) != question_kind(Lens())


def sketched(dim: int) -> str:
    """Return the name of what sketches of a size say, in the file of a repeat."""
    return f"sketched-{dim}"
