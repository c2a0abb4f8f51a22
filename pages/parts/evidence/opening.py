"""One chart and one sentence that come before everything else."""

import streamlit as st

from core.evidence.opening import opening
from core.evidence.stored import Evidence
from core.report import evidence_figures
from pages.parts.evidence.card import Basis, chart, say
from pages.parts.words import text


@st.cache_data(max_entries=8, show_spinner=False)
def cached_opening(collection: str, version: int, _evidence: Evidence):
    """Return what comes first about a collection; keyed by values."""
    return opening(_evidence)


def show_opening(basis: Basis) -> None:
    """Show what a method's answers are worth, for everybody."""
    found = cached_opening(basis.explorer.fingerprint, basis.version, basis.evidence)
    if found is None:
        st.markdown("Too few models were trained again to say what answers are worth.")
        return
    say(found.title, found.how, found.finding)
    rows = found.rows.assign(tone="measured by retraining")
    tones = ["measured by retraining"]
    figure = evidence_figures.points(rows, found.axis, tones, {})
    chart(figure, "opening", found.finding)
    st.caption(text(f"± is one standard error. {found.note}"))
