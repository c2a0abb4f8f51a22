"""How long a map of 50,000 images takes: to arrange, and from a click to its dots."""

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from core.explorer import layout
from tests.benchmarks.machine import facts

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"small": (6_456, 128), "large": (50_000, 512)}
FLAGS = ["--no-sandbox", "--enable-unsafe-swiftshader"]  # WebGL without a card
# Two pages, so that a click opens the map as it does in the app.
APP = """
import sys
sys.path.insert(0, {root!r})
import numpy as np
import pandas as pd
import streamlit as st
from core.report import group_figures

def first():
    st.write("first page")

def second():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, {count})).astype(np.float32)
    names = [f"image {{i}}" for i in range({count})]
    score = (x * y).astype(np.float32)
    frame = pd.DataFrame(dict(x=x, y=y, id=range({count}), name=names, score=score))
    figure = group_figures.image_map(frame, True, "change", np.zeros(2))
    st.plotly_chart(figure, key="map", on_select="rerun", selection_mode="lasso")
    event = st.session_state.map["selection"]["points"]
    st.write(f"marked {{len(event)}}")

pages = [st.Page(first, title="First"), st.Page(second, title="Second")]
st.navigation(pages, position="top").run()
"""
DRAWN = """() => {
    const canvas = document.querySelector('.js-plotly-plot canvas.gl-canvas-context');
    return canvas && canvas.width > 300 && !document.querySelector('.stSkeleton');
}"""


def run(collection: str, root: Path | None) -> dict:
    """Return the seconds; the vectors and the dots are random.

    WebGL is drawn without a graphics card here. `load` is how many processes wanted a
    core at the beginning.
    """
    load = round(os.getloadavg()[0], 1)
    result = {"machine": facts(), "load": load, "arranged": {}}
    for count, dim in SIZES.values():
        vectors = np.random.default_rng(0).normal(size=(count, dim))
        start, busy = time.perf_counter(), time.process_time()
        layout.arranged(vectors.astype(np.float32))
        result["arranged"][f"{count} x {dim}"] = {
            "seconds": round(time.perf_counter() - start, 1),
            "cpu_seconds": round(time.process_time() - busy, 1),
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result["peak_megabytes"] = round(peak / 1024)
    result["browser"] = {str(n): browser_seconds(n) for n in (6_456, 50_000)}
    return result


def browser_seconds(count: int) -> dict[str, float]:
    """Return the seconds from a click on the page to its dots, and of a lasso."""
    from playwright.sync_api import sync_playwright

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "app.py"
        app.write_text(APP.format(root=str(ROOT), count=count))
        host, _, port = address.partition(":")
        command = [sys.executable, "-m", "streamlit", "run", str(app)]
        command += ["--server.headless", "true", "--server.port", port]
        command += ["--server.address", host, "--server.fileWatcherType", "none"]
        server = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(f"http://{address}/_stcore/health")
            with sync_playwright() as driver:
                browser = driver.chromium.launch(
                    executable_path="/usr/bin/chromium", args=FLAGS
                )
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.set_default_timeout(180_000)
                page.goto(f"http://{address}")
                page.get_by_text("first page").wait_for()
                opened = []
                for _ in range(3):  # the first also loads plotly's script
                    page.get_by_role("link", name="Second").first.click()
                    start = time.perf_counter()
                    page.wait_for_function(DRAWN)
                    page.get_by_text("marked 0").wait_for()
                    opened.append(time.perf_counter() - start)
                    if len(opened) < 3:
                        page.get_by_role("link", name="First").first.click()
                        page.get_by_text("first page").wait_for()
                lasso = lasso_seconds(page)
                browser.close()
        finally:
            server.terminate()
            server.wait(30)
    return {
        "first_open": round(opened[0], 2),
        "open": round(min(opened[1:]), 2),
        "lasso": round(lasso, 2),
    }


def lasso_seconds(page) -> float:
    """Return the seconds from the end of a lasso to the answer of the server."""
    page.wait_for_timeout(1000)
    box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for across, down in ((80, 0), (80, 80), (0, 80), (0, 0)):
        page.mouse.move(x + across, y + down, steps=4)
    start = time.perf_counter()
    page.mouse.up()
    page.get_by_text("marked 0").wait_for(state="detached")
    return time.perf_counter() - start


def wait_for(address: str) -> None:
    """Wait until a server answers."""
    while True:
        try:
            urllib.request.urlopen(address)
            return
        except OSError:
            time.sleep(0.2)
