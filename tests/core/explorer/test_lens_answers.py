"""Every lens, asked of a tiny collection: one code path, and numbers that add up."""

import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from core.config import MethodConfig
from core.curvature.basis import Curvature
from core.drawing import Drawing
from core.explorer.bands import band_edges, band_table
from core.explorer.explorer import Cancelled, Lens, open_explorer
from core.files.images import png
from core.lenses import stored_key
from core.methods import METHODS
from core.scores.influence import centred
from precompute.__main__ import main
from precompute.stages.answers import store_answers
from precompute.stages.methods import compute_methods
from tests.helpers.fresh import said_without_torch

DRAWS = 8


@pytest.fixture(scope="module")
def root(tiny_collection, tmp_path_factory):
    """Return a folder with the tiny collection, all that methods need, and an index."""
    root = tmp_path_factory.mktemp("lenses")
    shutil.copytree(tiny_collection, root, dirs_exist_ok=True)
    compute_methods(root, "glyphs", root / "work", "cpu", settings=MethodConfig(dim=64))
    return root


@pytest.fixture(scope="module")
def explorer(root):
    """Return the explorer of that collection; DDIM inversion takes few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core.engine.engine.INVERSION_STEPS", 4)
        yield open_explorer("glyphs", root)


@pytest.fixture(scope="module")
def generated(explorer):
    """Return an image that DDPM drew, so that its steps have a probability."""
    return explorer.generate(Drawing(0, 3, "ddpm", 5, 2.0))


def assert_close(first, second, tolerance=1e-5):
    size = np.abs(second).max()
    assert size > 0
    np.testing.assert_allclose(first, second, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers(explorer, generated, method):
    """Finite scores that differ, and errors where the method has them."""
    answer = explorer.answer(generated, Lens(method, num_draws=DRAWS))
    assert answer.scores.shape == (explorer.num_examples,)
    assert np.isfinite(answer.scores).all() and np.ptp(answer.scores) > 0
    assert np.isfinite(answer.standard_errors).all() == METHODS[method].has_errors


@pytest.mark.parametrize("method", ["ekfac", "journey-trak", "das", "latent"])
def test_every_kind_of_picture_is_answered(explorer, generated, method):
    """Gallery, training image and upload; the last two by approximate steps."""
    example = explorer.query_from_example(5)
    upload = explorer.query_from_upload(png(generated.pixels), 0)
    lens = Lens(method, num_draws=DRAWS, form="sketch")
    for query in (explorer.query_from_gallery(1), example, upload):
        answer = explorer.answer(explorer.inverted(query), lens)
        assert np.isfinite(answer.scores).all() and np.ptp(answer.scores) > 0


@pytest.mark.parametrize(
    "lens",
    [
        Lens("ekfac", "elbo", (0, 500), (0, 0, 16, 32), DRAWS, 1e-3),
        Lens("kfac-fisher", "noise-loss", num_draws=DRAWS),
        Lens("trak", "trajectory", num_draws=DRAWS),
        Lens("journey-trak", num_draws=DRAWS),
        Lens("das", region=(8, 8, 24, 24), num_draws=DRAWS),
        Lens("gradient", num_draws=DRAWS, form="full"),
        Lens("pixel"),
    ],
    ids=lambda lens: f"{lens.method}-{lens.measurement}",
)
def test_the_command_and_the_explorer_agree_to_the_last_digit(
    root, explorer, generated, tmp_path, monkeypatch, lens
):
    """A fresh process of the command would write what the app shows."""
    out = tmp_path / "scores.csv"
    options = [
        *("attribute", "--collection", "glyphs", "--root", str(root)),
        *("--seed", "3", "--label", "0", "--sampler", "ddpm", "--steps", "5"),
        *("--method", lens.method, "--measurement", lens.measurement),
        *("--draws", str(lens.num_draws), "--index", lens.form, "--out", str(out)),
    ]
    if lens.timesteps:
        options += ["--timesteps", "{}:{}".format(*lens.timesteps)]
    if lens.region:
        options += ["--region", ",".join(map(str, lens.region))]
    if lens.damping:
        options += ["--damping", repr(lens.damping)]
    monkeypatch.setattr(sys, "argv", ["precompute", *options])
    assert main() == 0
    table = pd.read_csv(out).set_index("example_id").sort_index()
    answer = explorer.answer(generated, lens)
    printed = [float(f"{score:.9g}") for score in answer.scores]
    assert table["score"].tolist() == printed
    assert table["rank"].tolist() == answer.ranks().tolist()


@pytest.mark.parametrize("measurement", ["loss", "elbo", "trajectory"])
@pytest.mark.parametrize("method", ["ekfac", "kfac-reduce", "trak", "relatif"])
def test_bands_of_timesteps_add_up_to_the_whole(
    explorer, generated, method, measurement
):
    """Scores and values of all bands together are those of the whole range.

    The ELBO draws most of its timesteps from the lowest band: it needs more draws so
    that none is empty, and its sum has terms of very different size.
    """
    draws, tolerance = (64, 1e-4) if measurement == "elbo" else (DRAWS, 1e-5)
    lens = Lens(method, measurement, num_draws=draws)
    whole = explorer.answer(generated, lens)
    bands = explorer.band_answers(generated, lens, 5)
    assert bands.edges == (0, 200, 400, 600, 800, 1000)
    assert_close(bands.scores.sum(0), whole.scores, tolerance)
    assert bands.values.sum() == pytest.approx(whole.value, rel=1e-5)
    part = explorer.answer(
        generated, Lens(method, measurement, (200, 600), num_draws=draws)
    )
    assert_close(bands.scores[1:3].sum(0), part.scores, tolerance)


def test_the_steps_of_a_journey_add_up(explorer, generated):
    lens = Lens("journey-trak", num_draws=DRAWS)
    bands = explorer.band_answers(generated, lens, 4)
    assert_close(bands.scores.sum(0), explorer.answer(generated, lens).scores)


@pytest.mark.parametrize("measurement", ["loss", "elbo", "trajectory"])
def test_a_region_and_its_complement_add_up_to_the_whole(
    explorer, generated, measurement
):
    """The left and the right half of the image together are the image."""
    size = generated.pixels.shape[-1]
    halves = [(0, 0, size // 2, size), (size // 2, 0, size, size)]
    parts = [
        explorer.answer(
            generated, Lens("ekfac", measurement, region=half, num_draws=DRAWS)
        )
        for half in halves
    ]
    whole = explorer.answer(generated, Lens("ekfac", measurement, num_draws=DRAWS))
    assert_close(parts[0].scores + parts[1].scores, whole.scores)
    assert parts[0].value + parts[1].value == pytest.approx(whole.value, rel=1e-5)
    assert "latent cells" in parts[0].note and whole.note == (
        explorer.trajectory_note(generated) if measurement == "trajectory" else ""
    )


@pytest.mark.parametrize("method", ["ekfac", "kfac", "ekfac-reduce", "trak", "relatif"])
def test_live_damping_is_a_fresh_answer_at_that_damping(root, explorer, method):
    """Re-ranking with a kept gradient gives the very numbers of a new question."""
    query = explorer.query_from_example(7)
    explorer.answer(query, Lens(method, num_draws=DRAWS))
    lens = Lens(method, num_draws=DRAWS, damping=0.5)
    live = explorer.answer(query, lens)
    fresh = open_explorer("glyphs", root)
    np.testing.assert_array_equal(
        live.scores, fresh.answer(fresh.query_from_example(7), lens).scores
    )
    assert (
        live.scores != explorer.answer(query, Lens(method, num_draws=8)).scores
    ).any()


def test_columns_share_one_gradient(explorer):
    """Four methods and a damping measure once."""
    query, measured = explorer.query_from_example(11), []
    lenses = [Lens(m, num_draws=DRAWS) for m in ("ekfac", "kfac", "gradient", "trak")]
    lenses.append(Lens("ekfac", num_draws=DRAWS, damping=1.0))

    def note(done, total, what):
        measured.append(what)

    answers = [explorer.answer(query, lens, note) for lens in lenses]
    assert measured.count("Measuring") == 4  # the folds of one gradient
    assert len({answer.value for answer in answers}) == 1


@pytest.mark.parametrize("kfac", ["ekfac", "kfac"])
@pytest.mark.parametrize("ggn", ["reduce", "fisher"])
def test_other_curvatures_are_solved_with_in_their_own_eigenbasis(explorer, kfac, ggn):
    """The full index under another curvature is that curvature's dense solve."""
    query, method = explorer.query_from_example(5), f"{kfac}-{ggn}"
    lens = Lens(method, num_draws=DRAWS, form="full", damping=0.3)
    scoring = explorer.engine.scoring
    curvature = scoring.method_file(method).curvature(scoring.basis.layout, kfac)
    plain = Lens("gradient", num_draws=DRAWS, form="full")
    folds = explorer.engine.gradients(query, plain)[0].folds
    gradient = scoring.basis.rotate_back(folds.mean(0, keepdim=True))
    training = scoring.basis.rotate_back(training_gradients(scoring))
    other = Curvature(curvature.basis.to("cpu"), curvature.eigenvalues)
    expected = training.double() @ other.solve(gradient, 0.3)[0].double()
    assert_close(
        explorer.answer(query, lens).scores, centred(expected.numpy()), tolerance=1e-3
    )


def training_gradients(scoring) -> torch.Tensor:
    """Return all training gradients in the main eigenbasis, out of the full index."""
    index = scoring.indexed.index
    return index.columns(0, index.num_params) * scoring.indexed.divisors


def test_cosine_is_that_of_the_gradients(explorer):
    query, lens = (
        explorer.query_from_example(5),
        Lens("cosine", num_draws=8, form="full"),
    )
    gradient = explorer.engine.gradients(query, lens)[0].folds.mean(0)
    training = training_gradients(explorer.engine.scoring)
    expected = torch.cosine_similarity(training, gradient[None])
    np.testing.assert_allclose(
        explorer.answer(query, lens).scores, expected.numpy(), atol=1e-3
    )


def test_gallery_answers_are_there_without_the_model(root):
    """Four stored lenses of a gallery image load neither torch nor the engine."""
    lenses = [Lens(), Lens("ekfac", "elbo"), Lens("trak"), Lens("clip")]
    store_answers(root, "glyphs", root / "work", lenses)
    told = said_without_torch(
        root,
        f"answers = [explorer.answer(query, lens) for lens in {lenses!r}]",
        "print([answer.source for answer in answers])",
    )
    assert told.strip() == str(["exact", "full index", "projection", "exact"])


def test_stored_answers_are_what_the_explorer_would_give(root, explorer):
    """Stored with the gallery's draws, from the full index, rounded to float32."""
    lens = Lens("ekfac", "elbo", num_draws=DRAWS)
    store_answers(root, "glyphs", root / "work", [lens])
    stored = open_explorer("glyphs", root)
    assert {"method": "ekfac", "measurement": "elbo"} == stored_key(lens)
    query = stored.query_from_gallery(2)
    answer = stored.answer(query, lens)
    live = explorer.answer(query, Lens("ekfac", "elbo", num_draws=DRAWS, form="full"))
    for name in ("scores", "standard_errors"):
        rounded = getattr(live, name).astype(np.float32)
        np.testing.assert_array_equal(getattr(answer, name), rounded)
    assert answer.value == live.value


def test_every_long_path_can_be_stopped(explorer, generated):
    """Progress is told on the way, and raising from it ends the work."""

    def stop(done, total, what):
        raise Cancelled

    fresh = explorer.query_from_example(13)
    for ask in (
        lambda: explorer.answer(fresh, Lens(num_draws=DRAWS), stop),
        lambda: explorer.answer(fresh, Lens("d-trak", num_draws=DRAWS), stop),
        lambda: explorer.band_answers(fresh, Lens(num_draws=DRAWS), 4, stop),
        lambda: explorer.measure(explorer.inverted(fresh), "trajectory", progress=stop),
        lambda: explorer.answer(explorer.inverted(fresh), Lens("journey-trak"), stop),
        lambda: explorer.measure(fresh, "log-probability", progress=stop),
        lambda: explorer.generate(Drawing(0, 9, "ddpm", 5, 2.0), stop),
    ):
        with pytest.raises(Cancelled):
            ask()


def test_pictures_that_were_not_drawn_have_no_steps(explorer, generated):
    """One sentence says so, and what to do; inversion is marked approximate."""
    example = explorer.query_from_example(5)
    with pytest.raises(ValueError, match="did not draw this image.*--invert"):
        explorer.answer(example, Lens("ekfac", "trajectory"))
    with pytest.raises(ValueError, match="did not draw this image.*other method"):
        explorer.answer(example, Lens("journey-trak"))
    with pytest.raises(ValueError, match="DDIM draws without noise"):
        explorer.measure(explorer.generate(Drawing(0, 1, "ddim", 5)), "trajectory")
    inverted = explorer.inverted(example)
    assert "approximate" in explorer.trajectory_note(inverted)
    assert "approximate" in explorer.answer(inverted, Lens("journey-trak")).note
    assert inverted.key != example.key and explorer.inverted(generated) is generated


def test_the_steps_drawn_again_end_in_the_picture(explorer, generated):
    """The same seed gives the same bits."""
    subject = explorer.engine.subject(generated, with_steps=True)
    np.testing.assert_array_equal(subject.trajectory.states[-1], generated.x_0)


def test_measured_values_are_those_of_the_answers(explorer, generated):
    """Value and gradient come from the same draws."""
    for measurement in ("loss", "noise-loss", "elbo", "trajectory"):
        measured = explorer.measure(generated, measurement, (100, 900), None, DRAWS)
        lens = Lens("ekfac", measurement, (100, 900), num_draws=DRAWS)
        answer = explorer.answer(generated, lens)
        assert measured.value == pytest.approx(answer.value, rel=1e-5)
        np.testing.assert_allclose(
            measured.standard_error, answer.value_error, rtol=1e-3
        )
    with pytest.raises(ValueError, match="is that of the whole image"):
        explorer.measure(generated, "log-probability", (0, 5))


def test_the_curve_averages_to_the_loss(explorer):
    """Bands of equal width weigh alike, so their mean is the measured loss."""
    query = explorer.query_from_example(5)
    curve = explorer.timestep_losses(query, num_draws=256, num_bands=8)
    assert curve["timestep_low"].tolist() == list(range(0, 1000, 125))
    measured = explorer.measure(query, "loss", num_draws=256)
    assert curve["cost"].mean() == pytest.approx(measured.value, rel=1e-5)
    assert (curve["standard_error"] > 0).all()


def test_band_table_matches_a_hand_count():
    """Two pairs in the first band, one in the second, none in the third."""
    timesteps = np.array([1, 1, 3, 3, 4, 4])
    costs = np.array([1.0, 3.0, 5.0, 7.0, 2.0, 2.0])
    even = np.ones(6)
    table = band_table(timesteps, costs, even, (0, 4, 8, 12))
    assert table["cost"].tolist() == [4.0, 2.0]
    assert table["timestep_high"].tolist() == [4, 8]
    assert table["standard_error"][0] == pytest.approx(2.0)  # of 2 and 6
    assert np.isnan(table["standard_error"][1])
    thrice = np.array([3.0, 3.0, 1.0, 1.0, 1.0, 1.0])  # the first is drawn rarely
    assert band_table(timesteps, costs, thrice, (0, 4, 8, 12))["cost"][0] == 3.0
    assert band_edges((0, 10), 4) == (0, 2, 5, 7, 10)


def test_the_curve_of_the_trajectory_is_its_steps(explorer, generated):
    curve = explorer.timestep_losses(generated, "trajectory")
    assert curve["timestep_high"].tolist() == [400, 600, 800, 1000]
    assert curve["timestep_low"].tolist() == [200, 400, 600, 800]
    measured = explorer.measure(generated, "trajectory")
    assert curve["cost"].sum() == pytest.approx(measured.value, rel=1e-5)


def test_weights_say_what_the_losses_differ_by(explorer):
    """A velocity model's loss is the noise loss over alpha, at every timestep."""
    table = explorer.measurement_weights()
    weights = table.pivot(index="timestep", columns="measurement", values="weight")
    np.testing.assert_allclose(weights.mean(), 1)
    query = explorer.query_from_example(5)
    ratios = []
    for low in (40, 700):
        values = [
            explorer.measure(query, name, (low, low + 1), num_draws=DRAWS).value
            for name in ("loss", "noise-loss")
        ]
        ratios.append(values[0] / values[1])
    expected = weights["Training loss"] / weights["Noise loss"]
    assert ratios[0] / ratios[1] == pytest.approx(expected[40] / expected[700], 1e-4)


def test_what_did_not_come_along_is_said_with_the_command(
    explorer, tiny_collection, tmp_path
):
    """A clone without the files knows which methods it lacks, and how to make them."""
    for path in tiny_collection.glob("glyphs*"):
        if path.is_file() and "-method-" not in path.name:
            shutil.copy(path, tmp_path)
    clone = open_explorer("glyphs", tmp_path)
    facts = clone.method_facts().set_index("method")
    assert facts["available"]["ekfac"] and not facts["available"]["trak"]
    assert (
        "`python -m precompute methods --collection glyphs --only trak`"
        in (facts["why_not"]["trak"])
    )
    with pytest.raises(LookupError, match="What 'd-trak' needs did not come with"):
        clone.answer(clone.query_from_example(5), Lens("d-trak"))
    with pytest.raises(LookupError, match="The full index did not come"):
        clone.answer(clone.query_from_example(5), Lens(form="full"))
    whole = explorer.method_facts().set_index("method")
    assert whole["available"].all()
    assert whole["seconds"]["trak"] >= facts["seconds"]["gradient"]
