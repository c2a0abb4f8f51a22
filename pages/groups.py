"""Groups: what would change if an artist, a class or any group were left out."""

import numpy as np
import streamlit as st

from core import numbers
from core.answers import Answer, Query, Uncertainty
from core.evidence import untested
from core.explorer import groups
from core.explorer.explorer import Explorer
from core.methods import METHODS
from core.report import reading
from core.report.left_out import LeftOut, against_words, change_words
from pages.parts import (
    group_picker,
    lens_picker,
    lens_views,
    panel,
    share,
    shared,
    trust,
    waiting,
    warm_up,
)
from pages.parts.group_picker import Group
from pages.parts.group_views import (
    SHOWN,
    addends,
    change_title,
    random_changes,
    show_all_values,
    show_change,
    show_left_out,
    show_random,
    show_size,
    sized_by_retraining,
)
from pages.parts.words import (
    how_to_read,
    sentence,
    text,
)


def ask_uncertainty(
    explorer: Explorer, query: Query, answer: Answer
) -> Uncertainty | None:
    """Return what is uncertain about an answer, None where that is not known yet."""
    if answer.lens.kind != "influence" or not METHODS[answer.lens.method].has_errors:
        return None
    if not explorer.computes:  # as shipped, where there was no room for it
        st.caption(
            "Errors are not known here: they take the collection’s eigenvectors, which "
            "did not come along. "
            f"`python -m precompute build {untested.command_flags(explorer.config)}` "
            "makes them."
        )
        return None
    return waiting.result_of(
        "uncertainty",
        f"{explorer.fingerprint}/{query.key}/{answer.lens}/{answer.source}/errors",
        lambda progress: explorer.uncertainty(query, answer, progress),
        height=30,
    )


def show_prediction(
    explorer: Explorer, query: Query, answer: Answer, group: Group
) -> LeftOut | None:
    """Show what leaving the group out would change, and that of all values.

    Returns:
        What a report says of it; None where the change is not a prediction.
    """
    uncertainty = ask_uncertainty(explorer, query, answer)
    if group.members.all():
        st.info(
            "Every image is in this group: without it there is nothing to train a "
            "model on, and no other group to compare with. Choose a smaller one."
        )
        with st.container(border=True):
            show_all_values(explorer, query, answer, uncertainty)
        return None
    error = float("nan")
    if uncertainty is not None:
        error = float(uncertainty.of_groups(group.members[None])[0])
    scores = addends(answer)
    change = float(groups.changes(scores, group.members[None])[0])
    seed = int(explorer.provenance["settings"]["seed"])
    others = random_changes(
        explorer.fingerprint,
        query.key,
        answer.lens,
        group.size,
        seed,
        scores,
    )
    scale = numbers.signed_scale(max(abs(change), np.abs(others).max()))
    sized = sized_by_retraining(explorer, answer, group, change)
    known = None if isinstance(sized, str) else sized
    below = groups.share_below(change, others)
    left_out = LeftOut(
        group.name,
        group.size,
        change_words(answer, group.size, change, error, known),
        against_words(below, len(others), group.size),
    )
    show_change(left_out, below)
    trust.show_mark(explorer, answer.lens, answer.source)
    if uncertainty is not None and uncertainty.note:
        st.caption(text(uncertainty.note))
    show_left_out(explorer, query, group, answer.lens, change)
    left, right = st.columns([0.62, 0.38])
    with left.container(border=True, height="stretch"):
        show_random(group, change, others, change_title(answer, scale), scale)
    with right.container(border=True, height="stretch"):
        show_size(answer, group, change, error, sized)
    with st.container(border=True):
        show_all_values(explorer, query, answer, uncertainty)
    return left_out if answer.lens.kind == "influence" else None


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    how_to_read(
        "What if this artist, or any group of images, had not been in the training "
        "set? The change is predicted from the scores of all its members together, "
        "and means something where random groups of the same size do not reach it."
    )
    lenses = lens_picker.chosen_lenses(explorer)
    lens_picker.show_first(explorer, lenses)
    lens = lens_picker.in_region(lenses[0], chosen.region)
    (answer,) = lens_views.ask_all(explorer, chosen.query, [lens])
    with st.container(border=True):
        try:
            code = group_picker.show_choice(explorer, chosen.query, answer)
            group = group_picker.find_group(explorer, code)
        except (LookupError, ValueError) as error:
            st.info(sentence(error))
            st.stop()
        st.markdown(
            f"**Left out** · {text(group.name)} · {group.size:,} of "
            f"{explorer.num_examples:,} images"
        )
        if group.note:
            st.caption(text(group.note))
    if not group.size:
        st.info(
            "No training image is in this group yet, so nothing can be left out. "
            "Choose a label, search for words, draw on the map or list numbers."
        )
        st.stop()
    if answer is None:
        waiting.show_wait("answer 0", height=560)
        st.stop()
    left_out = None
    if reading.is_similarity(answer.lens):
        st.info(
            f"{METHODS[answer.lens.method].title} says what looks alike, not what "
            "would change: it makes no prediction of leaving images out. Choose an "
            "influence method above."
        )
    else:
        left_out = show_prediction(explorer, chosen.query, answer, group)
    with st.container(border=True):
        clicked = lens_views.show_members(
            explorer, answer, group.members, SHOWN, "members"
        )
    share.offer(explorer, chosen.query, [answer], left_out)
    lens_views.show_chosen_detail(explorer, chosen.query, [answer], clicked)
warm_up.wake_soon(explorer)
