"""A minus sign is a minus sign wherever people read a number, a hyphen in files."""

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df

from core import numbers
from core.evidence import untested
from core.files.texts import minus, safe_csv
from core.report import evidence_figures, figures, group_figures
from tests.helpers.server import ROOT
from tests.pages.test_app import app_runs_first, open_app, wait_for_jobs

__all__ = ["app_runs_first"]  # a fixture that the tests of pages run in

# A hyphen where a number begins, or before an exponent's digits.
HYPHEN = re.compile(r"(?<![\w\-/.)])-(?=[\d.])|\de-\d")


def test_the_pattern_finds_numbers_and_leaves_words_alone():
    """Or the tests below would find nothing."""
    for found in ("-3", "x = -0.5", "(-1)", "1e-05", "± 2e-3", "[-.5"):
        assert HYPHEN.search(found), found
    for other in ("−3", "EK-FAC", "1e−05", "0-500", "2-minute", "top-10", "a -b"):
        assert not HYPHEN.search(other), other


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (minus("-1e-06"), "−1e−06"),
        (numbers.signed(-0.5), "−0.50"),
        (numbers.measured(-1234.5, 2.0), "−1,234 ± 2"),
        (numbers.plain(-3087.2), "−3,087"),
        (numbers.plain(-1.5e-5), "−1.5e−05"),
        (numbers.signed_scale(0.0481).number(-0.0481), "−48.1"),
        (numbers.number(-0.041), "−0.04"),
        (numbers.plus_minus(-0.041, 0.02), "−0.04 ± 0.02"),
        (numbers.change_of(-0.302, 0.012), "−0.302 ± 0.012"),
        (numbers.change_of(-3e-5, np.nan), "−3e−05"),
        (untested.stored_finding({"reliability": -0.1}).split()[-2], "−0.10"),
        (figures.hover_numbers([-1.5, 2e-6], [0.1, np.nan])[0], "−1.5 ± 0.1"),
        (figures.hover_numbers([-1.5, 2e-6], [0.1, np.nan])[1], "2e−06"),
    ],
)
def test_every_way_to_print_a_number(said, expected):
    assert said == expected


def test_files_that_machines_read_keep_the_hyphen():
    table = pd.DataFrame({"score": [-1.5, -2e-7]})
    assert safe_csv(table) == "score\n-1.5\n-2e-07\n"


def below_zero() -> dict[str, object]:
    """Return a figure of each kind, of numbers below zero and far below one."""
    value, error = [-1e-5, -2.0, -30.0], [1e-6, 0.1, np.nan]
    curve = {"low": [0, 1, 2], "high": [1, 2, 3], "value": value, "error": error}
    lds = {"method": "a", "name": "a", "relative": [1e-5, 0.1, 1.0], "lds": [-0.1] * 3}
    lds |= {"standard_error": error, "default": [True, False, False]}
    groups = {"predicted": value, "measured": value, "error": error, "name": "a"}
    dots = {"x": value, "y": value, "id": [0, 1, 2], "name": "a", "score": value}
    bars = {"group": ["a", "b", "c"], "change": value, "standard_error": error}
    points = {"name": ["a", "b", "c"], "value": value, "error": error, "tone": "x"}
    places = {"lens": "a", "place": [-1.5, 0.0, 1.5], "images": [1, 2, 3]}
    weights = {"timestep": [0, 1, 2], "weight": [1e-6, 1, 2], "measurement": "a"}
    collapse = {"num_pictures": [1, 2, 3], "correlation": value, "drawn": value}
    return {
        "curve": figures.timestep_curve(pd.DataFrame(curve), "cost"),
        "distribution": figures.distribution(pd.DataFrame(places)),
        "weights": figures.weights(pd.DataFrame(weights)),
        "points": evidence_figures.points(pd.DataFrame(points), "LDS", ["x"], {}),
        "damping": evidence_figures.damping_curves(pd.DataFrame(lds)),
        "groups": evidence_figures.group_scatter(
            pd.DataFrame(groups).assign(tone="x"), ["x"], "x", "y"
        ),
        "collapse": evidence_figures.collapse_curves(pd.DataFrame(collapse)),
        "random": group_figures.random_histogram(np.array(value), -40.0, "change"),
        "bars": group_figures.change_bars(
            pd.DataFrame(bars).assign(images=1), "change"
        ),
        "map": group_figures.image_map(pd.DataFrame(dots), True, "change"),
    }


@pytest.mark.parametrize("name", below_zero())
def test_figures_tell_numbers_below_zero_with_a_minus_sign(name):
    """Under the pointer, where plotly's formats of x, y and colours write a hyphen."""
    traces = [trace for trace in below_zero()[name].data if trace.hovertemplate]
    told = [trace for trace in traces if trace.hovertext is not None]
    assert told
    for trace in traces:
        assert not re.search(r"%\{[^}]*:[^}%]*[fge]\}", trace.hovertemplate)
    said = " ".join(str(text) for trace in told for text in trace.hovertext)
    assert "−" in said and not HYPHEN.search(said), said


def test_nobody_writes_the_minus_sign_but_one_function():
    """One place knows it; another copy could forget an exponent."""
    for file in [*(ROOT / "core").rglob("*.py"), *(ROOT / "pages").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            replaces = getattr(node.func, "attr", "") == "replace"
            values = [getattr(one, "value", None) for one in node.args]
            if replaces and values == ["-", "−"]:
                assert file.name == "texts.py", file


def shown(element) -> list[str]:
    """Return the texts of an element of a page, alternative texts among them."""
    proto = element.proto
    found = [getattr(proto, name, "") for name in ("body", "label", "help", "alt")]
    return [text for text in found if isinstance(text, str)]


@pytest.mark.parametrize("page", ["evidence", "groups", "timesteps"])
def test_no_page_prints_a_hyphen_for_a_minus(tested_collection, monkeypatch, page):
    """In any text of the page, in its figures, and in the cells of its tables."""
    place = str(Path("pages") / f"{page}.py")
    app = wait_for_jobs(open_app(tested_collection, monkeypatch, place, sample="0"))
    assert not app.exception
    texts, numbers = [], 0
    kinds = ("markdown", "caption", "metric", "info", "warning", "plotly_chart")
    for kind in kinds:
        for element in app.get(kind):
            texts += shown(element)
    for element in app.dataframe:
        styler = element.proto.arrow_data.styler
        if styler.display_values:
            cells = convert_arrow_bytes_to_pandas_df(styler.display_values)
            numbers += cells.size
        else:
            cells = element.value.select_dtypes(exclude="number")
            assert not (element.value.select_dtypes("number") < 0).any(axis=None)
        texts += cells.astype(str).to_numpy().ravel().tolist()
    assert numbers or page != "evidence"
    wrong = [text for text in texts if HYPHEN.search(text.replace("\\", ""))]
    wrong = [text for text in wrong if "python -m" not in text]
    assert not wrong, wrong
