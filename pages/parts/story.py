"""The tour: eight steps through the app, one line at the top of each page.

A step sets what is asked, goes to the page that shows it and scrolls to what it speaks
of; what it says is true of the image that is shown (`core.report.tour`). A visitor may
do anything in between. Arrow keys go on and back. The line can be closed, and begun
again from the sidebar. With `?present` in the address it is large, and all but what it
speaks of is dimmed; the address then names the step, so that it can be loaded again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from core.explorer.explorer import Explorer
from core.lenses import Lens
from core.report import tour
from pages.parts import components, lens_picker, link, trust, waiting
from pages.parts.words import column_word, text

INVITED = -1  # the line offers the story; it was neither begun nor closed
BOTH = [Lens("ekfac"), Lens("clip")]
STYLE = f"<style>{(components.HERE / 'tour.css').read_text()}</style>"


@dataclass(frozen=True)
class Step:
    """One step of the tour.

    Attributes:
        page: Where it takes place.
        title: What a visitor does.
        words: What to look at, of a gallery sample or another image (None); plain.
        prepare: Sets what is asked.
        spot: Key of the element that it speaks of.
    """

    page: str
    title: str
    words: Callable[[int | None], str]
    prepare: Callable[[Explorer], None]
    spot: str


def begin(explorer: Explorer) -> None:
    """Ask about the image to begin with."""
    link.ask_about(link.first_view(explorer))
    lens_picker.choose(BOTH[:1])
    st.session_state.group = None


def ask_whole(lenses: list[Lens]) -> Callable[[Explorer], None]:
    """Return what asks about the whole image in some ways."""

    def prepare(explorer: Explorer) -> None:
        link.change_view(region=None)
        lens_picker.choose(lenses)

    return prepare


def ask_middle(explorer: Explorer) -> None:
    """Ask about the middle of the image."""
    size = explorer.image_shape[-1]
    low, high = size // 4, size - size // 4
    link.change_view(region=f"{low},{low},{high},{high}")
    lens_picker.choose(BOTH)


def leave_out(explorer: Explorer) -> None:
    """Leave out the images that share the first label of the image's class."""
    ask_whole(BOTH)(explorer)
    st.session_state.group = None  # the page then begins with that group


def steps(explorer: Explorer) -> list[Step]:
    """Return the steps that a collection can do, in its words."""
    labels = list(explorer.classes.columns)

    def word(column: str) -> str:
        return column_word(explorer.name, column)

    who = word(labels[0]) if labels else "kind"

    evidence = trust.find_evidence(explorer).evidence

    def measured(sample: int | None) -> str:
        return tour.without_words(explorer, evidence, sample, who)

    told = [
        Step(
            "explore",
            "An image",
            lambda sample: tour.drawn_words(explorer, sample),
            begin,
            "sample_region",
        ),
        Step(
            "explore",
            "What helped",
            lambda sample: tour.helped_words(explorer, sample, word),
            ask_whole(BOTH[:1]),
            "lens_0",
        ),
        Step(
            "explore",
            "Look-alikes are not causes",
            lambda sample: tour.alike_words(explorer, sample, word),
            ask_whole(BOTH),
            "lens_1",
        ),
        Step(
            "explore",
            "Only a region",
            lambda sample: (
                "Only the marked region counts now. Compare the order with the one "
                "before, or drag another box."
            ),
            ask_middle,
            "sample_region",
        ),
        Step(
            "timesteps",
            "Structure, then detail",
            lambda sample: (
                "Press Play: the image forms out of noise. High noise decides "
                "structure, low noise detail."
            ),
            ask_whole(BOTH),
            "levels",
        ),
        Step("groups", f"Without this {who}", measured, leave_out, "result"),
        Step(
            "evidence",
            "How often is that right?",
            lambda sample: tour.right_words(evidence, word),
            ask_whole(BOTH),
            "evidence_opening",
        ),
        Step(
            "explore",
            "Take it with you",
            lambda sample: "A report, an image to share, all scores as a table.",
            ask_whole(BOTH),
            "take_along",
        ),
    ]
    skipped = set()
    if evidence is None:
        skipped.add("How often is that right?")
    if not explorer.computes:  # no region has a stored answer
        skipped.add("Only a region")
    return [step for step in told if step.title not in skipped]


def shown_sample() -> int | None:
    """Return the gallery sample that is asked about, None for another image."""
    named = st.session_state.get("view", {}).get("sample", "")
    return int(named) if named.isdecimal() else None


def go_to(explorer: Explorer, number: int) -> None:
    """Go to a step: set what is asked, and show its page."""
    step = steps(explorer)[number]
    st.session_state.story = number
    if "view" not in st.session_state:
        begin(explorer)
    step.prepare(explorer)
    if st.session_state.get("page") == step.page:
        waiting.run_again()
    st.switch_page(f"pages/{step.page}.py")


def end() -> None:
    """Show the line no more."""
    st.session_state.story = None


def show(explorer: Explorer) -> None:
    """Show where in the tour a visitor is, and the ways on, back and out."""
    follow_presenter(explorer)
    if "story" not in st.session_state:
        # Who followed a link came for what it names.
        came_for = link.ORIGINS.keys() & st.query_params.to_dict().keys()
        st.session_state.story = None if came_for else INVITED
    if st.sidebar.button(
        "Two-minute tour",
        icon=":material/auto_stories:",
        help="From an image to a report, from the first step",
    ):
        go_to(explorer, 0)
    number = st.session_state.story
    if number is None:
        return
    told = steps(explorer)
    number = min(number, len(told) - 1)
    if number == INVITED:
        line = "**New here?** See what made an image, and how far to trust the "
        line += "answer: a two-minute tour."
    else:
        step = told[number]
        end = "" if step.title.endswith("?") else "."
        line = f":gray[{number + 1} of {len(told)}] **{text(step.title)}{end}** "
        line += text(step.words(shown_sample()))
    place = "story" if number == INVITED else "tour"
    with st.container(horizontal=True, vertical_alignment="center", key=place):
        st.markdown(line, width="stretch")
        with st.container(horizontal=True, width="content"):  # buttons keep their place
            show_buttons(explorer, told, number)
            # Here, where what nobody sees moves nothing below it.
            st.html(STYLE)
            guide(explorer, told, number)


def guide(explorer: Explorer, told: list[Step], number: int) -> None:
    """Scroll to what a step speaks of, once; go on and back by arrow keys."""
    here = number != INVITED and told[number].page == st.session_state.get("page")
    key = components.guide(
        told[number].spot if here else None,
        number,
        present=st.session_state.get(link.PRESENT, False),
        key="guide",
    )
    step = {"next": 1, "back": -1}.get(key, 0)
    if step and 0 <= number + step < len(told):
        go_to(explorer, number + step)


def follow_presenter(explorer: Explorer) -> None:
    """Take over that an address is for an audience, and the step that it names.

    It may be one loaded again; all else that the step set is in the address, too.
    """
    followed = st.session_state.get("followed") or {}
    if link.PRESENT not in followed:
        return
    st.session_state[link.PRESENT] = True
    step = link.number(followed[link.PRESENT])
    if step is not None and 0 < step <= len(steps(explorer)):
        st.session_state.story = step - 1


def show_buttons(explorer: Explorer, told: list[Step], number: int) -> None:
    """Show the ways back, on and out of a step."""
    last = number + 1 == len(told)
    if st.button(
        "Back",
        type="tertiary",
        key="story_back",
        disabled=number < 1,
        help="The step before",
    ):
        go_to(explorer, number - 1)
    if st.button(
        "Begin" if number == INVITED else "Next",
        key="story_next",
        disabled=last,
        help="The last step" if last else told[number + 1].title,
    ):
        go_to(explorer, number + 1)
    st.button(
        "End",
        type="tertiary",
        key="story_end",
        help="End the tour; the sidebar starts it again",
        on_click=end,
    )
