"""What every test may ask for."""

import shutil
from pathlib import Path

import pytest

from core.config import collection_config
from core.explorer import Explorer, open_explorer
from precompute.build import build


@pytest.fixture(scope="session")
def tiny_collection(tmp_path_factory) -> Path:
    """Return the folder of a Glyphs collection built at the size of the tiny preset."""
    root = tmp_path_factory.mktemp("collections")
    build(collection_config("glyphs", "tiny"), root, root / "work", "cpu")
    return root


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
