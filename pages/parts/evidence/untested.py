"""What is known of the scores without retraining?"""

import streamlit as st

from core.evidence import untested
from core.explorer.explorer import Explorer
from pages.parts.evidence.card import say


def show_stored(explorer: Explorer) -> None:
    """Show what was measured without retraining."""
    finding = untested.stored_finding(explorer.provenance.get("quality") or {})
    say(
        "What takes no retraining",
        "Whether the scores are what was meant, not whether they come true",
        finding,
    )
    st.page_link(
        "pages/collections.py",
        label="All of it on the page Collections",
        icon=":material/arrow_forward:",
    )
