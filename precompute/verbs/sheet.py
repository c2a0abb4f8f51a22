"""A contact sheet: a collection's gallery beside as many training pictures."""

import io
from pathlib import Path

import torch
from PIL import Image

from core.explorer.explorer import Explorer
from core.measure.draws import keyed_generator
from precompute.machinery.out import ending, write_out

COLUMNS, GAP = 8, 6


def contact_sheet(explorer: Explorer, count: int = 64, size: int = 64) -> Image.Image:
    """Return the gallery's first samples on the left, training pictures on the right.

    Args:
        explorer: A collection.
        count: Pictures on each side.
        size: Pixels of a picture's side.
    """
    samples = [explorer.gallery_png(i) for i in explorer.gallery.index[:count]]
    ids = explorer.examples.table.index
    order = torch.randperm(len(ids), generator=keyed_generator(0, "contact sheet"))
    training = [explorer.image_png(int(ids[i])) for i in order[:count].tolist()]
    sides = [_grid(pictures, size) for pictures in (samples, training)]
    width = sides[0].width + 4 * GAP + sides[1].width
    sheet = Image.new("RGB", (width, sides[0].height), "white")
    sheet.paste(sides[0], (0, 0))
    sheet.paste(sides[1], (sides[0].width + 4 * GAP, 0))
    return sheet


def write_sheet(sheet: Image.Image, path: Path) -> None:
    """Write a sheet as the kind of picture that its name says."""
    data = io.BytesIO()
    sheet.save(data, ending("sheet", path).removeprefix("."))
    write_out(path, data.getvalue())


def _grid(pictures: list[bytes], size: int) -> Image.Image:
    rows = -(-len(pictures) // COLUMNS)
    step = size + GAP
    grid = Image.new("RGB", (COLUMNS * step + GAP, rows * step + GAP), "#eceae6")
    for number, data in enumerate(pictures):
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        picture = picture.resize((size, size), Image.Resampling.NEAREST)
        row, column = divmod(number, COLUMNS)
        grid.paste(picture, (GAP + column * step, GAP + row * step))
    return grid
