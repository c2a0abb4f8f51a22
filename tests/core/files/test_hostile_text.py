"""Every page of a collection whose every name is an attack shows it as text."""

import pytest
from google.protobuf.descriptor import FieldDescriptor

from pages.parts.words import text
from tests.helpers.hostile import SCRIPT
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    app_runs_first,
    first_example,
    open_app,
    wait_for_jobs,
    words,
)

# What Markdown, HTML or plotly would obey, if it stood there as it came.
OBEYED = (
    SCRIPT,
    "**bold**",
    "](javascript",
    "![i](",
    ":material/home:",
    ":red[no]",
    "`code`",
    "~~gone~~",
    "<b>",
    "<br>",
    "$x^2$",
    "\n# heading",
    "\u202e",
    "\x07",
    "\x1b",
)
IN_FIGURES = (
    SCRIPT,
    "<b>",
    "<br>",
    "<a ",
    "\u202e",
    "\x1b",
)  # plotly knows no Markdown
# Where Streamlit, or a script of ours, shows a string as it is: the paths end so.
PLAIN = (
    "BidiComponent.json",  # ours: they set text as text, see test_browser
    "MultiSelect.options",
    "Selectbox.options",
    "Selectbox.raw_value",
    ".alt",
)
PAGES = (
    "",
    "measurements",
    "timesteps",
    "methods",
    "groups",
    "map",
    "collections",
)


def strings(message, path=""):
    """Yield every string of a message to the browser, with the way to it."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}"
        values = value if field.is_repeated else [value]
        if field.message_type and field.message_type.GetOptions().map_entry:
            continue
        for one in values:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                yield from strings(one, here)
            elif field.type == FieldDescriptor.TYPE_STRING:
                yield here, one


def elements(block):
    """Yield every element of a page."""
    for child in block.children.values():
        if hasattr(child, "children"):
            proto = getattr(child, "proto", None)
            if proto is not None:
                yield proto
            yield from elements(child)
        else:
            yield child.proto


def shown(app):
    """Return the strings that the browser is asked to show, but for plain ones."""
    found = []
    for proto in elements(app._tree):
        name = type(proto).__name__
        for path, value in strings(proto):
            path = name + path
            if not path.endswith(PLAIN):
                found.append((path, value))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_no_page_obeys_a_name(hostile_collection, monkeypatch, page):
    """On every page, in every kind of element; and the first attack can be read."""
    link = {"sample": "0", "detail": str(first_example(hostile_collection))}
    page = f"pages/{page}.py" if page else ""
    app = wait_for_jobs(open_app(hostile_collection, monkeypatch, page, **link))
    assert not app.exception
    for path, value in shown(app):
        obeyed = IN_FIGURES if path == "PlotlyChart.spec" else OBEYED
        found = [attack for attack in obeyed if attack in value]
        assert not found, (path, found, value[:300])
    assert text(SCRIPT) in words(app)
