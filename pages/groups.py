"""What if: what changes without an artist, a class or any group of training images."""

import streamlit as st

from core.answers import Answer, Query, Uncertainty
from core.evidence import untested
from core.explorer import groups
from core.explorer.explorer import Explorer
from core.methods import METHODS
from core.report import reading
from core.report.left_out import LeftOut
from pages.parts import (
    group_picker,
    group_views,
    lens_picker,
    lens_views,
    mattered,
    panel,
    retrained,
    share,
    shared,
    trust,
    twins,
    waiting,
    warm_up,
)
from pages.parts.group_picker import Group
from pages.parts.words import column_word, how_to_read, sentence, text


def ask_uncertainty(
    explorer: Explorer, query: Query, answer: Answer
) -> Uncertainty | None:
    """Return what is uncertain about an answer, None where that is not known (yet)."""
    if answer.lens.kind != "influence" or not METHODS[answer.lens.method].has_errors:
        return None
    if not explorer.computes:  # as shipped, where there was no room for it
        return None
    return waiting.result_of(
        "uncertainty",
        f"{explorer.fingerprint}/{query.key}/{answer.lens}/{answer.source}/errors",
        lambda progress: explorer.uncertainty(query, answer, progress),
        height=0,
    )


def show_result(
    explorer: Explorer, query: Query, answer: Answer, group: Group, drawn: bool
) -> LeftOut | None:
    """Show what retraining measured, if it did, and what is predicted beside it.

    Args:
        explorer: The collection.
        query: The image.
        answer: Its scores.
        group: What is removed.
        drawn: Whether the page shows already what models without it draw.

    Returns:
        What a report says of it; None where the change is not a prediction.
    """
    result = st.container(border=True, key="result")
    measured = retrained.find(explorer, query, group, answer.lens)
    with result:
        predicted = st.container()
        if measured is not None:  # comes first, so that it pushes nothing down later
            with predicted:
                if not drawn:
                    retrained.show_images(measured)
                left, predicted = st.columns(2, gap="medium")
            with left:
                retrained.show_words(measured, group, answer.lens.measurement)
    uncertainty = ask_uncertainty(explorer, query, answer)
    found = group_views.predict(explorer, query, answer, group, uncertainty)
    with predicted:
        group_views.show_prediction(found)
        trust.show_mark(explorer, answer.lens, answer.source)
    if measured is not None:
        with result:
            retrained.offer_redrawn(explorer, measured)
    show_details(explorer, query, answer, group, found, uncertainty)
    return found.left_out if answer.lens.kind == "influence" else None


def show_details(
    explorer: Explorer,
    query: Query,
    answer: Answer,
    group: Group,
    found: group_views.Prediction,
    uncertainty: Uncertainty | None,
) -> None:
    """Show random removals, the size and every value of a label, where wanted."""
    details = st.expander("Details", key="details", on_change="rerun")
    if not details.open:
        return
    with details:
        left, right = st.columns([0.62, 0.38])
        with left:
            group_views.show_random(answer, group, found)
        with right:
            group_views.show_size(answer, group, found)
        if uncertainty is not None and uncertainty.note:
            st.caption(text(uncertainty.note))
        if not explorer.computes:
            st.caption(
                "Errors are not known here: they take the collection’s eigenvectors, "
                "which did not come along. `python -m precompute build "
                f"{untested.command_flags(explorer.config)}` makes them."
            )
        group_views.show_all_values(explorer, query, answer, uncertainty)
        twins.offer(explorer)


def choose_group(explorer: Explorer, query: Query, answer: Answer | None) -> Group:
    """Show the choice of a group and what was chosen; stop the page without one."""
    with st.container(border=True):
        try:
            code = group_picker.show_choice(explorer, query, answer)
            group = group_picker.find_group(explorer, code)
        except (LookupError, ValueError) as error:
            st.info(sentence(error))
            st.stop()
        st.markdown(
            f"**Removed** · {text(group.name)} · {group.size:,} of "
            f"{explorer.num_examples:,} images"
        )
        if group.note:
            st.caption(text(group.note))
    if not group.size:
        st.info(
            "No training image is in this group yet, so nothing can be removed. "
            "Choose a label, search for words, draw on the map or list numbers."
        )
        st.stop()
    return group


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    labels = groups.facets(explorer.examples.table)
    who = column_word(explorer.name, labels[0]) if labels else "group"
    how_to_read(
        f"What if this {text(who)} had never been in the training set? Compare with "
        "random removals of the same size."
    )
    lenses = lens_picker.chosen_lenses(explorer)
    lens_picker.show_first(explorer, lenses)
    lens = lens_picker.in_region(lenses[0], chosen.region)
    drawn = twins.show(explorer, chosen.query, lens)
    (answer,) = lens_views.ask_all(explorer, chosen.query, [lens])
    group = choose_group(explorer, chosen.query, answer)
    if answer is None:
        waiting.show_wait("answer 0", height=560)
        st.stop()
    left_out = None
    if reading.is_similarity(answer.lens):
        st.info(
            f"{METHODS[answer.lens.method].title} finds look-alikes and predicts no "
            "change. Choose an influence method above."
        )
    elif group.members.all():
        st.info(
            "Every image is in this group: nothing would be left to train a model on. "
            "Choose a smaller group."
        )
    else:
        left_out = show_result(explorer, chosen.query, answer, group, drawn)
    with st.container(border=True):
        clicked = lens_views.show_members(
            explorer, answer, group.members, group_views.SHOWN, "members"
        )
    if left_out is not None:
        mattered.show(explorer, group, answer.lens)
    share.offer(explorer, chosen.query, [answer], left_out)
    lens_views.show_chosen_detail(explorer, chosen.query, [answer], clicked)
warm_up.wake_soon(explorer)
