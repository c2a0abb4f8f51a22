"""Words on a page: what comes from data is shown as text, never read as Markdown.

Not a page.
"""

import math
import re

import streamlit as st

from core.files.texts import minus, one_line

# What the columns of the shipped collections are called, one and several.
_GLYPHS = {
    "style": ("design house", "design houses"),
    "group": ("group", "groups"),
    "subgroup": ("subject", "subjects"),
    "name": ("kind", "kinds"),
}
COLUMNS = {
    "glyphs": _GLYPHS,
    "glyphs-pairs": _GLYPHS,
    "fashion2": {"name": ("kind", "kinds")},
}


def text(value: object) -> str:
    """Return a string from data so that Streamlit's Markdown shows it as it is."""
    escaped = re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$&=^])", r"\\\1", one_line(value))
    # Colon shortcodes survive a backslash; an invisible joiner breaks them.
    return re.sub(r":(?=\S)", ":\u2060", escaped)


def column_word(collection: str, column: str) -> str:
    """Return how a column is called inside a sentence: a user's as it was written."""
    return COLUMNS.get(collection, {}).get(column, (column,))[0]


def column_name(collection: str, column: str) -> str:
    """Return how a column is called where it stands alone."""
    known = COLUMNS.get(collection, {}).get(column)
    return _capital(known[0]) if known else column


def several_of(collection: str, column: str) -> str:
    """Return how the values of a column are called together."""
    known = COLUMNS.get(collection, {}).get(column)
    return _capital(known[1]) if known else f"Values of {column}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def sentence(error: Exception) -> str:
    """Return the sentence of an error as Markdown; `quoted` parts become code."""
    said = str(error.args[0]) if error.args else "Something is missing."
    parts = said.split("`")
    parts[::2] = [text(part) for part in parts[::2]]
    return "`".join(parts) if len(parts) % 2 else text(said)


def heading(title: str, note: str) -> None:
    """Show a card's title, and under it what the card holds; both plain text."""
    st.markdown(f"**{text(title)}**  \n:gray[:small[{text(note)}]]")


def how_to_read(said: str) -> None:
    """Show the one sentence that tells how a page is read; Markdown, escaped before."""
    st.markdown(f"**How to read this.** {said}")


def signed(value: float) -> str:
    """Return a correlation as it is printed, e.g. "+0.85"."""
    return minus(f"{value:+.2f}")


def measured(value: float, error: float) -> str:
    """Return a value with its standard error, to the same digits; no error, no ±."""
    digits = 0 if abs(value) >= 100 else 2
    said = minus(f"{value:,.{digits}f}")
    return f"{said} ± {error:,.{digits}f}" if math.isfinite(error) else said


def duration(seconds: float) -> str:
    """Return a number of seconds in words that suit its size."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size(num_bytes: float) -> str:
    """Return a number of bytes in words that suit its size."""
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} GB"
