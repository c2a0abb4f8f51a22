"""How much of the scores do compressed gradients keep, and what do they cost?

Scores of some training images for some samples, from float32 gradients and from every
format of `precompute.stages.formats` made of the same gradients: Spearman, Pearson,
top-10 overlap, bytes per example, seconds per query. Also checks what the paper says of
its own two compressions (App. F).
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from core.config import CollectionConfig
from core.curvature.basis import precondition
from core.data.datasets import Dataset
from core.files.texts import safe_csv
from core.measure.draws import keyed_generator
from core.model.denoiser import Denoiser
from core.scores.influence import split_reliability, top_overlap
from precompute.machinery.config import FIDELITY_EXAMPLES
from precompute.machinery.out import ending, write_out
from precompute.machinery.progress import Bar
from precompute.machinery.rows import Rows
from precompute.machinery.workspace import Workspace, write_atomically
from precompute.stages.curvature import fit_curvature
from precompute.stages.formats import (
    BUDGETS,
    Format,
    budget_formats,
    full_formats,
    int8_per_tensor,
    low_rank,
)
from precompute.stages.gradients import GradientStage, gradient_stage
from precompute.stages.samples import make_samples, query_gradients

QUERIES = 12
RELATIVE_DAMPINGS = (1e-8, 1e-3, 1e-1)  # multiples of the mean eigenvalue
RANKS = (1, 8, 64)
NEAR = 0.99  # a correlation that counts as "near 100%"
CHUNK = 8  # examples
EQUAL_BYTES = "paper: query cut to a rank of the same bytes"
INT8 = "paper: query in int8, one scale per tensor"


def gallery_part(num_samples: int) -> list[int]:
    """Return which samples of a gallery are asked, spread evenly over it."""
    count = min(QUERIES, num_samples)
    return [i * num_samples // count for i in range(count)]


def some_queries(
    stage: GradientStage, samples: dict[str, Tensor], workspace: Workspace
) -> Tensor:
    """Return rotated gradients (Q, P) of part of the gallery, computing no others."""
    part = gallery_part(len(samples["x_0"]))
    saved = workspace.load("samples", "queries")
    if saved is not None:
        return saved[0]["queries"][part].mean(1)

    def make() -> dict[str, Tensor]:
        about = stage.config, stage.denoiser, stage.curvature, samples, part
        return {"queries": query_gradients(*about)[0].mean(1)}

    return workspace.kept("samples", "fidelity-queries", make)["queries"]


def fidelity(
    config: CollectionConfig,
    dataset: Dataset,
    denoiser: Denoiser,
    workspace: Workspace,
    num_examples: int,
) -> dict:
    """Return `measure_fidelity` of a model, running the stages it needs."""
    curvature, _ = fit_curvature(config, dataset, denoiser, workspace)
    samples = make_samples(config, denoiser, dataset, workspace)
    stage = gradient_stage(config, dataset, denoiser, curvature, workspace)
    queries = some_queries(stage, samples, workspace)
    return measure_fidelity(stage, queries, workspace, num_examples)


def measure_fidelity(
    stage: GradientStage,
    queries: Tensor,
    workspace: Workspace,
    num_examples: int = FIDELITY_EXAMPLES,
) -> dict:
    """Return the table of all formats and what follows from it; resumable.

    Args:
        stage: From `gradient_stage`.
        queries: Rotated query gradients, shape (Q, P).
        workspace: Where gradients lie until the table is finished.
        num_examples: N', drawn at random; at most all there are.

    Returns:
        JSON values: `facts`; `rows`, one per format; `best`, per budget and damping;
        `paper`, the outcome of its claim.
    """
    num_examples = min(num_examples, len(stage.dataset))
    path = workspace.path("gradients", f"fidelity-{num_examples}.json")
    if path.exists():
        return json.loads(path.read_text())
    folder = path.with_suffix(".d")
    gradients = some_gradients(stage, folder, num_examples)
    comparison = Comparison(stage, queries, gradients)
    whitening = comparison.whitening(stage.damping)
    eigenvalues, layout = comparison.eigenvalues, stage.curvature.basis.layout
    formats = full_formats(comparison.rms(), whitening)
    formats += budget_formats(layout, eigenvalues, stage.config.seed)
    rows = [comparison.row(form) for form in Bar(formats, "formats")]
    rows += comparison.paper_rows()
    result = {
        "facts": comparison.facts(),
        "rows": rows,
        "best": best_by_budget(rows),
        "paper": papers_claim(rows),
    }
    write_atomically(path, json.dumps(result).encode())
    shutil.rmtree(folder)
    return result


def some_gradients(stage: GradientStage, folder: Path, num_examples: int) -> np.ndarray:
    """Return rotated gradients (N', P) of random examples, from a file; resumable."""
    order = torch.randperm(
        len(stage.dataset), generator=keyed_generator(stage.config.seed, "fidelity")
    )
    num_params = stage.curvature.basis.layout.num_params
    rows = Rows(folder, num_examples, CHUNK, {"gradient": ("<f4", (num_params,))})
    for positions in Bar(rows.missing(), "gradients"):
        chosen = order[positions.start : positions.stop].tolist()
        folds = torch.stack([stage.folds(i).mean(0) for i in chosen])
        rotated = stage.curvature.basis.rotate(folds)
        rows.write(positions, gradient=rotated.cpu().numpy())
    return rows.arrays["gradient"]


class Comparison:
    """Scores of compressed gradients beside those of the same in float32.

    Args:
        stage: From `gradient_stage`.
        queries: Rotated, shape (Q, P).
        gradients: Rotated, shape (N', P); may be a memory map.
    """

    def __init__(self, stage: GradientStage, queries: Tensor, gradients: np.ndarray):
        self.stage, self.queries, self.gradients = stage, queries.cpu(), gradients
        self.basis = stage.curvature.basis.to("cpu")
        self.eigenvalues = stage.curvature.eigenvalues.cpu()
        mean = float(self.eigenvalues.double().mean())
        self.dampings = {f"{r:g}": r * mean for r in RELATIVE_DAMPINGS}
        self.exact = {
            name: self.dense_scores(self.preconditioned(damping))
            for name, damping in self.dampings.items()
        }

    def preconditioned(self, damping: float) -> Tensor:
        """Return the queries over (eigenvalue + damping), shape (Q, P)."""
        return precondition(self.queries, self.eigenvalues, damping)

    def rms(self) -> Tensor:
        """Return the root mean square of each coordinate, shape (P,)."""
        squares = sum(g.double().square().sum(0) for _, g in self.pieces())
        return (squares / len(self.gradients)).sqrt().float()

    def whitening(self, damping: float) -> Tensor:
        """Return (eigenvalue + damping)^-1/2, shape (P,)."""
        return (self.eigenvalues + damping).rsqrt()

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the gradients some examples at a time, with their place."""
        for first in range(0, len(self.gradients), CHUNK):
            part = slice(first, first + CHUNK)
            yield part, torch.from_numpy(np.array(self.gradients[part]))

    def dense_scores(self, solved: Tensor) -> np.ndarray:
        """Return products (Q, N') of solved queries with the float32 gradients."""
        return torch.cat([solved @ g.T for _, g in self.pieces()], 1).double().numpy()

    def row(self, form: Format) -> dict:
        """Return the row of a format: its cost, and its agreement at every damping."""
        whitening = self.whitening(self.stage.damping)
        codes, scales = form.empty(len(self.gradients))
        for part, gradients in self.pieces():
            form.pack(gradients * whitening, codes[part], scales[part])
        scores = {
            name: form.products(
                form.ask(self.preconditioned(damping) / whitening), codes, scales
            )
            for name, damping in self.dampings.items()
        }
        query = form.ask(self.queries[:1])
        return {
            "format": form.family,
            "dim": form.dim,
            "bits": form.bits,
            "budget": form.budget,
            "bytes_per_example": form.num_bytes,
            "bytes_per_query": None,
            "seconds_per_query": seconds(lambda: form.products(query, codes, scales)),
            **self.agreements(scores),
        }

    def paper_rows(self) -> list[dict]:
        """Return the rows of the paper's two ways, which compress the query alone."""
        layout = self.basis.layout
        took = seconds(lambda: self.dense_scores(self.queries[:1]))
        num_bytes = layout.num_params + 4 * len(layout.layers)
        rows = []
        for name, rank, approximate in (
            (INT8, None, lambda q: (int8_per_tensor(self.basis, q), num_bytes)),
            (EQUAL_BYTES, None, lambda q: low_rank(layout, q, None)),
            *(
                (
                    f"paper: query cut to rank {r}",
                    r,
                    lambda q, r=r: low_rank(layout, q, r),
                )
                for r in RANKS
            ),
        ):
            solved_queries = {
                damping: approximate(self.preconditioned(value))
                for damping, value in self.dampings.items()
            }
            rows.append({
                "format": name,
                "dim": rank,
                "bits": 8 if name == INT8 else 32,
                "budget": None,
                "bytes_per_example": 4 * layout.num_params,
                "bytes_per_query": max(size for _, size in solved_queries.values()),
                "seconds_per_query": took,
                **self.agreements({
                    damping: self.dense_scores(solved)
                    for damping, (solved, _) in solved_queries.items()
                }),
            })
        return rows

    def agreements(self, scores: dict[str, np.ndarray]) -> dict:
        """Return three measures of agreement with float32, by relative damping."""
        measures = {
            "spearman": split_reliability,
            "pearson": mean_pearson,
            "top_ten": lambda a, b: top_overlap(a, b, 10),
        }
        return {
            name: {
                damping: round(measure(scores[damping], exact), 5)
                for damping, exact in self.exact.items()
            }
            for name, measure in measures.items()
        }

    def facts(self) -> dict:
        """Return what was compared."""
        settings = self.stage.config.gradients
        return {
            "collection": self.stage.config.name,
            "examples": len(self.gradients),
            "queries": len(self.queries),
            "num_params": self.basis.layout.num_params,
            "num_draws": settings.num_draws,
            "relative_dampings": list(self.dampings),
            "stored_at_relative_damping": settings.relative_damping,
            "threads": torch.get_num_threads(),
        }


def mean_pearson(scores: np.ndarray, exact: np.ndarray) -> float:
    """Return the mean over queries of the Pearson correlation of scores (Q, N)."""
    pairs = zip(scores, exact, strict=True)
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs]))


def seconds(call: Callable[[], object]) -> float:
    """Return the shortest time of three calls."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return round(min(times), 6)


def best_by_budget(rows: list[dict]) -> list[dict]:
    """Return which format ranks best, for every budget of bytes and every damping.

    The full index counts for every budget that it fits.
    """
    best = []
    for budget in BUDGETS:
        fits = [row for row in rows if fits_budget(row, budget)]
        for damping in fits[0]["spearman"] if fits else ():
            row = max(fits, key=lambda row: row["spearman"][damping])
            kept = {name: row[name] for name in ("format", "dim", "bits")}
            best.append({
                "budget": budget,
                "relative_damping": damping,
                **kept,
                "bytes_per_example": row["bytes_per_example"],
                "spearman": row["spearman"][damping],
            })
    return best


def fits_budget(row: dict, budget: int) -> bool:
    """Return whether a format was made for a budget, or is a full index within it."""
    within = row["budget"] is None and row["bytes_per_example"] <= budget
    return row["budget"] == budget or within


def papers_claim(rows: list[dict]) -> dict:
    """Return whether int8 keeps nearly everything and SVD far less (App. F).

    "Far" is taken as: what SVD of the same bytes loses is ten times what int8 loses.
    """
    by_name = {row["format"]: row for row in rows}
    int8, svd = by_name[INT8], by_name[EQUAL_BYTES]
    holds = {}
    for damping, kept in int8["spearman"].items():
        lost, lost_by_svd = 1 - kept, 1 - svd["spearman"][damping]
        holds[damping] = bool(kept >= NEAR and lost_by_svd >= 10 * lost)
    figures = "; ".join(
        f"at relative damping {damping} Spearman {kept:.4f} in int8 and "
        f"{svd['spearman'][damping]:.4f} by SVD of the same bytes"
        f" ({'holds' if holds[damping] else 'does not hold'})"
        for damping, kept in int8["spearman"].items()
    )
    return {
        "claim": "int8 with one scale per tensor keeps nearly all, SVD far less",
        "holds": holds,
        "outcome": f"The claim, checked on the same gradients: {figures}.",
    }


def table(rows: list[dict]) -> pd.DataFrame:
    """Return the rows with one column per measure and damping."""
    return pd.json_normalize(rows, sep=" at ")


def write_fidelity(result: dict, path: Path | None) -> None:
    """Write the result as JSON, or its rows as CSV, or print both readably."""
    if path is None:
        print(table(result["rows"]).to_string(index=False))
        print(result["paper"]["outcome"])
    elif ending("fidelity", path) == ".csv":
        write_out(path, safe_csv(table(result["rows"])).encode())
    else:
        write_out(path, (json.dumps(result, indent=2) + "\n").encode())
