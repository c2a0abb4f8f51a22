"""What stands over a map's dots: names of places, images beside their own dots."""

import numpy as np
import plotly.graph_objects as go

from core.explorer.places import Place
from core.files.texts import for_figure
from core.report.figures import MUTED


def add_names(figure: go.Figure, places: list[Place]) -> None:
    """Write names where their neighbourhoods lie, under any pointer."""
    for place in places:
        figure.add_annotation(
            x=place.x,
            y=place.y,
            text=f"<b>{for_figure(place.name)}</b>",
            showarrow=False,
            font={"size": 13, "shadow": "auto"},
        )


def add_images(
    figure: go.Figure,
    dots: np.ndarray,
    centres: np.ndarray,
    size: np.ndarray,
    sources: list[str],
) -> None:
    """Draw images beside their dots, each tied to its own by a line.

    Args:
        figure: The map.
        dots: Where the dots lie, shape (I, 2).
        centres: Where the images lie, shape (I, 2).
        size: Width and height of an image, in the map's units, shape (2,).
        sources: The images as text for an image element, I of them.
    """
    for dot, centre in zip(dots, centres, strict=True):
        figure.add_shape(
            type="line",
            x0=dot[0],
            y0=dot[1],
            x1=centre[0],
            y1=centre[1],
            line={"color": MUTED, "width": 1},
        )
    for centre, source in zip(centres, sources, strict=True):
        figure.add_layout_image(
            source=source,
            x=centre[0],
            y=centre[1],
            sizex=size[0],
            sizey=size[1],
            xref="x",
            yref="y",
            xanchor="center",
            yanchor="middle",
            layer="above",
        )
