"""Evidence: how far to trust a collection's scores, measured by retraining."""

import streamlit as st

from core import findings
from core.evidence import Evidence
from core.explorer import Explorer
from core.lenses import MEASUREMENTS
from pages import evidence_cards as cards
from pages import link, shared, trust
from pages.words import how_to_read, sentence, text


def show_nothing_retrained(explorer: Explorer, found: trust.Found) -> None:
    """Say what was not measured and how to do it, show what was, and stop the page."""
    if found.missing:
        said = findings.untested_finding(explorer.config)
        st.info(sentence(LookupError(said)))
    else:
        st.info(found.why_not)
    with st.container(border=True):
        cards.show_stored(explorer)
    st.stop()


def show_basis(explorer: Explorer, evidence: Evidence) -> None:
    """Say how much all figures rest on."""
    halves = evidence.measured[evidence.measured["kind"] == "half"]
    models = halves[["subset", "seed"]].drop_duplicates()
    seeds = models["seed"].nunique()
    st.caption(
        f"**{text(explorer.title)}** · {explorer.num_examples:,} training pictures · "
        f"{len(models)} models retrained on {models['subset'].nunique()} random halves"
        f"{f', some with {seeds} seeds' if seeds > 1 else ''} · "
        f"{evidence.measured['sample_id'].nunique()} samples measured in each"
    )


def choose_measurement(evidence: Evidence) -> str:
    """Show what was measured; return the one that all cards are about."""
    names = evidence.measured["measurement"].unique()
    names = sorted(names, key=lambda name: [*MEASUREMENTS, name].index(name))
    return st.segmented_control(
        "Measured in every retrained model",
        names,
        required=True,
        format_func=lambda name: (
            MEASUREMENTS[name].title if name in MEASUREMENTS else text(name)
        ),
        help="The cost of a sample that the scores are meant to predict",
        **link.bind("tested", names, "loss" if "loss" in names else names[0]),
    )


explorer = shared.chosen_explorer()
found = trust.find_evidence(explorer)
if found.evidence is None:
    show_nothing_retrained(explorer, found)
show_basis(explorer, found.evidence)
how_to_read(
    "The model was trained again without half of the pictures, many times over. Scores "
    "deserve trust as far as they tell which halves a sample misses most."
)
measurement = choose_measurement(found.evidence)
asked = cards.Asked(explorer, found.evidence, found.version, measurement)
cards.card(st, cards.show_lds, asked)
for row in (
    (cards.show_changes, cards.show_removal),
    (cards.show_damping, cards.show_timesteps),
):
    for place, show in zip(st.columns(2), row, strict=True):
        cards.card(place, show, asked)
cards.card(st, cards.show_collapse, asked)
grid = st.grid(3, min_column_width=270)
for show in (cards.show_draws, cards.show_formats, cards.show_substitution):
    cards.card(grid, show, asked)
with st.container(border=True):
    cards.show_stored(explorer)
