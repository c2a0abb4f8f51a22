"""Map: all training images at once, coloured by what they did for one image."""

import numpy as np
import streamlit as st

from core.answers import Answer, Query
from core.explorer import groups
from core.explorer.explorer import Explorer, Lens
from core.files.texts import file_name
from pages.parts import (
    filters,
    image_map,
    lens_picker,
    lens_views,
    link,
    panel,
    shared,
    trust,
    waiting,
    warm_up,
)
from pages.parts.words import how_to_read, text

SHOWN = 24  # of the images that were marked


def show_picked(explorer: Explorer, query: Query, answer: Answer | None) -> int | None:
    """Show the images that were drawn around; return the one clicked."""
    code = link.choice("picked") or ""
    picked, missing = groups.read_ids(code, explorer.examples.table.index)
    if code and (missing or not picked):
        st.info(
            "The link marks images on the map that this collection does not have; "
            "they were ignored."
        )
    if not picked:
        st.caption(
            "Draw around some dots to see their images, remove them as a group or "
            "download them. A double click on the map clears the selection."
        )
        return None
    if answer is None:  # the card above shows how far it is
        st.skeleton(height=200)
        return None
    members = np.isin(answer.example_ids, picked)
    clicked = lens_views.show_members(explorer, answer, members, SHOWN, "picked_tiles")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(
            "Use as group",
            type="primary",
            icon=":material/group_work:",
            help="What if these images had never been there? (page What if)",
            on_click=use_as_group,
            args=(picked,),
        ):
            st.switch_page("pages/groups.py")
        st.download_button(
            "These as a table (CSV)",
            lambda: image_map.marked_csv(explorer, answer, members),
            file_name=file_name(explorer.name, len(picked), "marked", ending="csv"),
            mime="text/csv",
            icon=":material/download:",
            help="Score, standard error and rank of the marked images",
            on_click="ignore",
        )
        st.button(
            "Clear selection",
            type="tertiary",
            icon=":material/close:",
            help="The map stays as it is",
            on_click=link.set_choice,
            args=("picked", None),
        )
    if len(code) > link.LONG["picked"]:
        st.caption("So many images do not fit into the link.")
    return clicked


def use_as_group(picked: list[int]) -> None:
    """Make the marked images the group of the page What if."""
    st.session_state.group = f"ids:{groups.write_ids(picked)}"


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    how_to_read(
        "All training images at once, look-alikes near each other. Colour and size "
        "say what each did for this image. The ten strongest are drawn."
    )
    lenses = lens_picker.chosen_lenses(explorer)
    row = st.container(horizontal=True, vertical_alignment="center")
    with row:
        lens_picker.show_first(explorer, lenses)
    among = filters.find(explorer, row)
    lens = lens_picker.in_region(lenses[0], chosen.region)
    answer, likeness = lens_views.ask_all(
        explorer, chosen.query, [lens, Lens("clip")], "map answer"
    )
    with st.container(border=True):
        if among is not None and not among.size:
            st.info(text(among.empty))
        else:
            image_map.show(
                explorer,
                chosen.query,
                answer,
                "map",
                lambda code: link.set_choice("picked", code),
                None if likeness is None else likeness.scores,
                among,
            )
        st.caption(
            f"{image_map.HOW}{image_map.colours(answer)} The ring is where this "
            "image would lie."
        )
        if answer is None:
            waiting.show_wait("map answer 0", height=60)
        else:
            trust.show_mark(explorer, answer.lens, answer.source)
    with st.container(border=True):
        clicked = show_picked(explorer, chosen.query, answer)
    done = [] if answer is None else [answer]
    lens_views.show_chosen_detail(explorer, chosen.query, done, clicked)
warm_up.wake_soon(explorer)
