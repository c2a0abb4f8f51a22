"""Figures show the numbers of their frames."""

import numpy as np
import pandas as pd

from core import figures


def test_bars_show_the_largest_share_on_top_with_its_error():
    frame = pd.DataFrame({
        "group": ["noto", "fluent"],
        "share": [0.7, 0.3],
        "error": [0.02, 0.01],
        "pictures": [0.5, 0.5],
    })
    bars, ticks = figures.share_bars(frame).data
    assert list(bars.y) == ["fluent", "noto"]  # plotly stacks upwards
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
            "pictures": np.ones(count) / count,
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


def test_each_lens_has_its_own_line():
    """Colour alone never tells two lines apart; bins without a picture are gaps."""
    frame = pd.DataFrame({
        "lens": ["a", "a", "<b>b", "<b>b"],
        "place": [0.0, 1.0, 0.0, 1.0],
        "pictures": [3, 0, 1, 2],
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
    assert list(dots.text) == ["a", "‹b›"]
