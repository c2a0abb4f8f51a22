"""The first waits of a new server, beside those of an older checkout.

From the server's start to the first strips; once that page is at rest, at once the
first click on every other page, until all of it is drawn that needs no computing; what
does shows how far it is. Both programs run by turns, so a busy machine slows both;
seconds of the server's processes on cores depend less on it than those on the clock.
"""

import statistics
import time
from pathlib import Path

from tests.helpers.server import ROOT, running_app

UNITS = ("on the clock", "on cores")
STRIPS = "start of the server to the first strips"
# Words that a page shows as soon as it is drawn, by its address; each checkout has one
# of them.
PAGES = {
    "measurements": ("Three ways to say",),
    "timesteps": ("drawn from noise", "forms out of noise"),
    "methods": ("in every way there is", "same image under every method"),
    "map": ("All training images at once", "All training pictures at once"),
    "groups": ("What if this artist", "had never been in the training set"),
    "evidence": ("samples measured in each",),
    "collections": ("What it cost",),
}
# Two columns show their three strips, with their images.
SHOWN = """() => {
    const all = (root, wanted) => [...root.querySelectorAll('*')].flatMap((node) => [
        ...(node.matches(wanted) ? [node] : []),
        ...(node.shadowRoot ? all(node.shadowRoot, wanted) : []),
    ]);
    const strips = all(document, 'section[aria-label]').filter((section) =>
        section.getAttribute('aria-label') !== 'Gallery' &&
        section.querySelector('.tile'));
    const images = strips.flatMap((strip) => [...strip.querySelectorAll('.tile img')]);
    return strips.length >= 6 && images.every((image) => image.naturalWidth > 0);
}"""
DRAWN = """(words) => {
    const app = document.querySelector('[data-testid="stApp"]');
    if (!app || app.dataset.testScriptState !== 'notRunning') return false;
    const main = document.querySelector('[data-testid="stMain"]');
    return main && words.some((one) => main.innerText.includes(one))
        && !main.querySelector('[data-stale="true"]');
}"""


def compare(
    browser, collection: str, root: Path | None, before: Path, repeats: int
) -> dict:
    """Return the waits of an older checkout and of this one.

    Args:
        browser: A running Chromium.
        collection: With a gallery.
        root: Folder of collections; each checkout's own unless given.
        before: Folder of the older checkout.
        repeats: How often each server is started.

    Returns:
        Per wait and unit the medians in seconds, `before` and `now`, how many `times
        faster` that is, and `all` that was measured.
    """
    runs = {"before": [], "now": []}
    for number in range(repeats):
        names = list(runs) if number % 2 == 0 else list(runs)[::-1]
        for name in names:
            checkout = before.resolve() if name == "before" else ROOT
            runs[name].append(first_waits(browser, collection, root, checkout))
    return {
        wait: {
            unit: _medians({
                name: [one[wait][unit] for one in runs[name]] for name in runs
            })
            for unit in UNITS
        }
        for wait in runs["now"][0]
    }


def _medians(measured: dict[str, list[float]]) -> dict:
    """Return the median of each program, how many times faster, and all figures."""
    medians = {name: statistics.median(found) for name, found in measured.items()}
    ratio = round(medians["before"] / max(medians["now"], 0.01), 1)
    return medians | {"times faster": ratio, "all": measured}


def first_waits(
    browser, collection: str, root: Path | None, checkout: Path
) -> dict[str, dict[str, float]]:
    """Return the waits of one new server, in seconds by `UNITS`."""
    waits = {}
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(600_000)
    start = time.perf_counter()
    folder = root or checkout / "data" / "collections"
    with running_app(folder, checkout=checkout) as server:

        def note(wait: str, start: float, used: float) -> None:
            seconds = time.perf_counter() - start, server.cpu_seconds() - used
            waits[wait] = {
                unit: round(one, 2) for unit, one in zip(UNITS, seconds, strict=True)
            }

        page.goto(f"{server.address}/?collection={collection}")
        page.wait_for_function(SHOWN)
        note(STRIPS, start, 0.0)
        page.wait_for_function(DRAWN, arg=["Generated"])
        for name, words in PAGES.items():
            link = page.locator(f'[data-testid="stTopNavLink"][href*="/{name}"]')
            start, used = time.perf_counter(), server.cpu_seconds()
            link.first.click()
            page.wait_for_function(DRAWN, arg=list(words))
            note(f"first click on {name}", start, used)
        page.close()
    return waits
