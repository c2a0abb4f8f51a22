"""In which generated images a group mattered, as the page What if shows it."""

import numpy as np
import pandas as pd
import streamlit as st

from core.explorer.explorer import Explorer, Lens
from core.explorer.mattered import where_it_mattered
from core.files import images
from core.files.texts import file_name, safe_csv
from core.report.left_out import (
    FEW,
    cost_words,
    growth,
    mattered_words,
    stands_out,
)
from pages.parts import components, link, retrained, trust
from pages.parts.group_picker import Group
from pages.parts.words import heading, text

SHOWN = 12  # images


def show(explorer: Explorer, group: Group, lens: Lens) -> None:
    """Show the images of the gallery that need a group most; a click asks about one.

    Nothing for a lens whose answers about the gallery are not stored.
    """
    if lens.kind != "influence" or lens.timesteps or lens.region:
        return
    table = _table(
        explorer.fingerprint,
        explorer.evidence_version(),
        lens,
        group.members,
        explorer,
    )
    if table is None:
        return
    whose = group.whose or "the group"
    with st.container(border=True, key="mattered"):
        heading(f"Where {whose} mattered", "The question turned around")
        st.markdown(text(mattered_words(table, whose, lens.measurement)))
        components.tiles(
            [_strip(explorer, table.head(SHOWN), lens.measurement)],
            "mattered_tiles",
            layout="lens",
            columns=(SHOWN, 4),
            on_pick=lambda: link.ask_about({
                "sample": str(st.session_state.mattered_tiles.picked)
            }),
        )
        st.download_button(
            "All generated images as a table (CSV)",
            lambda: safe_csv(table),
            file_name=file_name(explorer.name, group.name, ending="csv"),
            mime="text/csv",
            icon=":material/download:",
            help="Predicted and measured change of every image of the gallery",
            on_click="ignore",
        )


@st.cache_data(max_entries=64, show_spinner=False)
def _table(
    collection: str, version: int, lens: Lens, members: np.ndarray, _explorer: Explorer
) -> pd.DataFrame | None:
    """Return what removing a group does to each image; keyed by values."""
    answers = _explorer.gallery_answers(lens)
    if not answers:
        return None
    evidence, measured = trust.find_evidence(_explorer).evidence, None
    if evidence is not None:
        key = collection, version, lens.measurement
        changes = retrained.changes_of(*key, evidence)
        name = retrained.group_of(members, changes, _explorer)
        measured = None if name is None else changes.loc[name]
    seed = int(_explorer.provenance["settings"]["seed"])
    return where_it_mattered(answers, members, seed, measured)


def _strip(explorer: Explorer, rows: pd.DataFrame, measurement: str) -> dict:
    """Return a row of images with how much each needs the group."""
    measured = rows["change"].notna().all()
    share = (
        rows["change"] / rows["before"]
        if measured
        else rows["predicted"] / rows["cost"]
    )
    clear = stands_out(rows) if measured else rows["below"] > 1 - FEW
    most, pngs = max(share.abs().max(), 1e-12), explorer.gallery_pngs()
    tiles = []
    each = zip(rows.itertuples(), share, clear, strict=True)
    for place, (row, own, sure) in enumerate(each):
        before = row.before if measured else row.cost
        change = row.change if measured else row.predicted
        words = f"{cost_words(measurement)} {growth(before, change)}"
        if not measured:
            words = f"predicted: {words}"
        sample = int(row.sample_id)
        tiles.append({
            "id": sample,
            "src": images.data_uri(pngs[sample]),
            "alt": f"{explorer.query_from_gallery(sample).description}: {words}",
            "rank": str(place + 1),
            "strength": float(abs(own) / most),
            "sure": bool(sure),
            "lines": [words],
        })
    return {"title": "Needed most", "tone": "for", "empty": "", "tiles": tiles}
