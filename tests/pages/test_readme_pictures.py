"""The images of README.md: the two-minute tour as a visitor sees it."""

import io
import re

import pytest
from PIL import Image

from core.config import DATA_DIR
from tests.helpers.server import running_app
from tests.pages.test_browser import browser, settle  # noqa: F401  (a fixture)

pytestmark = pytest.mark.long

FOLDER = DATA_DIR / "readme"
WIDTH, QUALITY = 1080, 80  # as GitHub shows them at most; of WebP
LARGEST = 500_000  # bytes of all of them
STEPS = 8


def rest(page) -> None:
    """Wait until nothing is loading and nothing is computed."""
    for _ in range(200):
        page.wait_for_timeout(1500)
        settle(page)
        busy = '[data-testid="stSkeleton"], [data-testid="stProgress"]'
        if not page.locator(busy).count():
            return
    raise AssertionError("the page never came to rest")


def walk(browser, address: str, mode: str, width: int, height: int, scale: float):  # noqa: F811
    """Yield the number of each step of the tour and its page, at rest."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=mode,
        device_scale_factor=scale,
    )
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(address)
    rest(page)
    for number in range(1, STEPS + 1):
        page.get_by_role("button", name=re.compile("^(Begin|Next)$")).click()
        page.get_by_text(f"{number} of {STEPS}", exact=False).first.wait_for()
        page.mouse.move(width - 2, height - 2)  # no help text over the image
        rest(page)
        yield number, page
    context.close()


def save(page, name: str) -> int:
    """Write what a page shows as a small image; return its bytes."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    if image.width > WIDTH:
        size = (WIDTH, round(WIDTH * image.height / image.width))
        image = image.resize(size, Image.Resampling.LANCZOS)
    path = FOLDER / f"{name}.webp"
    image.save(path, quality=QUALITY, method=6)
    return path.stat().st_size


def test_story_is_told_in_pictures(browser):  # noqa: F811
    """Eight steps on a desk in light, one on a phone in dark; all in all, few bytes."""
    written = 0
    with running_app(DATA_DIR / "collections") as server:
        address = server.address
        for number, page in walk(browser, address, "light", 1440, 900, 1):
            written += save(page, f"story-{number}")
        for number, page in walk(browser, address, "dark", 390, 844, 1.5):
            if number == 2:
                written += save(page, "story-phone")
                break
    assert written < LARGEST
