"""Choosing which training images are removed: by label, words, map or hand.

A group lives in the session and the link as one text (`pages.parts.link`):
"value:COLUMN:VALUE" (all images with a value of metadata), "words:COUNT:WORDS" (those
that CLIP finds nearest to some words) or "ids:3,7-9" (these).
"""

from dataclasses import dataclass

import numpy as np
import streamlit as st

from core import columns
from core.explorer import groups
from core.explorer.explorer import Answer, Explorer, Lens, Query
from pages.parts import components, image_map, pickers
from pages.parts.ties import tie
from pages.parts.words import column_name, column_word, text

WAYS = {
    "value": "By label",
    "words": "By words",
    "map": "On the map",
    "ids": "By hand",
}
HELPED = 10  # training images whose labels an image without a class is given
COUNT, MOST_FOUND = 24, 200  # images that a search by words takes
BUTTONS = 6  # values of the first label that are buttons; more are a menu
OFFERED = 12  # images offered to be picked by hand


@dataclass(frozen=True)
class Group:
    """Training images that are removed together.

    Attributes:
        members: Who is in it, bool, shape (N,), in the collection's order.
        name: What it is, plain words.
        whose: What its images have in common, as in "Noto’s images"; "" for nothing.
        note: What was ignored, "" where nothing was.
    """

    members: np.ndarray
    name: str
    whose: str = ""
    note: str = ""

    @property
    def size(self) -> int:
        """How many images it has."""
        return int(self.members.sum())


# --- codes --------------------------------------------------------------------------


def find_group(explorer: Explorer, code: str) -> Group:
    """Return the group that a code names; it may be empty.

    Raises:
        ValueError: If it names none.
    """
    table = explorer.examples.table
    kind, _, rest = code.partition(":")
    if kind == "value":
        column, value = columns.parted(rest, ":")
        if column in table:
            members = (table[column].astype(str) == value).to_numpy()
            if members.any():
                whose = display(value)
                name = f"{column_name(explorer.name, column)}: {whose}"
                return Group(members, name, whose)
    if kind == "words":
        count, _, words = rest.partition(":")
        if count.isdecimal() and 1 <= int(count) <= MOST_FOUND and words.strip():
            nearest = pickers.search(explorer.fingerprint, words, int(count), explorer)
            return Group(table.index.isin(nearest), f"nearest to “{words}”")
    if kind == "ids":
        there, missing = groups.read_ids(rest, table.index)
        note = ""
        if missing:
            listed = ", ".join(map(str, missing[:5])) + (", …" if missing[5:] else "")
            what = "is not a training image of this collection and was ignored."
            if len(missing) > 1:
                what = "are not training images of this collection and were ignored."
            note = f"{listed} {what}"
        return Group(table.index.isin(there), "picked by hand", note=note)
    raise ValueError(
        f"The link names a group '{code}', which this collection does not have. "
        "Choose one here instead."
    )


def first_group(explorer: Explorer, query: Query) -> str:
    """Return the code of the group to begin with: what the image's class shares."""
    for column in explorer.facets:
        return value_code(column, usual_value(explorer, column, query))
    return f"ids:{explorer.examples.table.index[0]}"


def usual_value(explorer: Explorer, column: str, query: Query) -> str:
    """Return the value of a column to begin with: the image's own.

    Of an image without a class that of most of the ten that helped it, where that is
    stored; otherwise the most frequent one.
    """
    values = explorer.examples.table[column].astype(str)
    own = explorer.class_of(query.label).get(column)
    if (values == own).any():
        return own
    answer = explorer.stored_answer(query, Lens())
    helped = values if answer is None else values.iloc[answer.top(HELPED)]
    return helped.value_counts().index[0]


def display(value: str) -> str:
    """Return a value as a name: with a capital where it was written without any."""
    return value[:1].upper() + value[1:] if value.islower() else value


def value_code(column: str, value: str) -> str:
    """Return the code of all images with a value."""
    return "value:" + columns.joined(column, ":", value)


def choose(code: str) -> None:
    """Make a group the one that is removed."""
    st.session_state.group = code


# --- controls -----------------------------------------------------------------------


def show_choice(explorer: Explorer, query: Query, answer: Answer | None) -> str:
    """Show the ways to choose a group: one row, and what else there is on demand.

    Args:
        explorer: The collection.
        query: The image that is asked about.
        answer: What is known of the training images, None while it is computed.

    Returns:
        The code of the group that is chosen.
    """
    code = st.session_state.get("group") or first_group(explorer, query)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        offered = groups.facets(explorer.examples.table)
        if offered:
            choose_first(explorer, offered[0], code)
        another = st.toggle(
            "Another group",
            value=not offered,
            key="another_group",
            help="By another label, by words, on the map or by hand",
        )
    if another:
        choose_another(explorer, query, answer, code)
    return st.session_state.get("group") or code


def choose_first(explorer: Explorer, column: str, code: str) -> None:
    """Show the values of the first label: as buttons, or as a menu of many."""
    counts = explorer.examples.table[column].astype(str).value_counts(sort=False)
    counts = counts.sort_index()
    kind, _, rest = code.partition(":")
    of, value = columns.parted(rest, ":")
    chosen = value if kind == "value" and of == column else None
    chosen = chosen if chosen in counts.index else None

    def take(value: str | None) -> None:
        if value is not None:  # cleared: the group stays as it is
            choose(value_code(column, value))

    tied = tie("group_first", chosen, take)
    label = f"Remove one {column_word(explorer.name, column)}"
    named = lambda name: f"{display(name)} · {counts[name]:,}"  # noqa: E731
    if len(counts) <= BUTTONS:
        buttons = list(counts.index)
        st.segmented_control(
            label, buttons, format_func=lambda name: text(named(name)), **tied
        )
    else:
        st.selectbox(
            label,
            list(counts.index),
            index=None,
            placeholder="Choose one",
            format_func=named,
            **tied,
        )


def choose_another(
    explorer: Explorer, query: Query, answer: Answer | None, code: str
) -> None:
    """Show the other ways to choose a group."""
    kind = code.partition(":")[0]

    def take_way() -> None:
        # What the label's choices show is what is removed; the others begin empty.
        if st.session_state.group_way == "value" and kind != "value":
            choose(first_group(explorer, query))

    way = st.segmented_control(
        "Which images are removed",
        list(WAYS),
        format_func=WAYS.get,
        default=kind if kind in WAYS else "value",
        required=True,
        key="group_way",
        help="By label: an artist, a class. By words: what the images show (small "
        "CLIP). On the map: draw around images that lie together. By hand: their "
        "numbers.",
        on_change=take_way,
    )
    if way == "value":
        choose_value(explorer, query, code)
    elif way == "words":
        choose_words(explorer, code)
    elif way == "map":
        choose_on_map(explorer, query, answer)
    else:
        choose_by_hand(explorer, answer, code)


def choose_value(explorer: Explorer, query: Query, code: str) -> None:
    """Show the choice of a column of metadata and of one of its values."""
    table = explorer.examples.table
    offered = explorer.facets
    if not offered:
        st.info("This collection has no labels that make groups. Choose by words.")
        return
    kind, _, rest = code.partition(":")
    column, value = columns.parted(rest, ":")
    if kind != "value" or column not in table:
        column, value = offered[0], None
    if column not in offered:  # of a link
        offered = [*offered, column]
    counts = table[column].astype(str).value_counts(sort=False)
    counts = counts.sort_index()
    if value not in counts.index:  # nothing is removed yet, so nothing is chosen
        value = None

    def take_column(chosen: str) -> None:
        choose(value_code(chosen, usual_value(explorer, chosen, query)))

    def take_value(chosen: str | None) -> None:
        if chosen is not None:  # cleared: the group stays as it is
            choose(value_code(column, chosen))

    left, right = st.columns(2)
    left.selectbox(
        "Label",
        offered,
        format_func=lambda column: column_name(explorer.name, column),
        help="What is known of every training image",
        **tie("group_column", column, take_column),
    )
    right.selectbox(
        "Value",
        list(counts.index),
        index=None,
        placeholder="Choose one",
        format_func=lambda name: f"{name} · {counts[name]:,}",
        help="All images with this value are removed; the number is how many",
        **tie("group_value", value, take_value),
    )


def choose_words(explorer: Explorer, code: str) -> None:
    """Show a search by words and how many images it takes."""
    kind, _, rest = code.partition(":")
    count, _, words = rest.partition(":") if kind == "words" else ("", "", "")
    most = min(MOST_FOUND, explorer.num_examples)
    # Before there are words, the number that was chosen for them waits in its widget.
    st.session_state.setdefault("group_count", min(COUNT, most))
    if kind == "words":
        st.session_state.group_words = words
        if count.isdecimal() and 1 <= int(count) <= most:
            st.session_state.group_count = int(count)

    def take() -> None:
        if st.session_state.group_words.strip():
            words = st.session_state.group_words.strip()
            choose(f"words:{st.session_state.group_count}:{words}")

    left, right = st.columns(2)
    left.text_input(
        "Words",
        key="group_words",
        placeholder="for instance: a red fruit",
        help="Matched with what the images show (small CLIP)",
        on_change=take,
    )
    right.slider(
        "How many images",
        1,
        most,
        key="group_count",
        help="The nearest this many are removed",
        on_change=take,
    )
    if kind != "words":
        st.caption("Type what the images show; until then the group stays as it is.")


def choose_on_map(explorer: Explorer, query: Query, answer: Answer | None) -> None:
    """Show the map of the training images, on which a group can be drawn around."""
    image_map.show(
        explorer, query, answer, "group_map", lambda code: choose(f"ids:{code}")
    )
    st.caption(
        f"{image_map.HOW}Draw around some to remove them. {image_map.colours(answer)}"
    )


def choose_by_hand(explorer: Explorer, answer: Answer | None, code: str) -> None:
    """Show a list of numbers, and images that a click puts into it."""
    table = explorer.examples.table
    picked = code.removeprefix("ids:") if code.startswith("ids:") else ""
    st.text_area(
        "Numbers of training images",
        height=80,
        placeholder="for instance: 12, 40-52, 977",
        help="Paste numbers from a table, or click images below. Every details "
        "window says its image’s number.",
        **tie("group_ids", picked, lambda numbers: choose(f"ids:{numbers}")),
    )
    if answer is None:
        return
    there, _ = groups.read_ids(picked, table.index)
    strips = [
        {
            "title": title,
            "tone": tone,
            "empty": empty,
            "tiles": [components.example_tile(explorer, int(i)) for i in examples],
        }
        for title, tone, examples, empty in (
            ("Click to add", "neutral", offered(answer, there), "All are in it."),
            ("Click to remove", "neutral", there[:OFFERED], "Nothing is in it yet."),
        )
    ]

    def toggle() -> None:
        example = int(st.session_state.group_tiles.picked)
        chosen = set(there) ^ {example}
        choose(f"ids:{groups.write_ids(chosen)}")

    components.tiles(
        strips, "group_tiles", layout="lens", columns=(OFFERED, 4), on_pick=toggle
    )
    if len(there) > OFFERED:
        st.caption(f"{len(there) - OFFERED:,} more are in it, not shown here.")


def offered(answer: Answer, picked: list[int]) -> list[int]:
    """Return the most influential images that are not picked yet."""
    ids = answer.example_ids[answer.order()]
    return ids[~np.isin(ids, picked)][:OFFERED].tolist()
