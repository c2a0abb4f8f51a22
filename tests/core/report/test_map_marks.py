"""Names and images over a map's dots."""

import numpy as np
import plotly.graph_objects as go

from core.explorer.places import Place
from core.report.map_marks import add_images, add_names


def test_names_are_text_and_images_stand_where_they_should():
    """A name from data is no markup; each image is tied to its own dot."""
    figure = go.Figure()
    add_names(figure, [Place("<i>heart</i>", 1.0, 2.0, 9)])
    (name,) = figure.layout.annotations
    assert (name.x, name.y) == (1.0, 2.0) and "<i>" not in name.text
    dots, centres = np.array([[0.0, 0], [5, 5]]), np.array([[1.0, 1], [6, 7]])
    add_images(figure, dots, centres, np.array([2.0, 4.0]), ["data:a", "data:b"])
    images = figure.layout.images
    assert [(one.source, one.x, one.y) for one in images] == [
        ("data:a", 1, 1),
        ("data:b", 6, 7),
    ]
    lines = [one for one in figure.layout.shapes if one.type == "line"]
    assert [(one.x0, one.y0, one.x1, one.y1) for one in lines] == [
        (0, 0, 1, 1),
        (5, 5, 6, 7),
    ]
