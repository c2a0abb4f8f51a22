"""How far are predicted changes from measured ones?"""

import numpy as np
import pandas as pd
import streamlit as st

from core.evidence import changes, names
from core.evidence.evaluation import Calibration
from core.evidence.stored import RANDOM
from core.report import comparison, evidence_figures
from pages.parts.evidence.card import Basis, chart, chosen_method, offer, predicts_size
from pages.parts.words import heading, text

MANY = 1500  # dots that a figure can hold and stay quick


def show_changes(basis: Basis) -> None:
    """Show predicted against measured changes of one method."""
    table = basis.table("changes")
    methods = [name for name in table["method"].unique() if name != RANDOM]
    heading(
        "Predicted against measured change",
        "A dot is a sample in a model retrained on half of the images; both changes "
        "are against the average half",
    )
    if not methods:
        st.markdown("There are no scores to compare with what was measured.")
        return
    method = chosen_method(methods, "compared")
    fit = basis.calibration(method)
    finding = changes.change_finding(fit, method, basis.measurement)
    st.markdown(text(finding))
    chart(
        change_figure(basis, table[table["method"] == method], fit),
        "changes",
        finding,
    )
    rises = changes.rise_finding(basis.table("observations"), basis.measurement)
    st.markdown(text(rises))
    offer(basis, table, "changes")


def change_figure(basis: Basis, rows: pd.DataFrame, fit: Calibration):
    """Return the scatter of one method's changes, with the map between them."""
    both = rows[["predicted", "measured"]]
    centred = both - both.groupby(rows["sample_id"]).transform("mean")
    frame = pd.DataFrame({
        "x": centred["predicted"],
        "y": centred["measured"],
        "id": rows["sample_id"],
        "name": [
            f"sample {row.sample_id}, half {row.subset}" for row in rows.itertuples()
        ],
    })
    x, y = (frame[name].to_numpy() for name in "xy")
    frame = frame.iloc[comparison.scatter_positions(x, y, MANY)]
    places = np.linspace(x.min(), x.max(), 80)
    line = pd.DataFrame({"x": places, "y": fit(places)})
    return evidence_figures.calibrated_scatter(
        frame,
        line,
        fit.half_width,
        f"predicted change{'' if predicts_size(rows) else ', no unit'}",
        f"measured change, {names.unit_of(basis.measurement)}",
    )
