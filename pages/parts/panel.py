"""The panel beside a page's content: the chosen image, its region, the way to another.

Which image is chosen is a view (`pages.parts.link`).
"""

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.explorer.explorer import Explorer, Query
from core.files import images
from core.lenses import check_region, in_cells, parse_region
from pages.parts import components, link, pickers, shared
from pages.parts.link import ask_about, change_view
from pages.parts.ties import tie
from pages.parts.views import find_query
from pages.parts.words import heading, sentence, text

STYLE = f"<style>{(components.HERE / 'panel.css').read_text()}</style>"


@dataclass(frozen=True)
class Chosen:
    """The image that a page is about.

    Attributes:
        query: The image.
        region: Box in pixels of the image that is asked about, None for all of it.
        content: Where the page shows its content, beside the panel.
    """

    query: Query
    region: tuple[int, int, int, int] | None
    content: DeltaGenerator


def show_panel(explorer: Explorer) -> Chosen:
    """Show the image and the ways to choose another; stop the page without one."""
    view = link.current_view()
    st.caption(
        f"**{text(explorer.title)}** · {explorer.num_examples:,} training images · "
        f"{text(explorer.device_name)}"
    )
    body = st.container()
    shared.show_credits(explorer)  # below the body, also when the page stops early
    with body:
        left, right = st.columns([0.26, 0.74], gap="medium")
    with left:
        sample = st.container()
        pickers.pick_query(explorer, view)
    with right:
        try:
            query = find_query(explorer, view)
            region = find_region(explorer, query, view)
        except (LookupError, ValueError) as error:
            st.info(sentence(error))
            st.stop()
    if query is None:
        sample.skeleton(height=300)
        st.stop()
    with sample:
        show_sample(explorer, query, region)
    return Chosen(query, region, right)


def find_region(
    explorer: Explorer, query: Query | None, view: dict[str, str]
) -> tuple[int, int, int, int] | None:
    """Return the region that a view names, None for the whole image.

    It is the box of all cells that the named one touches: those are measured. A
    `ValueError` holds the sentence to show where it is not a region.
    """
    if query is None or "region" not in view:
        return None
    region = parse_region(view["region"])
    check_region(region, query.pixels.shape[-1])
    return in_cells(region, explorer.cell)


def show_sample(
    explorer: Explorer, query: Query, region: tuple[int, int, int, int] | None
) -> None:
    """Show the image that is asked about, and how to ask about a region of it."""
    height, width = query.pixels.shape[-2:]
    components.region(
        images.data_uri(images.png(images.on_white(query.pixels))),
        query.description,
        (width, height),
        region,
        "sample_region",
        explorer.cell,
        on_draw=lambda: set_region(st.session_state.sample_region.drawn),
    )
    title, *rest = query.description.split(" · ")
    if query.drawn and query.drawing.guidance_scale != 1:
        rest.append(f"guidance {query.drawing.guidance_scale:g}")
    heading(title, " · ".join(rest))
    if region:
        show_region(region)
    st.html(STYLE)
    with st.container(
        horizontal=True, vertical_alignment="center", key="image_buttons"
    ):
        show_region_controls((width, height), explorer.cell, region)
        show_history(query)
        show_link()
    if not query.drawn:
        offer_inversion(explorer, query)


def set_region(box: list[int] | None) -> None:
    """Ask about a box of the image, or about the whole of it."""
    if box is not None:
        box = ",".join(str(int(side)) for side in box)
    change_view(region=box)


def show_region_controls(
    size: tuple[int, int], cell: int, region: tuple[int, int, int, int] | None
) -> None:
    """Show which region of the image is asked about, with sliders to change it."""
    width, height = size
    x0, y0, x1, y1 = region or (0, 0, width, height)
    with st.popover(
        "Region",
        icon=":material/crop:",
        key="part",
        help="Ask about one region of the image: drag a box on it, or use the sliders",
    ):
        st.slider(
            "Left to right",
            0,
            width,
            step=cell,
            help="Columns of pixels in the region",
            **tie("across", (x0, x1), lambda xs: take_box(size, xs, (y0, y1))),
        )
        st.slider(
            "Top to bottom",
            0,
            height,
            step=cell,
            help="Rows of pixels in the region",
            **tie("down", (y0, y1), lambda ys: take_box(size, (x0, x1), ys)),
        )


def show_region(region: tuple[int, int, int, int]) -> None:
    """Show in a line of its own which region is asked about, and the way back."""
    x0, y0, x1, y1 = region
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(f"Region of {x1 - x0} × {y1 - y0} pixels", width="content")
        st.button(
            "Whole image",
            type="tertiary",
            help="Clear the region",
            on_click=set_region,
            args=(None,),
        )


def take_box(
    size: tuple[int, int], across: tuple[int, int], down: tuple[int, int]
) -> None:
    """Ask about the box that the sliders say, if it has any pixels."""
    (x0, x1), (y0, y1) = across, down
    if x0 == x1 or y0 == y1:
        return
    whole = (x0, y0, x1, y1) == (0, 0, *size)
    set_region(None if whole else [x0, y0, x1, y1])


def show_history(query: Query) -> None:
    """Show the images that were asked about before, to go back to one."""
    asked = link.remember(
        lambda: images.data_uri(images.png(images.on_white(query.pixels))),
        query.description,
    )
    with st.popover(
        "History",
        icon=":material/history:",
        help="Images you asked about; the browser’s back button returns to them, too",
        disabled=len(asked) < 2,
    ):
        tiles = [
            {"id": place, "src": one["src"], "alt": one["words"]}
            for place, one in enumerate(asked)
        ]
        components.tiles(
            [{"title": "History", "tone": "neutral", "empty": "", "tiles": tiles}],
            "asked_before",
            layout="gallery",
            columns=(4, 4),
            chosen=0,
            on_pick=lambda: ask_about(
                st.session_state.asked[st.session_state.asked_before.picked]["view"]
            ),
        )


def show_link() -> None:
    """Show the address of this view, with a button that copies it."""
    with st.popover(
        "Link", icon=":material/link:", help="Opens this exact view, on any machine"
    ):
        st.code(link.whole_address(), language=None, wrap_lines=True)


def offer_inversion(explorer: Explorer, query: Query) -> None:
    """Offer approximate sampling steps for an image that the model did not draw."""
    st.toggle(
        "Approximate sampling steps",
        help=text(explorer.trajectory_note(query)),
        **tie(
            "inverted",
            query.inverted,
            lambda wanted: change_view(inverted="1" if wanted else None),
        ),
    )
