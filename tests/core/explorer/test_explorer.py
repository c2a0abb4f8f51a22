"""Every question to a collection, asked of a tiny one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.curvature.basis import Curvature
from core.data.datasets import load_dataset
from core.drawing import Drawing
from core.engine.query import query_draws
from core.explorer.explorer import Cancelled, Lens, list_collections, open_explorer
from core.files.images import png
from core.measure.costs import loss
from core.measure.draws import Augmentation, keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.presets import collection_config
from core.scores.influence import centred
from precompute.stages.proposal import timestep_proposal

CONFIG = collection_config("glyphs", "tiny")


def plain_scores(explorer, query, num_draws):
    """Return Eq. 6 with neither index nor sketch: one dense product per example."""
    engine = explorer.engine
    denoiser, layout = engine.denoiser, engine.basis.layout
    curvature = Curvature(engine.basis, engine.scoring.eigenvalues["ekfac"])
    x_0 = engine.x_0(query)
    draws = query_draws(denoiser, num_draws, CONFIG.seed)
    gradient, _ = fold_gradients(
        loss, denoiser, layout, torch.from_numpy(x_0), query.label, draws, 1
    )
    solved = curvature.solve(gradient, explorer.provenance["damping"])
    dataset = load_dataset(CONFIG.data)
    every_x_0 = denoiser.encode(dataset.images())
    proposal = timestep_proposal(
        denoiser,
        curvature,
        explorer.provenance["damping"],
        every_x_0,
        torch.from_numpy(dataset.labels),
        CONFIG.seed,
    )
    draws = make_draws(
        CONFIG.gradients.num_draws,
        denoiser.shape,
        denoiser.num_train_timesteps,
        keyed_generator(CONFIG.seed, "training draws"),
        Augmentation(CONFIG.model.label_dropout),
        num_folds=CONFIG.gradients.num_folds,
        proposal=proposal,
    )
    rows = [
        fold_gradients(
            loss,
            denoiser,
            layout,
            every_x_0[i],
            int(dataset.labels[i]),
            draws,
            1,
        )[0][0]
        for i in range(len(dataset))
    ]
    return centred((torch.stack(rows).double() @ solved[0].double()).numpy())


@pytest.mark.parametrize("form", ["full", "sketch"])
def test_answers_agree_with_the_plain_product(tiny_explorer, form):
    """The index is within 1 % of Eq. 6, the sketch ranks alike (> 0.9)."""
    query = tiny_explorer.query_from_example(5)
    answer = tiny_explorer.answer(query, Lens(num_draws=8, form=form))
    expected = plain_scores(tiny_explorer, query, 8)
    assert answer.source == {"full": "full index", "sketch": "sketch"}[form]
    if form == "full":
        size = np.abs(expected).max()
        assert np.abs(answer.scores - expected).max() < 0.01 * size
    assert np.corrcoef(answer.scores, expected)[0, 1] > 0.9


def test_stored_gallery_answers_are_the_plain_product(tiny_explorer):
    """What the build stores for the gallery is Eq. 6 itself, to float error."""
    query = tiny_explorer.query_from_gallery(2)
    answer = tiny_explorer.answer(query, Lens())
    assert answer.source == "exact"
    assert answer.lens.num_draws == CONFIG.samples.num_draws
    expected = plain_scores(tiny_explorer, query, CONFIG.samples.num_draws)
    np.testing.assert_allclose(
        answer.scores, expected, atol=1e-3 * np.abs(expected).max()
    )


def test_damping_acts_on_the_query(tiny_explorer):
    """A large damping turns influence into the plain inner product of gradients."""
    query = tiny_explorer.query_from_example(5)
    lens = Lens(num_draws=8, form="full", damping=1e9)
    scores = tiny_explorer.answer(query, lens).scores * 1e9
    other = tiny_explorer.answer(query, Lens(num_draws=8, form="full", damping=1e10))
    np.testing.assert_allclose(scores, other.scores * 1e10, rtol=1e-3)


def test_the_gallery_begins_with_the_lowest_loss(tiny_explorer):
    """Samples stand in the order of their stored losses, each with its own class."""
    values = [
        tiny_explorer.answer(tiny_explorer.query_from_gallery(int(i)), Lens()).value
        for i in tiny_explorer.gallery.index
    ]
    assert values == sorted(values)
    for row in tiny_explorer.gallery.itertuples():
        words = tiny_explorer.query_from_gallery(row.Index).description
        assert tiny_explorer.class_words(row.label) in words


def test_strips_are_the_ends_and_the_middle(tiny_explorer):
    """Top is largest first, opposing smallest first, neutral nearest zero."""
    query = tiny_explorer.query_from_gallery(0)
    answer = tiny_explorer.answer(query, Lens())
    order = np.sort(answer.scores)
    np.testing.assert_array_equal(answer.scores[answer.top(5)], order[::-1][:5])
    np.testing.assert_array_equal(answer.scores[answer.opposing(5)], order[:5])
    nearest = np.sort(np.abs(answer.scores))[:5]
    np.testing.assert_array_equal(np.abs(answer.scores[answer.neutral(5)]), nearest)
    assert answer.ranks()[answer.top(1)[0]] == 1
    assert sorted(answer.ranks()) == list(range(1, len(answer.scores) + 1))


def test_clip_finds_the_picture_itself(tiny_explorer):
    """A training image is most similar to itself, with cosine 1 and no error bar."""
    query = tiny_explorer.query_from_example(7)
    answer = tiny_explorer.answer(query, Lens(method="clip"))
    best = answer.top(1)[0]
    assert answer.example_ids[best] == 7
    assert answer.scores[best] == pytest.approx(1, abs=1e-3)
    assert np.isnan(answer.standard_errors).all()


def test_generation_is_repeatable_and_the_gallery_can_be_made_again(tiny_explorer):
    """Equal settings give equal pixels, in a batch or alone; another seed others."""
    stored = tiny_explorer.query_from_gallery(1)
    again = tiny_explorer.generate(stored.drawing)
    assert np.abs(stored.pixels.astype(int) - again.pixels.astype(int)).max() <= 1
    other = tiny_explorer.generate(replace(stored.drawing, seed=77))
    assert (other.pixels != again.pixels).any()


def test_an_upload_of_a_training_picture_is_that_picture(tiny_explorer):
    """The same pixels by another way give the same scores, label for label."""
    example = tiny_explorer.query_from_example(3)
    upload = tiny_explorer.query_from_upload(png(example.pixels), example.label)
    lens = Lens(num_draws=8)
    np.testing.assert_array_equal(
        tiny_explorer.answer(example, lens).scores,
        tiny_explorer.answer(upload, lens).scores,
    )


def test_a_long_question_can_be_cancelled(tiny_explorer):
    """Progress is told step by step, and raising from it stops the work."""
    seen = []

    def stop(done, total, what):
        seen.append((done, total, what))
        if done == 2:
            raise Cancelled

    query = tiny_explorer.query_from_example(9)
    with pytest.raises(Cancelled):
        tiny_explorer.answer(query, Lens(num_draws=8), stop)
    seen = [step for step in seen if step[2] != "Loading the model"]
    assert seen == [(1, 4, "Measuring"), (2, 4, "Measuring")]
    with pytest.raises(Cancelled):
        tiny_explorer.generate(Drawing(0, 1, "ddpm", 1000), stop)


def test_every_picture_has_a_credit(tiny_explorer):
    """Each training image's licence holder is named."""
    for example_id in tiny_explorer.examples.table.index:
        assert tiny_explorer.credit(example_id) in tiny_explorer.credits


def test_mistakes_get_one_sentence(tiny_collection, tiny_explorer):
    """What was wrong, what was expected, what to do next."""
    with pytest.raises(LookupError, match="no collection 'nope'; there is 'glyphs'"):
        open_explorer("nope", tiny_collection)
    with pytest.raises(LookupError, match="There is no training image 999999"):
        tiny_explorer.query_from_example(999999)
    with pytest.raises(ValueError, match="could not be read as an image"):
        tiny_explorer.query_from_upload(b"not an image")
    query = tiny_explorer.query_from_example(5)
    with pytest.raises(ValueError, match="There is no method 'magic'. Choose one of"):
        tiny_explorer.answer(query, Lens(method="magic"))
    with pytest.raises(ValueError, match="There is no measurement 'mood'"):
        tiny_explorer.answer(query, Lens(measurement="mood"))
    with pytest.raises(ValueError, match="There is no sampler 'plms'"):
        tiny_explorer.generate(Drawing(0, 1, "plms", 5))
    assert list_collections(tiny_collection) == ["glyphs"]


def test_asking_for_early_scores_changes_no_bit_of_the_answer(tiny_collection):
    """Half of the draws come first, with their own errors; the end is the same."""
    answers, early = [], []
    for wanted in (None, early.append):
        explorer = open_explorer("glyphs", tiny_collection)
        example = int(explorer.examples.table.index[3])
        query = explorer.query_from_example(example)
        answers.append(explorer.answer(query, Lens(), early=wanted))
        explorer.close()
    without, with_early = answers
    assert np.array_equal(without.scores, with_early.scores)
    assert np.array_equal(without.standard_errors, with_early.standard_errors)
    assert without.value == with_early.value and without.note == with_early.note
    (half,) = early
    assert half.lens.num_draws == 128 and half.note == "first 128 of 256 draws"
    assert np.isfinite(half.standard_errors).all()
    assert not np.array_equal(half.scores, without.scores)
    assert np.corrcoef(half.scores, without.scores)[0, 1] > 0.5


@pytest.mark.parametrize("threads", [2, 5])
def test_answers_do_not_depend_on_the_threads_of_who_asks(tiny_collection, threads):
    """A page and a command, whatever ran in them before, get the same bits."""
    before, answers = torch.get_num_threads(), []
    try:
        for progress in (None, lambda done, total, doing: None):  # loads in a thread
            torch.set_num_threads(threads)
            explorer = open_explorer("glyphs", tiny_collection)
            query = explorer.query_from_example(5)
            answers.append(explorer.answer(query, Lens(num_draws=8), progress))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(answers[0].scores, answers[1].scores)
    np.testing.assert_array_equal(*(answer.standard_errors for answer in answers))
