"""The map of the training images, drawn around to choose some; pages share it."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from core import numbers
from core.explorer import groups, layout
from core.explorer.explorer import Answer, Explorer, Query
from core.explorer.filters import Matches
from core.files.texts import safe_csv
from core.report import group_figures, reading
from pages.parts import waiting

# Only the tools that mark images; the pages have no use for plotly's others.
TOOLS = {
    "modeBarButtons": [["lasso2d", "select2d"]],
    "displaylogo": False,
    "displayModeBar": True,
}
HEIGHT = 440
HOW = (
    "Each dot is a training image; those that show like things lie near each other "
    "(CLIP, t-SNE: only who is near counts, not how far apart). "
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

    st.plotly_chart(
        group_figures.image_map(
            frame, scale is None or scale.signed, title, place, limits(positions)
        ),
        config=TOOLS,
        key=key,
        on_select=chosen,
        selection_mode=("points", "box", "lasso"),
        alt=f"Map of {len(frame):,} training images; those that look alike lie "
        "together. On the page What if, the same images can be chosen by numbers.",
    )


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
    return "Green made it more likely, orange less."


def marked_csv(explorer: Explorer, answer: Answer, members: np.ndarray) -> str:
    """Return the scores of some images as a table, best first."""
    table = reading.score_table([answer], explorer.examples.table)
    ids = answer.example_ids[members]
    return safe_csv(table[table["example"].isin(ids)])
