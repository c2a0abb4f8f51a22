"""Repeats renew draws and nothing else, and errors are held against them."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from core.explorer.explorer import Lens, open_explorer
from core.presets import collection_config
from core.scores.error_files import errors_path, read_model, write_model
from core.scores.errors import ErrorModel, Law, answer_kind, question_kind, stood
from precompute.stages import coverage
from precompute.stages.coverage import (
    HALVES,
    Deviation,
    Trial,
    affordable,
    all_lenses,
    answers_shown,
    asked_again,
    crossed,
    fitted,
    kind_of,
    measure_coverage,
    thorough,
)
from precompute.stages.errors import HELD_OUT
from precompute.stages.repeats import Repeats
from tests.conftest import linked_copy

CONFIG = collection_config("glyphs", "tiny")


@pytest.fixture
def explorer(tiny_collection):
    """Return the tiny collection, opened for one test."""
    explorer = open_explorer("glyphs", tiny_collection)
    yield explorer
    explorer.close()


def test_repeat_with_the_draws_of_the_build_is_the_stored_answer(
    explorer, tmp_path, monkeypatch
):
    """Same draws, same scores: nothing but draws is renewed. A second call reads them.

    The eigenvectors of a collection are kept in half precision, the build had all.
    """
    monkeypatch.setattr(Repeats, "seed", lambda self, number: self.config.seed)
    draws = explorer.config.samples.num_draws
    everyone = np.arange(explorer.num_examples)
    question = (0, Lens(num_draws=draws))
    repeats = Repeats(explorer, tmp_path, [question], everyone)
    (found,) = repeats.products(0)
    stored = explorer.answer(explorer.query_from_gallery(0), Lens())
    off = found - found.mean() - stored.scores
    assert np.abs(off).max() < 5e-3 * np.abs(stored.scores).max()
    assert repeats.agreement(range(1), [0, 1]) == {}  # one has nothing to agree with

    monkeypatch.setattr(type(explorer.engine), "question", None)
    again = Repeats(explorer, tmp_path, [question], everyone)
    np.testing.assert_array_equal(again.products(0), repeats.products(0))


def test_what_was_found_is_kept_beside_the_collection(tiny_collection, tmp_path):
    """Of the ten that are shown and of random images, as the page Collections says."""
    (tmp_path / "copy").mkdir()
    root = linked_copy(tiny_collection, tmp_path / "copy")
    trial, path = Trial(queries=4, repeats=2), errors_path(root, CONFIG)
    before = read_model(path)
    found = measure_coverage(root, "glyphs", tmp_path / "work", lambda _: trial)
    assert set(found["kinds"]) == {"loss, exact", "loss, sketch"}
    for parts in found["kinds"].values():
        assert parts["top"]["count"] == 4 * 10 and parts["all"]["count"] == 4 * 24
        assert 0 <= parts["top"]["coverage"] <= 1 and parts["top"]["ratio"] > 0
    explorer = open_explorer("glyphs", root)
    assert set(explorer.coverage) == {HELD_OUT, "loss, exact", "loss, sketch"}
    for form in ("exact", "sketch"):
        again = explorer.provenance["quality"][f"{form}_again"]
        assert again == pytest.approx(found["agreement"][form], abs=1e-5)
    explorer.close()

    # A second run is the same, though the errors that it reads are now told by repeats.
    after = read_model(path)
    assert before.unseen == {}
    assert set(after.unseen) == set(after.again) == {"loss", "loss, sketch"}
    second = measure_coverage(root, "glyphs", tmp_path / "work", lambda _: trial)
    for kind, parts in found["kinds"].items():
        for what, stood_before in parts.items():
            again = second["kinds"][kind][what]
            assert again == pytest.approx(stood_before, rel=1e-3)
    again = read_model(path)
    assert again.unseen == pytest.approx(after.unseen, rel=1e-3)
    assert again.again == pytest.approx(after.again, rel=1e-3)


def test_a_killed_test_leaves_the_errors_as_they_were(
    tiny_collection, tmp_path, monkeypatch
):
    """Between fit and test nothing is written; a part of the file never is."""
    (tmp_path / "copy").mkdir()
    root = linked_copy(tiny_collection, tmp_path / "copy")
    path, killed = errors_path(root, CONFIG), []

    def stopped(agreement):
        killed.append(agreement)
        raise KeyboardInterrupt

    monkeypatch.setattr(coverage, "mean_of", stopped)
    before = path.read_bytes()
    trial = Trial(queries=4, repeats=2)
    with pytest.raises(KeyboardInterrupt):
        measure_coverage(root, "glyphs", tmp_path / "work", lambda _: trial)
    assert killed and path.read_bytes() == before


def test_errors_are_tested_as_they_are_printed(tiny_collection, tmp_path):
    """What a model tells in the test is what the app prints once it is in the file."""
    (tmp_path / "copy").mkdir()
    root = linked_copy(tiny_collection, tmp_path / "copy")
    told = {"loss": 2.0, "loss, sketch": 3.0}, {"loss": 0.04, "loss, sketch": 0.09}
    path, trial = errors_path(root, CONFIG), Trial(queries=2, repeats=2)
    laws = read_model(path)
    model = replace(laws, again=told[0], unseen=told[1])
    for printed, other in ((laws, model), (model, laws)):
        write_model(path, other)
        with closing(open_explorer("glyphs", root)) as explorer:
            again = asked_again(explorer, tmp_path / "work", trial)
            expected = again.deviations(printed)
        write_model(path, printed)
        with closing(open_explorer("glyphs", root)) as explorer:
            again = asked_again(explorer, tmp_path / "work", trial)
            found = again.deviations(explorer.engine.scoring.error_model)
            for shown in answers_shown(explorer, trial):
                (one, *_) = found[kind_of(shown.answer)]["top"]
                if shown.sample == min(explorer.gallery.index):
                    errors = shown.answer.standard_errors[shown.top]
                    np.testing.assert_allclose(one.error, errors, rtol=1e-5)
        for kind, parts in found.items():
            for what, each in parts.items():
                for one, same in zip(each, expected[kind][what], strict=True):
                    np.testing.assert_allclose(one.error, same.error, rtol=1e-4)


def test_halves_share_neither_samples_nor_draws(explorer):
    """So what one half tells can be tested on the other."""
    trials = [Trial(queries=4, repeats=100, half=half) for half in HALVES]
    samples = [{one.sample for one in answers_shown(explorer, t)} for t in trials]
    assert not samples[0] & samples[1] and len(samples[0]) == len(samples[1]) == 2
    draws = [{*trial.numbers} for trial in trials]
    assert not draws[0] & draws[1] and len(draws[0]) == len(draws[1]) == 100
    for repeats in (1, 101):
        with pytest.raises(ValueError, match="Give 2 to 100"):
            Trial(repeats=repeats)


class Half:
    """A half of the samples whose answers are off by a multiple of what laws tell."""

    samples, numbers, random = {0}, range(2), [0]

    def __init__(self, size: float):
        self.off = size * np.random.default_rng(round(size)).normal(size=4000)
        self.repeats = self

    def agreement(self, numbers, random) -> dict[str, float]:
        return {"exact": float(np.abs(self.off).mean())}

    def sizes(self, numbers, random, dims) -> dict[str, float]:
        return {}

    def deviations(self, model: ErrorModel) -> dict:
        scores = np.ones(len(self.off))
        error = np.sqrt(model.repeated(np.ones(len(scores)), scores, "loss"))
        one = (self.off, error, scores, np.zeros(len(scores)))
        each = [Deviation(*(x.reshape(400, 10)[i] for x in one)) for i in range(400)]
        return {"loss, exact": {"top": each, "all": each}}


def test_each_half_is_tested_with_what_the_other_told(explorer, tmp_path, monkeypatch):
    """One off by 1 and one by 3 times the laws: none of them tests what it told."""
    sizes = dict(zip(HALVES, (1.0, 3.0), strict=True))
    monkeypatch.setattr(coverage, "asked_again", lambda e, w, t: Half(sizes[t.half]))
    model, found = crossed(explorer, tmp_path, Trial())
    assert model.again["loss"] == pytest.approx((1 + 9) / 2, rel=0.05)  # told by both
    stands = found["kinds"]["loss, exact"]["top"]
    assert stands["count"] == 2 * 4000 and found["queries"] == 2
    # In its own errors each half would stand at 1.
    assert stands["ratio"] == pytest.approx(np.sqrt((9 + 1 / 9) / 2), rel=0.05)
    assert found["agreement"]["exact"] == pytest.approx(
        2 * np.sqrt(2 / np.pi), rel=0.05
    )


def test_every_way_to_answer_is_asked(explorer):
    """Three measurements, a region, a band; stored, by the sketch, by the index."""
    kinds = [(question_kind(lens), lens.form) for lens in all_lenses(explorer)]
    questions = {"loss", "elbo", "trajectory", "loss region", "loss band"}
    assert {kind for kind, form in kinds if form == "sketch"} == questions
    assert {kind for kind, form in kinds if form == "full"} == questions
    assert {kind for kind, form in kinds if form == "auto"} == questions - {
        "loss region",
        "loss band",
    }
    assert len(kinds) == len(set(kinds)) == 13
    assert thorough(explorer).lenses == all_lenses(explorer)


# --- the fit ------------------------------------------------------------------------


def deviations(rng, sizes, more, answers=400):
    """Return how far answers are off whose errors are printed as a tenth.

    Noise is a share of the score, `sizes` of shown and of random images; the answers'
    own variance is `more` times that of each of four repeats.
    """
    found = {}
    for what, size, count in (("top", sizes[0], 10), ("all", sizes[1], 24)):
        found[what] = []
        for _ in range(answers):
            scores = rng.uniform(5, 10, count)
            others = size * scores * rng.normal(size=(4, count))
            own = more**0.5 * size * scores * rng.normal(size=count)
            off, beyond = own - others.mean(0), others.var(0, ddof=1) / 4
            found[what].append(Deviation(off, 0.1 * scores, scores, beyond))
    return found


def found_again(sizes):
    """Return the model that repeats tell of them, exact and by a sketch."""
    rng = np.random.default_rng(0)
    found = {
        "loss, full index": deviations(rng, sizes, 1.0),
        "loss, sketch": deviations(rng, sizes, 1.25),
    }
    return fitted(found, ErrorModel(Law(1.0), Law(1.0)))


def test_what_folds_do_not_show_is_found_again():
    """Random images off by 0.8 of what is printed, shown ones by 1.5 of it.

    Sketched answers have 1.25 times the variance, and factors of their own.
    """
    model = found_again((0.15, 0.08))
    for kind, more in (("loss", 1.0), ("loss, sketch", 1.25)):
        again = 0.8**2 * more
        assert model.again[kind] == pytest.approx(again, rel=0.05)
        unseen = 0.15**2 * more - again * 0.1**2
        assert model.unseen[kind] == pytest.approx(unseen, rel=0.05)
    scores = np.array([0.0, -10.0])
    variance = model.repeated(np.array([4.0, 1.0]), scores, "loss")
    np.testing.assert_allclose(variance, [4 * 0.64, 0.64 + 1.61], rtol=0.05)
    laws = model.by_laws(variance, scores, "loss")
    np.testing.assert_allclose(laws, [4, 1], rtol=1e-12)


def test_shown_images_that_are_off_by_less_make_errors_smaller():
    """Off by 0.6 of what is printed, random ones by 0.8: both tell the factor."""
    model = found_again((0.06, 0.08))
    assert model.unseen == {"loss": 0, "loss, sketch": 0}
    assert model.again["loss"] == pytest.approx((0.6**2 + 0.8**2) / 2, rel=0.05)


def test_deviates_have_the_variance_of_the_repeats_taken_off():
    """However few repeats: z of a right error has size one, and is covered in 90%."""
    parts = deviations(np.random.default_rng(0), (0.1, 0.1), 1.0)
    for each in parts.values():
        found = stood(np.concatenate([one.z for one in each]))
        assert found["ratio"] == pytest.approx(1, abs=0.03)
        assert found["coverage"] == pytest.approx(0.9, abs=0.015)
        ratios = [one.variance / one.error**2 for one in each]
        assert np.mean(ratios) == pytest.approx(1, abs=0.05)


def test_a_kind_that_was_not_repeated_is_taken_for_an_average_one():
    """Of those that were answered alike, where some were."""
    values = {"loss": 0.01, "elbo": 0.03}
    sketched = {"loss, sketch": 0.05, "elbo, sketch": 0.07}
    scores, one = np.array([0.0, -10.0]), np.ones(2)
    model = ErrorModel(Law(1.0), Law(1.0), again={"loss": 2.0}, unseen=values)
    both = replace(model, unseen={**values, **sketched})
    for told, kind, unseen in (
        (model, "elbo", 0.03),
        (model, "loss region", 0.02),
        (model, "loss, sketch", 0.0),
        (both, "loss, projection", 0.0),
        (both, "loss, sketch", 0.05),
        (both, "loss band, sketch", 0.06),
        (both, "loss band", 0.02),
    ):
        found = told.repeated(one, scores, kind)
        again = 1 if ", " in kind else 2
        np.testing.assert_allclose(found, [again, again + 100 * unseen])
    alone = ErrorModel(Law(1.0), Law(1.0))
    np.testing.assert_array_equal(alone.repeated(one, scores, "loss"), one)


def test_a_factor_is_told_of_the_question_and_of_what_answers_it():
    assert answer_kind("loss region", "sketch") == "loss region, sketch"
    assert answer_kind("loss", "projection") == "loss, projection"
    for source in ("exact", "full index"):
        assert answer_kind("elbo", source) == "elbo"


def test_a_build_tests_its_errors_where_that_costs_little(tiny_explorer):
    """An eighth of the training gradients: seven queries of Glyphs, none of a toy."""
    config = collection_config("glyphs")
    assert affordable(config, 2181).queries == 7
    assert affordable(config, 10**6) == Trial()
    assert affordable(tiny_explorer.config, tiny_explorer.num_examples) is None
    assert set(tiny_explorer.coverage) == {HELD_OUT}  # of the folds, it costs nothing


def test_deviates_of_a_normal_distribution_are_covered_in_ninety_of_a_hundred():
    z = np.random.default_rng(0).normal(size=20_000)
    found = stood(z)
    assert found["coverage"] == pytest.approx(0.9, abs=0.01)
    assert stood(2 * z)["ratio"] == pytest.approx(2, rel=0.02)
    assert found["count"] == len(z)


def test_kinds_of_answers_are_told_apart_in_words(explorer):
    query = explorer.query_from_gallery(0)
    lens = Lens("kfac", timesteps=(0, 250), region=(0, 0, 32, 64), num_draws=8)
    assert kind_of(explorer.answer(query, lens)) == "kfac loss region band, sketch"
