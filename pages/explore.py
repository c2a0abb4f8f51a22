"""Explore: one picture, and the training pictures that made it or resemble it."""

import re

import streamlit as st

from core import reading
from core.explorer import Answer, Explorer, Lens, Query
from pages import components, lens_picker, lens_views, picker, shared, waiting
from pages.words import how_to_read, sentence, text


def show_columns(explorer: Explorer, asked: picker.Asked, lenses: list[Lens]) -> None:
    """Show one column per lens, and below them how the lenses compare."""
    seen = [lens_picker.in_region(lens, asked.region) for lens in lenses]
    answers = lens_views.ask_all(explorer, asked.query, seen)
    done = [answer for answer in answers if answer is not None]
    if done:
        show_first_sentence(explorer, causes(done)[0] if causes(done) else done[0])
    clicked = None
    for place, column in enumerate(st.columns(len(lenses))):
        with column.container(border=True, height="stretch"):
            picked = show_column(explorer, lenses, answers, place)
            clicked = clicked if picked is None else picked
    if done:
        tested = how_far_tested(explorer, done[0])
        st.caption(f"{lens_views.LEGEND} {text(tested)}")
        show_summaries(explorer, done)
        offer_download(explorer, asked.query, done)
    lens_views.show_chosen_detail(explorer, asked.query, done, clicked)


def show_column(
    explorer: Explorer, lenses: list[Lens], answers: list[Answer | None], place: int
) -> int | None:
    """Show one lens and its answer; return the picture that was clicked."""
    answer = answers[place]
    with st.container(gap=None):
        lens_picker.show_controls(explorer, lenses, place)
        if answer is not None:
            st.caption(text(lens_views.answer_note(answer)))
    if answer is None:
        waiting.shown(f"answer {place}", height=560)
        return None
    others = [a for a in answers if a is not None and a is not answer]
    return lens_views.show_strips(explorer, answer, others, f"lens_{place}")


def causes(answers: list[Answer]) -> list[Answer]:
    """Return the answers that speak of influence."""
    return [answer for answer in answers if answer.lens.kind == "influence"]


def show_first_sentence(explorer: Explorer, answer: Answer) -> None:
    """Say in plain words what the first number means."""
    example = int(answer.example_ids[answer.top(1)[0]])
    name, *rest = components.caption_lines(explorer, example)
    called = f"“{name}”" + (f" ({', '.join(rest)})" if rest else "")
    how_to_read(text(reading.sentence(answer, called)))


def how_far_tested(explorer: Explorer, answer: Answer) -> str:
    """Return how reliable this collection's rankings were when tested, in words."""
    if answer.lens.canonical() != Lens(num_draws=answer.lens.num_draws):
        return ""  # only the standard lens was tested when the collection was built
    quality = explorer.provenance.get("quality") or {}
    said = {
        "reliability": "asked again with other noise, its order agrees to",
        "sketch_agreement": "the sketch agrees with the exact order to",
    }
    if answer.source != "sketch":
        del said["sketch_agreement"]
    tests = [
        f"{what} {quality[name]:.2f}"
        for name, what in said.items()
        if quality.get(name) is not None
    ]
    return f"Tested on the gallery: {'; '.join(tests)} (Spearman)." if tests else ""


def show_summaries(explorer: Explorer, answers: list[Answer]) -> None:
    """Show the cards under the lens columns."""
    columns = list(explorer.classes.columns)[:1]
    cards = st.grid(3, min_column_width=270)
    for column in columns if causes(answers) else []:
        with cards.container(border=True, height="stretch"):
            lens_views.show_shares(explorer, causes(answers)[0], column)
    if len(answers) > 1:
        with cards.container(border=True, height="stretch"):
            lens_views.show_agreement(answers, "agreement")
    with cards.container(border=True, height="stretch"):
        lens_views.show_distribution(answers, "distribution")


def offer_download(explorer: Explorer, query: Query, answers: list[Answer]) -> None:
    """Offer the scores of all training pictures as a table."""
    st.download_button(
        "All scores as a table (CSV)",
        lambda: reading.score_table(answers, explorer.examples.table).to_csv(),
        file_name=f"{explorer.name}-{re.sub(r'[^A-Za-z0-9]+', '-', query.key)}.csv",
        mime="text/csv",
        icon=":material/download:",
        help="Score, standard error and rank of every training picture",
        on_click="ignore",
    )


explorer = shared.chosen_explorer()
asked = picker.show_panel(explorer)
with asked.place:
    lens_picker.show_presets(explorer)
    try:
        lenses = lens_picker.chosen_lenses(explorer)
    except ValueError as error:
        st.info(sentence(error))
        st.stop()
    show_columns(explorer, asked, lenses)
shared.wake(explorer.fingerprint, explorer)  # stored answers need no model, others do
