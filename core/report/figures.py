"""A data frame becomes a plotly figure; knows neither Streamlit nor the data's source.

Colours of text, grid and ground are left to the page's theme; the few set here read on
light and on dark ground.
"""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from core.files.texts import for_figure, minus

ACCENT = "#2b9d8f"
MARKER = "#d9692c"
MUTED = "#8a9099"
SERIES = (ACCENT, MARKER, "#8f7fd6", MUTED)
DASHES = ("solid", "dash", "dot", "dashdot")  # told apart without colour, too
BAND_OPACITY = 0.22
# Placed from the figure's edge, so that it never covers the plot of a small figure.
LEGEND_ON_TOP = {
    "orientation": "h",
    "yref": "container",
    "y": 1.0,
    "yanchor": "top",
    "x": 0,
}


def finish(figure: go.Figure, height: int, top: int = 12) -> go.Figure:
    """Return a figure with the margins and fixed axes that all share."""
    figure.update_layout(
        height=height,
        margin={"l": 6, "r": 12, "t": top, "b": 40},
        legend=LEGEND_ON_TOP,
        hovermode="closest",
    )
    figure.update_xaxes(fixedrange=True)
    figure.update_yaxes(fixedrange=True, automargin=True)
    return figure


def name_rows(figure: go.Figure, names: pd.Series) -> None:
    """Name the rows 0, 1, ... of a figure, from below.

    Names are not coordinates: two that are shortened alike would share a row, and one
    that looks like a number or a date would get a place on a scale.
    """
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(names))),
        ticktext=[for_figure(name) for name in names],
    )


def share_bars(frame: pd.DataFrame) -> go.Figure:
    """Return horizontal bars: share of the positive influence per group.

    Args:
        frame: Columns `group`, `share`, `error` (NaN draws no error bar) and
            `images`, the group's part of the training set, drawn as a tick.
    """
    frame = frame.iloc[::-1]  # plotly draws the first row at the bottom
    rows, names = np.arange(len(frame)), frame["group"].map(for_figure)
    bars = go.Bar(
        x=frame["share"],
        y=rows,
        customdata=names,
        orientation="h",
        name="of the influence",
        marker={"color": ACCENT, "cornerradius": 4},
        error_x={"array": frame["error"], "thickness": 1.5, "width": 3, "color": MUTED},
        hovertemplate="%{customdata}: %{x:.1%} of the influence<extra></extra>",
    )
    ticks = go.Scatter(
        x=frame["images"],
        y=rows,
        customdata=names,
        mode="markers",
        name="of the images",
        marker={
            "symbol": "line-ns",
            "size": 14,
            "line": {"width": 2.5, "color": MARKER},
        },
        hovertemplate="%{customdata}: %{x:.1%} of the training images<extra></extra>",
    )
    figure = go.Figure([bars, ticks])
    figure.update_layout(bargap=0.5)
    name_rows(figure, frame["group"])
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    return finish(figure, height=92 + 30 * len(frame), top=48)


def distribution(frame: pd.DataFrame) -> go.Figure:
    """Return how many images have which score, one line per lens.

    Args:
        frame: Columns `lens`, `place` (in standard deviations) and `images`.
    """
    figure = go.Figure()
    for number, (name, rows) in enumerate(frame.groupby("lens", sort=False)):
        figure.add_scatter(
            x=rows["place"],
            y=rows["images"].where(rows["images"] > 0),
            name=for_figure(name),
            mode="lines",
            line={
                "shape": "hvh",
                "width": 2,
                "color": SERIES[number % len(SERIES)],
                "dash": DASHES[number % len(DASHES)],
            },
            hovertext=hover_numbers(rows["place"], form=".1f"),
            hovertemplate="%{y} images near %{hovertext}<extra></extra>",
        )
    figure.update_xaxes(title="standard deviations from the middle")
    figure.update_yaxes(type="log", title="images", dtick=1)
    return finish(figure, height=250, top=52)


def timestep_curve(
    frame: pd.DataFrame, title: str, reference: float | None = None
) -> go.Figure:
    """Return a value over the noise levels, with its standard error as a band.

    Args:
        frame: Columns `low`, `high` (timesteps), `value` and `error` (NaN: no band).
        title: What the value is.
        reference: Height of a dotted line, None for none.
    """
    middle = (frame["low"] + frame["high"]) / 2
    error = frame["error"].fillna(0.0)
    band = go.Scatter(
        x=pd.concat([middle, middle[::-1]]),
        y=pd.concat([frame["value"] + error, (frame["value"] - error)[::-1]]),
        mode="lines",  # or plotly marks the corners where there are few
        fill="toself",
        fillcolor=faint(ACCENT),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
    )
    line = go.Scatter(
        x=middle,
        y=frame["value"],
        mode="lines+markers",
        line={"color": ACCENT, "width": 2.5},
        marker={"size": 5},
        customdata=frame[["low", "high"]],
        hovertext=hover_numbers(frame["value"], frame["error"]),
        hovertemplate="noise %{customdata[0]}–%{customdata[1]}: %{hovertext}"
        "<extra></extra>",
        showlegend=False,
    )
    figure = go.Figure([band, line])
    if reference is not None:
        figure.add_hline(y=reference, line={"color": MUTED, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="noise level: detail ← → structure")
    figure.update_yaxes(title=title)
    return finish(figure, height=260)


def hover_numbers(
    values: Iterable[float], errors: Iterable[float] | None = None, form: str = ".3g"
) -> list[str]:
    """Return numbers as a figure tells them under the pointer, with their errors.

    Plotly's own formats write a hyphen for minus, its axes a minus sign.
    """
    printed = [minus(f"{value:{form}}") for value in values]
    if errors is None:
        return printed
    return [
        f"{value} ± {minus(f'{error:.2g}')}" if math.isfinite(error) else value
        for value, error in zip(printed, errors, strict=True)
    ]


def faint(colour: str) -> str:
    """Return a hexadecimal colour as a translucent fill."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"


def weights(frame: pd.DataFrame) -> go.Figure:
    """Return what each noise level counts for in a measurement, one line for each.

    Args:
        frame: Columns `timestep`, `weight` and `measurement`.
    """
    figure = go.Figure()
    for number, (name, rows) in enumerate(frame.groupby("measurement", sort=False)):
        figure.add_scatter(
            x=rows["timestep"],
            y=rows["weight"],
            name=for_figure(name),
            mode="lines",
            line={
                "width": 2.5,
                "color": SERIES[number % len(SERIES)],
                "dash": DASHES[number % len(DASHES)],
            },
            hovertext=hover_numbers(rows["weight"]),
            hovertemplate="noise %{x}: %{hovertext}<extra></extra>",
        )
    figure.update_xaxes(title="noise level: detail ← → structure")
    figure.update_yaxes(
        type="log", title="times the average", dtick=1, exponentformat="power"
    )
    return finish(figure, height=280, top=40)


def scatter(frame: pd.DataFrame, x_title: str, y_title: str) -> go.Figure:
    """Return every image's score under one lens against its score under another.

    Args:
        frame: Columns `x`, `y`, `id` (goes into the selection) and `name`.
        x_title: What x is.
        y_title: What y is.
    """
    points = go.Scatter(
        x=frame["x"],
        y=frame["y"],
        mode="markers",
        customdata=frame["id"],
        text=frame["name"].map(for_figure),
        marker={"color": ACCENT, "size": 6, "opacity": 0.55},
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    figure = go.Figure([points])
    figure.update_xaxes(title=x_title, zeroline=True)
    figure.update_yaxes(title=y_title, zeroline=True)
    return finish(figure, height=320)
