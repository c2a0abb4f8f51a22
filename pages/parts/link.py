"""What is asked, in the session and in the address: a link opens the same view.

A `view` names the image that is asked about and the part of it, as text,
e.g. {"sample": "12", "region": "8,8,40,40"}. `lenses` names how it is asked, one code
per column, e.g. "ekfac.elbo.0-500~clip". `detail` is the training image whose details
are open. `group` is the code of the training images that are left out
(`pages.parts.group_picker`). `choices` are whatever else a page lets one choose. All of
it stays while a visitor goes from page to page.

Streamlit's own `bind="query-params"` is not used: it drops a widget's part of the
address when its page is left, and forbids to write the address as a whole.
"""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core.explorer.explorer import Explorer
from pages.parts import waiting
from pages.parts.ties import tie
from pages.parts.words import text

# The ways to name an image, in the order in which they are offered.
ORIGINS = {
    "sample": "Gallery",
    "seed": "Generate",
    "upload": "Upload",
    "draw": "Draw",
    "example": "Training",
}
# Keys of the link; their values are text, as in the link.
IMAGE_KEYS = (*ORIGINS, "label", "sampler", "steps", "guidance")
VIEW_KEYS = (*IMAGE_KEYS, "region", "inverted", "exact")
CHOICE_KEYS = (
    "words",  # what is searched for among the training images
    "only",  # the labels that they must have
    "picked",  # those that were marked on the map
    "numbers",  # whether scores stand under all images
    "measured",  # Timesteps: what is looked at over the noise levels
    "agreement",  # how lenses are compared
    "method",  # Methods: whose strips are shown
    "damping",  # Methods: times the collection's own
    "shares",  # What if: the label whose every value has a bar
    "tested",  # Evidence: what was measured in retrained models
    "compared",  # Evidence: the method whose changes are compared
    "grouped",  # Evidence: the method that is compared over whole groups
    "section",  # Collections: which settings are shown
)
PRESENT = "present"  # shown to an audience; its value is the step of the tour, from 1
LINK_KEYS = (
    *("collection", *VIEW_KEYS, "lenses", "detail", "group"),
    *CHOICE_KEYS,
    PRESENT,
)
LONGEST = 200  # letters of a value; links leave longer ones out
LONG = {"group": 1500, "picked": 1500, "only": 600}
DEFAULT_LENSES = "ekfac.loss~clip"
MOST_ASKED = 12  # images that a session remembers


# --- the address --------------------------------------------------------------------


def take_address() -> None:
    """Note the address that a visitor came with, else make it what it was.

    A visitor comes with an address when a session begins, and by the browser's back and
    forward. In all other runs the session knows better: the address may lag behind
    clicks, and Streamlit empties it on the way to another page. Made whole before the
    navigation, it goes along to that page, as one step of the browser's history.
    """
    context = get_script_run_ctx()
    went_back = context is not None and context.is_history_navigation
    if "address" not in st.session_state or went_back:
        st.session_state.followed = st.query_params.to_dict()
    elif st.query_params.to_dict() != st.session_state.address:
        st.query_params.from_dict(st.session_state.address)


def wanted_collection() -> str | None:
    """Return the collection that an address names with which a visitor just came."""
    return st.session_state.get("followed", {}).get("collection")


def settle(explorer: Explorer) -> None:
    """Take over the address that a visitor came with, and make it name what is asked.

    Every page does so first; what the address says wrongly is said in one sentence.
    """
    if "next_view" in st.session_state:
        ask_about(st.session_state.pop("next_view"))
    followed = st.session_state.pop("followed", None)
    if followed:
        st.session_state.ignored = follow(explorer, followed)
    if "view" not in st.session_state:
        ask_about(first_view(explorer))
    st.session_state.setdefault("lenses", DEFAULT_LENSES)
    before = st.session_state.get("address")
    write(explorer)
    if not followed and before != st.session_state.address:
        st.session_state.ignored = []
    for note in st.session_state.get("ignored", ()):
        st.info(text(note))


def follow(explorer: Explorer, address: dict[str, str]) -> list[str]:
    """Take over everything that an address names; return what was ignored and why.

    Whether an image, a lens or a group exists is said where it would be shown.

    Args:
        explorer: The collection.
        address: The link's keys and values, anything at all.

    Returns:
        What was ignored, a sentence each.
    """
    address = {key: address[key] for key in LINK_KEYS if key in address}
    notes = []
    for key, value in list(address.items()):
        most = LONG.get(key, LONGEST)
        if len(value) > most:
            notes.append(
                f"The link's “{key}” is {len(value):,} letters long and was "
                f"ignored; no part of a link is longer than {most:,}."
            )
            del address[key]
    named = {key: address[key] for key in VIEW_KEYS if key in address}
    if named:
        known = named.keys() & ORIGINS.keys()
        ask_about(named if known else first_view(explorer) | named)
    st.session_state.lenses = address.get("lenses", DEFAULT_LENSES)
    st.session_state.group = address.get("group")
    st.session_state.choices = {k: address[k] for k in CHOICE_KEYS if k in address}
    st.session_state.detail = number(address.get("detail", ""))
    if "detail" in address and (
        st.session_state.detail not in explorer.examples.table.index
    ):
        st.session_state.detail = None
        notes.append(
            f"The link opens the training image “{shortened(address['detail'])}”, "
            "which this collection does not have."
        )
    return notes


def number(value: str) -> int | None:
    """Return the whole number that a part of a link is, None where it is none."""
    digits = value.removeprefix("-")
    usual = digits.isascii() and digits.isdecimal() and len(digits) <= 15
    return int(value) if usual else None


def shortened(value: str, most: int = 60) -> str:
    """Return so much of a part of a link as a sentence can repeat."""
    return value if len(value) <= most else value[: most - 1] + "…"


def write(explorer: Explorer) -> None:
    """Make the address name what is asked now."""
    view, lenses = st.session_state.view, st.session_state.lenses
    address = {"collection": explorer.name}
    address |= {key: view[key] for key in VIEW_KEYS if key in view}
    if lenses != DEFAULT_LENSES:
        address["lenses"] = lenses
    if st.session_state.get("detail") is not None:
        address["detail"] = str(st.session_state.detail)
    if st.session_state.get("group"):
        address["group"] = st.session_state.group
    address |= _choices()
    if st.session_state.get(PRESENT):
        step = st.session_state.get("story")
        address[PRESENT] = "" if step is None or step < 0 else str(step + 1)
    address = {k: v for k, v in address.items() if len(v) <= LONG.get(k, LONGEST)}
    st.session_state.address = address
    # After a run that began another one the browser may not have heard of the last
    # change, so it is told again.
    again = st.session_state.pop("own_run", False)
    if again or st.query_params.to_dict() != address:
        st.query_params.from_dict(address)


def whole_address() -> str:
    """Return the address of this exact view, to be copied; not for an audience."""
    page = (st.context.url or "").partition("?")[0]
    shown = {k: v for k, v in st.session_state.address.items() if k != PRESENT}
    return f"{page}?{urlencode(shown)}"


def forget() -> None:
    """Drop what belongs to the collection that was shown before."""
    waiting.leave_jobs()
    for name in ("view", "detail", "group", "choices", "asked"):
        st.session_state.pop(name, None)


# --- the image --------------------------------------------------------------------


def current_view() -> dict[str, str]:
    """Return what is asked about; `settle` has found it."""
    view = st.session_state.view
    # Set anew in every run: what a widget held on another page is not taken over, and
    # one that a page did not show is forgotten.
    known = (st.session_state.get(key) for key in ("origin", "shown_origin"))
    st.session_state.origin = next(filter(None, known), origin_of(view))
    st.session_state.shown_origin = st.session_state.origin
    return view


def ask_about(view: dict[str, str]) -> None:
    """Make an image the one that is asked about, the whole of it."""
    waiting.leave_jobs()
    st.session_state.view = view
    st.session_state.origin = st.session_state.shown_origin = origin_of(view)
    st.session_state.detail = None


def ask_next(view: dict[str, str]) -> None:
    """Make an image the one that is asked about, from below the picker.

    The picker's widgets are on the page already, so their values cannot change in this
    run; the next one begins with the new image.
    """
    st.session_state.next_view = view
    waiting.run_again()


def change_view(**changes: str | None) -> None:
    """Change how the image is asked about; None takes a key away."""
    view = {**st.session_state.view, **changes}
    st.session_state.view = {k: v for k, v in view.items() if v is not None}


def origin_of(view: dict[str, str]) -> str:
    """Return in which way an image was chosen."""
    return next(key for key in ORIGINS if key in view)


def first_view(explorer: Explorer) -> dict[str, str]:
    """Return what to ask about before anybody chose."""
    if explorer.gallery.empty:
        return {"example": str(explorer.examples.table.index[0])}
    return {"sample": str(explorer.first_image.sample)}


def remember(source: Callable[[], str], words: str) -> list[dict]:
    """Note the image that is asked about; return those asked, the newest first.

    Args:
        source: Gives the image as text for an image element, where it is new.
        words: What it is.

    Returns:
        Each with its `view` (the whole image), `src` and `words`.
    """
    view = {k: v for k, v in st.session_state.view.items() if k in IMAGE_KEYS}
    asked = st.session_state.setdefault("asked", [])
    if not asked or asked[0]["view"] != view:
        entry = next((one for one in asked if one["view"] == view), None)
        entry = entry or {"view": view, "src": source(), "words": words}
        rest = [one for one in asked if one is not entry]
        st.session_state.asked = asked = [entry, *rest][:MOST_ASKED]
    return asked


# --- whatever else a page lets one choose -------------------------------------------


def _choices() -> dict[str, str]:
    """Return what was chosen other than the usual, by its key in the link."""
    return st.session_state.setdefault("choices", {})


def choice(key: str) -> str | None:
    """Return what was chosen, as text, None for the usual."""
    return _choices().get(key)


def set_choice(key: str, value: str | None) -> None:
    """Choose something; None is the usual, which the link does not name."""
    if value is None:
        _choices().pop(key, None)
    else:
        _choices()[key] = value


def bind(
    key: str, options: Iterable[Any], usual: Any, name: Callable[[Any], str] = str
) -> dict[str, Any]:
    """Return what ties a widget that chooses one of some options to the link.

    What the address names and is not an option is said here; the default is shown.

    Args:
        key: Of the link.
        options: What may be chosen.
        usual: What is chosen before anybody chose; the link does not name it.
        name: Gives an option as it stands in the link.

    Returns:
        The widget's `key` and `on_change`.
    """
    named = {name(option): option for option in options}
    wanted = choice(key)
    if wanted is not None and wanted not in named:
        st.info(
            text(
                f"The link says {key}={shortened(wanted)}, which is not one of "
                f"{', '.join(map(shortened, named))}; the default is shown."
            )
        )

    def take(chosen: Any) -> None:
        set_choice(key, None if chosen == usual else name(chosen))

    return tie(f"{key}_choice", named.get(wanted, usual), take)
