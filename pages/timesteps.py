"""Timesteps: an image forms out of noise; which training images help, and when.

High noise levels decide structure, low ones detail.
"""

import streamlit as st

from core.explorer.explorer import Explorer, Lens, Query
from core.explorer.stored_levels import BANDS
from core.measurements import MEASUREMENTS
from core.report import figures
from pages.parts import (
    lens_picker,
    lens_views,
    link,
    panel,
    player,
    shared,
    trust,
    waiting,
    warm_up,
)
from pages.parts.words import how_to_read, text

MEASURED = ("loss", "elbo", "trajectory")


@st.cache_data(max_entries=64, show_spinner=False)
def stored_frames(
    collection: str, query: str, _query: Query, _explorer: Explorer
) -> list[dict] | None:
    """Return the frames that came with a gallery image; keyed by values."""
    forming = _explorer.stored_forming(_query, BANDS)
    if forming is None:
        return None
    return player.frames(forming, _explorer.num_train_timesteps)


def ask_frames(explorer: Explorer, query: Query) -> list[dict] | None:
    """Return the image forming out of noise, None while it is computed."""
    key = explorer.fingerprint, query.key
    return stored_frames(*key, query, explorer) or waiting.result_of(
        "frames",
        f"{'/'.join(key)}/forming {BANDS}",
        lambda progress: player.frames(
            explorer.forming(query, BANDS, progress), explorer.num_train_timesteps
        ),
        height=420,
    )


def show_player(explorer: Explorer, chosen: panel.Chosen, lens: Lens) -> int | None:
    """Show the image forming, and who helped; return the training image clicked."""
    frames = ask_frames(explorer, chosen.query)
    place, bands = st.container(), None
    if explorer.computes or explorer.stored_bands(chosen.query, lens, BANDS):
        bands = lens_views.ask_bands(explorer, chosen.query, lens, "bands", height=420)
    else:
        command = f"`python -m precompute build --collection {explorer.name}`"
        st.caption(
            "Which training images helped at each level is not known here.",
            help="That takes the collection’s eigenvectors, which did not come along. "
            f"{command} makes them.",
        )
    if frames is None:
        return None
    with place:
        clicked = player.show(explorer, frames, bands, "player")
    if bands is not None:
        trust.show_mark(explorer, lens, bands.source)
        if bands.note:
            st.caption(text(bands.note))
    return clicked


def show_curve(explorer: Explorer, chosen: panel.Chosen, measurement: str) -> None:
    """Show the measured value over the noise levels."""
    facts = MEASUREMENTS[measurement]
    frame = waiting.result_of(
        "curve",
        f"{explorer.fingerprint}/{chosen.query.key}/{chosen.region}/{measurement}/curve",
        lambda progress: explorer.timestep_losses(
            chosen.query, measurement, region=chosen.region, progress=progress
        ),
        height=260,
    )
    if frame is None:
        return
    frame = frame.rename(
        columns={
            "timestep_low": "low",
            "timestep_high": "high",
            "cost": "value",
            "standard_error": "error",
        }
    )
    hardest = frame.loc[frame["value"].idxmax()]
    st.plotly_chart(
        figures.timestep_curve(frame, facts.title),
        config=lens_views.CHART,
        key="curve",
        alt=f"{facts.title} over the noise levels, largest between "
        f"{hardest['low']:g} and {hardest['high']:g}.",
    )
    st.caption(
        text(f"{facts.cost}, {facts.unit}. The pale band is one standard error.")
    )


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    how_to_read(
        "Press Play: the image forms out of noise. Structure comes first, then detail, "
        "and other training images help with each."
    )
    measurement = st.segmented_control(
        "Measured",
        MEASURED,
        required=True,
        format_func=lambda name: MEASUREMENTS[name].title,
        help="What is measured at each noise level. Sampling trajectory: the "
        "exact steps in which this image was drawn.",
        **link.bind("measured", MEASURED, "loss"),
    )
    lens = lens_picker.in_region(Lens("ekfac", measurement), chosen.region)
    with st.container(border=True, key="levels"):
        clicked = show_player(explorer, chosen, lens)
    hard = st.expander("How hard each noise level is", key="hard", on_change="rerun")
    if hard.open:
        with hard:
            show_curve(explorer, chosen, measurement)
    answers = lens_views.ask_all(explorer, chosen.query, [lens])
    done = [answer for answer in answers if answer is not None]
    lens_views.show_chosen_detail(explorer, chosen.query, done, clicked)
warm_up.wake_soon(explorer)
