"""How long a visitor waits: from the server's start or a click to a full page.

The server and the browser share the cores, as on a machine of one's own. `load` is how
many other processes wanted a core at the beginning.
"""

import os
import shutil
import time
from pathlib import Path

import numpy as np

from core.config import DATA_DIR
from core.files import images
from tests.benchmarks.first_waits import compare
from tests.benchmarks.machine import facts
from tests.helpers.server import running_app

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FOUR = "ekfac.loss~ekfac.elbo~trak~clip"
PATIENCE = 300_000  # milliseconds

# Every column shows its three strips with their images, of the image asked about
# and of all draws, and nothing is on its way.
FULL = """([columns, words]) => {
    const all = (root, wanted) => [...root.querySelectorAll('*')].flatMap((node) => [
        ...(node.matches(wanted) ? [node] : []),
        ...(node.shadowRoot ? all(node.shadowRoot, wanted) : []),
    ]);
    const app = document.querySelector('[data-testid="stApp"]');
    if (!app || app.dataset.testScriptState !== 'notRunning') return false;
    const main = document.querySelector('[data-testid="stMain"]');
    if (!main || !main.innerText.includes(words)) return false;
    if (main.innerText.includes('first 128 of')) return false;
    if (all(main, '[data-testid="stProgress"], [data-testid="stSkeleton"]').length)
        return false;
    const strips = all(main, 'section[aria-label]').filter((section) =>
        section.getAttribute('aria-label') !== 'Gallery' &&
        section.querySelector('.tile'));
    const tiles = strips.flatMap((strip) => [...strip.querySelectorAll('.tile img')]);
    return strips.length >= 3 * columns && tiles.every((img) => img.naturalWidth > 0);
}"""


def run(
    collection: str,
    root: Path | None,
    before: Path | None = None,
    repeats: int = 3,
) -> dict:
    """Return the seconds of every wait, on a collection with a gallery.

    Given the folder of an older checkout, only the first waits, beside that one's.
    """
    from playwright.sync_api import sync_playwright

    load = round(os.getloadavg()[0], 1)
    result = {"machine": facts(), "load": load, "seconds": {}}
    took = result["seconds"]
    with (
        sync_playwright() as driver,
        driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=FLAGS
        ) as browser,
    ):
        if before is not None:
            waits = compare(browser, collection, root, before, repeats)
            return {"beside an older checkout": {"load": load, "seconds": waits}}
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(PATIENCE)
        start = time.perf_counter()
        with running_app(root or DATA_DIR / "collections") as server:
            link = f"{server.address}/?collection={collection}"

            def until_full(columns: int, words: str) -> float:
                page.wait_for_function(FULL, arg=[columns, words])
                return round(time.perf_counter() - start, 2)

            page.goto(link)
            took["start of the server to the gallery's answers"] = until_full(
                2, "Generated"
            )
            page.wait_for_timeout(15_000)  # the model is loaded meanwhile

            generate(page, 4242)
            start = time.perf_counter()
            page.get_by_role("button", name="Generate and ask").click()
            took["new sample, DDIM of 50 steps"] = until_full(2, "seed 4242")

            upload(page)
            start = time.perf_counter()
            page.get_by_role("button", name="Ask about this image").click()
            took["upload"] = until_full(2, "Your image")

            start = time.perf_counter()
            page.goto(f"{link}&sample=1&lenses={FOUR}")
            took["gallery in four columns, with the page"] = until_full(4, "Generated")
            settle(page)
            other = page.locator('section[aria-label="Gallery"] .tile:nth-child(5)')
            start = time.perf_counter()
            other.first.click()
            page.wait_for_function("() => !location.search.includes('sample=1&')")
            took["gallery in four columns, from the click"] = until_full(4, "Generated")

            generate(page, 4243)
            start = time.perf_counter()
            page.get_by_role("button", name="Generate and ask").click()
            took["new sample in four columns"] = until_full(4, "seed 4243")
    return result


def settle(page) -> None:
    """Wait until the script has come to rest."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    page.wait_for_timeout(500)


def generate(page, seed: int) -> None:
    """Fill in the form for a new image."""
    page.get_by_text("Generate", exact=True).click()
    number = page.get_by_role("spinbutton", name="Seed")
    number.fill(str(seed))
    number.press("Tab")
    settle(page)


def upload(page) -> None:
    """Choose a file for an upload."""
    pixels = np.full((3, 64, 64), 255, np.uint8)
    pixels[0, 16:48, 16:48] = 0
    page.get_by_text("Upload", exact=True).click()
    page.locator('input[type="file"]').set_input_files({
        "name": "mine.png",
        "mimeType": "image/png",
        "buffer": images.png(pixels),
    })
    page.get_by_text("mine.png").wait_for()
    settle(page)
