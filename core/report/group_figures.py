"""Figures about groups of training images; as `figures`, plain frames in."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from core.files.texts import for_figure
from core.report.figures import ACCENT, MARKER, MUTED, finish, hover_numbers, name_rows

MAP_HEIGHT = 560  # pixels
BINS = 24  # of the random groups' changes
WEBGL_FROM = 1000  # points; fewer are drawn as vectors, a page has few WebGL contexts
SMALL, LARGE = 5, 17  # pixels of a dot without influence, and of the strongest
PALE = 0.4  # opacity of dots that were not marked, beside those that were
EXTREME = 0.99  # quantile of sizes that has the full colour, so that few are not all
DIVERGING = [[0.0, MARKER], [0.5, "#b9b4aa"], [1.0, ACCENT]]
RING = "#7c5cbf"  # the image that is asked about; no score has this colour
SEQUENTIAL = [[0.0, "#b9b4aa"], [1.0, ACCENT]]


def random_histogram(others: np.ndarray, value: float, title: str) -> go.Figure:
    """Return how the changes of random groups are spread, and where one group stands.

    Args:
        others: Of the random groups, as printed, shape (G,).
        value: Of the group, as printed.
        title: What the numbers are.
    """
    counts, edges = np.histogram(others, BINS)
    middle = (edges[:-1] + edges[1:]) / 2
    bars = go.Bar(
        x=middle,
        y=counts,
        width=0.94 * np.diff(edges),
        marker={"color": MUTED, "cornerradius": 2},
        hovertext=hover_numbers(middle),
        hovertemplate="%{y} random removals near %{hovertext}<extra></extra>",
        showlegend=False,
    )
    figure = go.Figure([bars])
    figure.add_vline(
        x=value,
        line={"color": ACCENT if value >= 0 else MARKER, "width": 3},
        annotation={
            "text": "this group",
            "yanchor": "bottom",
            "y": 1,
            "xanchor": "left" if value < np.mean(others) else "right",
            "showarrow": False,
        },
    )
    # A line far outside stretches the axis; leave room for its name.
    ends = np.append(others, value)
    room = 0.06 * max(float(np.ptp(ends)), 1e-12)
    figure.update_xaxes(title=title, range=[ends.min() - room, ends.max() + room])
    figure.update_yaxes(title="random removals")
    return finish(figure, height=260, top=30)


def change_bars(frame: pd.DataFrame, title: str) -> go.Figure:
    """Return horizontal bars: predicted change if a group is removed.

    Args:
        frame: Columns `group`, `change`, `standard_error` (NaN draws no error bar), as
            printed, and `images`, how many it has; the first row is on top.
        title: What the numbers are.
    """
    frame = frame.iloc[::-1]  # plotly draws the first row at the bottom
    bars = go.Bar(
        x=frame["change"],
        y=np.arange(len(frame)),
        orientation="h",
        marker={
            "color": np.where(frame["change"] >= 0, ACCENT, MARKER),
            "cornerradius": 4,
        },
        error_x={
            "array": frame["standard_error"],
            "thickness": 1.5,
            "width": 3,
            "color": MUTED,
        },
        customdata=frame["images"],
        text=frame["group"].map(for_figure),
        textposition="none",
        hovertext=hover_numbers(frame["change"], frame["standard_error"]),
        hovertemplate="%{text}: %{hovertext}, %{customdata} images<extra></extra>",
        showlegend=False,
    )
    figure = go.Figure([bars])
    figure.update_layout(bargap=0.45)
    name_rows(figure, frame["group"])
    figure.update_xaxes(title=title, zeroline=True)
    return finish(figure, height=72 + 28 * len(frame))


def image_map(
    frame: pd.DataFrame,
    signed: bool,
    colour_title: str,
    place: np.ndarray | None = None,
    limits: list[tuple[float, float]] | None = None,
) -> go.Figure:
    """Return the training images as dots to be lassoed; a score is colour and size.

    Args:
        frame: Columns `x`, `y`, `id` (goes into the selection), `name`, and `score`, as
            printed (NaN for no colour yet).
        signed: Whether zero has a meaning, and is the middle of the colours.
        colour_title: What the colours are.
        place: Where the image that is asked about would lie, None for no mark.
        limits: Ends of both axes, None for those of the dots.
    """
    known = frame["score"].notna().any()
    marker = {"size": 6, "opacity": 0.75, "color": MUTED, "line": {"width": 0}}
    if known and signed:
        most = float(frame["score"].abs().quantile(EXTREME)) or 1.0
        ends = {"cmin": -most, "cmax": most, "colorscale": DIVERGING}
    elif known:
        low, high = frame["score"].quantile([1 - EXTREME, EXTREME])
        ends = {"cmin": low, "cmax": high, "colorscale": SEQUENTIAL}
    if known:
        bar = {"title": {"text": colour_title, "side": "right"}, "thickness": 10}
        bar |= {"len": 0.86, "y": 0.43}  # below the tools
        marker |= {"color": frame["score"], "colorbar": bar} | ends
        # The strongest are drawn last, over the many that hardly matter.
        frame = frame.iloc[frame["score"].abs().argsort(kind="stable")]
        marker["color"] = frame["score"]
        if signed:  # its influence is the size of a dot; half as strong, half the area
            size = frame["score"].abs()
            share = np.sqrt(size / (float(size.max()) or 1.0))
            marker["size"] = SMALL + (LARGE - SMALL) * share
            # The two colours are one to some eyes.
            marker["symbol"] = np.where(frame["score"] < 0, "diamond", "circle")
    draw = go.Scattergl if len(frame) > WEBGL_FROM else go.Scatter
    dots = draw(
        x=frame["x"],
        y=frame["y"],
        mode="markers",
        customdata=frame["id"],
        text=frame["name"].map(for_figure),
        hovertext=hover_numbers(frame["score"]) if known else None,
        marker=marker,
        unselected={"marker": {"opacity": PALE}},
        hovertemplate="%{text}"
        + (": %{hovertext}" if known else "")
        + "<extra></extra>",
        showlegend=False,
    )
    figure = go.Figure([dots])
    if place is not None:
        # Of the same kind as the dots, or it would lie under them.
        figure.add_trace(
            draw(
                x=place[:1],
                y=place[1:],
                mode="markers",
                marker={
                    "size": 18,
                    "symbol": "circle-open",
                    "color": RING,
                    "line": {"width": 3},
                },
                unselected={"marker": {"opacity": 1}},
                hovertemplate="this image<extra></extra>",
                showlegend=False,
            )
        )
    figure.update_layout(dragmode="lasso")
    across, down = limits or (None, None)
    figure.update_xaxes(visible=False, range=across)
    figure.update_yaxes(visible=False, range=down)
    figure = finish(figure, height=MAP_HEIGHT)
    figure.update_layout(margin={"b": 8})
    return figure
