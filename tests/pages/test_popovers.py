"""What is set in a popover stays set, what is cleared stays cleared, in a real browser.

A closed popover's widgets are not in the page: they hear of nothing, and send what they
had with the next click anywhere.
"""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlparse

import pytest

from tests.helpers.server import running_app
from tests.pages.test_browser import browser, page, settle, strip  # noqa: F401

expect = pytest.importorskip("playwright.sync_api", reason="no playwright").expect


@pytest.fixture(scope="module")
def address(tested_collection) -> Iterator[str]:
    """Run the app on a free port and return its address."""
    with running_app(tested_collection) as server:
        yield server.address


def asked(page) -> dict[str, str]:  # noqa: F811
    """Return what the address names, once the page has come to rest."""
    settle(page)
    page.wait_for_timeout(300)
    settle(page)
    return {k: v[0] for k, v in parse_qs(urlparse(page.url).query).items()}


def opened(page, name: str | re.Pattern):  # noqa: F811
    """Open a popover by its button and return what it holds."""
    page.get_by_role("button", name=name).first.click()
    body = page.get_by_test_id("stPopoverBody")
    body.wait_for()
    return body


def closed(page) -> None:  # noqa: F811
    """Close the popover that is open."""
    page.keyboard.press("Escape")
    body = page.get_by_test_id("stPopoverBody")
    if body.count():  # some content takes the key
        page.mouse.click(5, 5)
    expect(body).to_have_count(0)


def elsewhere(page) -> None:  # noqa: F811
    """Click what has nothing to do with it: how many of the first are compared."""
    chosen = asked(page).get("agreement")
    name = "First 10" if chosen else "First 50"
    page.get_by_text(name, exact=True).click()
    settle(page)


def press(page, handle, key: str, times: int) -> None:  # noqa: F811
    """Move a slider's handle by the keyboard, in two goes: the popover stays open."""
    for goes in (1, times - 1):
        handle.focus()
        for _ in range(goes):
            handle.press(key)
        asked(page)


def set_across(page) -> None:  # noqa: F811
    press(page, opened(page, "Region").get_by_role("slider").nth(1), "ArrowLeft", 9)


def set_down(page) -> None:  # noqa: F811
    press(page, opened(page, "Region").get_by_role("slider").nth(3), "ArrowLeft", 9)


def clear_region(page) -> None:  # noqa: F811
    page.get_by_role("button", name="Whole image").click()


def set_words(page) -> None:  # noqa: F811
    box = opened(page, "Search").get_by_role("textbox")
    box.fill("a heart")
    box.press("Enter")


def set_only(page) -> None:  # noqa: F811
    opened(page, "Search").get_by_role("combobox").first.click()
    page.get_by_role("option").first.click()


def clear_search(page) -> None:  # noqa: F811
    page.get_by_role("button", name="Show all").click()


TITLE = re.compile("^EK-FAC influence")


def set_method(page) -> None:  # noqa: F811
    opened(page, TITLE).get_by_role("combobox").first.click()
    page.get_by_role("option", name="Gradient", exact=False).first.click()


def set_measurement(page) -> None:  # noqa: F811
    opened(page, TITLE).get_by_role("combobox").nth(1).click()
    page.get_by_role("option", name="ELBO").click()


def set_levels(page) -> None:  # noqa: F811
    press(page, opened(page, TITLE).get_by_role("slider").nth(1), "ArrowLeft", 20)


def clear_lenses(page) -> None:  # noqa: F811
    page.get_by_text("Influence and similarity", exact=True).click()


CONTROLS = {  # of the link's keys: what sets them in a popover, and what clears them
    "region": ([set_across, set_down], clear_region),
    "words": ([set_words], clear_search),
    "only": ([set_only], clear_search),
    "lenses": ([set_method, set_measurement, set_levels], clear_lenses),
}


@pytest.mark.parametrize("key", CONTROLS)
def test_what_is_set_stays_and_what_is_cleared_stays_cleared(
    page,  # noqa: F811
    address,
    key: str,
):
    """Through a click elsewhere, after it was cleared, and with another image."""
    changes, clear = CONTROLS[key]
    page.goto(f"{address}?sample=0")
    strip(page, "Least similar").first.wait_for()
    for change in changes:
        change(page)
        closed(page)
        page.wait_for_url(f"**{key}=*")
        value = asked(page)[key]
        elsewhere(page)
        assert asked(page)[key] == value, change.__name__
        clear(page)
        elsewhere(page)
        assert key not in asked(page), change.__name__
    change(page)
    closed(page)
    value = asked(page)[key]
    strip(page, "Gallery").nth(1).click()
    page.wait_for_url(re.compile("sample=(?!0)"))
    elsewhere(page)
    # A part belongs to its image; how it is asked about goes along.
    assert asked(page).get(key) == (None if key == "region" else value)
