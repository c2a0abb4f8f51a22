"""What does removing the top influences change?"""

import numpy as np
import pandas as pd
import streamlit as st

from core import numbers
from core.evidence import names, redrawn, removal
from core.evidence.stored import NOTHING, RANDOM
from core.report import evidence_figures
from pages.parts import components
from pages.parts.evidence.card import (
    Basis,
    chart,
    image_cell,
    offer,
    say,
    show_commands,
)


def show_removal(basis: Basis) -> None:
    """Show what leaving out the top influences does, against random images."""
    table = basis.table("removal")
    finding = removal.removal_finding(table, basis.measurement)
    say(
        "Retrained without the top influences",
        "Change of the cost beyond that of random removals of the same size",
        finding,
    )
    if table.empty:
        show_commands(basis.explorer, "--removals")
        return
    rows = table[table["sample_id"] == -1].sort_values(
        ["fraction", "excess"], ascending=False
    )
    tones = [f"without {fraction:.0%}" for fraction in rows["fraction"]]
    titles = [
        f"{names.method_name(row.method)}, {row.fraction:.0%}"
        for row in rows.itertuples()
    ]
    frame = pd.DataFrame({
        "name": titles,
        "value": rows["excess"].to_numpy(),
        "error": rows["standard_error"].to_numpy(),
        "tone": tones,
    })
    tones = list(dict.fromkeys(tones))
    title = f"beyond random removal, {names.unit_of(basis.measurement)}"
    references = {"random removal": (0.0, np.nan)}
    chart(evidence_figures.points(frame, title, tones, references), "removal", finding)
    samples = table.loc[table["sample_id"] >= 0, "sample_id"].nunique()
    st.caption(f"± is one standard error over {samples} samples.")
    show_removal_images(basis, table)
    offer(basis, table, "removal")


def show_removal_images(basis: Basis, table: pd.DataFrame) -> None:
    """Show the samples as models drew them without what matters most for each."""
    fraction = table["fraction"].max()
    rows = redrawn.removal_rows(basis.evidence, fraction)
    if not rows:
        return
    excess = table[table["fraction"] == fraction].set_index(["method", "sample_id"])
    unit = names.unit_of(basis.measurement)
    samples = sorted(rows[0][1])
    shown = []
    for method, pictures in rows:
        label = {
            NOTHING: "nothing removed",
            RANDOM: f"random {fraction:.0%}",
        }.get(method, f"top {fraction:.0%} by {names.method_name(method)}")
        cells = []
        for sample in samples:
            cell = image_cell(pictures, sample, label)
            if (method, sample) in excess.index:
                change = excess.at[(method, sample), "excess"]
                cell["text"] = numbers.change_of(change, np.nan)
                cell["title"] += f": {cell['text']} {unit} beyond random removal"
            cells.append(cell)
        shown.append({"label": label, "cells": cells})
    alt = (
        "The same samples, from the same seeds, as models drew them that were trained "
        f"without {fraction:.0%} of the images"
    )
    st.caption(f"{alt}. Under each, its change beyond random removal.")
    columns = [f"{sample}" for sample in samples]
    components.matrix(columns, shown, "removal_pictures", alt=alt)
