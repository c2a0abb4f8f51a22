"""Words on a page: what comes from data is shown as text, never read as Markdown."""

import re

import streamlit as st

from core.files.texts import one_line

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
    words = str(error.args[0]) if error.args else "Something is missing."
    parts = words.split("`")
    parts[::2] = [text(part) for part in parts[::2]]
    return "`".join(parts) if len(parts) % 2 else text(words)


def heading(title: str, note: str) -> None:
    """Show a card's title, and under it what the card holds; both plain text."""
    st.markdown(f"**{text(title)}**  \n:gray[:small[{text(note)}]]")


def how_to_read(words: str) -> None:
    """Show the one sentence that tells how a page is read; Markdown, escaped before."""
    st.markdown(f"**How to read this.** {words}")
