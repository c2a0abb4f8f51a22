"""Evidence: how far to trust a collection's scores, measured by retraining."""

import streamlit as st

from core.evidence import untested
from core.evidence.left_out import groups_left_out
from core.evidence.stored import Evidence
from core.explorer.explorer import Explorer
from core.measurements import MEASUREMENTS
from pages.parts import link, shared, trust
from pages.parts.evidence import (
    ablation,
    changes,
    collapse,
    damping,
    groups,
    lds,
    opening,
    removal,
    rows,
    timesteps,
)
from pages.parts.evidence import untested as without_retraining
from pages.parts.evidence.card import Basis, card
from pages.parts.words import how_to_read, sentence, text


def show_untested(explorer: Explorer, retraining: trust.Retraining) -> None:
    """Show what was measured, say what was not and how to do it, and stop the page."""
    if retraining.evidence is not None:
        show_basis(explorer, retraining.evidence)
        show_opening(explorer, retraining)
        card(st, groups.show_groups, choose(explorer, retraining))
    if retraining.untested:
        finding = untested.untested_finding(explorer.config)
        st.info(sentence(LookupError(finding)))
    else:
        st.info(retraining.why_not)
    nothing = retraining.evidence is None and retraining.untested
    if nothing and not explorer.config.train.imported:
        st.markdown("What leaving out whole groups does can be measured here:")
        groups.show_group_commands(explorer, add=False)
    with st.container(border=True):
        without_retraining.show_stored(explorer)
    st.stop()


def show_opening(explorer: Explorer, retraining: trust.Retraining) -> None:
    """Show one chart and one sentence for everybody."""
    basis = Basis(explorer, retraining.evidence, retraining.version, "loss")
    card(st.container(key="evidence_opening"), opening.show_opening, basis)


def show_basis(explorer: Explorer, evidence: Evidence) -> None:
    """Say how much all figures rest on."""
    halves = evidence.measured[evidence.measured["kind"] == "half"]
    models = halves[["subset", "seed"]].drop_duplicates()
    seeds = models["seed"].nunique()
    what = (
        f"{len(models)} models retrained on {models['subset'].nunique()} random halves"
        f"{f', some with {seeds} seeds' if seeds > 1 else ''}"
    )
    if not len(models):
        count = len(groups_left_out(evidence.measured))
        what = f"{count} retrained without a whole group, one with every image"
    st.caption(
        f"**{text(explorer.title)}** · {explorer.num_examples:,} training images · "
        f"{what} · {evidence.measured['sample_id'].nunique()} samples measured in each"
    )


def choose(explorer: Explorer, retraining: trust.Retraining) -> Basis:
    """Show what was measured; return what all cards are about."""
    names = retraining.evidence.measured["measurement"].unique()
    names = sorted(names, key=lambda name: [*MEASUREMENTS, name].index(name))
    measurement = st.segmented_control(
        "Measured in every retrained model",
        names,
        required=True,
        format_func=lambda name: (
            MEASUREMENTS[name].title if name in MEASUREMENTS else text(name)
        ),
        help="The cost of a sample that the scores are meant to predict",
        **link.bind("tested", names, "loss" if "loss" in names else names[0]),
    )
    return Basis(explorer, retraining.evidence, retraining.version, measurement)


explorer = shared.chosen_explorer()
retraining = trust.find_evidence(explorer)
if retraining.evidence is None or retraining.untested:
    show_untested(explorer, retraining)
show_basis(explorer, retraining.evidence)
how_to_read(
    "The model was trained again without half of the images, many times over. Scores "
    "deserve trust as far as they tell which halves a sample misses most."
)
show_opening(explorer, retraining)
basis = choose(explorer, retraining)
card(st, lds.show_lds, basis)
for pair in (
    (changes.show_changes, removal.show_removal),
    (damping.show_damping, timesteps.show_timesteps),
):
    for column, show in zip(st.columns(2), pair, strict=True):
        card(column, show, basis)
card(st, groups.show_groups, basis)
card(st, collapse.show_collapse, basis)
grid = st.grid(3, min_column_width=270)
for show in (ablation.show_draws, ablation.show_formats, ablation.show_substitution):
    card(grid, show, basis)
card(st, rows.show_rows, basis)
with st.container(border=True):
    without_retraining.show_stored(explorer)
