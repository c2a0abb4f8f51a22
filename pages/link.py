"""What is asked, in the session and in the address: a link opens the same view.

Not a page. The state is three things. A `view` names the picture that is asked about
and the region of it, as text, e.g. {"sample": "12", "region": "8,8,40,40"}. `lenses`
names how it is asked, one code per column, e.g. "ekfac.elbo.0-500~clip". `detail` is
the training picture whose details are open.
"""

import streamlit as st

from core.explorer import Explorer
from pages import waiting

# The ways to name a picture, in the order in which they are offered.
ORIGINS = {
    "sample": "Gallery",
    "seed": "Generate",
    "upload": "Upload",
    "example": "Training",
}
# Keys of the link that belong to a picture; their values are text, as in the link.
PICTURE_KEYS = ("sample", "example", "seed", "label", "sampler", "steps", "guidance")
VIEW_KEYS = (*PICTURE_KEYS, "region", "inverted")
LINK_KEYS = (*VIEW_KEYS, "lenses", "detail")
DEFAULT_LENSES = "ekfac.loss~clip"


def current_view(explorer: Explorer) -> dict[str, str]:
    """Return what is asked about: from the link, else from before, else the gallery."""
    if "next_view" in st.session_state:
        ask_about(st.session_state.pop("next_view"))
    link = {key: st.query_params[key] for key in LINK_KEYS if key in st.query_params}
    new = link.keys() & ORIGINS.keys() and link != st.session_state.get("linked")
    if not st.session_state.pop("own_run", False) and new:
        follow(link)
    if "view" not in st.session_state:
        ask_about(first_view(explorer))
    view = st.session_state.view
    st.session_state.setdefault("lenses", DEFAULT_LENSES)
    # Set anew in every run: what a widget held on another page is not taken over.
    st.session_state.origin = st.session_state.get("origin") or origin_of(view)
    write(explorer)
    return view


def follow(link: dict[str, str]) -> None:
    """Take over everything that a link names."""
    ask_about({key: link[key] for key in VIEW_KEYS if key in link})
    st.session_state.lenses = link.get("lenses", DEFAULT_LENSES)
    detail = link.get("detail", "")
    st.session_state.detail = int(detail) if detail.isdecimal() else None


def write(explorer: Explorer) -> None:
    """Make the address name what is asked now."""
    view, lenses = st.session_state.view, st.session_state.lenses
    linked = {key: view[key] for key in VIEW_KEYS if key in view}
    if lenses != DEFAULT_LENSES:
        linked["lenses"] = lenses
    if st.session_state.get("detail") is not None:
        linked["detail"] = str(st.session_state.detail)
    st.session_state.linked = linked
    wanted = {"collection": explorer.name, **linked}
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)


def ask_about(view: dict[str, str]) -> None:
    """Make a picture the one that is asked about, the whole of it."""
    waiting.leave_jobs()
    st.session_state.view = view
    st.session_state.origin = origin_of(view)
    st.session_state.detail = None


def ask_next(view: dict[str, str]) -> None:
    """Make a picture the one that is asked about, from below the picker.

    The picker's widgets are on the page already, so their values cannot change in this
    run; the next one begins with the new picture.
    """
    st.session_state.next_view = view
    waiting.run_again()


def change_view(**changes: str | None) -> None:
    """Change how the picture is asked about; None takes a key away."""
    view = {**st.session_state.view, **changes}
    st.session_state.view = {k: v for k, v in view.items() if v is not None}


def origin_of(view: dict[str, str]) -> str:
    """Return which of the four ways a picture was chosen in."""
    return next(key for key in ORIGINS if key in view)


def first_view(explorer: Explorer) -> dict[str, str]:
    """Return what to ask about before anybody chose."""
    if explorer.gallery.empty:
        return {"example": str(explorer.examples.table.index[0])}
    return {"sample": str(clearest_sample(explorer.fingerprint, explorer))}


@st.cache_data(max_entries=8, show_spinner=False)
def clearest_sample(collection: str, _explorer: Explorer) -> int:
    """Return the gallery sample to begin with; keyed by the collection."""
    return _explorer.clearest_sample()
