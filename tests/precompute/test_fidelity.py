"""What is said of a format is what an independent computation says of it."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from core.curvature.basis import Curvature
from core.curvature.fit import eigenbasis, fit_factors
from core.measure.draws import keyed_generator, make_draws
from core.model.parameters import Layer, Layout, parameter_layout
from core.presets import collection_config
from core.scores.influence import top_overlap
from precompute.machinery.out import check_out
from precompute.machinery.workspace import open_workspace
from precompute.stages.fidelity import (
    EQUAL_BYTES,
    INT8,
    Comparison,
    best_by_budget,
    gallery_part,
    measure_fidelity,
    papers_claim,
    write_fidelity,
)
from precompute.stages.formats import (
    budget_formats,
    full_formats,
    int8_per_tensor,
    low_rank,
)
from precompute.stages.gradients import GradientStage
from tests.helpers.toys import linear_denoiser, random_samples

LAYOUT = Layout((Layer("a", 6, 9, True), Layer("b", 5, 4, False)))


def normal(*shape, seed=0):
    """Return keyed normal numbers."""
    return torch.randn(*shape, generator=keyed_generator(seed, "fidelity test"))


@pytest.fixture(scope="module")
def stage():
    """Return the stage of a linear model with 30 images, in float32."""
    denoiser = linear_denoiser(3, (8, 8)).float()
    layout = parameter_layout(denoiser.unet)
    samples = random_samples(denoiser.double(), 40)
    basis, eigenvalues = eigenbasis(fit_factors(denoiser, layout, [samples]))
    denoiser, basis = denoiser.float(), basis.to("cpu")
    config = collection_config("fashion2", "tiny")
    draws = make_draws(8, denoiser.shape, 20, keyed_generator(0, "d"), num_folds=2)
    dataset = SimpleNamespace(labels=np.zeros(30, np.int64))
    dataset = Thirty(dataset.labels)
    x_0 = normal(30, *denoiser.shape)
    curvature = Curvature(basis, eigenvalues.float() + 1e-3)
    return GradientStage(config, dataset, denoiser, curvature, draws, x_0)


class Thirty:
    """Thirty images of one class."""

    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)


def comparison(stage, examples=30, queries=3):
    """Return a comparison on random gradients of very different sizes."""
    num_params = stage.curvature.basis.layout.num_params
    sizes = stage.curvature.eigenvalues.sqrt()
    gradients = (normal(examples, num_params) * sizes).numpy()
    return Comparison(stage, normal(queries, num_params, seed=1) * sizes, gradients)


def test_reference_scores_match_a_dense_solve(stage):
    """At every damping, in the space of the parameters, in float64."""
    compared, basis = comparison(stage), stage.curvature.basis
    num_params = basis.layout.num_params
    q = basis.to("cpu", torch.float64).rotate_back(torch.eye(num_params).double()).T
    matrix = q @ torch.diag(stage.curvature.eigenvalues.double()) @ q.T
    queries = compared.queries.double() @ q.T
    gradients = torch.from_numpy(compared.gradients).double() @ q.T
    for name, damping in compared.dampings.items():
        damped = matrix + damping * torch.eye(num_params)
        exact = torch.linalg.solve(damped, queries.T).T @ gradients.T
        np.testing.assert_allclose(
            compared.exact[name], exact, rtol=1e-3, atol=1e-3 * float(exact.abs().max())
        )


def test_agreements_are_scipys_and_bytes_are_those_of_the_codes(stage):
    """A row's figures, computed again by hand from the packed codes."""
    compared = comparison(stage)
    own = compared.whitening(stage.damping)
    form = full_formats(compared.rms(), own)[1]
    row = compared.row(form)
    codes, scales = form.empty(30)
    form.pack(torch.from_numpy(compared.gradients) * own, codes, scales)
    assert row["bytes_per_example"] == (codes.nbytes + scales.nbytes) / 30
    for name, damping in compared.dampings.items():
        asked = form.ask(compared.preconditioned(damping) / own)
        scores, exact = form.products(asked, codes, scales), compared.exact[name]
        pairs = list(zip(scores, exact, strict=True))
        rank = np.mean([spearmanr(a, b).statistic for a, b in pairs])
        linear = np.mean([pearsonr(a, b).statistic for a, b in pairs])
        assert row["spearman"][name] == pytest.approx(rank, abs=1e-5)
        assert row["pearson"][name] == pytest.approx(linear, abs=1e-5)
        top = top_overlap(scores, exact, 10)
        assert row["top_ten"][name] == pytest.approx(top, abs=1e-5)


def test_more_bits_of_the_full_index_keep_more(stage):
    """8 bits keep the ranking, 4 less, 1 least, at every damping."""
    compared = comparison(stage)
    own = compared.whitening(stage.damping)
    rows = [compared.row(form) for form in full_formats(compared.rms(), own)]
    for name in compared.dampings:
        eight, four, one = (row["spearman"][name] for row in rows)
        assert eight > 0.999
        assert eight >= four > one


def test_random_formats_keep_inner_products_on_average():
    """Over many seeds a sketch's and a Kronecker projection's mean is the product."""
    first, second = normal(2, LAYOUT.num_params)
    products = {"sketch": [], "Kronecker projection": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("precompute.stages.formats.BUDGETS", (24,))
        patch.setattr("precompute.stages.formats.BITS", (8,))
        for seed in range(400):
            for form in budget_formats(LAYOUT, torch.ones(LAYOUT.num_params), seed):
                if form.family in products:
                    one, other = form.store(first[None]), form.ask(second[None])
                    products[form.family].append(float((one * other).sum()))
    for found in products.values():
        error = np.std(found) / len(found) ** 0.5
        assert abs(np.mean(found) - float(first @ second)) < 5 * error


def test_largest_eigenvalues_are_what_is_kept():
    """The coordinates of the largest, each once; budgets are kept."""
    eigenvalues = normal(20_000).abs()
    layout = Layout((Layer("a", 100, 200, False),))
    for form in budget_formats(layout, eigenvalues, 0):
        assert form.num_bytes <= form.budget + 4 * -(-form.dim // 4096)
        if form.family == "largest eigenvalues":
            kept = form.store(eigenvalues[None])[0]
            largest = eigenvalues.sort(descending=True).values[: form.dim]
            torch.testing.assert_close(kept.sort(descending=True).values, largest)


def test_a_cut_to_a_rank_is_the_nearest_and_turns_with_the_basis():
    """Eckart-Young: what is lost is the sum of the squared singular values cut off."""
    queries = normal(2, LAYOUT.num_params).double()
    cut, num_bytes = low_rank(LAYOUT, queries, 2)
    assert num_bytes == 4 * 2 * (6 + 9 + 5 + 4)
    singular = [torch.linalg.svdvals(m)[..., 2:] for m in LAYOUT.split(queries)]
    lost = sum(s.square().sum(-1) for s in singular)
    torch.testing.assert_close((queries - cut).square().sum(-1), lost)
    left, right = (torch.linalg.qr(normal(n, n).double())[0] for n in (6, 9))
    a, b = LAYOUT.split(queries)
    turned, _ = low_rank(LAYOUT, LAYOUT.join([left @ a @ right, b]), 2)
    a, b = LAYOUT.split(cut)
    torch.testing.assert_close(turned, LAYOUT.join([left @ a @ right, b]))
    assert low_rank(LAYOUT, queries, None)[1] <= 4 * (15 + 9)


def test_int8_is_within_half_a_step_of_every_weight_and_bias(stage):
    """In the space of the parameters, each tensor with its own scale."""
    basis = stage.curvature.basis
    queries = normal(2, basis.layout.num_params)
    queries = basis.rotate_back(queries)
    rounded = basis.rotate_back(int8_per_tensor(basis, basis.rotate(queries)))
    pairs = zip(basis.layout.split(queries), basis.layout.split(rounded), strict=True)
    for exact, found in pairs:
        for part in (slice(0, -1), slice(-1, None)):
            step = exact[..., part].abs().amax((-2, -1)) / 127
            error = (exact - found)[..., part].abs().amax((-2, -1))
            assert (error <= 0.501 * step).all()
            assert (error > 0.1 * step).all()


def test_an_interrupted_measurement_goes_on_to_the_same_table(stage, tmp_path):
    """Stopped after some gradients: equal figures, and no gradient twice."""
    queries = normal(2, stage.curvature.basis.layout.num_params)
    workspaces = [open_workspace(stage.config, tmp_path / name) for name in "ab"]
    straight = measure_fidelity(stage, queries, workspaces[0], 20)
    calls = []

    def folds(self, position, limit):
        calls.append(position)
        if len(calls) > limit:
            raise KeyboardInterrupt
        return whole(self, position)

    whole = GradientStage.folds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradientStage, "folds", lambda s, p: folds(s, p, 10))
        with pytest.raises(KeyboardInterrupt):
            measure_fidelity(stage, queries, workspaces[1], 20)
        first, calls[:] = calls[:8], []
        patch.setattr(GradientStage, "folds", lambda s, p: folds(s, p, 100))
        resumed = measure_fidelity(stage, queries, workspaces[1], 20)
        assert len(calls) == 12
        assert not set(first) & set(calls)
        again = measure_fidelity(stage, queries, workspaces[1], 20)
        assert len(calls) == 12
    assert again == resumed
    assert resumed["facts"] == straight["facts"]
    for one, other in zip(resumed["rows"], straight["rows"], strict=True):
        assert {**one, "seconds_per_query": 0} == {**other, "seconds_per_query": 0}


def row(name, kept, num_bytes=100, budget=None):
    """Return a row with a Spearman correlation at two dampings."""
    return {
        "format": name,
        "dim": None,
        "bits": 8,
        "budget": budget,
        "bytes_per_example": num_bytes,
        "spearman": dict(zip(("1e-08", "0.1"), kept, strict=True)),
    }


def test_the_papers_claim_is_judged_by_what_is_lost():
    """It holds where int8 is near 1 and SVD loses ten times as much, only there."""
    claim = papers_claim([row(INT8, (0.8, 0.999)), row(EQUAL_BYTES, (0.7, 0.9))])
    assert claim["holds"] == {"1e-08": False, "0.1": True}
    assert "0.8000 in int8 and 0.7000 by SVD" in claim["outcome"]
    claim = papers_claim([row(INT8, (0.995, 0.999)), row(EQUAL_BYTES, (0.99, 0.998))])
    assert not any(claim["holds"].values())


def test_the_best_format_of_a_budget_fits_it():
    """At each damping the highest of its own ways and of full indexes small enough."""
    rows = [
        row("few", (0.5, 0.8), budget=1_024),
        row("many", (0.6, 0.7), budget=1_024),
        row("full", (0.9, 0.9), num_bytes=5_000),
    ]
    best = best_by_budget(rows)
    assert [(b["budget"], b["format"], b["spearman"]) for b in best[:4]] == [
        (1_024, "many", 0.6),
        (1_024, "few", 0.8),
        (8_192, "full", 0.9),
        (8_192, "full", 0.9),
    ]
    assert {b["budget"] for b in best} == {1_024, 8_192, 65_536, 524_288}
    assert best_by_budget(rows[2:])[0]["budget"] == 8_192


def test_a_part_of_the_gallery_is_spread_over_it():
    """Twelve samples of any gallery, each once, or all of a small one."""
    assert gallery_part(64) == [i * 64 // 12 for i in range(12)]
    assert gallery_part(5) == list(range(5))


def test_tables_are_written_by_their_suffix(tmp_path):
    """JSON holds all, CSV the rows; another name is a sentence."""
    result = {"rows": [row("x", (0.5, 0.7))], "paper": {"outcome": "Yes."}}
    write_fidelity(result, tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == result
    write_fidelity(result, tmp_path / "t.csv")
    assert pd.read_csv(tmp_path / "t.csv")["spearman at 0.1"].item() == 0.7
    with pytest.raises(ValueError, match="t.txt' ends in none of .csv, .json, so"):
        check_out("fidelity", tmp_path / "t.txt")
