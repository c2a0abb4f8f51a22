"""The app as it is served to others: behind a proxy, without the network, in bounds."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from pages.parts import served
from tests.helpers.server import PATIENCE, ROOT, running_app
from tests.helpers.sub_path import LISTENER, PATH
from tests.helpers.visitors import Visitor

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
    command = [
        sys.executable,
        "-m",
        "tests.helpers.sub_path",
        str(tiny_collection),
        chromium,
    ]
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


@pytest.fixture(scope="module")
def server(tiny_collection):
    """Run the app as for others, noting whom it speaks to."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        (Path(place) / "sitecustomize.py").write_text(LISTENER)
        patch.setenv("PYTHONPATH", place)
        patch.setenv("AFTERIMAGE_HEARD", f"{place}/heard")
        with running_app(tiny_collection, "--server.address", "0.0.0.0") as server:
            yield server, Path(place) / "heard"


def test_the_start_and_other_sites_make_the_app_ask_nobody(server):
    """Not even for this machine's own address, which Streamlit asks the internet."""
    server, heard = server
    place = server.address.replace("http", "ws") + "/_stcore/stream"
    with pytest.raises(InvalidStatus, match="403"):
        connect(place, origin="http://elsewhere.example", subprotocols=["streamlit"])
    own = {"127.0.0.1", "localhost", "::1", "0.0.0.0", "this machine", "None", ""}
    spoken_to = set(heard.read_text().split("\n")) if heard.exists() else set()
    assert spoken_to <= own, spoken_to


def test_no_figures_are_published_and_no_other_site_may_frame_the_app(server):
    """As an answer's headers say; health stays open."""
    server, _ = server
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"{server.address}/_stcore/metrics")
    assert urlopen(f"{server.address}/_stcore/health").read() == b"ok"
    headers = urlopen(f"{server.address}/").headers
    assert headers["Content-Security-Policy"] == "frame-ancestors 'self'"
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_named_sites_may_frame_the_app(monkeypatch):
    monkeypatch.setenv("AFTERIMAGE_FRAMES", "https://museum.example")

    async def page(scope, receive, send):
        await PlainTextResponse("page")(scope, receive, send)

    headers = TestClient(served.Guard(page)).get("/").headers
    expected = "frame-ancestors 'self' https://museum.example"
    assert headers["Content-Security-Policy"] == expected
    assert "X-Frame-Options" not in headers


def test_many_uploads_stay_within_the_bounds_and_go_with_their_tab(server):
    """Of a visitor who sends far more than any page asks for; others are let in."""
    server, _ = server
    visitor, other = Visitor(server.address), Visitor(server.address)
    for one in (visitor, other):
        one.open("", "collections")  # the page that loads no model, which is large
        assert one.wait_until(lambda page: "Fingerprint" in page.texts, PATIENCE)
    before, large = server.megabytes(), bytes(9_900_000)
    for number in range(16):
        assert visitor.upload(large, f"{number}.png") == 204
    assert server.megabytes() - before < 90, "16 files of 9.9 MB were kept"
    assert other.upload(large) == 204
    visitor.close()
    end = time.monotonic() + PATIENCE
    while server.megabytes() - before > 30:
        assert time.monotonic() < end, server.megabytes() - before
        time.sleep(1)
    assert visitor.upload(b"x") == 400  # nobody is there
    other.close()


def test_a_page_that_fails_says_so_in_a_sentence(tmp_path, monkeypatch):
    """The log has the rest: what the page shows names no file and no secret."""
    shutil.copy(ROOT / "app.py", tmp_path)
    (tmp_path / "visit.py").write_text("raise RuntimeError('a secret')")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with running_app(tmp_path, script=tmp_path / "app.py") as server:
        visitor = Visitor(server.address)
        visitor.open("")
        assert visitor.wait_until(lambda page: page.errors, PATIENCE)
        assert visitor.errors == [served.SORRY] and visitor.texts == served.SORRY
        visitor.close()


def test_nothing_is_told_to_others_and_uploads_are_bounded():
    """What the settings in the repository say."""
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["server"]["address"] == "localhost"
    assert settings["server"]["maxUploadSize"] <= 20
