"""What is stored of a gallery over the noise levels is what would be computed."""

import io
from contextlib import closing

import numpy as np
import pytest

from core.explorer.explorer import Explorer, Lens, open_explorer
from core.explorer.stored_levels import (
    QUALITY,
    ROWS,
    STRIP,
    TOPS,
    levels_path,
    read_levels,
    recipe,
)
from core.files.images import decode_image, image_of
from core.report import comparison
from core.scores.error_files import errors_path
from precompute.stages.answers import store_answers
from tests.conftest import linked_copy
from tests.helpers.fresh import said_without_torch


@pytest.fixture(scope="module")
def root(tiny_collection, tmp_path_factory):
    """Return a folder of the tiny collection whose noise levels are stored."""
    copy = linked_copy(tiny_collection, tmp_path_factory.mktemp("levels"))
    store_answers(copy, "glyphs", copy / "work", [])
    return copy


@pytest.fixture(scope="module")
def explorer(root):
    """Return the explorer of that folder."""
    with closing(open_explorer("glyphs", root)) as explorer:
        yield explorer


def test_stored_levels_are_what_the_explorer_would_give(explorer):
    """Of images shown first: equal ids, scores as float32, errors to a thousandth."""
    for sample in explorer.gallery.index:
        query = explorer.query_from_gallery(int(sample))
        stored = explorer.stored_bands(query, Lens())
        live = explorer.band_answers(query, Lens())
        places = np.searchsorted(live.example_ids, stored.example_ids)
        np.testing.assert_array_equal(live.example_ids[places], stored.example_ids)
        scores = live.scores[:, places].astype(np.float32)
        np.testing.assert_array_equal(stored.scores, scores)
        errors = live.standard_errors[:, places]
        np.testing.assert_allclose(stored.standard_errors, errors, rtol=1e-3)
        np.testing.assert_array_equal(stored.values, live.values)
        facts = ("edges", "source", "note")
        assert [getattr(stored, one) for one in facts] == [
            getattr(live, one) for one in facts
        ]
        for ranked, count in (
            (comparison.band_tops, TOPS),
            (comparison.strongest_over_bands, ROWS),
        ):
            np.testing.assert_array_equal(
                stored.example_ids[ranked(stored.scores, count)],
                live.example_ids[ranked(live.scores, count)],
            )
        answer = explorer.answer(query, Lens())
        for strip in (answer.top, answer.neutral, answer.opposing):
            assert np.isin(answer.example_ids[strip(STRIP)], stored.example_ids).all()


def test_stored_frames_are_those_of_the_model(explorer):
    """But for what clipping and finishing cost the image; the guess is as WebP."""
    for sample in explorer.gallery.index:
        query = explorer.query_from_gallery(int(sample))
        stored, live = explorer.stored_forming(query), explorer.forming(query)
        np.testing.assert_array_equal(stored.timesteps, live.timesteps)
        np.testing.assert_array_equal(stored.noise, live.noise)
        assert mean_difference(stored.noisy, live.noisy).max() <= 4
        alone = np.stack([as_webp(image) for image in live.expected])
        assert (
            mean_difference(stored.expected, live.expected)
            <= 1.3 * mean_difference(alone, live.expected) + 1
        ).all()


def mean_difference(images: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how far images (L, C, H, W) are from others, in grey levels, (L,)."""
    assert images.shape == others.shape
    return np.abs(images.astype(float) - others).mean(axis=(1, 2, 3))


def as_webp(pixels: np.ndarray) -> np.ndarray:
    """Return what that format makes of an image (C, H, W)."""
    file = io.BytesIO()
    image_of(pixels).save(file, "WEBP", quality=QUALITY)
    return decode_image(file.getvalue(), pixels.shape)


def test_stored_levels_are_there_without_the_model(root):
    told = said_without_torch(
        root,
        "print(len(explorer.stored_bands(query, Lens()).scores))",
        "print(len(explorer.stored_forming(query).noisy))",
    )
    assert told == "8\n8\n"


def test_only_the_default_question_is_stored(explorer):
    gallery, other = explorer.query_from_gallery(0), explorer.query_from_example(5)
    assert explorer.stored_bands(other, Lens()) is None
    assert explorer.stored_forming(other) is None
    assert explorer.stored_bands(gallery, Lens(), 4) is None
    for lens in (
        Lens("ekfac", "elbo"),
        Lens("kfac"),
        Lens(region=(0, 0, 8, 8)),
        Lens(damping=1.0),
        Lens(timesteps=(0, 500)),
    ):
        assert explorer.stored_bands(gallery, lens) is None


def test_what_is_stored_is_not_computed_again(root, explorer, tmp_path, monkeypatch):
    """A whole file stays; without it, the folder of unfinished work has the rest."""
    path = levels_path(root, explorer.config)
    before = path.read_bytes()
    copy = linked_copy(root, tmp_path)
    monkeypatch.setattr(Explorer, "band_answers", None)
    monkeypatch.setattr(Explorer, "forming", None)
    store_answers(copy, "glyphs", tmp_path / "work", [])  # has no work yet: not needed
    (copy / path.name).unlink()
    store_answers(copy, "glyphs", root / "work", [])
    assert (copy / path.name).read_bytes() == before == path.read_bytes()


def test_a_damaged_file_is_not_used(root, explorer, tmp_path):
    """Cut, empty, or with a flipped bit anywhere, it never says something else."""
    made_by = recipe(root, explorer.config)
    whole = levels_path(root, explorer.config).read_bytes()
    path = tmp_path / "levels.npz"
    sample = explorer.query_from_gallery(0)

    def numbers(stored):
        bands = stored.bands(0, "")
        forming = stored.forming(0, sample.pixels)
        return [
            bands.scores,
            bands.standard_errors,
            bands.values,
            *vars(forming).values(),
        ]

    path.write_bytes(whole)
    expected = numbers(read_levels(path, made_by))
    refused = 0
    for place in np.linspace(0, len(whole) - 1, 60).astype(int):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(bytes(damaged))
        found = read_levels(path, made_by)
        refused += found is None
        if found is not None:  # such a bit of a zip means nothing
            for one, other in zip(numbers(found), expected, strict=True):
                np.testing.assert_array_equal(one, other)
    assert refused > 50
    for damaged in (b"", b"no file of numpy", whole[:-100], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert read_levels(path, made_by) is None


def test_levels_of_other_errors_are_not_used(root, explorer, tmp_path):
    """`errors` changes what is beside each score, so the verb has to run again."""
    copy = linked_copy(root, tmp_path)
    laws = errors_path(copy, explorer.config)
    text = laws.read_text()
    laws.unlink()  # the other folder has a link to it
    laws.write_text(text + "\n")
    with closing(open_explorer("glyphs", copy)) as stale:
        query = stale.query_from_gallery(0)
        assert stale.stored_levels is None
        assert stale.stored_bands(query, Lens()) is None
        assert stale.stored_forming(query) is None
