"""Widgets that show a value which lies elsewhere, in the link or the session.

In a closed popover a widget is not in the browser's page. It does not hear of a value
that the server sets, and sends the one it had with the next click: what was cleared
would come back, and land on another image. So a value that changes without its widget
makes a new widget, whose name the browser has never heard; what it still sends for the
old one is nobody's.
"""

from collections.abc import Callable
from typing import Any

import streamlit as st


def tie(
    name: str, value: Any, take: Callable[[Any], object], clean: Callable = lambda v: v
) -> dict[str, Any]:
    """Return what ties a widget to a value: its `key` and its `on_change`.

    Args:
        name: Of the widget, unique on its page. It is the widget's key until the
            value changes from elsewhere; then a number is added.
        value: What the widget shows.
        take: Called with the new value when a visitor changes the widget. If it keeps
            another value, or none, the widget shows that one from the next run.
        clean: Makes of a widget's value the one that `take` will keep, so that the
            widget is not made anew for a space.
    """
    ties = st.session_state.setdefault("ties", {})
    number, shown = ties.get(name, (0, value))
    if shown != value:
        number += 1
    ties[name] = number, value
    key = f"{name} {number}" if number else name
    st.session_state[key] = value  # in every run: one that broke off may have lost it

    def changed() -> None:
        new = st.session_state[key]
        ties[name] = number, clean(new)
        take(new)

    return {"key": key, "on_change": changed}
