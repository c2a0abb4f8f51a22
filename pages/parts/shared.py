"""What every page begins and ends with: navigation, the chosen collection, credits."""

import os
from pathlib import Path

import streamlit as st

from core.config import DATA_DIR
from core.explorer.explorer import Explorer, list_collections, open_explorer
from core.files import grounds
from pages.parts import link, story
from pages.parts.ties import tie
from pages.parts.words import sentence, text

HERE = Path(__file__).parent
PAGES = {
    "explore": "Explore",
    "measurements": "Measurements",
    "timesteps": "Timesteps",
    "methods": "Methods",
    "map": "Map",
    "groups": "What if",
    "evidence": "Evidence",
    "collections": "Collections",
}


def navigate():
    """Return the page that the address names."""
    pages = [
        st.Page(f"pages/{name}.py", title=title, default=name == "explore")
        for name, title in PAGES.items()
    ]
    return st.navigation(pages, position="top")


def root() -> Path:
    """Return the folder that holds the collections."""
    return Path(os.environ.get("AFTERIMAGE_COLLECTIONS", DATA_DIR / "collections"))


_opened_early: dict[tuple, Explorer] = {}  # until the first visitor asks for it


@st.cache_resource(max_entries=4, show_spinner="Opening the collection")
def _open(name: str, folder: str, version: int) -> Explorer:
    """Return an open collection; a rebuilt one has a new version."""
    early = _opened_early.pop((name, folder, version), None)
    return early or open_explorer(name, Path(folder))


def _key(name: str) -> tuple[str, str, int]:
    """Return what names the current version of a collection."""
    pointer = root() / f"{name}.current"
    version = pointer.stat().st_mtime_ns if pointer.exists() else 0
    return name, str(root()), version


def open_collection(name: str) -> Explorer:
    """Return a collection by name, opened once for all visitors."""
    return _open(*_key(name))


def open_early() -> Explorer | None:
    """Open the collection that a server shows first; None where there is none."""
    name = _preferred(list_collections(root()))
    if name is None:
        return None
    explorer = open_explorer(name, root())
    _opened_early[_key(name)] = explorer
    return explorer


def choose_collection() -> None:
    """Show the collection picker in the sidebar; its value is in the session."""
    names = list_collections(root())
    wanted = link.wanted_collection()
    begins = "collection" not in st.session_state
    if begins or (wanted and wanted != st.session_state.collection):
        link.forget()
        wanted = wanted or _preferred(names)
        # A link may name what is not here; the page then says so.
        st.session_state.collection = wanted if wanted in names else None
        st.session_state.missing = wanted and link.shortened(wanted)
    st.sidebar.selectbox(
        "Collection",
        names,
        index=None,
        help="The model and its training images that all pages are about",
        **tie("collection_choice", st.session_state.collection, _take_collection),
    )


def _preferred(names: list[str]) -> str | None:
    """Return the collection to show first."""
    return "glyphs" if "glyphs" in names else next(iter(names), None)


def _take_collection(name: str | None) -> None:
    """Show another collection; what belongs to the one before is dropped."""
    if name is not None:
        st.session_state.collection = name
        link.forget()


def chosen_explorer() -> Explorer:
    """Return the chosen collection, or say why there is none and stop the page."""
    if "collection" not in st.session_state:
        # Streamlit runs a file of pages/ by itself, without visit.py, when the first
        # address that a new server sees names a page. Navigating ends that.
        navigate()
        st.rerun()
    name = st.session_state.collection or st.session_state.missing
    if name is None:
        st.info(
            "There is no collection here yet. Build the small demonstration with "
            "`python -m precompute build --collection glyphs --preset tiny`."
        )
        st.stop()
    try:
        explorer = open_collection(name)
    except (LookupError, ValueError) as error:
        st.info(sentence(error))
        st.stop()
    if explorer.ground is not None:  # images are framed in their own ground
        colour = grounds.hex_words(explorer.ground)
        st.html(f"<style>:root {{ --afterimage-ground: {colour}; }}</style>")
    st.sidebar.caption(f"Computing on {text(explorer.device_name)}")
    story.show(explorer)
    link.settle(explorer)
    return explorer


def show_credits(explorer: Explorer) -> None:
    """Show whose art is on the page."""
    st.space("small")
    lines = explorer.credits or ["no credit is recorded; build with --credits FILE"]
    st.caption("Art: " + " · ".join(map(text, lines)))
