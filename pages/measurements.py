"""Measurements: one image under loss, ELBO and trajectory, and how they differ."""

from itertools import combinations

import numpy as np
import pandas as pd
import streamlit as st

from core.explorer.explorer import Answer, Explorer, Lens, Query
from core.measurements import MEASUREMENTS
from core.numbers import measured, signed
from core.report import comparison, figures, reading
from pages.parts import (
    components,
    lens_cards,
    lens_picker,
    lens_views,
    link,
    panel,
    share,
    shared,
    trust,
    waiting,
    warm_up,
)
from pages.parts.words import heading, how_to_read, text

COMPARED = ("loss", "elbo", "trajectory")
MANY = 1500  # points that a figure can hold and stay quick


def show_measurement(
    explorer: Explorer, answer: Answer | None, others: list[Answer], place: int
) -> int | None:
    """Show the value of a measurement, and the images that matter for it."""
    facts = MEASUREMENTS[COMPARED[place]]
    heading(facts.title, facts.meaning)
    if answer is None:
        waiting.show_wait(f"answer {place}", height=420)
        return None
    st.metric(
        "now",
        measured(answer.value, answer.value_error),
        label_visibility="collapsed",
        help=f"The {facts.cost} of this image, in {facts.unit}; lower is more "
        "natural to the model. ± is one standard error.",
    )
    st.caption(text(f"{facts.unit} · {reading.answer_note(answer, False)}"))
    trust.show_mark(explorer, answer.lens, answer.source)
    return lens_views.show_strips(
        explorer, answer, others, f"measured_{place}", ("for", "against")
    )


def show_weights(explorer: Explorer) -> None:
    """Show what each noise level counts for in each measurement."""
    heading("Weights", "How much an error counts at each noise level; 1 on average")
    frame = waiting.result_of(
        "weights",
        f"{explorer.fingerprint}/weights",
        explorer.measurement_weights,
        height=280,
    )
    if frame is None:
        return
    st.plotly_chart(
        figures.weights(frame),
        config=lens_views.CHART,
        key="weights",
        alt="Weights over the noise levels. The ELBO weighs low noise levels, where "
        "detail is decided, far more than high ones.",
    )


def show_scatters(explorer: Explorer, answers: list[Answer]) -> int | None:
    """Show the scores under one measurement against another, for every pair."""
    clicks = []
    pairs = list(combinations(answers, 2))
    for column, (first, second) in zip(
        st.columns(max(len(pairs), 2)), pairs, strict=False
    ):
        with column.container(border=True):
            clicks.append(show_scatter(explorer, first, second))
    return components.last_click(*clicks)


def show_scatter(explorer: Explorer, first: Answer, second: Answer) -> int | None:
    """Show one pair of measurements; return the image that was clicked."""
    facts = [MEASUREMENTS[answer.lens.measurement] for answer in (first, second)]
    names, costs = [one.title for one in facts], [one.cost for one in facts]
    places = comparison.scatter_positions(first.scores, second.scores, MANY)
    ids = first.example_ids[places]
    frame = pd.DataFrame({
        "x": first.scores[places] / len(first.scores),
        "y": second.scores[places] / len(second.scores),
        "id": ids,
        "name": [explorer.examples.caption(int(i))[0] for i in ids],
    })
    correlation = reading.rank_correlation(first, second)
    heading(
        f"{names[0]} against {names[1]}",
        "Each dot is a training image: predicted change if removed",
    )
    event = st.plotly_chart(
        figures.scatter(frame, *costs),
        config=lens_views.CHART,
        key=f"scatter_{first.lens.measurement}_{second.lens.measurement}",
        on_select="rerun",
        selection_mode="points",
        alt=f"Scores under {names[0]} against {names[1]}; their orders correlate at "
        f"{signed(correlation)}.",
    )
    return newly_selected(event, f"{names[0]}/{names[1]}")


def newly_selected(event: dict, name: str) -> int | None:
    """Return the image of a dot that was clicked just now.

    A chart keeps its selection over later runs; it counts once.
    """
    points = event["selection"]["points"]
    selected = int(np.ravel(points[0]["customdata"])[0]) if points else None
    seen = st.session_state.setdefault("selected_dots", {})
    if seen.get(name) == selected:
        return None
    seen[name] = selected
    return selected


def show_log_probability(explorer: Explorer, query: Query) -> None:
    """Offer the exact log-probability, which takes a while."""
    facts = MEASUREMENTS["log-probability"]
    heading(facts.title, facts.meaning)
    key = f"{explorer.fingerprint}/{query.key}/log-probability"
    st.button(
        "Compute it",
        icon=":material/calculate:",
        help="Follows the image back to pure noise, step by step; takes some seconds",
        on_click=link.change_view,
        kwargs={"exact": "1"},
    )
    if st.session_state.view.get("exact") != "1":
        return
    result = waiting.result_of(
        "exact",
        key,
        lambda progress: explorer.measure(query, "log-probability", progress=progress),
        height=80,
    )
    if result is not None:
        st.metric(
            facts.cost.capitalize(),
            f"{measured(result.value, result.standard_error)} {result.unit}",
            help="The ELBO is a bound of it. Lower is more natural to the model.",
        )
        st.caption(text(result.note))


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
lenses = [
    lens_picker.in_region(Lens("ekfac", measurement), chosen.region)
    for measurement in COMPARED
]
with chosen.content:
    how_to_read(
        "Three ways to say how natural the model finds this image. Each may name "
        "other training images, because each weighs structure and detail differently."
    )
    answers = lens_views.ask_all(explorer, chosen.query, lenses)
    done = [answer for answer in answers if answer is not None]
    clicks = []
    for place, column in enumerate(st.columns(len(COMPARED))):
        with column.container(border=True, height="stretch"):
            others = [other for other in done if other is not answers[place]]
            clicks.append(show_measurement(explorer, answers[place], others, place))
    cards = st.grid(3, min_column_width=270)
    with cards.container(border=True, height="stretch"):
        show_weights(explorer)
    if len(done) > 1:
        with cards.container(border=True, height="stretch"):
            lens_cards.show_agreement(done, "measurements")
    with cards.container(border=True, height="stretch"):
        show_log_probability(explorer, chosen.query)
    if len(done) > 1:
        clicks.append(show_scatters(explorer, done))
    if done:
        share.offer(explorer, chosen.query, done)
    lens_views.show_chosen_detail(explorer, chosen.query, done, *clicks)
warm_up.wake_soon(explorer)
