"""A data frame becomes a plotly figure; knows neither Streamlit nor the data's source.

Colours of text, grid and ground are left to the page's theme; the few set here read on
light and on dark ground.
"""

import pandas as pd
import plotly.graph_objects as go

ACCENT = "#2b9d8f"
MARKER = "#d9692c"
MUTED = "#8a9099"
# Placed from the figure's edge, so that it never covers the plot of a small figure.
LEGEND_ON_TOP = {
    "orientation": "h",
    "yref": "container",
    "y": 1.0,
    "yanchor": "top",
    "x": 0,
}


def share_bars(frame: pd.DataFrame) -> go.Figure:
    """Return horizontal bars: share of the positive influence per group.

    Args:
        frame: Columns `group`, `share`, `error` (NaN draws no error bar) and
            `pictures`, the group's part of the training set, drawn as a tick.
    """
    frame = frame.iloc[::-1]  # plotly draws the first row at the bottom
    bars = go.Bar(
        x=frame["share"],
        y=frame["group"],
        orientation="h",
        name="of the influence",
        marker={"color": ACCENT, "cornerradius": 4},
        error_x={"array": frame["error"], "thickness": 1.5, "width": 3, "color": MUTED},
        hovertemplate="%{y}: %{x:.1%} of the influence<extra></extra>",
    )
    ticks = go.Scatter(
        x=frame["pictures"],
        y=frame["group"],
        mode="markers",
        name="of the pictures",
        marker={
            "symbol": "line-ns",
            "size": 14,
            "line": {"width": 2.5, "color": MARKER},
        },
        hovertemplate="%{y}: %{x:.1%} of the training pictures<extra></extra>",
    )
    figure = go.Figure([bars, ticks])
    figure.update_layout(
        height=80 + 30 * len(frame),
        margin={"l": 6, "r": 12, "t": 48, "b": 28},
        bargap=0.5,
        legend=LEGEND_ON_TOP,
    )
    figure.update_xaxes(tickformat=".0%", rangemode="tozero", fixedrange=True)
    figure.update_yaxes(fixedrange=True, automargin=True)
    return figure


def overlap_curve(frame: pd.DataFrame) -> go.Figure:
    """Return how many pictures two lenses share among their first k.

    Args:
        frame: Columns `count` (k), `shared`, and `chance`, the number two unrelated
            rankings would share.
    """
    figure = go.Figure([
        go.Scatter(
            x=frame["count"],
            y=frame["shared"] / frame["count"],
            mode="lines+markers",
            name="these two lenses",
            line={"color": ACCENT, "width": 2.5},
            hovertemplate="first %{x}: %{y:.0%} shared<extra></extra>",
        ),
        go.Scatter(
            x=frame["count"],
            y=frame["chance"] / frame["count"],
            mode="lines",
            name="chance",
            line={"color": MUTED, "width": 1.5, "dash": "dot"},
            hovertemplate="first %{x}: %{y:.0%} by chance<extra></extra>",
        ),
    ])
    figure.update_layout(
        height=200,
        margin={"l": 6, "r": 12, "t": 48, "b": 44},
        legend=LEGEND_ON_TOP,
    )
    figure.update_xaxes(type="log", title="first k pictures", fixedrange=True, dtick=1)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02], fixedrange=True)
    return figure
