"""A plan: the arithmetic exactly, sizes against files, warnings; one real run."""

import numpy as np
import pytest

from core.config import collection_config
from core.datasets import load_dataset
from core.diffusion import make_denoiser
from core.draws import keyed_generator
from core.parameters import parameter_layout
from precompute.plan import (
    Cost,
    Line,
    line_through,
    plan,
    printed,
    probed_draws,
    sizes,
    warnings,
)


def test_a_line_through_two_costs():
    """Exact where the cost is one; the first call, which warms up, does not count."""
    calls = []

    def cost(size):
        calls.append(size)
        return 3.0 + 0.5 * size if calls[1:] else 100.0

    line = line_through(cost, 2, 10)
    assert line == Line(3.0, 0.5) and line.at(100) == 53.0
    assert calls == [2, 2, 10]
    assert line_through(lambda size: 5.0 - size, 1, 2).slope == 0.0


def test_probes_are_neither_tiny_nor_whole():
    """A quarter and half of the draws, in whole folds of opposite pairs."""
    assert probed_draws(256, 16) == (64, 128)
    assert probed_draws(250, 8) == (56, 112)
    assert probed_draws(8, 16) == (16, 32)


def test_sizes_are_those_of_the_files(tiny_collection):
    """Eigenvectors but for the header; index, divisors and weights to the byte."""
    config = collection_config("glyphs", "tiny")
    dataset = load_dataset(config.data)
    denoiser = make_denoiser(
        config.model, 64, 3, len(dataset.class_names), keyed_generator(0, "x")
    )
    layout = parameter_layout(denoiser.unet)
    _, disk = sizes(config, dataset, denoiser, layout)
    (vectors,) = tiny_collection.glob("glyphs-eigenvectors-*")
    assert disk["curvature"] == pytest.approx(vectors.stat().st_size, rel=0.03)
    codes = sum(p.stat().st_size for p in tiny_collection.glob("*-index-*/*"))
    sketch = len(dataset) * config.gradients.sketch_dim / 8
    assert disk["gradients"] - sketch == pytest.approx(codes, rel=0.01)
    weights = sum(p.numel() for p in denoiser.parameters())
    assert disk["train"] == 2 * weights


def test_warnings_name_the_option_that_would_fit():
    cost = {"train": Cost(10, 1e9, 1e9), "gradients": Cost(3e5, 9e9, 50e9)}
    said = warnings(cost, 4e9, 20e9)
    assert "51.0 GB of disk and 20.0 GB are free" in said[0]
    assert "gradients.index_bits=1" in said[0]
    assert "'gradients' needs 9.0 GB of memory" in said[1]
    assert "'gradients' takes 3.5 days" in said[2] and "num_draws" in said[2]
    assert warnings(cost | {"gradients": Cost(60, 1e9, 1e9)}, 4e9, 20e9) == []


def test_a_plan_has_a_cost_for_every_stage(tmp_path):
    """By the stages' own code; nothing of it is left behind."""
    config = collection_config("fashion2", "tiny")
    costs = plan(config, tmp_path / "work")
    assert list(costs) == ["train", "curvature", "samples", "gradients", "checks"]
    assert all(np.isfinite(cost.seconds) for cost in costs.values())
    assert sum(cost.seconds for cost in costs.values()) > 0
    text = printed(costs, tmp_path / "root")
    assert text.splitlines()[-1].startswith("in all")
    assert list(tmp_path.iterdir()) == []  # not even folders
