"""Which method predicts what retraining does?"""

import pandas as pd
import streamlit as st

from core.evidence import lds, names, paired
from core.evidence.stored import CEILING, RANDOM, REACHABLE
from core.files.texts import minus
from core.methods import METHODS
from core.report import evidence_figures
from pages.parts.evidence.card import Basis, chart, lds_points, offer, say
from pages.parts.words import text

REFERENCES = {
    CEILING: "one more retraining",
    REACHABLE: "the most a predictor can reach",
    RANDOM: "random scores",
}
KINDS = ["influence", "attribution", "similarity", "other"]


def show_lds(basis: Basis) -> None:
    """Show how well each method ranks random halves of the images."""
    table = basis.table("lds")
    finding = lds.lds_finding(table)
    say(
        "Which method predicts what retraining does?",
        "LDS: rank correlation over random halves; 1 is the same order, 0 is chance",
        finding,
    )
    outside = table["method"].isin(list(REFERENCES))
    known = table[table["lds"].notna()].set_index("method")
    references = {
        name: (known.at[method, "lds"], known.at[method, "standard_error"])
        for method, name in REFERENCES.items()
        if method in known.index
    }
    rows = table[~outside]
    kinds = [
        METHODS[method].kind if method in METHODS else "other"
        for method in rows["method"]
    ]
    left, right = st.columns([0.55, 0.45], gap="medium")
    with left:
        named = rows["method"].map(names.method_name).tolist()
        figure = evidence_figures.points(
            lds_points(rows, named, kinds), "LDS", KINDS, references
        )
        chart(figure, "lds", finding)
    with right:
        show_lds_table(table)
        offer(basis, table, "lds")
    st.caption(text(lds.error_note(table)))
    # Thousands of resamples take seconds, so they wait until somebody asks.
    if st.toggle("Does one method beat another?", key="lds_paired"):
        pairs = basis.table("paired")
        st.markdown(text(paired.paired_finding(pairs)))
        offer(basis, pairs, "paired")


def show_lds_table(table: pd.DataFrame) -> None:
    """Show the LDS as numbers."""
    shown = pd.DataFrame({
        "method": [
            REFERENCES.get(name, names.method_name(name)) for name in table["method"]
        ],
        "LDS": table["lds"],
        "±": table["standard_error"],
        "± halves": table["subset_error"],
        "of the most": table["reached"],
        "scored": table["scored"],
    })
    # A styled number is sorted as a number, and has the minus sign that people read.
    printed = dict.fromkeys(["LDS", "±", "± halves"], lambda x: minus(f"{x:.3f}"))
    printed["of the most"] = lambda x: minus(f"{x:.0%}")
    st.dataframe(
        shown.style.format(printed, na_rep="–"),
        hide_index=True,
        width="stretch",
        height="content" if len(shown) <= 12 else 460,
        column_config={
            "± halves": st.column_config.NumberColumn(
                help="Error from having few retrained models (jackknife)"
            ),
            "of the most": st.column_config.NumberColumn(
                help="Share of the most that any predictor can reach"
            ),
            "scored": st.column_config.TextColumn(
                help="What the scores were about; own: the method knows only one thing"
            ),
        },
        alt="LDS of every method with its errors",
    )
