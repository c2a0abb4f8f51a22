"""The two-minute story: seven steps through the app, one line at the top of each page.

A step sets what is asked and goes to the page that shows it; a visitor may
do anything in between. The line can be closed, and begun again from the sidebar.
"""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from core.explorer.explorer import Explorer
from core.lenses import Lens
from pages.parts import lens_picker, link, waiting
from pages.parts.words import column_word, text

INVITED = -1  # the line offers the story; it was neither begun nor closed
BOTH = [Lens("ekfac"), Lens("clip")]


@dataclass(frozen=True)
class Step:
    """One step of the story.

    Attributes:
        page: Where it takes place.
        title: What a visitor does.
        words: What to look at; plain text.
        prepare: Sets what is asked.
    """

    page: str
    title: str
    words: str
    prepare: Callable[[Explorer], None]


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
    """Return the steps, in the words of a collection."""
    labels = list(explorer.classes.columns)
    label = column_word(explorer.name, labels[0]) if labels else "kind"
    return [
        Step(
            "explore",
            "Choose an image",
            "The model drew this one. Choose any other from the gallery, or stay.",
            begin,
        ),
        Step(
            "explore",
            "See what helped",
            "Removing a training image of the green row would make this image less "
            "likely. The longer the bar, the more.",
            ask_whole(BOTH[:1]),
        ),
        Step(
            "explore",
            "Compare with similarity",
            "CLIP finds look-alikes. Influence finds causes. The dark badge is an "
            "image’s rank in the other column.",
            ask_whole(BOTH),
        ),
        Step(
            "explore",
            "Ask about a region",
            "Only the region counts now, and other images come first. Drag another "
            "box on the image.",
            ask_middle,
        ),
        Step(
            "groups",
            f"Remove one {label}",
            f"What if this {label} had never been there? Compare with random "
            "removals of the same size.",
            leave_out,
        ),
        Step(
            "evidence",
            "See how far to trust it",
            "Scores are predictions. This page shows what retraining measured.",
            ask_whole(BOTH),
        ),
        Step(
            "explore",
            "Take it with you",
            "At the foot of this page: a report, an image to share, all scores.",
            ask_whole(BOTH),
        ),
    ]


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
    """Show where in the story a visitor is, and the ways on, back and out."""
    if "story" not in st.session_state:
        # Who followed a link came for what it names.
        came_for = link.ORIGINS.keys() & st.query_params.to_dict().keys()
        st.session_state.story = None if came_for else INVITED
    if st.sidebar.button(
        "Two-minute story",
        icon=":material/auto_stories:",
        help="Seven steps from an image to a report, from the first one",
    ):
        go_to(explorer, 0)
    number = st.session_state.story
    if number is None:
        return
    told = steps(explorer)
    if number == INVITED:
        line = "**New here?** See what made an image, and how far to trust the "
        line += "answer: a two-minute tour."
    else:
        step = told[number]
        line = f":gray[{number + 1} of {len(told)}] **{text(step.title)}.** "
        line += text(step.words)
    with st.container(horizontal=True, vertical_alignment="center", key="story"):
        st.markdown(line, width="stretch")
        with st.container(horizontal=True, width="content"):  # buttons keep their place
            show_buttons(explorer, told, number)


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
