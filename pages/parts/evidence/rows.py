"""Every row that the cards are made of."""

import streamlit as st

from core.evidence.tables import TABLES
from pages.parts import link
from pages.parts.evidence.card import Basis, offer
from pages.parts.words import heading, sentence

COSTS = "measured costs"  # of every sample in every model
SLOW = ("paired",)  # seconds; its card makes it when asked


def show_rows(basis: Basis) -> None:
    """Show any table in full, down to the cost of one sample in one model."""
    heading("Every row", "The tables of all cards, and what was measured in each model")
    if not st.toggle("Show a table", key="evidence_rows"):
        return
    names = [COSTS, *(name for name in TABLES if name not in SLOW)]
    name = st.selectbox("Table", names, **link.bind("rows", names, COSTS))
    try:
        table = costs(basis) if name == COSTS else basis.table(name)
    except (LookupError, ValueError) as error:
        st.info(sentence(error))
        return
    st.dataframe(table, hide_index=True, width="stretch", alt=f"The table {name}")
    offer(basis, table, "costs" if name == COSTS else f"rows_{name}")


def costs(basis: Basis):
    """Return what was measured of every sample in every model."""
    rows = basis.evidence.measured
    return rows[rows["measurement"] == basis.measurement]
