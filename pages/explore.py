"""Explore: one image, and the training images that made it or resemble it."""

import streamlit as st

from core.explorer.explorer import Answer, Explorer, Lens
from core.explorer.filters import Matches
from core.report import own_image, report
from pages.parts import (
    filters,
    lens_cards,
    lens_meta,
    lens_picker,
    lens_views,
    panel,
    share,
    shared,
    waiting,
    warm_up,
)
from pages.parts.words import text


def show_columns(
    explorer: Explorer, chosen: panel.Chosen, lenses: list[Lens], among: Matches | None
) -> None:
    """Show one column per lens, and below them how the lenses compare."""
    seen = [lens_picker.in_region(lens, chosen.region) for lens in lenses]
    answers = lens_views.ask_all(explorer, chosen.query, seen)
    done = [answer for answer in answers if answer is not None]
    if done:
        first = report.leading(done)
        own = chosen.query.kind == "upload"
        helped = "would help" if own else "helped"
        st.markdown(f"## {text(report.first_sentence(explorer, first, helped))}")
        if own:
            st.markdown(text(own_image.not_drawn_words(first)))
            if words := own_image.trust_words(explorer, first):
                st.caption(f":material/signal_cellular_alt: {text(words)}")
        lens_meta.show_tested(explorer, first)
    clicks, in_region = [], chosen.region is not None
    for place, column in enumerate(st.columns(len(lenses))):
        with column.container(border=True, height="stretch"):
            clicks.append(
                show_column(explorer, lenses, answers, place, among, in_region)
            )
    if done:
        st.caption(lens_views.LEGEND)
        show_summaries(explorer, done)
        share.offer(explorer, chosen.query, done)
    lens_views.show_chosen_detail(explorer, chosen.query, done, *clicks)


def show_column(
    explorer: Explorer,
    lenses: list[Lens],
    answers: list[Answer | None],
    place: int,
    among: Matches | None,
    in_region: bool,
) -> int | None:
    """Show one lens and its answer; return the image that was clicked."""
    answer = answers[place]
    early = waiting.early(f"answer {place}") if answer is None else None
    seen = answer or early
    with st.container(gap=None):
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            lens_picker.show_controls(explorer, lenses, place)
            if seen is not None:
                lens_meta.show_how(explorer, seen, place, len(lenses) > 2)
        if seen is not None:
            lens_meta.show_meta(seen, in_region)
    if answer is None:
        show_early(explorer, early, place, among)
        return None
    others = [a for a in answers if a is not None and a is not answer]
    return lens_views.show_strips(
        explorer, answer, others, f"lens_{place}", among=among
    )


def show_early(
    explorer: Explorer, early: Answer | None, place: int, among: Matches | None
) -> None:
    """Show what half of the draws say, if they are done, and how far the rest is."""
    if early is not None:
        lens_views.show_strips(explorer, early, [], f"lens_{place}", among=among)
    waiting.show_wait(f"answer {place}", height=560 if early is None else 0)


def show_summaries(explorer: Explorer, answers: list[Answer]) -> None:
    """Show the cards under the lens columns."""
    columns = list(explorer.classes.columns)[:1]
    cards = st.grid(3, min_column_width=270)
    first = report.leading(answers)
    for column in columns if first.lens.kind == "influence" else []:
        with cards.container(border=True, height="stretch"):
            lens_cards.show_shares(explorer, first, column)
    if len(answers) > 1:
        with cards.container(border=True, height="stretch"):
            lens_cards.show_agreement(answers, "agreement")
    with cards.container(border=True, height="stretch"):
        lens_cards.show_distribution(answers, "distribution")


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    first = st.container()
    row = lens_picker.show_presets(explorer)
    with row:
        lens_meta.show_numbers_switch()
    lenses = lens_picker.chosen_lenses(explorer)
    show_columns(explorer, chosen, lenses, filters.find(explorer, row))
    if unlike := explorer.resemblance.sentence:  # takes a while; strips come before it
        first.warning(text(unlike))
warm_up.wake_soon(explorer)  # stored answers need no model, others do
