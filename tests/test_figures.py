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


def test_overlap_is_drawn_as_a_share_of_the_first_k():
    frame = pd.DataFrame({"count": [5, 10], "shared": [5, 4], "chance": [0.5, 2.0]})
    lenses, chance = figures.overlap_curve(frame).data
    assert list(lenses.y) == [1.0, 0.4]
    assert list(chance.y) == [0.1, 0.2]
