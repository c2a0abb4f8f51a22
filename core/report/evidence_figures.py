"""Figures of the evidence: data frame -> plotly figure, as in `core.report.figures`."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from core.files.texts import for_figure
from core.report.figures import (
    DASHES,
    MARKER,
    MUTED,
    SERIES,
    faint,
    finish,
    hover_numbers,
    scatter,
)

SYMBOLS = ("circle", "diamond", "square", "triangle-up")
ERROR_BAR = {"thickness": 1.5, "width": 3, "color": MUTED}


def points(
    frame: pd.DataFrame,
    title: str,
    tones: list[str],
    references: dict[str, tuple[float, float]],
) -> go.Figure:
    """Return a row per name: a value with its error bar.

    Args:
        frame: Columns `name`, `value`, `error` (NaN draws no bar) and `tone`; the first
            row stands on top.
        title: What the values are.
        tones: What the colours mean, in their order; those of no row are left out.
        references: Per name the place of a vertical line and its error, drawn as a pale
            band; NaN draws no band.
    """
    figure = go.Figure()
    for number, tone in enumerate(tones):
        rows = frame[frame["tone"] == tone]
        if rows.empty:
            continue
        figure.add_scatter(
            x=rows["value"],
            y=rows["name"].map(for_figure),
            name=for_figure(tone),
            mode="markers",
            marker={
                "size": 10,
                "color": SERIES[number % len(SERIES)],
                "symbol": SYMBOLS[number % len(SYMBOLS)],
            },
            error_x={"array": rows["error"], **ERROR_BAR},
            hovertext=hover_numbers(rows["value"], rows["error"]),
            hovertemplate="%{y}: %{hovertext}<extra></extra>",
        )
    for number, (name, (value, error)) in enumerate(references.items()):
        line = {"width": 2, "color": MUTED, "dash": DASHES[1 + number % 3]}
        figure.add_vline(x=value, line=line)
        if np.isfinite(error):
            band = {"fillcolor": faint(MUTED), "line": {"width": 0}, "layer": "below"}
            figure.add_vrect(x0=value - error, x1=value + error, **band)
        figure.add_scatter(x=[None], y=[None], name=name, mode="lines", line=line)
    figure.update_layout(showlegend=len(figure.data) > 1)
    figure.update_xaxes(title=title, zeroline=True)
    names = frame["name"].map(for_figure).tolist()
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=names[::-1],
        range=[-0.6, len(names) - 0.4],
        ticklabelstandoff=6,
    )
    return finish(figure, height=110 + 26 * len(names), top=52)


def damping_curves(frame: pd.DataFrame) -> go.Figure:
    """Return the LDS over the damping, a line per method; a ring marks its own.

    Args:
        frame: Columns `name`, `relative` (damping over the mean eigenvalue), `lds`,
            `standard_error` and `default`; sorted by damping.
    """
    figure = go.Figure()
    for number, (name, rows) in enumerate(frame.groupby("name", sort=False)):
        colour = SERIES[number % len(SERIES)]
        figure.add_scatter(
            x=rows["relative"],
            y=rows["lds"],
            name=for_figure(name),
            mode="lines+markers",
            line={"width": 2, "color": colour, "dash": DASHES[number % len(DASHES)]},
            marker={
                "size": np.where(rows["default"], 13, 6),
                "color": colour,
                "symbol": np.where(rows["default"], "circle-open", "circle"),
                "line": {"width": np.where(rows["default"], 3, 0)},
            },
            error_y={"array": rows["standard_error"], **ERROR_BAR},
            customdata=hover_numbers(rows["relative"], form=".2g"),
            hovertext=hover_numbers(rows["lds"], rows["standard_error"], ".2f"),
            hovertemplate="%{customdata} times the mean eigenvalue: %{hovertext}"
            "<extra></extra>",
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(
        type="log",
        title="damping, times the mean eigenvalue",
        exponentformat="power",
        dtick=2,
    )
    figure.update_yaxes(title="LDS", zeroline=True)
    return finish(figure, height=330, top=52)


def calibrated_scatter(
    frame: pd.DataFrame,
    line: pd.DataFrame,
    half_width: float,
    x_title: str,
    y_title: str,
) -> go.Figure:
    """Return measured against predicted changes, with the map between them.

    Args:
        frame: Columns `x`, `y`, `id` and `name`, a row per sample and retrained model.
        line: Columns `x` (ascending) and `y`: the change to expect.
        half_width: Half of the interval drawn around the map.
        x_title: What x is.
        y_title: What y is.
    """
    figure = scatter(frame, x_title, y_title)
    x = pd.concat([line["x"], line["x"][::-1]])
    y = pd.concat([line["y"] + half_width, (line["y"] - half_width)[::-1]])
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        fill="toself",
        fillcolor=faint(MARKER),
        line={"width": 0},
        name="nine of ten",
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=line["x"],
        y=line["y"],
        mode="lines",
        line={"width": 2.5, "color": MARKER, "shape": "linear"},
        name="change to expect",
        hoverinfo="skip",
    )
    figure.update_traces(
        marker={"size": 5, "opacity": 0.4}, selector={"mode": "markers"}
    )
    figure.update_layout(showlegend=True, margin={"t": 40})
    return figure


def group_scatter(
    frame: pd.DataFrame, tones: list[str], x_title: str, y_title: str
) -> go.Figure:
    """Return measured against predicted changes of samples without a group.

    Args:
        frame: Columns `predicted`, `error` (of it; NaN draws no bar), `measured`,
            `name` and `tone`, a row per sample and group.
        tones: What the colours mean, in their order.
        x_title: What was predicted.
        y_title: What was measured.
    """
    figure = go.Figure()
    for number, tone in enumerate(tones):
        rows = frame[frame["tone"] == tone]
        figure.add_scatter(
            x=rows["predicted"],
            y=rows["measured"],
            name=for_figure(tone),
            mode="markers",
            marker={
                "size": 8,
                "opacity": 0.7,
                "color": SERIES[number % len(SERIES)],
                "symbol": SYMBOLS[number % len(SYMBOLS)],
            },
            error_x={"array": rows["error"], **ERROR_BAR},
            text=rows["name"].map(for_figure),
            customdata=hover_numbers(rows["predicted"]),
            hovertext=hover_numbers(rows["measured"]),
            hovertemplate="%{text}: predicted %{customdata}, measured %{hovertext}"
            "<extra></extra>",
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title=x_title, zeroline=True)
    figure.update_yaxes(title=y_title, zeroline=True)
    return finish(figure, height=340, top=52)


def collapse_curves(table: pd.DataFrame) -> go.Figure:
    """Return how alike two models' costs and images are, over their images.

    Args:
        table: Of `core.evidence.collapse.collapse_table`.
    """
    figure = go.Figure()
    for number, (column, name) in enumerate(
        {
            "correlation": "correlation of the costs",
            "drawn": "distance of the images drawn",
        }.items()
    ):
        colour = SERIES[number]
        figure.add_scatter(
            x=table["num_pictures"],
            y=table[column],
            name=name,
            mode="lines+markers",
            line={"width": 2, "color": colour, "dash": DASHES[number]},
            marker={"size": 8, "color": colour, "symbol": SYMBOLS[number]},
            hovertext=hover_numbers(table[column], form=".2f"),
            hovertemplate="%{x} images: %{hovertext}<extra></extra>",
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(
        type="log",
        title="images that each model was trained on",
        tickvals=table["num_pictures"],
        ticktext=[f"{count:,.0f}" for count in table["num_pictures"]],
    )
    figure.update_yaxes(zeroline=True)
    return finish(figure, height=300, top=52)
