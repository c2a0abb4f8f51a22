"""Choosing how to ask: the lenses of a page's columns, their controls, presets.

Lenses live in the session and the link as one text (`pages.parts.link`):
codes joined by "~", each a method, a measurement where it counts, and a range of noise
levels where it is not all, e.g. "ekfac.elbo.0-500". The region belongs to the image.
"""

import time
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.explorer.explorer import Explorer
from core.explorer.jobs import Job
from core.lenses import Lens, check_lens, lens_title
from core.measurements import MEASUREMENTS
from core.methods import METHODS, has_timesteps, measures
from pages.parts import waiting
from pages.parts.ties import tie
from pages.parts.words import sentence, text

MAX_COLUMNS = 4
# What a new column shows: the first of these that no column shows yet.
NEXT_LENSES = (Lens("clip"), Lens("ekfac", "elbo"), Lens("gradient"), Lens("pixel"))

# --- codes --------------------------------------------------------------------------


def code_of(lens: Lens) -> str:
    """Return a lens as it stands in a link."""
    parts = [lens.method]
    if measures(lens.method):
        parts.append(lens.measurement)
    if has_timesteps(lens.method) and lens.timesteps is not None:
        parts.append("{}-{}".format(*lens.timesteps))
    return ".".join(parts)


def lens_of(code: str) -> Lens:
    """Return the lens that a code names.

    Raises:
        ValueError: If it names none.
    """
    method, *rest = code.split(".")
    values = {}
    for part in rest:
        low, dash, high = part.partition("-")
        if dash and low.isdecimal() and high.isdecimal():
            values["timesteps"] = int(low), int(high)
        else:
            values["measurement"] = part
    if method not in METHODS or values.get("measurement", "loss") not in MEASUREMENTS:
        raise ValueError(
            f"The link names a lens '{code}', which does not exist. Choose a method "
            "and a measurement here instead."
        )
    return Lens(method, **values)


def lenses_of(codes: str, explorer: Explorer) -> list[Lens]:
    """Return the lenses that a text names, at most `MAX_COLUMNS`.

    A `ValueError` says so where one of them makes no sense for the collection.
    """
    lenses = [lens_of(code) for code in codes.split("~")[:MAX_COLUMNS]]
    size = explorer.image_shape[-1]
    for lens in lenses:
        check_lens(lens, explorer.num_train_timesteps, size)
    return lenses


def codes_of(lenses: list[Lens]) -> str:
    """Return lenses as they stand in a link."""
    return "~".join(map(code_of, lenses))


def chosen_lenses(explorer: Explorer) -> list[Lens]:
    """Return the lenses of this visitor's columns.

    Where a link names nonsense, say so and stop the page.
    """
    try:
        return lenses_of(st.session_state.lenses, explorer)
    except ValueError as error:
        st.info(sentence(error))
        st.stop()


def choose(lenses: list[Lens]) -> None:
    """Make these the lenses of the columns."""
    st.session_state.lenses = codes_of(lenses)


def in_region(lens: Lens, region: tuple[int, int, int, int] | None) -> Lens:
    """Return a lens that looks at a region, where its method can."""
    return replace(lens, region=region) if has_timesteps(lens.method) else lens


# --- words --------------------------------------------------------------------------


def short_titles(lenses: list[Lens]) -> list[str]:
    """Return names for a small table: as short as they stay different."""
    methods = [METHODS[lens.method].title.replace(" influence", "") for lens in lenses]
    if len(set(methods)) == len(methods):
        return methods
    shorter = [lens_title(lens).replace(" influence", "") for lens in lenses]
    first = methods[0]
    if all(method == first for method in methods):
        shorter = [name.removeprefix(f"{first} · ") for name in shorter]
    return shorter


# --- presets ------------------------------------------------------------------------


def presets(explorer: Explorer) -> dict[str, list[Lens]]:
    """Return the sets of columns that are one click away, by name."""
    high = explorer.num_train_timesteps
    return {
        "Influence and similarity": [Lens("ekfac"), Lens("clip")],
        "Three measurements": [
            Lens("ekfac", measurement) for measurement in ("loss", "elbo", "trajectory")
        ],
        "Structure or detail": [
            Lens("ekfac", timesteps=(high // 2, high)),
            Lens("ekfac", timesteps=(0, high // 2)),
        ],
        "Four methods": [Lens(name) for name in ("ekfac", "trak", "d-trak", "clip")],
    }


def show_presets(explorer: Explorer) -> DeltaGenerator:
    """Show the presets, and a button for one more column; return their row."""
    offered = presets(explorer)
    names = {codes_of(lenses): name for name, lenses in offered.items()}
    row = st.container(horizontal=True, vertical_alignment="bottom")
    with row:
        st.pills(
            "Compare",
            list(offered),
            wrap=True,
            help="Sets of columns. Open a column’s title to change it alone.",
            **tie(
                "preset",
                names.get(st.session_state.lenses),
                lambda name: name and choose(offered[name]),
            ),
        )
        st.button(
            "Add column",
            icon=":material/add:",
            type="tertiary",
            help=f"Another lens beside these, up to {MAX_COLUMNS}",
            disabled=st.session_state.lenses.count("~") + 1 >= MAX_COLUMNS,
            on_click=add_column,
        )
    return row


def add_column() -> None:
    """Add a column that shows what none shows yet."""
    codes = st.session_state.lenses.split("~")
    new = next(code for code in map(code_of, NEXT_LENSES) if code not in codes)
    st.session_state.lenses = "~".join([*codes, new])


# --- one column's controls ----------------------------------------------------------


def ask_method_facts(explorer: Explorer) -> Job:
    """Ask the queue what is known of every method of a collection.

    Returns:
        The job; its result, indexed by method, is kept for a minute only, because what
        a method needs may be made meanwhile.
    """
    return waiting.ask(
        "method facts",
        f"{explorer.fingerprint}/method facts/{time.time() // 60:.0f}",
        lambda progress: explorer.method_facts(progress).set_index("method"),
    )


def ready_methods(explorer: Explorer) -> list[str]:
    """Return the methods that can answer, all of them while that is not known yet."""
    if not explorer.awake:  # asking would load the model while the page is drawn
        return list(METHODS)
    facts = ask_method_facts(explorer).result
    if facts is None:
        return list(METHODS)
    return [name for name in METHODS if facts.at[name, "available"]]


def show_controls(explorer: Explorer, lenses: list[Lens], place: int) -> None:
    """Show a column's title, which opens its controls."""
    lens = lenses[place]
    name = explorer.titled(lens)
    if len(lenses) > 2 and lens.method != "clip":
        name = short_titles(lenses)[place]
    with st.popover(
        f"**{text(name)}**",
        type="tertiary",
        help="Change the method, the measurement or the noise levels of this column",
        key=f"controls_{place}",  # stays open while its title changes
        wrap=True,
    ):
        show_choices(explorer, lenses, place)
        if len(lenses) > 1:
            st.button(
                "Remove this column",
                icon=":material/close:",
                key=f"close_{place}",
                help="The other columns stay as they are",
                on_click=choose,
                args=([*lenses[:place], *lenses[place + 1 :]],),
            )


def show_first(explorer: Explorer, lenses: list[Lens]) -> None:
    """Show the lens of the first column, for a page that asks with that one only."""
    with st.popover(
        f"**{text(explorer.titled(lenses[0]))}**",
        type="tertiary",
        help="Change the method, the measurement or the noise levels; they are those "
        "of the first column on Explore",
        key="controls",
    ):
        show_choices(explorer, lenses, 0)


def show_choices(explorer: Explorer, lenses: list[Lens], place: int) -> None:
    """Show whatever can be chosen of one column's lens."""
    lens = lenses[place]
    show_method_choice(explorer, lenses, place)
    if measures(lens.method):
        show_measurement_choice(lenses, place)
    if has_timesteps(lens.method):
        show_timestep_choice(explorer, lenses, place)


def change(lenses: list[Lens], place: int, **values: object) -> None:
    """Change the lens of one column."""
    changed = replace(lenses[place], **values)
    choose([*lenses[:place], changed, *lenses[place + 1 :]])


def show_method_choice(explorer: Explorer, lenses: list[Lens], place: int) -> None:
    """Show the choice of a method, and what its number means."""
    chosen = lenses[place].method
    ready = ready_methods(explorer)
    ready += [] if chosen in ready else [chosen]
    st.selectbox(
        "Method",
        ready,
        format_func=lambda name: METHODS[name].title,
        help="How the training images are scored",
        **tie(
            f"method_{place}",
            chosen,
            lambda method: change(lenses, place, method=method),
        ),
    )
    st.caption(text(METHODS[chosen].meaning))
    if len(ready) < len(METHODS):
        more = len(METHODS) - len(ready)
        st.caption(f"{more} more need preparing first: see the page Methods.")


def show_measurement_choice(lenses: list[Lens], place: int) -> None:
    """Show the choice of what the change is of."""
    st.selectbox(
        "Measurement",
        [name for name, facts in MEASUREMENTS.items() if facts.attributable],
        format_func=lambda name: MEASUREMENTS[name].title,
        help="What changes when a training image is removed",
        **tie(
            f"measurement_{place}",
            lenses[place].measurement,
            lambda measurement: change(lenses, place, measurement=measurement),
        ),
    )
    st.caption(text(MEASUREMENTS[lenses[place].measurement].meaning))


def show_timestep_choice(explorer: Explorer, lenses: list[Lens], place: int) -> None:
    """Show the choice of noise levels."""
    whole = (0, explorer.num_train_timesteps)

    def take(levels: tuple[int, int]) -> None:
        low, high = levels
        if low < high:
            chosen = None if (low, high) == whole else (low, high)
            change(lenses, place, timesteps=chosen)

    st.slider(
        "Noise levels",
        *whole,
        step=max(whole[1] // 100, 1),
        help="Low levels decide detail, high levels structure. Scores of separate "
        "ranges add up.",
        **tie(f"timesteps_{place}", lenses[place].timesteps or whole, take),
    )
    st.caption("left: detail · right: structure")
