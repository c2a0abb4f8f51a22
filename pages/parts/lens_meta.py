"""What is said of scores beside them: one line above the strips, the rest on demand."""

import numpy as np
import streamlit as st

from core.evidence.headline import headline
from core.evidence.stored import Evidence
from core.evidence.trust import ORDER, Trust, reliability, size_note
from core.explorer.explorer import Answer, Explorer
from core.lenses import Lens
from core.report import reading
from core.report.how import how_measured
from pages.parts import link, trust
from pages.parts.ties import tie
from pages.parts.words import column_word, text

HOW = "How is this measured?"


def show_how(explorer: Explorer, answer: Answer, place: int, narrow: bool) -> None:
    """Show a button that says how an answer was measured, a sign where it is narrow."""
    with st.popover(
        ":gray[:material/info:]" if narrow else f":small[:gray[{HOW}]]",
        type="tertiary",
        key=f"how_{place}",
        help=HOW if narrow else None,
    ):
        show_facts(explorer, answer)


def show_facts(explorer: Explorer, answer: Answer) -> None:
    """Show how an answer was measured, and how far that was tested."""
    for line in how_measured(answer):
        st.markdown(text(line))
    quality = explorer.provenance.get("quality") or {}
    if repeats := reliability(quality, answer.lens, answer.source):
        st.markdown(text(repeats))
    words, meaning = trust.mark(explorer, answer.lens, answer.source)
    st.markdown(f"{words}  \n{meaning}")


def show_meta(answer: Answer, in_region: bool) -> None:
    """Show in one line what an answer's strips hold."""
    st.caption(text(reading.short_note(answer, in_region)))


def show_tested(explorer: Explorer, answer: Answer) -> None:
    """Show in one line how far to trust an answer, by what retraining tested."""
    retraining = trust.find_evidence(explorer)
    line = _headline(
        explorer.fingerprint,
        retraining.version,
        answer.lens.canonical(),
        trust.trust_of(explorer, answer.lens, answer.source),
        explorer.name,
        retraining.evidence,
    )
    tested = "science" if line.startswith("Tested") else "science_off"
    _, meaning = trust.mark(explorer, answer.lens, answer.source)
    if answer.lens.kind == "influence":
        found = trust.trust_of(explorer, answer.lens, answer.source)
        known = found is not None and np.isfinite(found.size)
        line += " " + (size_note(answer.lens, found) if known else ORDER)
    st.caption(f":material/{tested}: {text(line)}", help=meaning)


@st.cache_data(max_entries=64, show_spinner=False)
def _headline(
    collection: str,
    version: int,
    lens: Lens,
    tested: Trust | None,
    name: str,
    _evidence: Evidence | None,
) -> str:
    """Return the line; keyed by values."""
    return headline(lens, tested, _evidence, lambda column: column_word(name, column))


def numbers_shown() -> bool:
    """Return whether tiles show their scores."""
    return link.choice("numbers") == "1"


def show_numbers_switch() -> None:
    """Show the one switch that puts scores under all tiles, on every page."""
    st.toggle(
        "Show numbers",
        help="Score and standard error under every image. Without, they appear when "
        "you point at one",
        **tie(
            "numbers",
            numbers_shown(),
            lambda wanted: link.set_choice("numbers", "1" if wanted else None),
        ),
    )
