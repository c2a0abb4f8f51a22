"""Searching among the training images: words and facets, on strips and on the map.

What is searched for lives in the link, as the choices `words` and `only`.
"""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.explorer import filters
from core.explorer.explorer import Explorer
from core.explorer.filters import Matches
from pages.parts import link, pickers
from pages.parts.ties import tie
from pages.parts.words import column_name, sentence, text

MOST_VALUES = 400  # of a column that is offered; with more, searching is easier


def find(explorer: Explorer, place: DeltaGenerator) -> Matches | None:
    """Show the search and what it leaves.

    Args:
        explorer: The collection.
        place: Where the search opens.

    Returns:
        What it leaves, None for all images.
    """
    facets = chosen_facets(explorer)
    words = (link.choice("words") or "").strip()
    with place.popover(
        "Search",
        icon=":material/search:",
        help="Show only training images that match words or labels; ranks stay among "
        "all images",
    ):
        show_controls(explorer, facets, words)
    matches = found_images(explorer, facets, words) if words or facets else None
    if matches is None:
        return None
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"**{matches.size:,} of {explorer.num_examples:,}** · "
            f"{text(matches.words)} · "
            ":gray[ranks are among all images]",
            width="content",
        )
        st.button(
            "Show all",
            type="tertiary",
            icon=":material/close:",
            help="Clear the search",
            on_click=clear,
        )
    return matches


def clear() -> None:
    """Clear the search."""
    link.set_choice("words", None)
    link.set_choice("only", None)


def chosen_facets(explorer: Explorer) -> filters.Facets:
    """Return the facets that the link names; say it where they make no sense."""
    named = link.choice("only") or ""
    try:
        return filters.read_facets(named, explorer.examples.table, offered(explorer))
    except ValueError as error:
        st.info(sentence(error))
        return {}


def offered(explorer: Explorer) -> list[str]:
    """Return the columns of metadata that can be chosen from."""
    return offered_columns(explorer.fingerprint, explorer)


@st.cache_data(max_entries=8, show_spinner=False)
def offered_columns(collection: str, _explorer: Explorer) -> list[str]:
    """Return those columns; keyed by the collection."""
    table = _explorer.examples.table
    return [c for c in _explorer.facets if table[c].nunique() <= MOST_VALUES]


def found_images(
    explorer: Explorer, facets: filters.Facets, words: str
) -> Matches | None:
    """Return what a search leaves; say it where words cannot be searched for."""
    matching = pickers.named(explorer.fingerprint, words, False, explorer)
    by_name = bool(matching)
    count = filters.num_nearest(explorer.num_examples)
    if words and not by_name:
        try:
            matching = pickers.search(explorer.fingerprint, words, count, explorer)
        except (LookupError, ValueError) as error:
            st.info(sentence(error))
            return None
    by = filters.NAMES if by_name else explorer.clip_title
    return filters.search(explorer.examples.table, facets, words, matching, by)


def show_controls(explorer: Explorer, facets: filters.Facets, words: str) -> None:
    """Show the words and one choice of values per column."""
    st.text_input(
        "Words",
        max_chars=100,
        placeholder="for instance: cat",
        help="Images with these words in name or label. If there is none, the "
        f"{filters.num_nearest(explorer.num_examples)} that the small CLIP finds "
        "nearest",
        **tie(
            "filter_words",
            words,
            lambda typed: link.set_choice("words", typed.strip() or None),
            str.strip,
        ),
    )
    for place, column in enumerate(offered(explorer)):

        def take(chosen: list[str], column=column) -> None:
            wanted = {**facets, column: tuple(chosen)}
            link.set_choice("only", filters.write_facets(wanted) or None)

        values = sorted(explorer.examples.table[column].astype(str).unique())
        st.multiselect(
            text(column_name(explorer.name, column)),
            values,
            placeholder="any",
            help="Only images with one of these",
            # A column's name may be any text, so its place names the widget.
            **tie(f"filter_{place}", list(facets.get(column, ())), take),
        )
