"""Methods: one image under every method, how far they agree, what each costs."""

import numpy as np
import pandas as pd
import streamlit as st

from core.answers import Answer, Query
from core.explorer.explorer import Explorer, Lens
from core.files.texts import minus
from core.methods import KINDS, METHODS
from core.numbers import duration, signed, size
from core.report import reading
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
from pages.parts.words import heading, how_to_read, sentence, text

TOP = 6  # training images shown of each method
POWERS = tuple(range(-4, 5))  # of ten, times the collection's own damping


def ask_every_method(
    explorer: Explorer, chosen: panel.Chosen, methods: list[str]
) -> dict[str, Answer | str] | None:
    """Return each method's answer, or the sentence why it has none; None meanwhile."""
    lenses = [lens_picker.in_region(Lens(name), chosen.region) for name in methods]

    def work(progress):
        by_method = {}
        for lens in lenses:
            title = METHODS[lens.method].title

            def tell(done: int, total: int, doing: str, title=title) -> None:
                progress(done, total, f"{title}: {doing}")

            try:
                by_method[lens.method] = explorer.answer(chosen.query, lens, tell)
            except (LookupError, ValueError) as error:
                by_method[lens.method] = sentence(error)
        return by_method

    key = f"{explorer.fingerprint}/{chosen.query.key}/{lenses}"
    return waiting.result_of("methods", key, work, height=900)


def cost_words(row: pd.Series) -> str:
    """Return what a method's preparation took, in words."""
    if not np.isfinite(row["seconds"]):
        return "nothing to prepare beyond the collection"
    words = f"prepared once in {duration(row['seconds'])}"
    if np.isfinite(row["bytes"]):
        words += f", {size(row['bytes'])}"
    return words


def show_method(explorer: Explorer, row: pd.Series, answer: Answer | str) -> int | None:
    """Show the strongest images of one method; return the one clicked."""
    facts = METHODS[row.name]
    heading(facts.title, f"{KINDS[facts.kind]} · {cost_words(row)}")
    if isinstance(answer, str):
        st.info(answer)
        return None
    trust.show_mark(explorer, answer.lens, answer.source)
    picked = lens_views.show_strips(
        explorer, answer, [], f"method_{row.name}", ("for",), TOP
    )
    st.caption(f"{text(facts.meaning)} :gray[{text(facts.paper)}]")
    return picked


def show_damping(explorer: Explorer, chosen: panel.Chosen) -> int | None:
    """Show EK-FAC under another damping, which re-ranks at once."""
    heading(
        "Damping, live",
        "How cautious influence is: large values trust only what the model has "
        "learned firmly, and end at the plain gradient product",
    )
    own = float(explorer.provenance["damping"])
    power = st.select_slider(
        "Times the collection’s own damping",
        POWERS,
        format_func=lambda value: "own" if value == 0 else f"×{10.0**value:g}",
        help="Added to the curvature of the loss before it is inverted (λ, App. J.5)",
        **link.bind("damping", POWERS, 0, lambda power: f"{10.0**power:g}"),
    )
    damping = None if power == 0 else own * 10.0**power
    # Both are asked from the sketch: a stored exact answer would differ by that alone.
    lenses = [
        lens_picker.in_region(
            Lens("ekfac", damping=value, form="sketch"), chosen.region
        )
        for value in (None, damping)
    ]
    base, damped = lens_views.ask_all(explorer, chosen.query, lenses, "damped")
    if damped is None or base is None:
        waiting.show_wait(f"damped {int(base is not None)}", height=200)
        return None
    st.caption(
        f"λ = {minus(f'{damping or own:.2g}')} · agrees with the own damping: "
        f"{reading.overlap(base, damped, 10)} of the first 10, whole order "
        f"{signed(reading.rank_correlation(base, damped))}"
    )
    trust.show_mark(explorer, damped.lens, damped.source)
    return lens_views.show_strips(
        explorer, damped, [base], "damped_strips", ("for", "against")
    )


def show_missing(facts: pd.DataFrame) -> None:
    """Say which methods cannot answer here, why, and what makes them."""
    missing = facts[~facts["available"].astype(bool)]
    if missing.empty:
        return
    with st.expander(
        f"{len(missing)} methods that are not prepared here",
        icon=":material/construction:",
    ):
        for name, row in missing.iterrows():
            why = sentence(LookupError(row["why_not"] or "It is not prepared here."))
            st.markdown(f"**{text(METHODS[name].title)}** · :gray[{why}]")


def show_costs(facts: pd.DataFrame) -> None:
    """Show what every method took to prepare, as a table."""
    heading("What each costs", "Prepared once for the whole collection")
    table = pd.DataFrame({
        "method": [METHODS[name].title for name in facts.index],
        "here": facts["available"].astype(bool),
        "time": [
            duration(value) if np.isfinite(value) else "–" for value in facts["seconds"]
        ],
        "space": [
            size(value) if np.isfinite(value) else "–" for value in facts["bytes"]
        ],
    })
    st.dataframe(
        table,
        hide_index=True,
        width="stretch",
        height="content",
        alt="Seconds and bytes of every method",
    )


def show_all(
    explorer: Explorer,
    query: Query,
    facts: pd.DataFrame,
    by_method: dict[str, Answer | str],
) -> int | None:
    """Show a card per method and their agreement; return the image clicked."""
    answered = [answer for answer in by_method.values() if isinstance(answer, Answer)]
    if len(answered) > 1:
        with st.container(border=True):
            lens_cards.show_agreement(answered, "methods")
    clicks = []
    cards = st.grid(2, min_column_width=320)
    for name, answer in by_method.items():
        with cards.container(border=True, height="stretch"):
            clicks.append(show_method(explorer, facts.loc[name], answer))
    return components.last_click(*clicks)


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    how_to_read(
        "The same image, asked in every way there is. Where methods that should "
        "measure the same disagree, trust neither order much."
    )
    waiting.wait_briefly([lens_picker.ask_method_facts(explorer)])
    facts = waiting.shown("method facts", height=900)
    if facts is None:
        st.stop()
    ready = [name for name in METHODS if facts.at[name, "available"]]
    by_method = ask_every_method(explorer, chosen, ready)
    clicks, answers = [], []
    if by_method is not None:
        clicks.append(show_all(explorer, chosen.query, facts, by_method))
        answers = [
            answer for answer in by_method.values() if isinstance(answer, Answer)
        ]
    with st.container(border=True):
        clicks.append(show_damping(explorer, chosen))
    if answers:
        share.offer(explorer, chosen.query, answers)
    show_missing(facts)
    with st.container(border=True):
        show_costs(facts)
    lens_views.show_chosen_detail(explorer, chosen.query, answers, *clicks)
warm_up.wake_soon(explorer)
