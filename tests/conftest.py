"""What every test may ask for."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from core.config import DATA_DIR
from core.evidence.left_out import group_name
from core.evidence.stored import evidence_folder, write_evidence
from core.explorer.explorer import Explorer, open_explorer
from core.presets import collection_config
from precompute.stages.build import build
from tests.helpers.hostile import publish_hostile
from tests.helpers.toy_evidence import full_evidence


@pytest.fixture(scope="session", autouse=True)
def shipped_models() -> Iterator[None]:
    """Fail a run that leaves a model among those that ship."""
    folder = DATA_DIR / "models"
    before = sorted(folder.iterdir())
    yield
    assert sorted(folder.iterdir()) == before, "a test shipped a model of its own"


@pytest.fixture(scope="session")
def tiny_collection(tmp_path_factory) -> Iterator[Path]:
    """Return the folder of a Glyphs collection built at the size of the tiny preset.

    All tests share it, in every process of the run, so a test that publishes something
    beside it does so in `linked_copy` of it; one that forgets fails the run.
    """
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # of all processes
    root, done = place / "collections", place / "collections-built"
    with FileLock(place / "collections.lock"):
        if not done.exists():
            root.mkdir(exist_ok=True)
            build(collection_config("glyphs", "tiny"), root, root / "work", "cpu")
            done.touch()
    before = published(root)
    yield root
    assert published(root) == before, "a test changed the collection that all share"


def published(root: Path) -> list[str]:
    """Return the names of all files of the collections in a folder."""
    return sorted(path.name for path in root.iterdir() if path.name != "work")


def linked_copy(root: Path, copy: Path) -> Path:
    """Return a folder with the same collections, without what was found of them."""
    for path in root.iterdir():
        if path.is_file():
            os.link(path, copy / path.name)
    return copy


@pytest.fixture(scope="session")
def tested_collection(tiny_collection, tmp_path_factory) -> Path:
    """Return the folder of the tiny collection, evidence of retraining beside it."""
    root = linked_copy(tiny_collection, tmp_path_factory.mktemp("tested"))
    explorer = open_explorer("glyphs", root)
    settings = explorer.provenance["settings"]
    kinds = sorted(explorer.examples.table["subgroup"].unique())
    groups = tuple(group_name("subgroup", kind) for kind in kinds)
    evidence = full_evidence(settings, explorer.num_examples, groups=groups)
    write_evidence(evidence_folder(root, explorer.config), evidence)
    explorer.close()
    return root


@pytest.fixture(scope="session")
def hostile_collection(tiny_collection, tmp_path_factory) -> Path:
    """Return the folder of the tiny collection with attacks for names."""
    return publish_hostile(tiny_collection, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def tiny_explorer(tiny_collection) -> Explorer:
    """Return the explorer of the tiny collection."""
    return open_explorer("glyphs", tiny_collection)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Debian's Chromium, or skip the test."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: install it with 'apt-get install chromium'")
    return path
