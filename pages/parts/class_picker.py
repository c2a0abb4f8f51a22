"""Which class the model is told: one menu for each label column."""

import pandas as pd
import streamlit as st

from core.explorer.explorer import Explorer
from pages.parts.words import column_name, text


def setting(view: dict[str, str], key: str, bounds: tuple, default: float) -> float:
    """Return a number of the view to start a widget with, or the default."""
    try:
        value = type(default)(view.get(key, default))
    except ValueError:
        return default
    return value if bounds[0] <= value <= bounds[1] else default


def pick_class(explorer: Explorer, view: dict[str, str]) -> int | None:
    """Show one choice per class column; return the class, None for any."""
    table = explorer.classes
    label = setting(view, "label", (0, len(table) - 1), -1)
    chosen = {}
    for column in table.columns:
        values = [None, *sorted(table[column].unique())]
        chosen[column] = st.selectbox(
            text(column_name(explorer.name, column)),
            values,
            index=values.index(table.loc[label, column]) if label in table.index else 0,
            format_func=lambda value: "any" if value is None else value or "(empty)",
            help="The class that the model is told",
        )
    if None in chosen.values():
        return None
    matches = (table[list(chosen)] == pd.Series(chosen)).all(axis=1)
    return int(table.index[matches][0]) if matches.any() else None
