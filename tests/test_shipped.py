"""What ships: the Glyphs collection opens anywhere, and its answers mean something."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from core.config import DATA_DIR, collection_config
from core.explorer import Lens, open_explorer
from core.store import Collection, find_collection
from precompute.stages import shipped_weights
from tests.benchmarks import self_influence


@pytest.fixture(scope="module")
def glyphs():
    """Return the explorer of the shipped collection."""
    return open_explorer("glyphs")


def test_the_collection_is_whole():
    """Every checksum of the shipped file holds, that of the eigenvectors included."""
    with Collection(find_collection(DATA_DIR / "collections", "glyphs")) as collection:
        collection.verify()
        kinds = {
            shard.layout["kind"]: collection.shard_path(shard).exists()
            for shard in collection.shards()
        }
        assert kinds["eigenvectors"]


def test_the_collection_was_made_with_the_settings_in_the_code(glyphs):
    """The shipped weights and the collection belong to the present settings."""
    config = collection_config("glyphs")
    assert glyphs.provenance["settings"] == as_json(config.to_dict())
    assert shipped_weights(config) is not None


def as_json(value):
    """Return a value as it comes back from JSON: tuples become lists."""
    if isinstance(value, dict):
        return {key: as_json(part) for key, part in value.items()}
    return [as_json(v) for v in value] if isinstance(value, (list, tuple)) else value


def test_the_gallery_is_answered_without_the_model(glyphs):
    """At least 48 samples, each with stored answers under both lenses."""
    fresh = open_explorer("glyphs")
    assert len(fresh.gallery) >= 48
    for sample in fresh.gallery.index:
        query = fresh.query_from_gallery(int(sample))
        influence = fresh.answer(query, Lens())
        assert influence.source == "exact"
        assert (influence.standard_errors > 0).all()
        assert abs(influence.scores.mean()) < 1e-6 * np.abs(influence.scores).max()
        assert fresh.answer(query, Lens("clip")).scores.max() <= 1
    assert fresh._engine is None


def test_training_pictures_find_themselves(glyphs):
    """At least 18 of 20 pictures are among their own ten most influential ones."""
    result = self_influence.run("glyphs", None, forms=("sketch",))["sketch"]
    assert result["among_ten"] >= 18, result


def test_errors_cover_what_they_should(glyphs):
    """The sketch differs from the exact scores by about its standard errors.

    Gallery samples have exact scores; asked again through the sketch, two standard
    errors cover most of the difference, and the errors are not grossly too large
    either.
    """
    deviations = []
    for sample in (0, 17, 34):
        query = glyphs.query_from_gallery(sample)
        exact = glyphs.answer(query, Lens())
        lens = Lens(num_draws=exact.lens.num_draws, form="sketch")
        sketched = glyphs.answer(query, lens)
        difference = sketched.scores - exact.scores
        deviations.append(difference / sketched.standard_errors)
    deviations = np.concatenate(deviations)
    assert np.mean(np.abs(deviations) < 2) > 0.9
    assert np.std(deviations) > 0.2


def test_what_ships_stays_small():
    """Under 150 MB in git, no file over 60 MB."""
    root = Path(DATA_DIR).parent
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True
    ).stdout
    sizes = [(root / name).stat().st_size for name in names.split("\0") if name]
    if not sizes:
        pytest.skip("not a git checkout")
    assert max(sizes) < 60e6
    assert sum(sizes) < 150e6
