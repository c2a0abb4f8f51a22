"""The error of a sum over a group is what loops over folds and queries say."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from core.answers import Uncertainty
from core.explorer.explorer import Explorer, Lens
from core.index.projection import make_projection
from core.index.sketch import make_sketch, pack_signs
from core.measure.draws import keyed_generator
from core.presets import collection_config
from core.scores.group_errors import (
    INDEPENDENT,
    find_uncertainty,
    fold_contrasts,
    read_training_errors,
    training_errors,
    training_errors_path,
    write_training_errors,
)
from core.scores.influence import centred
from core.scores.method_files import MethodFile
from core.scores.scoring import Scores
from core.scores.stored import FromFeatures, FromSketch
from precompute.stages.errors import gallery_asked

RNG = np.random.default_rng(0)
N = 30
GROUPS = np.stack([np.arange(N) < 10, np.arange(N) % 3 == 0, np.ones(N, bool)])


def error_by_fold(fold_scores: np.ndarray, members: np.ndarray) -> float:
    """Return the standard error of a group's change by a loop over the folds."""
    sums = [sum(scores[i] for i in np.flatnonzero(members)) for scores in fold_scores]
    mean = sum(sums) / len(sums)
    spread = sum((one - mean) ** 2 for one in sums) / (len(sums) - 1)
    return (spread / len(sums)) ** 0.5 / len(members)


@pytest.mark.parametrize("num_folds", [2, 3, 4, 16])
def test_contrasts_are_a_loop_over_the_folds(num_folds):
    folds = RNG.normal(size=(num_folds, N)) + RNG.normal(size=(num_folds, 1))
    rows = fold_contrasts(folds)
    found = Uncertainty(rows, np.zeros(N)).of_groups(GROUPS)
    expected = [error_by_fold(folds, members) for members in GROUPS]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert len(rows) == num_folds - 1
    # What all folds have in common is no error, and the order of folds is no matter.
    shifted = fold_contrasts(folds[::-1] + RNG.normal(size=N))
    again = Uncertainty(shifted, np.zeros(N)).of_groups(GROUPS)
    np.testing.assert_allclose(again, expected, rtol=1e-10)


def test_one_fold_has_no_spread():
    assert fold_contrasts(np.ones((1, N))).shape == (0, N)


def test_training_errors_are_the_average_over_queries():
    """Each query's loop over folds, by its spread; a common error is none."""
    folds, spread = RNG.normal(size=(3, 5, N)), RNG.random(5) + 0.5
    rows = training_errors(folds + RNG.normal(size=(3, 5, 1)), spread)
    found = Uncertainty(rows, np.zeros(N)).of_groups(GROUPS[:2])
    expected = [
        np.mean([
            error_by_fold(centred(folds[:, m]), members) ** 2 / spread[m]
            for m in range(5)
        ])
        for members in GROUPS[:2]
    ]
    np.testing.assert_allclose(found**2, expected, rtol=1e-10)
    everything = Uncertainty(rows, np.zeros(N)).of_groups(GROUPS[2:])
    np.testing.assert_allclose(everything, 0, atol=1e-12)


@pytest.mark.parametrize("kind", ["sketch", "features"])
def test_parts_of_a_short_form_tell_how_wrong_its_sums_are(kind):
    """Over 100 random short forms, for a sum over images that are alike."""
    generator, size, dim = keyed_generator(0, "short forms"), 4096, 128
    gradients = torch.randn(N, size, generator=generator)
    gradients[:10] += torch.randn(size, generator=generator)
    vector = torch.randn(size, generator=generator)
    exact, wrong, predicted = (gradients[:10] @ vector).sum().item(), [], []
    for number in range(100):
        if kind == "sketch":
            sketch = make_sketch(size, dim, keyed_generator(number, "sketch"))
            packed = pack_signs(sketch.apply(gradients))
            form = FromSketch(sketch, *packed, torch.ones(size), np.ones(N))
        else:
            file = MethodFile(None, {}, {"norm": gradients.norm(dim=1)})
            projection = make_projection("sketch", size, dim, number)
            file.__dict__["projection"] = projection
            file.__dict__["features"] = projection.apply(gradients)
            form = FromFeatures(file)
        estimates, product = form.estimates(vector), form.products(vector[None])[0]
        np.testing.assert_allclose(estimates.mean(0), product, rtol=1e-3, atol=1e-2)
        wrong.append(product[:10].sum() - exact)
        predicted.append(N * error_by_fold(estimates, GROUPS[0]))
    rms = np.sqrt(np.mean(np.square(predicted)))
    assert rms == pytest.approx(np.sqrt(np.mean(np.square(wrong))), rel=0.2)


def test_errors_survive_the_file_and_a_damaged_one_is_refused(tmp_path):
    path = training_errors_path(tmp_path, collection_config("glyphs", "tiny"))
    assert read_training_errors(path, N) is None
    rows = RNG.normal(size=(7, N))
    write_training_errors(path, rows)
    np.testing.assert_allclose(read_training_errors(path, N), rows, rtol=1e-3)
    with pytest.raises(ValueError, match="about other images"):
        read_training_errors(path, N + 1)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match="Delete it and make it again"):
        read_training_errors(path, N)


# --- through the explorer -----------------------------------------------------------


def halves(explorer: Explorer) -> np.ndarray:
    """Return two groups of the training images, and all of them."""
    first = np.arange(explorer.num_examples) < explorer.num_examples // 2
    return np.stack([first, ~first, first | ~first])


@pytest.mark.parametrize("kind", ["gallery", "example"])
@pytest.mark.parametrize("lens", [Lens(num_draws=8), Lens("kfac", num_draws=8)])
def test_a_group_of_one_image_has_the_error_that_explore_prints(
    tiny_explorer, kind, lens
):
    """Stored and computed answers. The halves are wrong alike, all images not at all.

    Scores are centred, so what one half is too large by, the other is too small by.
    """
    explorer = tiny_explorer
    if kind == "gallery":
        query = explorer.query_from_gallery(0)
    else:
        query = explorer.query_from_example(int(explorer.examples.table.index[0]))
    answer = explorer.answer(query, lens)
    found = explorer.uncertainty(query, answer)
    single = found.of_groups(np.eye(explorer.num_examples, dtype=bool))
    expected = answer.standard_errors / explorer.num_examples
    np.testing.assert_allclose(single, expected, rtol=1e-9)
    assert (single > 0).all() and found.note == ""
    errors = found.of_groups(halves(explorer))
    assert errors[0] == pytest.approx(errors[1], rel=0.05)
    assert errors[2] < 0.05 * errors[0]


def test_without_the_file_errors_are_independent_and_the_note_says_so(
    tiny_explorer, monkeypatch
):
    monkeypatch.setattr(
        "core.scores.group_errors.read_training_errors", lambda *_: None
    )
    query = tiny_explorer.query_from_gallery(0)
    answer = tiny_explorer.answer(query, Lens())
    found = tiny_explorer.uncertainty(query, answer)
    assert found.note == INDEPENDENT
    np.testing.assert_allclose(found.unshared, answer.standard_errors**2)


def test_method_without_errors_has_none(tiny_explorer):
    """DataInf has no standard errors, so sums of its scores have none either."""
    scoring = tiny_explorer.engine.scoring
    folds = torch.zeros(4, scoring.basis.layout.num_params)
    nothing = np.full(tiny_explorer.num_examples, np.nan)
    answer = Scores(nothing, nothing, "projection")
    found = find_uncertainty(scoring, Lens("datainf"), folds, answer)
    assert np.isnan(found.of_groups(halves(tiny_explorer))).all()


def test_spread_of_the_noise_does_not_depend_on_the_threads():
    """The rest is rounded away in half precision: equal builds write equal bytes."""
    generator = keyed_generator(0, "spread")
    queries = torch.randn(3, 2, 200_000, generator=generator)
    noise = torch.rand(200_000, generator=generator)
    curvature = SimpleNamespace(eigenvalues=torch.rand(200_000, generator=generator))
    stage = SimpleNamespace(curvature=curvature, damping=0.1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            asked = gallery_asked(stage, queries, {"noise": noise})
            found.append([one.spread for one in asked])
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-13)
    weighted = queries.double().mean(1) / (curvature.eigenvalues.double() + 0.1)
    expected = (weighted.square() * noise).sum(1)
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
