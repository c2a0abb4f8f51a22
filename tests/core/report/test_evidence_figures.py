"""Figures of the evidence show the numbers of their frames."""

import numpy as np
import pandas as pd

from core.report import evidence_figures as figures

ROWS = pd.DataFrame({
    "name": ["EK-FAC", "CLIP", "TRAK"],
    "value": [0.3, 0.1, -0.1],
    "error": [0.02, np.nan, 0.05],
    "tone": ["influence", "similarity", "attribution"],
})


def test_points_stand_in_the_order_of_the_rows_whatever_their_colour():
    """The first on top; every tone has a symbol of its own, its value and error."""
    tones = ["influence", "attribution", "similarity", "other"]
    figure = figures.points(ROWS, "LDS", tones, {})
    assert list(figure.layout.yaxis.categoryarray) == ["TRAK", "CLIP", "EK-FAC"]
    assert [trace.name for trace in figure.data] == tones[:3]  # no row is "other"
    assert [trace.x[0] for trace in figure.data] == [0.3, -0.1, 0.1]
    assert figure.data[0].error_x.array[0] == 0.02
    assert len({trace.marker.symbol for trace in figure.data}) == 3
    assert figure.layout.showlegend


def test_references_are_lines_with_their_error_as_a_band():
    """One that has no error has no band; both are named in the legend."""
    lines = {"ceiling": (0.35, 0.03), "random": (0.0, np.nan)}
    figure = figures.points(ROWS[:1], "LDS", ["influence"], lines)
    vertical = [shape for shape in figure.layout.shapes if shape.type == "line"]
    bands = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert [line.x0 for line in vertical] == [0.35, 0.0]
    np.testing.assert_allclose([(b.x0, b.x1) for b in bands], [(0.32, 0.38)])
    assert [trace.name for trace in figure.data][1:] == ["ceiling", "random"]
    assert vertical[0].line.dash != vertical[1].line.dash


def test_the_own_damping_has_a_ring():
    frame = pd.DataFrame({
        "name": ["EK-FAC", "EK-FAC", "TRAK"],
        "relative": [1e-3, 1.0, 1e-2],
        "lds": [0.2, 0.1, 0.3],
        "standard_error": [0.01, 0.02, 0.03],
        "default": [True, False, True],
    })
    first, second = figures.damping_curves(frame).data
    assert list(first.marker.symbol) == ["circle-open", "circle"]
    assert list(first.x) == [1e-3, 1.0] and list(first.y) == [0.2, 0.1]
    assert list(second.error_y.array) == [0.03]
    assert first.line.dash != second.line.dash
    assert figures.damping_curves(frame).layout.xaxis.type == "log"


def test_the_map_stands_inside_its_interval():
    """The interval is equally wide everywhere, its upper edge first."""
    dots = pd.DataFrame({"x": [0.0], "y": [1.0], "id": [3], "name": ["sample 3"]})
    line = pd.DataFrame({"x": [-1.0, 1.0], "y": [-0.5, 0.5]})
    points, band, expected = figures.calibrated_scatter(dots, line, 0.2, "x", "y").data
    assert (points.x[0], points.y[0], points.customdata[0]) == (0.0, 1.0, 3)
    assert list(expected.x) == [-1, 1] and list(expected.y) == [-0.5, 0.5]
    assert list(band.x) == [-1, 1, 1, -1]
    np.testing.assert_allclose(band.y, [-0.3, 0.7, 0.3, -0.7])


def test_models_that_share_no_picture_are_two_curves():
    """Correlation and distance over the sizes, which are the ticks."""
    table = pd.DataFrame({
        "num_pictures": [31, 500],
        "correlation": [0.4, 0.9],
        "drawn": [0.8, 0.3],
    })
    figure = figures.collapse_curves(table)
    assert [list(trace.y) for trace in figure.data] == [[0.4, 0.9], [0.8, 0.3]]
    assert list(figure.layout.xaxis.tickvals) == [31, 500]
    assert figure.layout.xaxis.type == "log"


def test_a_sample_without_its_own_group_has_another_colour():
    """A trace per tone; a prediction without an error has no bar."""
    dots = pd.DataFrame({
        "predicted": [1.0, 2.0],
        "error": [0.1, np.nan],
        "measured": [3.0, 4.0],
        "name": ["sample 0 without a", "sample 0 without b"],
        "tone": ["its own group", "another group"],
    })
    figure = figures.group_scatter(dots, ["its own group", "another group"], "x", "y")
    own, other = figure.data
    assert (own.x[0], own.y[0], own.error_x.array[0]) == (1.0, 3.0, 0.1)
    assert (other.x[0], other.y[0]) == (2.0, 4.0)
    assert own.marker.color != other.marker.color
