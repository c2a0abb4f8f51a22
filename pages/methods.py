"""Methods: one image under every method, how far they agree, what each costs."""

import numpy as np
import pandas as pd
import streamlit as st

from core.answers import Answer
from core.explorer.explorer import Explorer, Lens
from core.files.texts import minus
from core.methods import KINDS, METHODS
from core.numbers import duration, signed, size
from core.report import reading
from pages.parts import (
    lens_cards,
    lens_picker,
    lens_views,
    link,
    panel,
    ranking,
    share,
    shared,
    trust,
    waiting,
    warm_up,
)
from pages.parts.words import heading, how_to_read, sentence, text

POWERS = tuple(range(-4, 5))  # of ten, times the collection's own damping


def find_facts(explorer: Explorer) -> pd.DataFrame:
    """Return what is known of every method; stop the page while nothing is.

    It is asked anew every minute, behind the answers that are being computed: until
    then the page goes on with what was known before.
    """
    waiting.wait_briefly([lens_picker.ask_method_facts(explorer)])
    facts = waiting.result_now("method facts")
    if facts is None:
        collection, facts = st.session_state.get("known_methods", ("", None))
        if collection != explorer.fingerprint:
            waiting.show_wait("method facts", height=900)
            st.stop()
    st.session_state.known_methods = explorer.fingerprint, facts
    return facts


def ask_every_method(
    explorer: Explorer, chosen: panel.Chosen, methods: list[str]
) -> dict[str, Answer | str | None]:
    """Return each method's answer, the sentence why it has none, or None meanwhile."""
    found, jobs = {}, {}
    # Those that measure every sampling step take a minute; the others come first.
    asked = sorted(methods, key=lambda name: METHODS[name].reads == "steps")
    for name in asked:
        lens = lens_picker.in_region(Lens(name), chosen.region)
        key = explorer.fingerprint, chosen.query.key, lens
        found[name] = lens_views.stored_answer(*key, chosen.query, explorer)
        if found[name] is None:
            jobs[name] = waiting.ask(
                f"method {name}",
                "/".join([*key[:2], f"{lens}", "or why not"]),
                lambda job, lens=lens: answer_or_why(explorer, chosen, lens, job),
            )
    waiting.wait_briefly(list(jobs.values()))
    found |= {name: waiting.result_now(f"method {name}") for name in jobs}
    missing = [name for name in asked if found[name] is None]
    if missing:  # they are answered one by one, in this order
        waiting.show_wait(f"method {missing[0]}", height=0)
    return {name: found[name] for name in methods}


def answer_or_why(explorer: Explorer, chosen: panel.Chosen, lens: Lens, progress):
    """Return a method's answer, or the sentence why it has none, as Markdown."""
    title = METHODS[lens.method].title

    def tell(done: int, total: int, doing: str) -> None:
        progress(done, total, f"{title}: {doing}")

    try:
        return explorer.answer(chosen.query, lens, tell)
    except (LookupError, ValueError) as error:
        return sentence(error)


def cost_words(row: pd.Series) -> str:
    """Return what a method's preparation took, in words."""
    if not np.isfinite(row["seconds"]):
        return "nothing to prepare beyond the collection"
    words = f"prepared once in {duration(row['seconds'])}"
    if np.isfinite(row["bytes"]):
        words += f", {size(row['bytes'])}"
    return words


def show_method(
    explorer: Explorer, row: pd.Series, answer: Answer | str | None
) -> int | None:
    """Show the strips of one method and what it is; return the image clicked."""
    facts = METHODS[row.name]
    heading(facts.title, f"{KINDS[facts.kind]} · {cost_words(row)}")
    st.markdown(f"{text(facts.meaning)} :gray[{text(facts.paper)}]")
    if answer is None:
        st.caption("Its answer is being computed.")
        return None
    if isinstance(answer, str):
        st.info(answer)
        return None
    picked = lens_views.show_strips(
        explorer, answer, [], "method_strips", ("for", "against")
    )
    trust.show_mark(explorer, answer.lens, answer.source)
    return picked


def show_damping(explorer: Explorer, chosen: panel.Chosen) -> int | None:
    """Show EK-FAC under another damping, which re-ranks at once."""
    heading(
        "Damping",
        "How strongly the inverse curvature is regularised: large values end at the "
        "product of plain gradients",
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
        f"{len(missing)} methods are not prepared here",
        icon=":material/construction:",
    ):
        for name, row in missing.iterrows():
            why = sentence(LookupError(row["why_not"] or "It is not prepared here."))
            st.markdown(f"**{text(METHODS[name].title)}** · :gray[{why}]")


def choose_method(by_method: dict[str, Answer | str | None]) -> str:
    """Return the method whose strips are shown."""
    chosen = link.choice("method")
    return chosen if chosen in by_method else next(iter(by_method))


def take_method() -> None:
    """Show the strips of the method whose row was clicked."""
    link.set_choice("method", st.session_state.ranking.picked)


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    how_to_read(
        "The same image under every method. Where two disagree that should measure "
        "the same, trust neither order much. Click a row for its images."
    )
    facts = find_facts(explorer)
    ready = [name for name in METHODS if facts.at[name, "available"]]
    by_method = ask_every_method(explorer, chosen, ready)
    shown = choose_method(by_method)
    with st.container(border=True):
        ranking.show(explorer, facts, by_method, shown, "ranking", take_method)
    with st.container(border=True):
        clicks = [show_method(explorer, facts.loc[shown], by_method[shown])]
    answers = [answer for answer in by_method.values() if isinstance(answer, Answer)]
    if explorer.computes:
        with st.container(border=True):
            clicks.append(show_damping(explorer, chosen))
    agreement = st.expander("How far all pairs agree", key="pairs", on_change="rerun")
    if agreement.open and len(answers) > 1:
        with agreement:
            lens_cards.show_agreement(answers, "methods")
    show_missing(facts)
    if answers:
        share.offer(explorer, chosen.query, answers)
    lens_views.show_chosen_detail(explorer, chosen.query, answers, *clicks)
warm_up.wake_soon(explorer)
