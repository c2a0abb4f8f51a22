"""What the pages share: the chosen collection, picture tiles, waiting, escaping.

Not a page. The tile component and its style lie beside this file.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import streamlit as st

from core.config import DATA_DIR
from core.explorer import Explorer, Progress, list_collections, open_explorer
from core.jobs import DONE, FAILED, STOPPED, WAITING, JobQueue
from core.reading import data_uri

HERE = Path(__file__).parent
COLUMN_NAMES = {
    "style": "Design house",
    "group": "Group",
    "subgroup": "Subject",
    "name": "Kind",
}

_mount_tiles = st.components.v2.component(
    "afterimage_tiles",
    css=(HERE / "tiles.css").read_text(),
    js=(HERE / "tiles.js").read_text(),
)


def text(value: object) -> str:
    """Return a string from data so that Streamlit's Markdown shows it as it is."""
    escaped = re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~$&=^])", r"\\\1", str(value))
    # Colon shortcodes survive a backslash; an invisible joiner breaks them.
    return re.sub(r":(?=\S)", ":\u2060", escaped)


def column_name(column: str) -> str:
    """Return how a metadata column is called on a page."""
    return COLUMN_NAMES.get(column, column.replace("_", " ").capitalize())


# --- the pages and the collection ---------------------------------------------------


def navigate():
    """Return the page that the address names."""
    pages = [
        st.Page("pages/explore.py", title="Explore", default=True),
        st.Page("pages/collections.py", title="Collections"),
    ]
    return st.navigation(pages, position="top")


def root() -> Path:
    """Return the folder that holds the collections."""
    return Path(os.environ.get("AFTERIMAGE_COLLECTIONS", DATA_DIR / "collections"))


@st.cache_resource(max_entries=4, show_spinner="Opening the collection")
def _open(name: str, place: str, version: int) -> Explorer:
    """Return an open collection; a rebuilt one has a new version."""
    return open_explorer(name, Path(place))


def open_collection(name: str) -> Explorer:
    """Return a collection by name, opened once for all visitors."""
    pointer = root() / f"{name}.current"
    version = pointer.stat().st_mtime_ns if pointer.exists() else 0
    return _open(name, str(root()), version)


@st.cache_resource(max_entries=4)
def wake(collection: str, _explorer: Explorer) -> Thread:
    """Load a collection's model beside the page, once, while a visitor still chooses.

    Args:
        collection: Fingerprint of the collection; the cache key.

    Returns:
        The thread that loads it.
    """
    thread = Thread(target=_explorer.warm_up, daemon=True)
    thread.start()
    return thread


def choose_collection() -> None:
    """Show the collection picker in the sidebar; its value is in the session."""
    names = list_collections(root())
    if "collection" not in st.session_state:
        wanted = st.query_params.get("collection") or _preferred(names)
        # A link may name what is not here; the page then says so.
        st.session_state.collection = wanted if wanted in names else None
        st.session_state.missing = wanted
    none_yet = st.session_state.collection is None
    st.sidebar.selectbox(
        "Collection",
        names,
        index=None if none_yet else 0,  # the session's value counts, not this one
        key="collection",
        on_change=_forget,
    )


def _preferred(names: list[str]) -> str | None:
    """Return the collection to show first."""
    return "glyphs" if "glyphs" in names else next(iter(names), None)


def _forget() -> None:
    """Drop what belongs to the collection that was shown before."""
    leave_jobs()
    st.session_state.pop("view", None)
    st.query_params.clear()


def chosen_explorer() -> Explorer:
    """Return the chosen collection, or say why there is none and stop the page."""
    if "collection" not in st.session_state:
        # Streamlit runs a file of pages/ by itself, without app.py, when the first
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
    st.sidebar.caption(f"Computing on {text(explorer.device_name)}")
    return explorer


def sentence(error: Exception) -> str:
    """Return the sentence of an error as Markdown; `quoted` parts become code."""
    said = str(error.args[0]) if error.args else "Something is missing."
    parts = said.split("`")
    parts[::2] = [text(part) for part in parts[::2]]
    return "`".join(parts) if len(parts) % 2 else text(said)


def show_credits(explorer: Explorer) -> None:
    """Show whose art is on the page."""
    st.space("small")
    st.caption("Art: " + " · ".join(text(line) for line in explorer.credits))


def heading(title: str, note: str) -> None:
    """Show a card's title, and under it what the card holds; both plain text."""
    st.markdown(f"**{text(title)}**  \n:gray[:small[{text(note)}]]")


# --- tiles --------------------------------------------------------------------------


@st.cache_data(max_entries=4096, show_spinner=False)
def picture_uri(collection: str, kind: str, number: int, _explorer: Explorer) -> str:
    """Return a picture as text for an image element.

    Args:
        collection: Fingerprint of the collection; part of the cache key.
        kind: "example" or "sample".
        number: Example id or sample id.
    """
    load = _explorer.image_png if kind == "example" else _explorer.gallery_png
    return data_uri(load(number))


def caption_lines(explorer: Explorer, example: int) -> list[str]:
    """Return what stands under a training picture."""
    row = explorer.examples.table.loc[example]
    return [str(row[column]) for column in explorer.examples.caption_columns]


def example_tile(explorer: Explorer, example: int) -> dict:
    """Return the tile of a training picture, without a score."""
    lines = caption_lines(explorer, example)
    source = picture_uri(explorer.fingerprint, "example", example, explorer)
    return {"id": example, "src": source, "lines": lines, "alt": ", ".join(lines)}


def tiles(
    strips: list[dict],
    key: str,
    *,
    layout: str,
    columns: tuple[int, int],
    title: str = "",
    note: str = "",
    chosen: int | None = None,
    on_pick: Callable[[], None] = lambda: None,
) -> int | None:
    """Show rows of clickable pictures.

    Args:
        strips: One dictionary per row: `title`, `tone`, `empty`, and `tiles`, each with
            `id`, `src`, `alt` and what stands under it (see tiles.js).
        key: The component's key.
        layout: "lens" (headings and captions) or "gallery" (pictures only).
        columns: Pictures per row, in a wide and in a narrow place.
        title: Heading over all rows; "" shows none.
        note: What the heading means.
        chosen: The id to mark as chosen.
        on_pick: Called before the page runs again after a click.

    Returns:
        The id that was clicked just now, or None.
    """
    result = _mount_tiles(
        key=key,
        data={
            "strips": strips,
            "layout": layout,
            "title": title,
            "note": note,
            "columns": columns[0],
            "narrow_columns": columns[1],
            "chosen": chosen,
        },
        on_picked_change=on_pick,
    )
    return result.picked


def run_again() -> None:
    """Run the page again from the top.

    Such a run begins with the address as it was at the start of this one, so it must
    not be read as a link that somebody followed.
    """
    st.session_state.own_run = True
    st.rerun()


# --- waiting ------------------------------------------------------------------------


@st.cache_resource
def job_queue() -> JobQueue:
    """Return the one queue in front of the model."""
    return JobQueue(max_kept=64)


def _owner() -> str:
    """Return the name under which this visitor waits."""
    return st.session_state.setdefault("owner", uuid4().hex)


def _jobs() -> dict:
    """Return this visitor's jobs by what they are for."""
    return st.session_state.setdefault("jobs", {})


def leave_jobs() -> None:
    """Give up everything this visitor waits for."""
    for job in _jobs().values():
        job_queue().leave(job, _owner())
    _jobs().clear()


def _leave(slot: str) -> None:
    """Give up one job, but remember that it was stopped."""
    job_queue().leave(_jobs()[slot], _owner())


def result_of(slot: str, key: str, work: Callable[[Progress], Any]) -> Any | None:
    """Return a result once the queue has it; until then show progress and a cancel.

    Args:
        slot: What the result is for; a visitor has one job per slot.
        key: Names the result by values.
        work: Called by the queue with a progress function.

    Returns:
        The result, or None while there is none.
    """
    job = _jobs().get(slot)
    if job is None or job.key != key:
        if job is not None:
            job_queue().leave(job, _owner())
        job = _jobs()[slot] = job_queue().ask(key, _owner(), work)
        job.finished.wait(0.25)  # a quick answer needs no progress bar
    if job.status == DONE:
        return job.result
    if job.status == STOPPED:
        st.info("Stopped. Nothing is being computed for you.")
    elif job.status == FAILED and isinstance(job.error, (ValueError, LookupError)):
        st.warning(sentence(job.error))
    elif job.status == FAILED:
        st.warning("This could not be computed; the log of the app says why.")
    else:
        _watch(slot)
        for place in st.columns(2):
            place.skeleton(height=460)
        return None
    st.button("Start again", key=f"again_{slot}", on_click=_jobs().pop, args=(slot,))
    return None


@st.fragment(run_every=0.6)
def _watch(slot: str) -> None:
    """Show how far a job is, and run the page again when it ends."""
    job = _jobs().get(slot)
    if job is None or job.finished.is_set():
        run_again()
    report = job_queue().report(job)
    stopping = _owner() not in job.owners
    if stopping:
        st.progress(report.fraction, "Stopping")
    elif report.status == WAITING:
        others = "one question" if report.ahead == 1 else f"{report.ahead} questions"
        st.progress(0.0, f"In line: {others} before yours")
    else:
        st.progress(
            report.fraction, text(report.doing or "Loading the model") + _left(report)
        )
    st.button(
        "Cancel",
        key=f"cancel_{slot}",
        icon=":material/close:",
        disabled=stopping,
        on_click=_leave,
        args=(slot,),
    )


def _left(report) -> str:
    """Return the time left in words, "" while it is unknown."""
    seconds = report.seconds_left
    if seconds is None:
        return ""
    if seconds < 90:
        return f" · about {max(round(seconds), 1)} s left"
    return f" · about {round(seconds / 60)} min left"
