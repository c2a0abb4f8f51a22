"""Each answer's ± is what repeats told of its question and of what it comes from."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from core.explorer.explorer import Lens, open_explorer
from core.presets import collection_config
from core.report.reading import error_note
from core.scores.error_files import errors_path, read_model, write_model
from precompute.stages.answers import store_answers
from tests.conftest import linked_copy

BOX, BAND = (16, 16, 48, 48), (0, 250)
QUESTIONS = {
    "loss": Lens(num_draws=8),
    "elbo": Lens(measurement="elbo", num_draws=8),
    "loss region": Lens(region=BOX, num_draws=8),
    "loss band": Lens(timesteps=BAND, num_draws=8),
}
# Every kind of answer has a factor and a term of its own.
KINDS = [kind + form for kind in QUESTIONS for form in ("", ", sketch")]
AGAIN = {kind: 2.0 + number for number, kind in enumerate(KINDS)}
UNSEEN = {kind: 0.01 * (1 + number) for number, kind in enumerate(KINDS)}


@pytest.fixture(scope="module")
def roots(tiny_collection, tmp_path_factory):
    """Return the tiny collection with laws alone, and with what repeats would say."""
    path = errors_path(tiny_collection, collection_config("glyphs", "tiny"))
    told = tmp_path_factory.mktemp("told")
    linked_copy(tiny_collection, told)
    for folder in tiny_collection.glob("*index*"):
        (told / folder.name).symlink_to(folder)
    laws = replace(read_model(path), again={}, unseen={})
    write_model(told / path.name, replace(laws, again=AGAIN, unseen=UNSEEN))
    return tiny_collection, told


def expected(answer, kind: str) -> np.ndarray:
    """Return the errors that repeats make of an answer's, both (N,)."""
    variance = np.square(answer.standard_errors)
    return np.sqrt(AGAIN[kind] * variance + UNSEEN[kind] * np.square(answer.scores))


def test_question_and_form_pick_the_factor(roots):
    """Stored, by the sketch, by the index; the same for a group of that one image."""
    explorers = [open_explorer("glyphs", root) for root in roots]
    forms = [(kind, form) for kind in QUESTIONS for form in ("sketch", "full")]
    for kind, form in [*forms, ("loss", "auto")]:
        lens = replace(QUESTIONS[kind], form=form)
        before, after = (
            one.answer(one.query_from_gallery(0), lens) for one in explorers
        )
        sources = {"sketch": "sketch", "full": "full index", "auto": "exact"}
        assert after.source == sources[form]
        name = f"{kind}, sketch" if form == "sketch" else kind
        errors = expected(before, name)
        np.testing.assert_allclose(after.standard_errors, errors, rtol=1e-5)
        assert ("the sketch" in error_note(after)) == (form == "sketch")
        query = explorers[1].query_from_gallery(0)
        one = explorers[1].uncertainty(query, after).of_groups(np.eye(len(errors)) > 0)
        np.testing.assert_allclose(one * len(errors), after.standard_errors)
    for explorer in explorers:
        explorer.close()


def test_bands_of_a_question_have_the_factor_of_a_band(roots):
    found = []
    for root in roots:
        with closing(open_explorer("glyphs", root)) as explorer:
            query = explorer.query_from_gallery(0)
            lens = replace(QUESTIONS["loss"], form="sketch")
            found.append(explorer.band_answers(query, lens, 2))
    before, after = found
    errors = expected(before, "loss band, sketch")
    np.testing.assert_allclose(after.standard_errors, errors, rtol=1e-5)


def test_answers_that_are_stored_later_have_the_error_of_a_live_one(roots, tmp_path):
    """The factor is told when an answer is read, and only then."""
    lens = QUESTIONS["elbo"]
    store_answers(roots[1], "glyphs", tmp_path, [lens])
    with closing(open_explorer("glyphs", roots[1])) as explorer:
        query = explorer.query_from_gallery(0)
        stored = explorer.answer(query, lens)
        live = explorer.answer(query, replace(lens, form="full"))
    np.testing.assert_allclose(stored.scores, live.scores, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(stored.standard_errors, live.standard_errors, rtol=1e-4)
