"""The whole app in a real browser: pictures arrive, uploads are answered, no errors."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

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


def test_phone_shows_no_horizontal_overflow(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("", "/collections"):
        page.goto(address)
        settle(page)
        if path:
            page.get_by_test_id("stExpandSidebarButton").click()
            page.get_by_role("link", name="Collections").click()
        else:
            playwright.expect(strip(page, "Least similar").first).to_be_visible()
        settle(page)
        widths = page.evaluate(
            """() => [document.documentElement, ...document.querySelectorAll(
                '[data-testid="stMain"], [data-testid="stMainBlockContainer"]')]
                .map(e => [e.scrollWidth, e.clientWidth])"""
        )
        assert all(content <= frame for content, frame in widths), (path, widths)
