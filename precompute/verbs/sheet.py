"""`sheet`: a collection's gallery beside as many training images, on one sheet."""

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING

from precompute.machinery.out import ending, write_out
from precompute.verbs.options import add_root

if TYPE_CHECKING:
    from PIL import Image

    from core.explorer.explorer import Explorer

HELP = "gallery beside training images, as PNG"
COLUMNS, GAP = 8, 6


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--collection", required=True)
    add_root(parser)
    parser.add_argument("--out", type=Path, required=True, help="PNG or WebP file")


def run(options: argparse.Namespace) -> None:
    """Write the sheet as the kind of image that the file's name says."""
    from core.explorer.explorer import open_explorer

    sheet = contact_sheet(open_explorer(options.collection, options.root))
    data = io.BytesIO()
    sheet.save(data, ending("sheet", options.out).removeprefix("."))
    write_out(options.out, data.getvalue())


def contact_sheet(
    explorer: "Explorer", count: int = 64, size: int = 64
) -> "Image.Image":
    """Return the gallery's first samples on the left, training images on the right.

    Args:
        explorer: A collection.
        count: Images on each side.
        size: Pixels of an image's side.
    """
    import torch
    from PIL import Image

    from core.measure.draws import keyed_generator

    samples = [explorer.gallery_png(i) for i in explorer.gallery.index[:count]]
    ids = explorer.examples.table.index
    order = torch.randperm(len(ids), generator=keyed_generator(0, "contact sheet"))
    training = [explorer.image_png(int(ids[i])) for i in order[:count].tolist()]
    left, right = (_grid(images, size) for images in (samples, training))
    width = left.width + 4 * GAP + right.width
    sheet = Image.new("RGB", (width, left.height), "white")
    sheet.paste(left, (0, 0))
    sheet.paste(right, (left.width + 4 * GAP, 0))
    return sheet


def _grid(images: list[bytes], size: int) -> "Image.Image":
    from PIL import Image

    rows = -(-len(images) // COLUMNS)
    step = size + GAP
    grid = Image.new("RGB", (COLUMNS * step + GAP, rows * step + GAP), "#eceae6")
    for number, data in enumerate(images):
        image = Image.open(io.BytesIO(data)).convert("RGB")
        image = image.resize((size, size), Image.Resampling.NEAREST)
        row, column = divmod(number, COLUMNS)
        grid.paste(image, (GAP + column * step, GAP + row * step))
    return grid
