"""An image of one's own in a real browser: cut, drawn, and asked about."""

import io
import re

import pytest
from PIL import Image

from pages.parts import own_image
from tests.pages.test_browser import (  # noqa: F401
    address,
    browser,
    open_page,
    page,
    playwright,
    settle,
    strip,
)

ASK = "Ask about this drawing"


def preview(page) -> str:  # noqa: F811
    """Return where the preview of an upload lies."""
    shown = page.get_by_test_id("stImage").locator("img").first
    shown.wait_for()
    return shown.get_attribute("src")


def test_an_upload_is_cut_where_one_likes_and_put_on_the_ground(page, address):  # noqa: F811
    image = Image.new("RGB", (120, 60), (225, 235, 230))
    image.paste((220, 30, 30), (70, 15, 110, 45))
    file = io.BytesIO()
    image.save(file, "PNG")
    page.goto(address)
    page.get_by_text("Upload", exact=True).click()
    page.locator('input[type="file"]').set_input_files({
        "name": "mine.png",
        "mimeType": "image/png",
        "buffer": file.getvalue(),
    })
    ask = page.get_by_role("button", name="Ask about this image")
    ask.wait_for()
    middle = preview(page)
    slider = page.get_by_role("slider", name=re.compile("Which part"))
    slider.focus()
    page.keyboard.press("End")
    playwright.expect(slider).to_have_value("100")
    shown = page.get_by_test_id("stImage").locator("img").first
    playwright.expect(shown).not_to_have_attribute("src", middle)
    playwright.expect(page.get_by_text("Ground made white")).to_be_visible()
    ask.click()
    playwright.expect(page.get_by_text("Your image").first).to_be_visible()
    playwright.expect(strip(page, "Helped").first).to_be_visible()
    playwright.expect(page.get_by_text("would help it most")).to_be_visible()
    playwright.expect(page.get_by_text("than noise alone would lift")).to_be_visible()


def stroke(page, *points) -> None:  # noqa: F811
    """Draw a line through points, in shares of the canvas."""
    paper = page.locator("canvas.paper")
    paper.scroll_into_view_if_needed()
    box = paper.bounding_box()
    x, y, width, height = (box[key] for key in ("x", "y", "width", "height"))
    first, *rest = ((x + across * width, y + down * height) for across, down in points)
    page.mouse.move(*first)
    page.mouse.down()
    for point in rest:
        page.mouse.move(*point, steps=4)
    page.mouse.up()


def ink(page) -> int:  # noqa: F811
    """Return how many pixels of the canvas are not white."""
    return page.locator("canvas.paper").evaluate(
        "c => c.getContext('2d').getImageData(0, 0, 512, 512).data"
        ".filter((v, i) => i % 4 === 1 && v < 250).length"
    )


def test_a_drawing_outlives_pages_and_is_asked_about(page, address):  # noqa: F811
    """Undone and cleared by keyboard; a link to it says that drawings do not travel."""
    page.goto(address)
    page.get_by_text("Draw", exact=True).click()
    ask = page.get_by_role("button", name=ASK)
    playwright.expect(ask).to_be_disabled()
    page.get_by_role("button", name="Red", exact=True).click()
    page.get_by_role("button", name="Broad").click()
    stroke(page, (0.2, 0.2), (0.8, 0.2), (0.8, 0.8))
    once = ink(page)
    stroke(page, (0.2, 0.8), (0.5, 0.8))
    assert ink(page) > once > 10_000
    drawing = page.get_by_role("region", name="Draw an image")
    undo = drawing.get_by_role("button", name="Undo")
    clear = drawing.get_by_role("button", name="Clear")
    undo.press("Enter")
    assert ink(page) == once
    clear.press("Space")
    assert ink(page) == 0
    playwright.expect(ask).to_be_disabled()
    undo.press("Enter")
    open_page(page, "Evidence")
    page.get_by_role("link", name="Explore", exact=True).first.click()
    page.locator("canvas.paper").wait_for()
    assert ink(page) == once
    ask.press("Enter")
    page.wait_for_url("**draw=*")
    playwright.expect(page.get_by_text("Your drawing").first).to_be_visible()
    playwright.expect(strip(page, "Helped").first).to_be_visible()
    link = page.url
    open_page(page, "Timesteps")
    playwright.expect(page.get_by_text("Your drawing").first).to_be_visible()
    page.goto("about:blank")  # ends the visit
    page.goto(link)
    said = page.get_by_text("links do not include it. Draw it here again.")
    playwright.expect(said).to_be_visible()


@pytest.mark.parametrize(
    "sent",
    [None, 3, "", "data:image/png;base64,%%%", own_image.DRAWN + "A" * 3_000_000],
)
def test_what_is_no_drawing_is_refused_with_a_sentence(sent):
    with pytest.raises(ValueError, match="did not arrive whole"):
        own_image.drawing_of(sent)


@pytest.mark.parametrize("ground", [(255, 255, 255), (0, 0, 0), (140, 140, 140)])
@pytest.mark.parametrize("offered", [own_image.GREYS, own_image.COLOURS])
def test_every_colour_can_be_seen_on_the_ground(ground, offered):
    found = own_image.colours_on(ground, offered)
    assert len(found) >= 4
    assert "#" + "".join(f"{v:02x}" for v in ground) not in [
        value for _, value in found
    ]
