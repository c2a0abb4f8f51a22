"""Figures show the numbers of their frames."""

import numpy as np
import pandas as pd
import pytest

from core.report import figures, group_figures


def test_bars_show_the_largest_share_on_top_with_its_error():
    frame = pd.DataFrame({
        "group": ["noto", "fluent"],
        "share": [0.7, 0.3],
        "error": [0.02, 0.01],
        "images": [0.5, 0.5],
    })
    bars, ticks = figures.share_bars(frame).data
    assert list(bars.customdata) == ["fluent", "noto"]  # plotly stacks upwards
    assert list(bars.x) == [0.3, 0.7]
    assert list(bars.error_x.array) == [0.01, 0.02]
    assert list(ticks.x) == [0.5, 0.5]


def test_every_bar_has_the_same_room():
    """More groups make a taller figure, never thinner bars."""

    def height(count):
        frame = pd.DataFrame({
            "group": [str(i) for i in range(count)],
            "share": np.ones(count) / count,
            "error": np.full(count, np.nan),
            "images": np.ones(count) / count,
        })
        layout = figures.share_bars(frame).layout
        return layout.height - layout.margin.t - layout.margin.b

    assert height(12) - height(6) == height(6) - height(0)


def test_curve_is_drawn_between_its_standard_errors():
    """The band goes up one error and back down the other; no error, no width."""
    frame = pd.DataFrame({
        "low": [0, 10],
        "high": [10, 30],
        "value": [2.0, 4.0],
        "error": [0.5, np.nan],
    })
    band, line = figures.timestep_curve(frame, "loss").data
    assert list(line.x) == [5, 20]
    assert list(line.y) == [2, 4]
    assert list(band.x) == [5, 20, 20, 5]
    assert list(band.y) == [2.5, 4, 4, 1.5]
    assert band.mode == "lines"  # a corner is no measured value


def test_each_lens_has_its_own_line():
    """Colour alone never tells two lines apart; bins without an image are gaps."""
    frame = pd.DataFrame({
        "lens": ["a", "a", "<b>b", "<b>b"],
        "place": [0.0, 1.0, 0.0, 1.0],
        "images": [3, 0, 1, 2],
    })
    first, second = figures.distribution(frame).data
    assert first.line.dash != second.line.dash
    assert first.y[0] == 3 and np.isnan(first.y[1])
    assert "<" not in second.name


def test_weights_are_drawn_on_a_logarithmic_axis():
    frame = pd.DataFrame({
        "timestep": [0, 1, 0, 1],
        "weight": [1.0, 1.0, 100.0, 0.01],
        "measurement": ["loss", "loss", "ELBO", "ELBO"],
    })
    figure = figures.weights(frame)
    assert [line.name for line in figure.data] == ["loss", "ELBO"]
    assert list(figure.data[1].y) == [100, 0.01]
    assert figure.layout.yaxis.type == "log"


def test_every_dot_carries_its_picture():
    """The id goes with the dot, because a selection's row numbers mean nothing."""
    frame = pd.DataFrame({"x": [1, 2], "y": [3, 4], "id": [7, 9], "name": ["a", "<b>"]})
    (dots,) = figures.scatter(frame, "loss", "ELBO").data
    assert list(dots.customdata) == [7, 9]
    assert list(dots.text) == ["a", "&lt;b&gt;"]


def test_group_stands_among_the_random_ones():
    """The line is inside the axis, however far out the group lies."""
    figure = group_figures.random_histogram(np.linspace(-1, 1, 50), 9.0, "change")
    (bars,) = figure.data
    assert sum(bars.y) == 50 and max(bars.y) <= 3  # spread evenly over the bins
    assert bars.x[0] == pytest.approx(-1 + 1 / 24) and len(bars.x) == 24
    low, high = figure.layout.xaxis.range
    assert low < -1 and high > 9
    assert figure.layout.shapes[0].x0 == 9.0


def test_change_bars_tell_signs_apart_and_carry_their_errors():
    frame = pd.DataFrame({
        "group": ["noto", "<b>fluent"],
        "change": [0.7, -0.3],
        "standard_error": [0.02, np.nan],
        "images": [10, 20],
    })
    figure = group_figures.change_bars(frame, "change")
    (bars,) = figure.data
    assert list(bars.text) == ["&lt;b&gt;fluent", "noto"]
    assert list(bars.x) == [-0.3, 0.7] and list(bars.y) == [0, 1]
    assert list(figure.layout.yaxis.ticktext) == list(bars.text)
    assert bars.marker.color[0] != bars.marker.color[1]
    assert bars.error_x.array[1] == 0.02


def test_names_that_are_shortened_alike_or_look_like_numbers_keep_their_rows():
    """A name is no coordinate: nothing is stacked, and "7" is not a place at 7."""
    names = ["a" * 40 + "b", "a" * 40 + "c", "7", "2020-01-01"]
    frame = pd.DataFrame({"group": names, "share": 0.25, "change": 1.0})
    frame = frame.assign(error=0.1, standard_error=0.1, images=1)
    for make in (figures.share_bars, lambda f: group_figures.change_bars(f, "change")):
        figure = make(frame)
        assert list(figure.data[0].y) == [0, 1, 2, 3]
        assert list(figure.layout.yaxis.tickvals) == [0, 1, 2, 3]
        assert figure.layout.yaxis.ticktext[:2] == ("2020-01-01", "7")


def test_map_keeps_each_dot_with_its_picture_and_colour():
    """The strongest are drawn last; many dots are drawn by the graphics card."""

    def frame(count):
        return pd.DataFrame({
            "x": np.arange(count),
            "y": -np.arange(count),
            "id": 100 + np.arange(count),
            "name": "a",
            "score": np.where(np.arange(count) % 2, 5.0, -1.0),
        })

    (dots,) = group_figures.image_map(frame(10), True, "change").data
    for x, number, colour in zip(
        dots.x, dots.customdata, dots.marker.color, strict=True
    ):
        assert number == 100 + x and colour == (5.0 if x % 2 else -1.0)
    assert list(np.abs(dots.marker.color)) == [1.0] * 5 + [5.0] * 5
    assert dots.marker.cmin == -dots.marker.cmax
    signs = {"circle": 5.0, "diamond": -1.0}  # told apart without their colours
    shapes = zip(dots.marker.symbol, dots.marker.color, strict=True)
    assert all(signs[shape] == colour for shape, colour in shapes)
    assert "hovertext" in dots.hovertemplate
    assert dots.type == "scatter"
    (many,) = group_figures.image_map(frame(1001), True, "change").data
    assert many.type == "scattergl"
    (bare,) = group_figures.image_map(frame(10).assign(score=np.nan), True, "").data
    assert isinstance(bare.marker.color, str)
    ends = [(-1.0, 11.0), (-12.0, 2.0)]
    figure = group_figures.image_map(frame(10), True, "", np.array([3, -4]), ends)
    ring = figure.data[1]
    assert (ring.x[0], ring.y[0]) == (3, -4) and ring.customdata is None
    assert [figure.layout.xaxis.range, figure.layout.yaxis.range] == ends
