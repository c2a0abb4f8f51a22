"""The map of the training images, drawn around to choose some; pages share it."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from core import numbers
from core.explorer import groups, layout, places
from core.explorer.explorer import Answer, Explorer, Query
from core.explorer.filters import Matches
from core.files import images
from core.files.texts import safe_csv
from core.report import group_figures, map_marks, reading
from pages.parts import waiting

# Only the tools that mark images; the pages have no use for plotly's others.
TOOLS = {
    "modeBarButtons": [["lasso2d", "select2d"]],
    "displaylogo": False,
    "displayModeBar": True,
}
HEIGHT = group_figures.MAP_HEIGHT
MARGINS = 20  # pixels of it above and below the dots
WIDTHS = {  # of the window, and of the dots in it, in pixels
    "(max-width: 640px)": 250,
    "(min-width: 640.1px) and (max-width: 1200px)": 510,
    "(min-width: 1200.1px)": 800,
}
NAMES = 12  # neighbourhoods that are named
STRONGEST = 10  # images drawn beside their dots
SIZE = np.array([0.055, 0.085])  # of such an image, as shares of the map
HOW = (
    "Each dot is a training image; look-alikes lie near each other "
    "(small CLIP, t-SNE: nearness means something, distance does not). "
)


def show(
    explorer: Explorer,
    query: Query,
    answer: Answer | None,
    key: str,
    take: Callable[[str], None],
    likeness: np.ndarray | None = None,
    among: Matches | None = None,
) -> None:
    """Show the map.

    Args:
        explorer: The collection.
        query: The image that is asked about.
        answer: Colours the dots, None while it is computed.
        key: Of the chart.
        take: Called with the images that were drawn around, as `groups.write_ids`
            writes them, before the page runs again.
        likeness: How like the query each training image is to CLIP, shape (N,), which
            says where the query would lie; None while that is not known.
        among: What a search leaves to be shown, None for all images.
    """
    positions = waiting.result_of(
        "map", f"{explorer.fingerprint}/map", explorer.map_positions, HEIGHT
    )
    if positions is None:
        return
    scale = None if answer is None else reading.scale(answer)
    title = ""
    if answer is not None:
        title = "similarity" if reading.is_similarity(answer.lens) else "change"
        title += f" ({scale.unit})" if scale.unit else ""
    frame = map_frame(explorer, positions, answer, scale)
    if among is not None:
        frame = frame[among.members]
    place = None if likeness is None else layout.place(positions, likeness)

    def chosen() -> None:
        points = st.session_state[key]["selection"]["points"]
        ids = [point["customdata"] for point in points if "customdata" in point]
        if ids:
            take(groups.write_ids(int(np.ravel(one)[0]) for one in ids))

    figure = group_figures.image_map(
        frame, scale is None or scale.signed, title, place, limits(positions)
    )
    names = named_places(explorer.fingerprint, explorer, positions)
    map_marks.add_names(figure, names)
    pictures = np.zeros((0, 2))
    if answer is not None:
        pictures = show_strongest(figure, explorer, answer, positions, among, place)
    hide_names(names, positions, pictures, key)
    st.plotly_chart(
        figure,
        config=TOOLS,
        key=key,
        on_select=chosen,
        selection_mode=("points", "box", "lasso"),
        alt=f"Map of {len(frame):,} training images; those that look alike lie "
        "together. On the page What if, the same images can be chosen by numbers.",
    )


@st.cache_data(max_entries=8, show_spinner=False)
def named_places(collection: str, _explorer: Explorer, _positions: np.ndarray):
    """Return the map's neighbourhoods that a label of the classes dominates."""
    table = _explorer.examples.table
    labels = [name for name in _explorer.classes.columns if name in table]
    return places.named_places(_positions, table[labels], NAMES)


def show_strongest(
    figure,
    explorer: Explorer,
    answer: Answer,
    positions: np.ndarray,
    among: Matches | None,
    place: np.ndarray | None,
) -> np.ndarray:
    """Draw the images that matter most, for and against, beside their dots.

    They leave the place free where the image that is asked about would lie.

    Returns:
        Their middles, shape (I, 2).
    """
    if reading.is_similarity(answer.lens):
        order = answer.order()
    else:
        order = np.argsort(-np.abs(answer.scores), kind="stable")
    if among is not None:
        order = order[among.members[order]]
    order = order[:STRONGEST]
    if not len(order):
        return np.zeros((0, 2))
    low, high = np.array(limits(positions)).T
    size = SIZE * (high - low)
    pictures = explorer.images_png(answer.example_ids[order].tolist())
    sources = [images.data_uri(images.framed(one)) for one in pictures]
    free = np.zeros((0, 2)) if place is None else place[None]
    centres = places.apart(positions[order], size, low, high, free)
    map_marks.add_images(figure, positions[order], centres, size, sources)
    return centres


def hide_names(
    names: list[places.Place], positions: np.ndarray, pictures: np.ndarray, key: str
) -> None:
    """Hide the names that would cover each other or a picture, by width of the window.

    The browser alone knows that width, so that it gets a rule for each.
    """
    low, high = np.array(limits(positions)).T
    rules = []
    for window, width in WIDTHS.items():
        pixels = np.array([width, HEIGHT - MARGINS]) / (high - low)
        # A picture keeps its shape inside the room that it is given.
        side = np.full(2, (SIZE * (high - low) * pixels).min()) / pixels
        shown = set(places.readable(names, pixels, pictures, side))
        hidden = ", ".join(
            f'.st-key-{key} .annotation[data-index="{i}"]'
            for i in range(len(names))
            if i not in shown
        )
        if hidden:
            rules.append(f"@media {window} {{ {hidden} {{ display: none; }} }}")
    st.html(f"<style>{' '.join(rules)}</style>")


def limits(positions: np.ndarray) -> list[tuple[float, float]]:
    """Return the ends of both axes, the same whatever a search leaves."""
    low, high = positions.min(0), positions.max(0)
    room = 0.03 * (high - low)
    return list(zip(low - room, high + room, strict=True))


def map_frame(
    explorer: Explorer,
    positions: np.ndarray,
    answer: Answer | None,
    scale: numbers.Scale | None,
) -> pd.DataFrame:
    """Return the dots as the figure wants them; short numbers travel faster."""
    table = explorer.examples.table
    score = np.full(len(table), np.nan)
    if answer is not None:
        score = answer.scores * scale.factor
    return pd.DataFrame({
        "x": positions[:, 0].astype(np.float32),
        "y": positions[:, 1].astype(np.float32),
        "id": table.index.to_numpy(),
        "name": explorer.examples.names(),
        "score": score.astype(np.float32),
    })


def colours(answer: Answer | None) -> str:
    """Return what the colours of the dots say, in words."""
    if answer is None:
        return "The colours come once the answer is there."
    if reading.is_similarity(answer.lens):
        return "The greener, the more it looks like this image."
    return "Green helped, orange worked against; the larger, the stronger."


def marked_csv(explorer: Explorer, answer: Answer, members: np.ndarray) -> str:
    """Return the scores of some images as a table, best first."""
    table = reading.score_table([answer], explorer.examples.table)
    ids = answer.example_ids[members]
    return safe_csv(table[table["example"].isin(ids)])
