"""The whole app in a real browser: pictures arrive, uploads are answered, no errors."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from core import reading

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120  # seconds, on a busy machine
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")


@pytest.fixture(scope="module")
def address(tiny_collection):
    """Run the app on a free port and return its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py"]
    command += ["--server.headless", "true", "--server.port", str(port)]
    command += ["--server.address", "127.0.0.1", "--server.fileWatcherType", "none"]
    environment = os.environ | {"AFTERIMAGE_COLLECTIONS": str(tiny_collection)}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_health(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def wait_for_health(address: str, process: subprocess.Popen) -> None:
    """Wait until the app answers."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, "the app ended by itself"
        try:
            if urllib.request.urlopen(f"{address}/_stcore/health").read() == b"ok":
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the app never answered")


@pytest.fixture(scope="module")
def browser(chromium):
    """Return Debian's Chromium."""
    playwright.expect.set_options(timeout=PATIENCE * 1000)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """Return a page that fails the test if its console shows an error."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE * 1000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: message.type == "error" and errors.append(message.text),
    )
    yield page
    page.close()
    assert errors == []


def settle(page) -> None:
    """Wait until the script has come to rest."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


def strip(page, title: str):
    """Return the picture tiles of a strip."""
    return page.get_by_role("region", name=title).get_by_role("button")


def pictures_loaded(tiles) -> bool:
    """Return whether every tile shows a decoded picture."""
    loaded = "tile => tile.querySelector('img').naturalWidth > 0"
    return all(tile.evaluate(loaded) for tile in tiles.all())


def test_gallery_picture_fills_both_columns(page, address):
    """A click on a gallery tile asks about it; both lenses show pictures."""
    page.goto(address)
    gallery = strip(page, "Gallery")
    gallery.nth(1).click()
    page.wait_for_url("**sample=*")
    playwright.expect(gallery.nth(1)).to_have_attribute("aria-pressed", "true")
    for title in ("Made it more likely", "Most similar", "Least similar"):
        playwright.expect(strip(page, title).first).to_be_visible()
        assert pictures_loaded(strip(page, title)), title
    chosen = page.url
    page.goto(chosen)  # the link opens the same view
    playwright.expect(strip(page, "Gallery").nth(1)).to_have_attribute(
        "aria-pressed", "true"
    )


def test_tile_opens_its_details_and_can_be_asked_about(page, address):
    page.goto(address)
    strip(page, "Most similar").first.click()
    dialog = page.get_by_role("dialog")
    playwright.expect(dialog.locator("img")).to_have_count(2)
    playwright.expect(dialog.get_by_text("rank").first).to_be_visible()
    dialog.get_by_role("button", name="Ask about this one").click()
    page.wait_for_url("**example=*")
    playwright.expect(page.get_by_text("Training picture").first).to_be_visible()
    playwright.expect(strip(page, "Made it more likely").first).to_be_visible()


def test_arrow_keys_move_through_a_strip(page, address):
    """One tab stop a row; arrows move inside it and Enter opens the details."""
    page.goto(address)
    tiles = strip(page, "Most similar")
    tiles.first.focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(tiles.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("dialog")).to_be_visible()


def test_upload_is_answered(page, address):
    """A PNG from the visitor's machine becomes the query."""
    pixels = np.full((3, 64, 64), 255, np.uint8)
    pixels[0, 16:48, 16:48] = 0
    page.goto(address)
    page.get_by_text("Upload", exact=True).click()
    page.locator('input[type="file"]').set_input_files({
        "name": "mine.png",
        "mimeType": "image/png",
        "buffer": reading.png(pixels),
    })
    page.get_by_text("mine.png").wait_for()
    page.get_by_role("button", name="Ask about it").click()
    playwright.expect(page.get_by_text("Your picture").first).to_be_visible()
    playwright.expect(strip(page, "Made it more likely").first).to_be_visible()
    assert pictures_loaded(strip(page, "Most similar"))


def test_what_is_no_picture_is_refused_with_a_sentence(page, address):
    page.goto(address)
    page.get_by_text("Upload", exact=True).click()
    page.locator('input[type="file"]').set_input_files({
        "name": "mine.png",
        "mimeType": "image/png",
        "buffer": b"no picture",
    })
    page.get_by_text("mine.png").wait_for()
    page.get_by_role("button", name="Ask about it").click()
    said = page.get_by_role("status").filter(has_text="could not be read")
    playwright.expect(said).to_be_visible()


def open_page(page, name: str) -> None:
    """Go to a page by its link at the top, in the sidebar on a phone."""
    link = page.get_by_role("link", name=name, exact=True)
    expand = page.get_by_test_id("stExpandSidebarButton")
    if page.viewport_size["width"] < 500 and expand.is_visible():
        expand.click()
    link.first.click()
    playwright.expect(page).to_have_url(re.compile(name.lower()))


FILLED = {  # a strip, or a table, that a page shows once it is answered
    "Measurements": "Made it less likely",
    "Timesteps": "Influence of the strongest",
    "Methods": "Agreement between lenses",
    "Collections": None,
}


@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_fills_and_is_never_too_wide(page, address, width):
    """No console error, and at no width a page that scrolls sideways."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address)
    playwright.expect(strip(page, "Least similar").first).to_be_visible()
    assert_fits(page)
    for name, filled in FILLED.items():
        open_page(page, name)
        if filled:
            region = page.get_by_role("region", name=filled).first
            playwright.expect(region).to_be_visible()
        settle(page)
        assert_fits(page)


def assert_fits(page) -> None:
    """Check that nothing is wider than the window."""
    widths = page.evaluate(
        """() => [document.documentElement, ...document.querySelectorAll(
            '[data-testid="stMain"], [data-testid="stMainBlockContainer"]')]
            .map(e => [e.scrollWidth, e.clientWidth])"""
    )
    assert all(content <= frame for content, frame in widths), (page.url, widths)


def test_box_on_the_picture_asks_about_that_part(page, address):
    """A drag marks whole pixels, the link names them, and the columns answer."""
    page.goto(address)
    strip(page, "Made it more likely").first.wait_for()
    bounds = page.locator(".ground img").bounding_box()

    def point(share):
        sides = (("x", "width"), ("y", "height"))
        return (bounds[start] + share * bounds[length] for start, length in sides)

    page.mouse.move(*point(0.26))
    page.mouse.down()
    page.mouse.move(*point(0.74))
    page.mouse.up()
    page.wait_for_url("**region=*")
    box = unquote(page.url.split("region=")[1].split("&")[0]).split(",")
    assert [int(side) for side in box] == [16, 16, 48, 48]  # of 64 pixels
    playwright.expect(page.get_by_text("the marked part").first).to_be_visible()
    playwright.expect(strip(page, "Made it more likely").first).to_be_visible()


def test_preset_changes_the_columns_and_the_link_brings_them_back(page, address):
    page.goto(address)
    page.get_by_text("Structure or detail", exact=True).click()
    page.wait_for_url("**lenses=*")
    strips = page.get_by_role("region", name="Made it less likely")
    playwright.expect(strips).to_have_count(2)
    page.goto(page.url)
    playwright.expect(strips).to_have_count(2)
    playwright.expect(page.get_by_text("First 10", exact=True)).to_be_visible()
