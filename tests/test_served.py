"""The app as it is served to others: behind a proxy, without the network, in bounds."""

import json
import shutil
import subprocess
import sys
import tomllib

import pytest

from tests.server import ROOT
from tests.sub_path import PATH

ALONE = ["unshare", "--net"]


def is_permitted() -> bool:
    """Return whether a process may have a network of its own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    command = [*ALONE, "ip", "link", "set", "lo", "up"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def found(tiny_collection, chromium) -> dict:
    """Return what a browser saw of the app behind a proxy, cut off if it can be."""
    pytest.importorskip("aiohttp", reason="no aiohttp")
    alone = is_permitted()
    command = [sys.executable, "-m", "tests.sub_path", str(tiny_collection), chromium]
    done = subprocess.run(
        [*(ALONE if alone else []), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]) | {"alone": alone}


def test_the_app_works_under_a_sub_path_behind_a_proxy(found):
    """Answers, components and other pages, and no error in the console."""
    assert found["errors"] == []
    assert found["where"].startswith(f"http://{found['own']}{PATH}/collections")
    assert found["hosts"] == [found["own"]]


def test_the_app_needs_no_network(found):
    """With the network cut off it answers, and tries to reach nobody."""
    if not found["alone"]:
        pytest.skip("cutting off the network takes 'unshare --net', not permitted here")
    own = {"127.0.0.1", "localhost", "::1", "0.0.0.0", "this machine", "None"}
    assert set(found["app_speaks_to"]) <= own, found["app_speaks_to"]


def test_nothing_is_told_to_others_and_uploads_are_bounded():
    """What the settings in the repository say."""
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["server"]["address"] == "localhost"
    assert settings["server"]["maxUploadSize"] <= 20
