"""What every test may ask for."""

import shutil

import pytest


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Debian's Chromium, or skip the test."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: install it with 'apt-get install chromium'")
    return path
