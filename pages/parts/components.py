"""The parts that Streamlit lacks: image tiles, coloured tables, a box on an image.

Each part's script and style lie beside this file; they set all text as
text, never as HTML.
"""

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from core.explorer.explorer import Explorer
from core.files.images import data_uri

HERE = Path(__file__).parent
SHOWN, LARGEST = 192, 256  # pixels that an image asked about is wide, about and at most
MOST_KEPT = 4096  # training images kept as text, of each collection


def component(name: str):
    """Return the component whose script and style lie here under a name."""
    return st.components.v2.component(
        f"afterimage_{name}",
        css=(HERE / f"{name}.css").read_text(),
        js="".join((HERE / f"{one}.js").read_text() for one in ("element", name)),
    )


_mount_tiles = component("tiles")
_mount_matrix = component("matrix")
_mount_region = component("region")
_mount_guide = component("guide")


@st.cache_resource(max_entries=4)
def _kept_uris(collection: str) -> dict[int, str]:
    """Return the training images that were shown, the oldest first."""
    return {}


def example_uris(explorer: Explorer, examples: list[int]) -> dict[int, str]:
    """Return training images as text for image elements, by id.

    All that are missing are read together, which is many times quicker than one by one.
    """
    kept = _kept_uris(explorer.fingerprint)
    uris = {i: uri for i in examples if (uri := kept.get(i)) is not None}
    missing = [example for example in examples if example not in uris]
    if missing:
        pictures = map(data_uri, explorer.images_png(missing))
        uris |= dict(zip(missing, pictures, strict=True))
        kept.update(uris)
    for oldest in list(kept)[:-MOST_KEPT]:
        kept.pop(oldest, None)
    return uris


def example_tile(explorer: Explorer, example: int) -> dict:
    """Return the tile of a training image, without a score."""
    lines = explorer.examples.caption(example)
    source = example_uris(explorer, [example])[example]
    return {"id": example, "src": source, "lines": lines, "alt": ", ".join(lines)}


def tiles(
    strips: list[dict],
    key: str,
    *,
    layout: str,
    columns: tuple[int, int],
    chosen: int | None = None,
    on_pick: Callable[[], None] = lambda: None,
) -> int | None:
    """Show rows of clickable images.

    Args:
        strips: One dictionary per row: `title`, `tone`, `empty`, perhaps `label` (its
            name where several have that title), and `tiles`, each with `id`, `src`,
            `alt` and what stands under it (see tiles.js).
        key: The component's key.
        layout: "lens" (headings and captions) or "gallery" (images only).
        columns: Images per row, in a wide and in a narrow place.
        chosen: The id to mark as chosen.
        on_pick: Called before the page runs again after a click.

    Returns:
        The id that was clicked just now, or None.
    """
    result = _mount_tiles(
        key=key,
        data={
            "strips": strips,
            "layout": layout,
            "columns": columns[0],
            "narrow_columns": columns[1],
            "chosen": chosen,
        },
        on_picked_change=on_pick,
    )
    return result.picked


def matrix(
    columns: list[str], rows: list[dict], key: str, *, alt: str, layout: str = "square"
) -> int | None:
    """Show a table of coloured cells.

    Args:
        columns: Column headings.
        rows: One dictionary per row: `label`, `cells` (each `text`, `strength` in
            [-1, 1] and perhaps `title`; or an image's `src`, `title` and perhaps
            `text` under it), and, where the row is an image, its `id` and `src`.
        key: The component's key.
        alt: What the table shows, for those who do not see it.
        layout: "square", or "heat" for narrow cells.

    Returns:
        The id of the row that was clicked just now, or None.
    """
    result = _mount_matrix(
        key=key,
        data={"columns": columns, "rows": rows, "alt": alt, "layout": layout},
        on_picked_change=lambda: None,
    )
    return result.picked


def region(
    source: str,
    alt: str,
    size: tuple[int, int],
    box: tuple[int, int, int, int] | None,
    key: str,
    cell: int,
    on_draw: Callable[[], None],
) -> None:
    """Show an image on which a box can be drawn.

    Args:
        source: The image as text for an image element.
        alt: What it shows.
        size: Its width and height in its own pixels, which the box counts in.
        box: Left, top, right, bottom of the box there is, or None.
        key: The component's key; the drawn box is `st.session_state[key].drawn`.
        cell: The side in pixels of the cells that a drawn box is made of.
        on_draw: Called before the page runs again after a box was drawn.
    """
    _mount_region(
        key=key,
        data={
            "src": source,
            "alt": alt,
            "size": list(size),
            "shown": shown_width(size[0]),
            "box": box,
            "cell": cell,
        },
        on_drawn_change=on_draw,
    )


def shown_width(width: int) -> int:
    """Return how wide an image of some pixels is shown: a whole multiple, about 190."""
    return width * max(round(SHOWN / width), 1) if width <= LARGEST else LARGEST


def guide(spot: str | None, step: int, *, present: bool, key: str) -> str | None:
    """Scroll to an element of the page once a step, and listen to the arrow keys.

    Args:
        spot: The element's key; None scrolls nowhere.
        step: A new number scrolls anew.
        present: Whether the rest is dimmed, and the line of the tour large.
        key: The component's key.

    Returns:
        "next" or "back" if that was pressed just now, or None.
    """
    result = _mount_guide(
        key=key,
        data={"spot": spot, "step": step, "present": present},
        on_pressed_change=lambda: None,
    )
    return result.pressed


def last_click(*clicks: int | None) -> int | None:
    """Return what was clicked just now in the last of several parts, None for none."""
    return next((click for click in reversed(clicks) if click is not None), None)
