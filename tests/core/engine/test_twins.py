"""Twins, models without some images: asked the same question as the full model."""

import numpy as np
import pytest
import torch

from core.engine.query import query_draws
from core.engine.twins import open_twin
from core.evidence.stored import NOTHING, RANDOM
from core.evidence.twins import Twin, find_twins, nulls_of, twins_folder
from core.explorer.explorer import Lens, open_explorer
from core.measurements import MEASUREMENTS
from tests.conftest import linked_copy
from tests.helpers.twins import write_twin


@pytest.fixture
def explorer(tiny_collection, tmp_path):
    """Return the tiny collection with twins: itself, and one of other weights."""
    root = linked_copy(tiny_collection, tmp_path)
    found = open_explorer("glyphs", root)
    weights, folder = found._collection.denoiser(), twins_folder(root, found.config)
    write_twin(folder / "a.safetensors", weights, NOTHING, 0.0)
    write_twin(folder / "b.safetensors", weights, RANDOM, 0.25, 1)
    write_twin(folder / "c.safetensors", weights, RANDOM, 0.25, 0)
    write_twin(folder / "d.safetensors", weights, RANDOM, 0.5, 0)
    write_twin(folder / "e.safetensors", weights, "style=noto", 0.2468, change=1.01)
    write_twin(folder / "f.safetensors", weights, "style=fluent", 0.2532)
    (folder / "damaged.safetensors").write_bytes(weights[:999])
    (folder / "other.safetensors").write_bytes(weights)  # says nothing of what it is
    yield found
    found.close()


def test_twins_are_found_in_an_order_with_their_nulls(explorer):
    names = [(twin.group, twin.number) for twin in explorer.twins]
    random = [(RANDOM, 0), (RANDOM, 0), (RANDOM, 1)]
    assert names == [
        ("style=fluent", -1), ("style=noto", -1), *random, (NOTHING, -1)
    ]  # fmt: skip
    noto = explorer.twins[1]
    nulls = nulls_of(noto, explorer.twins)
    assert [(one.share, one.number) for one in nulls] == [(0.25, 0), (0.25, 1)]
    assert find_twins(noto.path.parent / "nowhere") == []


@pytest.mark.parametrize("measurement", ["loss", "elbo", "trajectory"])
def test_the_model_as_its_own_twin_changes_nothing(explorer, measurement):
    """The image to the last pixel, and the cost to the last bit."""
    query = explorer.query_from_gallery(1)
    lens = Lens("ekfac", measurement)
    found = explorer.redrawn(query, lens, explorer.twins[-1])
    np.testing.assert_array_equal(found.pixels, query.pixels)
    assert found.value == explorer.measure(query, measurement).value


def test_the_cost_in_a_twin_equals_a_loop_over_the_draws(explorer):
    """Each draw alone, the noise predicted by the twin's own network."""
    query, lens = explorer.query_from_gallery(2), Lens("ekfac", "loss", num_draws=8)
    twin = next(one for one in explorer.twins if one.group == "style=noto")
    found = explorer.redrawn(query, lens, twin)
    full = explorer.measure(query, "loss", num_draws=8).value
    denoiser = open_twin(twin.path, explorer.engine.denoiser)
    draws = query_draws(denoiser, 8, 0, MEASUREMENTS["loss"])
    x_0 = torch.from_numpy(explorer.engine.x_0(query))
    costs = []
    for t, noise in zip(draws.timesteps, draws.noise, strict=True):
        kept = denoiser.alphas_cumprod[t]
        x_t = kept.sqrt() * x_0 + (1 - kept).sqrt() * noise
        velocity = kept.sqrt() * noise - (1 - kept).sqrt() * x_0
        with torch.no_grad():
            label = torch.tensor([query.label])
            guess = denoiser.predict(x_t[None], t[None], label)[0]
        costs.append((guess - velocity).square().sum())
    assert found.value == pytest.approx(float(torch.stack(costs).mean()), rel=1e-4)
    assert found.value != pytest.approx(full, rel=1e-4)


def test_an_image_that_no_model_drew_is_measured_and_not_redrawn(explorer):
    query = explorer.query_from_example(explorer.examples.table.index[0])
    found = explorer.redrawn(query, Lens(), explorer.twins[-1])
    assert found.pixels is None and found.value > 0


def test_a_twin_of_another_model_is_refused(explorer):
    path = explorer.twins[0].path
    other = open_explorer("fashion2")
    write_twin(path, other._collection.denoiser(), "style=fluent")
    twin = Twin("style=fluent", 0.25, -1, path)
    with pytest.raises(ValueError, match="is of another model than this collection's"):
        explorer.redrawn(explorer.query_from_gallery(0), Lens(), twin)
