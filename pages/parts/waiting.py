"""Waiting for the model: one queue for all visitors, progress, and a cancel.

A visitor has one job per slot, and every place of a page a slot of its own:
what a page and a window on it wait for at once may be the same job, never the same
slot. A slot that a page no longer asks for is left, and its job stops when no other
slot and nobody else waits for it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import RerunException, get_script_run_ctx

from core.explorer.explorer import Progress
from core.explorer.jobs import DONE, FAILED, STOPPED, WAITING, Job, JobQueue, Report
from core.explorer.page_first import is_loading, page_drawn, page_shown
from pages.parts.words import sentence, text

QUICK = 0.25  # seconds; an answer that takes less needs no progress bar
LOOK_EVERY, LOOK_AT_LEAST = 0.6, 3.0  # seconds between looks at a job, next and far


def run_again() -> None:
    """Run the page again from the top.

    Such a run begins with the address as it was at the start of this one, so it must
    not be read as a link that somebody followed.
    """
    st.session_state.own_run = True
    st.rerun()


@st.cache_resource
def job_queue() -> JobQueue:
    """Return the one queue in front of the model."""
    return JobQueue(max_kept=128, is_there=_is_there)


def _is_there(owner: str) -> bool:
    """Return whether a visitor's page is open; in a test without a server it is."""
    if not runtime.exists():
        return True
    return runtime.get_instance().is_active_session(owner.partition("/")[0])


def visitor() -> str:
    """Return Streamlit's name for this visitor's session."""
    return get_script_run_ctx().session_id


def _owner() -> str:
    """Return the name under which this visitor waits: the session's, and a word more.

    Tests without a server call all sessions alike.
    """
    if "owner" not in st.session_state:
        st.session_state.owner = f"{visitor()}/{uuid4().hex}"
    return st.session_state.owner


def _jobs() -> dict[str, Job]:
    """Return this visitor's jobs by slot."""
    return st.session_state.setdefault("jobs", {})


def leave_jobs() -> None:
    """Give up everything this visitor waits for."""
    for slot in list(_jobs()):
        _drop(slot)


def _drop(slot: str) -> None:
    """Forget one slot, and give up its job where no other slot waits for it."""
    job = _jobs().pop(slot)
    if job not in _jobs().values():
        job_queue().leave(job, _owner())


def _start_again(slot: str) -> None:
    """Forget a job that ended without a result, in every slot that holds it."""
    ended = _jobs()[slot]
    for name in [name for name, job in _jobs().items() if job is ended]:
        del _jobs()[name]


def _leave(slot: str) -> None:
    """Give up one job, but remember that it was stopped."""
    job_queue().leave(_jobs()[slot], _owner())


@contextmanager
def leaving_the_rest() -> Iterator[None]:
    """Run a page, then give up the jobs that it did not ask for.

    A run that a click interrupts gives up nothing: it did not come to its end. What the
    page found unfinished and shows no progress of makes it run again once it is there.

    Yields:
        Nothing; the page runs inside.
    """
    asked = st.session_state.asked_slots = set()
    missed = st.session_state.missed_slots = set()
    st.session_state.seen_early = {}
    try:
        with page_drawn():
            yield
    finally:
        if not isinstance(sys.exception(), RerunException):
            _leave_all_but(asked)
            for slot in missed:
                st.fragment(_run_again_at_the_end, run_every=LOOK_EVERY)(slot)


def _leave_all_but(asked: set[str]) -> None:
    """Give up the jobs in other slots."""
    for slot in set(_jobs()) - asked:
        _drop(slot)


def ask(slot: str, key: str, work: Callable[[Progress], Any]) -> Job:
    """Return a visitor's job in a slot, asking the queue where it is a new one.

    Args:
        slot: The place that shows the result; no other place may have the same.
        key: Names the result by values.
        work: Called by the queue with a progress function.
    """
    st.session_state.setdefault("asked_slots", set()).add(slot)
    job = _jobs().get(slot)
    if job is None or job.key != key:
        if job is not None:
            _drop(slot)
        job = _jobs()[slot] = job_queue().ask(key, _owner(), work)
    return job


def wait_briefly(jobs: list[Job]) -> None:
    """Wait for jobs together, so that quick ones show no progress.

    None is quick while the model is loaded.
    """
    end = time.monotonic() + QUICK
    while not all(job.finished.is_set() for job in jobs):
        if time.monotonic() > end or is_loading():
            return
        time.sleep(0.01)


def result_now(slot: str) -> Any | None:
    """Return what a job that was asked has found, or None and keep an eye on it.

    A page that gets None shows `show_wait` in its place, or nothing: it runs again when
    there is a result, also where the job ends before the page does.
    """
    job = _jobs()[slot]
    if job.finished.is_set():
        return job.result
    st.session_state.setdefault("missed_slots", set()).add(slot)
    return None


def result_of(
    slot: str, key: str, work: Callable[[Progress], Any], height: int = 460
) -> Any | None:
    """Return a result once the queue has it; until then show progress and a cancel.

    Args:
        slot: The place that shows the result, as in `ask`.
        key: Names the result by values.
        work: Called by the queue with a progress function.
        height: Pixels that the result will take, kept free for it.

    Returns:
        The result, or None while there is none.
    """
    wait_briefly([ask(slot, key, work)])
    return shown(slot, height)


def shown(slot: str, height: int = 460) -> Any | None:
    """Return the result of a job that was asked, or show how far it is."""
    job = _jobs()[slot]
    if job.status == DONE:
        return job.result
    _show_state(slot, job, height)
    return None


def show_wait(slot: str, height: int = 460) -> None:
    """Show how far a job is that `result_now` found without a result.

    A page may be half drawn when the job ends; it is then drawn anew.
    """
    job = _jobs()[slot]
    if job.status == DONE:
        run_again()
    _show_state(slot, job, height)


def _show_state(slot: str, job: Job, height: int) -> None:
    """Show why a job has no result, and offer what can be done about it."""
    if job.status == STOPPED:
        st.info("Stopped. Nothing is being computed for you.")
    elif job.status == FAILED and isinstance(job.error, (ValueError, LookupError)):
        st.warning(sentence(job.error))
    elif job.status == FAILED:
        st.warning("This could not be computed; the log of the app says why.")
    else:
        # Twenty waiting pages that look often would keep the model from working.
        ahead = job_queue().report(job).ahead
        often = min(LOOK_EVERY * (1 + ahead / 2), LOOK_AT_LEAST)
        st.session_state.setdefault("missed_slots", set()).discard(slot)
        st.fragment(_watch, run_every=often)(slot)
        if height:
            st.skeleton(height=height)
        return
    st.button(
        "Start again",
        key=f"again_{slot}",
        help="Ask for this once more",
        on_click=_start_again,
        args=(slot,),
    )


def early(slot: str) -> Any | None:
    """Return what a job shows before its end, None where there is nothing yet."""
    job = _jobs()[slot]
    st.session_state.seen_early[slot] = job.early
    return job.early


def _has_news(slot: str) -> bool:
    """Return whether a page that asked for early results has not seen this one."""
    seen = st.session_state.get("seen_early", {})
    return slot in seen and seen[slot] is not _jobs()[slot].early


def _run_again_at_the_end(slot: str) -> None:
    """Run the page again when a job ends, and show nothing until then."""
    page_shown()
    job = _jobs().get(slot)
    if job is None or job.finished.is_set():
        run_again()


def _watch(slot: str) -> None:
    """Show how far a job is, and run the page again when it ends."""
    page_shown()
    job = _jobs().get(slot)
    if job is None or job.finished.is_set() or _has_news(slot):
        run_again()
    report = job_queue().report(job, _owner())
    stopping = _owner() not in job.owners
    if stopping:
        st.progress(report.fraction, "Stopping")
    elif report.status == WAITING:
        st.progress(0.0, _place_in_line(report))
    else:
        st.progress(
            report.fraction, text(report.doing or "Loading the model") + _left(report)
        )
    st.button(
        "Cancel",
        key=f"cancel_{slot}",
        icon=":material/close:",
        help="Stop computing this",
        disabled=stopping,
        on_click=_leave,
        args=(slot,),
    )


def _place_in_line(report: Report) -> str:
    """Return in words who and what comes before a job."""
    if report.people:
        people = "1 person" if report.people == 1 else f"{report.people} people"
        return f"Queued: {people} ahead of you"
    if report.ahead:
        return "Queued: after your earlier question"
    return "Queued: next"


def _left(report) -> str:
    """Return the time left in words, "" while it is unknown."""
    seconds = report.seconds_left
    if seconds is None:
        return ""
    if seconds < 90:
        return f" · about {max(round(seconds), 1)} s left"
    return f" · about {round(seconds / 60)} min left"
