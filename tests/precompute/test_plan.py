"""A plan: the arithmetic exactly, sizes against files, warnings; one real run."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest

from core.data.datasets import load_dataset
from core.measure.draws import keyed_generator
from core.model.build import make_denoiser
from core.model.parameters import parameter_layout
from core.presets import collection_config
from core.recipes import with_settings
from precompute.planning.plan import (
    Estimate,
    kept,
    options,
    plan,
    printed,
    shorter,
    sizes,
    total,
    warnings,
)
from precompute.planning.probe import Line, line_through, probed_draws
from precompute.stages.proposal import NUM_BANDS, NUM_IMAGES, NUM_QUERIES


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


def estimate(changes=(), slopes=None, trained=False) -> Estimate:
    """Return an estimate whose lines are all one second a unit, but for some."""
    config = with_settings(collection_config("fashion2"), list(changes))
    dataset = load_dataset(replace(config.data, limit=32))
    denoiser = make_denoiser(config.model, 16, 1, 0, keyed_generator(0, "x"))
    names = [f.name for f in fields(Estimate) if f.type == Line or f.name == "training"]
    lines = {name: Line(0.0, (slopes or {}).get(name, 1.0)) for name in names}
    if trained:
        lines["training"] = None
    layout = parameter_layout(denoiser.unet)
    return Estimate(config, dataset, denoiser, layout, **lines)


def test_costs_are_counted_from_the_settings():
    """Every stage by hand; the checks compress, compare and embed all images here."""
    one = estimate(slopes={"query": 2.0, "example": 3.0, "formats": 5.0, "clip": 7.0})
    seconds = {name: cost.seconds for name, cost in one.costs().items()}
    pilot = min(NUM_QUERIES + NUM_IMAGES, 32) * 2 * NUM_BANDS
    assert seconds == {
        "train": 3000.0,
        "curvature": 2.0 + 2.0,
        "samples": 48 * 50.0 + 48 * 2.0 * 256,
        "gradients": 2.0 * pilot + (32 + 32) * 3.0 * 64,
        "checks": 32 * 2.0 * 64 + 32 * 5.0 + 32 * 7.0,
    }
    assert estimate(trained=True).costs()["train"].seconds == 0


def test_options_are_those_that_save_most_with_what_they_save():
    """Half of 15,000 s of training, 14,688 of the gallery, 12,288 of its draws."""
    (said,) = shorter(estimate(slopes={"training": 5.0, "example": 0.5}))
    saved = re.findall(r"--set (\S+) saves (\S+ \S+?)[;.]", said)
    assert saved == [
        ("train.num_steps=1500", "2.1 h"),
        ("samples.num_samples=24", "2.0 h"),
        ("samples.num_draws=128", "102 min"),
    ]


WARM = ["train.num_steps=700", "train.warmup_steps=600"]


@pytest.mark.parametrize(
    ("changes", "slopes", "trained", "never"),
    [
        ((), {"training": 1e3}, True, "train."),  # it is trained already
        (["train.num_steps=500"], {"training": 1e3}, False, "train."),  # at its least
        (
            ["train.num_steps=700", "train.warmup_steps=600"],
            {"training": 1e3},
            False,
            "train.",
        ),
        (["gradients.num_draws=16"], {"example": 1e3}, False, "gradients.num_draws"),
        (["samples.num_draws=64"], {"query": 1e3}, False, "samples.num_draws"),
        ((), {}, False, "index_bits"),  # takes as long
        ((), {}, False, "chunk"),
    ],
)
def test_options_that_are_set_or_change_nothing_are_not_named(
    changes, slopes, trained, never
):
    assert never not in "".join(shorter(estimate(changes, slopes, trained)))


def test_every_option_is_smaller_and_fits():
    """Whatever is planned: halved again and again, all stay valid and end."""
    one, rounds = estimate(), 0
    while found := options(one):
        for option in found:
            assert total(option.costs) <= total(one.costs())
        changes = [option.change for option in found[:1]]
        one = replace(one, config=with_settings(one.config, changes))
        rounds += 1
        assert rounds < 60


def test_warnings_name_the_option_that_would_fit():
    one = estimate(["gradients.num_draws=64"])
    needed = kept(one.costs())
    assert warnings(one, 1e12, 1e12) == []
    (said,) = warnings(one, 1e12, needed / 2)
    assert (
        "GB of disk and" in said and "With --set samples.num_samples=24 it is" in said
    )
    (said,) = warnings(one, 1e8, 1e12)
    assert "GB of memory and 0.1 GB are free. With --set samples.num_samples=24" in said
    small = estimate(
        ["samples.num_samples=8", "gradients.index_bits=1", "gradients.chunk=4"]
        + ["gradients.sketch_dim=16384"]
    )
    (said,) = warnings(small, 1e12, kept(small.costs()) / 2)
    assert "No setting changes that: use fewer images, or a smaller model." in said
    (said,) = warnings(estimate(slopes={"example": 1e3}), 1e12, 1e12)
    assert said == "'gradients' takes 47.4 days here; a GPU is faster."


def test_a_plan_has_a_cost_for_every_stage(tmp_path, capsys):
    """By the stages' own code; nothing of it is left behind; it shows how far it is."""
    config = collection_config("fashion2", "tiny")
    found = plan(config, tmp_path / "work")
    costs = found.costs()
    assert list(costs) == ["train", "curvature", "samples", "gradients", "checks"]
    assert all(np.isfinite(cost.seconds) for cost in costs.values())
    # On a busy machine what grows with the size can be lost in a trial's noise.
    assert all(cost.seconds >= 0 for cost in costs.values())
    assert costs["train"].seconds > 0
    assert found.formats.at(32) > 0
    text = printed(found, tmp_path / "root")
    assert text.splitlines()[6].startswith("in all")
    assert "trials: 100%" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []  # not even folders
