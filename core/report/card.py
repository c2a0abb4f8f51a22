"""An image to share: the sample, what made it, one sentence and whose art it is.

Drawn by Pillow at the size that links are shown with. Knows neither Streamlit nor where
its font comes from.
"""

import io
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from core.answers import Answer, Query
from core.explorer.explorer import Explorer
from core.files import images
from core.files.texts import one_line, shortened
from core.report import reading
from core.report.ingredients import png_info
from core.report.report import first_sentence

SIZE = (1200, 630)
MARGIN = 48
GROUND, TEXT, FAINT, LINE = "#fbfaf8", "#1f2328", "#5f646c", "#e3e0da"
ACCENT = "#0b6b60"
SAMPLE = 372  # pixels of the side of the sample
COLUMNS, TILE, GAP = 4, 150, 29  # the top influences, in two rows


def card(explorer: Explorer, query: Query, answer: Answer, font: Path) -> bytes:
    """Return the card of an answer as a PNG file, its ingredients inside as XMP.

    Args:
        explorer: The collection.
        query: The image that was asked about.
        answer: What is shown of it.
        font: A variable font with the weights "Regular" and "Semibold".
    """
    image = Image.new("RGB", SIZE, GROUND)
    draw = ImageDraw.Draw(image)
    pen = _Pen(draw, font)
    top = pen.write("Afterimage", (MARGIN, 30), 24, ACCENT, bold=True) + 10
    _framed(image, images.png(query.pixels), (MARGIN, top), SAMPLE)
    pen.wrap(
        one_line(query.description),
        (MARGIN, top + SAMPLE + 10),
        18,
        FAINT,
        width=SAMPLE,
        lines=2,
    )
    left = MARGIN + SAMPLE + 44
    strip = reading.strips(answer, 2 * COLUMNS)[0]
    title = f"{strip.title} · {explorer.titled(answer.lens)}"
    unit = reading.scale(answer).unit
    title += f" ({unit})" if unit else ""
    pen.wrap(title, (left, 34), 21, ACCENT, SIZE[0] - left - MARGIN, 1, bold=True)
    shown = [int(place) for place in strip.positions]
    for number, place in enumerate(shown):
        row, column = divmod(number, COLUMNS)
        corner = (left + column * (TILE + GAP), top + row * (TILE + 60))
        _tile(image, pen, explorer, answer, place, corner)
    if not shown:
        pen.wrap(strip.empty, (left, top), 24, TEXT, SIZE[0] - left - MARGIN, 2)
    text = first_sentence(explorer, answer)
    below = pen.wrap(text, (MARGIN, 516), 23, TEXT, SIZE[0] - 2 * MARGIN, 2)
    draw.line([(MARGIN, below + 8), (SIZE[0] - MARGIN, below + 8)], fill=LINE)
    pen.wrap(
        _credit(explorer, query, answer, shown),
        (MARGIN, below + 13),
        12,
        FAINT,
        SIZE[0] - 2 * MARGIN,
        2,
    )
    file = io.BytesIO()
    info = png_info(explorer, query, answer)
    image.save(file, "PNG", optimize=True, pnginfo=info)
    return file.getvalue()


def _credit(explorer: Explorer, query: Query, answer: Answer, shown: list[int]) -> str:
    """Return the credit lines of the images on the card."""
    ids = [int(answer.example_ids[place]) for place in shown]
    if query.kind == "example":
        ids.append(query.facts["example_id"])
    lines = dict.fromkeys(one_line(explorer.credit(example)) for example in ids)
    return "Art: " + " · ".join(lines) if lines else ""


def _tile(
    image: Image.Image,
    pen: "_Pen",
    explorer: Explorer,
    answer: Answer,
    place: int,
    corner: tuple[int, int],
) -> None:
    """Draw a training image with its score and its name."""
    example = int(answer.example_ids[place])
    scale = reading.scale(answer)
    _framed(image, explorer.image_png(example), corner, TILE)
    score, error = answer.scores[place], answer.standard_errors[place]
    text = f"{scale.number(score)} {scale.error(error)}".strip()
    left, below = corner[0], corner[1] + TILE + 4
    below = pen.write(text, (left, below), 17, TEXT, bold=True)
    name = explorer.examples.caption(example)
    pen.wrap(", ".join(name), (left, below), 15, FAINT, TILE + GAP - 8, 1)


def _framed(
    image: Image.Image, picture: bytes, corner: tuple[int, int], side: int
) -> None:
    """Draw an image on white, in a thin frame of round corners."""
    x, y = corner
    box = (x, y, x + side, y + side)
    ImageDraw.Draw(image).rounded_rectangle(box, 14, fill="#fff", outline=LINE, width=2)
    inner = round(0.9 * side)
    shown = Image.open(io.BytesIO(picture)).convert("RGB")
    shown = ImageOps.contain(shown, (inner, inner), Image.Resampling.LANCZOS)
    offset = [(side - length) // 2 for length in shown.size]
    image.paste(shown, (x + offset[0], y + offset[1]))


class _Pen:
    """Writes lines of text in two weights of one font."""

    def __init__(self, draw: ImageDraw.ImageDraw, font: Path):
        self.draw, self.path = draw, str(font)

    def font(self, size: int, bold: bool) -> ImageFont.FreeTypeFont:
        """Return the font at a size."""
        font = ImageFont.truetype(self.path, size)
        font.set_variation_by_name("Semibold" if bold else "Regular")
        return font

    def write(
        self, text: str, corner: tuple, size: int, colour: str, bold: bool = False
    ) -> int:
        """Write one line; return where the next one begins."""
        self.draw.text(corner, text, colour, self.font(size, bold))
        return corner[1] + round(1.3 * size)

    def wrap(
        self,
        text: str,
        corner: tuple,
        size: int,
        colour: str,
        width: int,
        lines: int,
        bold: bool = False,
    ) -> int:
        """Write a text in at most so many lines; return where the next one begins."""
        font = self.font(size, bold)
        left, top = corner
        for number, line in enumerate(_broken(text, font, width, lines)):
            self.draw.text((left, top + round(1.3 * size) * number), line, colour, font)
            corner = (left, top + round(1.3 * size) * (number + 1))
        return corner[1]


def _broken(
    text: str, font: ImageFont.FreeTypeFont, width: int, most: int
) -> list[str]:
    """Return a text in lines no wider than `width`; what does not fit ends in "…"."""
    lines, rest = [], shortened(text, 1000)
    while rest and len(lines) < most:
        count = _fitting(rest, font, width)
        if count < len(rest):
            space = rest.rfind(" ", 0, count + 1)
            count = space if space > 0 else count
        lines.append(rest[:count])
        rest = rest[count:].lstrip()
    if rest:
        last = lines[-1]
        lines[-1] = last[: _fitting(last, font, width - font.getlength("…"))] + "…"
    return lines


def _fitting(text: str, font: ImageFont.FreeTypeFont, width: float) -> int:
    """Return how many letters of a text fit into a width, at least one."""
    count = len(text)
    while count > 1 and font.getlength(text[:count]) > width:
        count -= 1
    return count
