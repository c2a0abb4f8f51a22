"""What did leaving out whole groups change?"""

import numpy as np
import pandas as pd
import streamlit as st

from core.evidence import names, redrawn
from core.evidence.groups import group_finding, group_summary
from core.evidence.own_group import own_group_finding
from core.evidence.stored import NOTHING, RANDOM
from core.explorer.explorer import Explorer
from core.report import evidence_figures
from pages.parts.evidence.card import (
    Basis,
    chart,
    chosen_method,
    offer,
    predicts_size,
    say,
    show_commands,
    show_redrawn,
)
from pages.parts.words import text


def show_groups(basis: Basis) -> None:
    """Show what leaving out whole groups did, against what was predicted."""
    table = basis.table("groups")
    summary = group_summary(table)
    finding = group_finding(summary, basis.measurement)
    say(
        "Measured by retraining without whole groups",
        "A dot is a sample in a model that was trained without one group",
        finding,
    )
    if table.empty:
        show_group_commands(basis.explorer)
        return
    method = chosen_method(summary["method"].tolist(), "grouped")
    rows = table[table["method"] == method]
    tones = ["its own group", "another group", "sample of no class"]
    own = rows["share"] > 0.5
    frame = pd.DataFrame({
        "predicted": rows["predicted"],
        "error": rows["standard_error"],
        "measured": rows["measured"],
        "name": [f"sample {r.sample_id} without {r.group}" for r in rows.itertuples()],
        "tone": np.where(rows["share"].isna(), tones[2], np.where(own, *tones[:2])),
    })
    unit = names.unit_of(basis.measurement)
    figure = evidence_figures.group_scatter(
        frame,
        [tone for tone in tones if (frame["tone"] == tone).any()],
        f"predicted change{f', {unit}' if predicts_size(rows) else ', no unit'}",
        f"measured change, {unit}",
    )
    chart(figure, "groups_left_out", finding)
    controls = int(table["controls"].min())
    against = "Changes are against the same training with every image."
    if controls:
        models = "a model" if controls == 1 else f"{controls} models"
        against = (
            f"Changes are beyond that of {models} retrained after a random removal of "
            "the same size, and so for as long."
        )
    st.caption(
        f"{against} All these models began with the same random weights; each was "
        "trained once, so what chance adds to a training is in every dot."
    )
    label = own_group_finding(basis.table("own-group"))
    if label:
        st.markdown(text(label))
    show_group_images(basis)
    offer(basis, table, "groups")


def show_group_commands(explorer: Explorer, add: bool = True) -> None:
    """Show how to leave out each group of the first label, where that is possible."""
    labels = explorer.facets
    if labels and not explorer.config.train.imported:
        show_commands(explorer, f"--without {labels[0]}", add)


def show_group_images(basis: Basis) -> None:
    """Show the samples as models drew them that never saw a group."""
    rows = redrawn.group_rows(basis.evidence)
    if not rows:
        return
    words = {NOTHING: "nothing removed", RANDOM: "random removal"}
    named = [(words.get(name, f"without {name}"), drawn) for name, drawn in rows]
    alt = "The same samples, from the same seeds, as these models drew them"
    show_redrawn(named, "group_pictures", alt)
