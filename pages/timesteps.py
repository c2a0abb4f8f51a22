"""Timesteps: at which noise levels an image is hard, and which images matter there.

Low noise levels decide detail, high ones structure.
"""

import numpy as np
import streamlit as st

from core.explorer.explorer import BandAnswers, Explorer, Lens
from core.files.texts import minus
from core.measurements import MEASUREMENTS
from core.report import comparison, figures
from pages.parts import (
    components,
    lens_picker,
    lens_views,
    link,
    panel,
    shared,
    trust,
    waiting,
    warm_up,
)
from pages.parts.words import heading, how_to_read, text

MEASURED = ("loss", "elbo", "trajectory")
ROWS = 12  # training images in the heat map
TOP = 5  # training images at each noise level


def show_curve(explorer: Explorer, chosen: panel.Chosen, measurement: str) -> bool:
    """Show the measured value over the noise levels; return whether it is there."""
    facts = MEASUREMENTS[measurement]
    heading(
        f"{facts.title} at each noise level",
        f"{facts.cost}, {facts.unit}; the pale band is one standard error",
    )
    frame = waiting.result_of(
        "curve",
        f"{explorer.fingerprint}/{chosen.query.key}/{chosen.region}/{measurement}/curve",
        lambda progress: explorer.timestep_losses(
            chosen.query, measurement, region=chosen.region, progress=progress
        ),
        height=260,
    )
    if frame is None:
        return False
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
    return True


def show_heat_map(explorer: Explorer, bands: BandAnswers, lens: Lens) -> int | None:
    """Show the images that matter most, and when; return the one clicked."""
    heading(
        "When each image matters",
        "Green: removing it would hurt at this noise level; orange: it would help. "
        "100 is the strongest of all; a row adds up to the image’s influence, which "
        "is what was tested.",
    )
    trust.show_mark(explorer, lens, bands.source)
    places = comparison.strongest_over_bands(bands.scores, ROWS)
    largest = float(np.abs(bands.scores[:, places]).max()) or 1.0
    return components.matrix(
        [str(low) for low in bands.edges[:-1]],
        [heat_row(explorer, bands, int(place), largest) for place in places],
        "heat",
        layout="heat",
        alt="Influence of the strongest training images at each noise level, from "
        "detail to structure",
    )


def heat_row(
    explorer: Explorer, bands: BandAnswers, place: int, largest: float
) -> dict:
    """Return the row of a training image in the heat map."""
    example = int(bands.example_ids[place])
    tile = components.example_tile(explorer, example)
    names = comparison.band_names(bands.edges)
    scores, errors = bands.scores[:, place], bands.standard_errors[:, place]
    size = len(bands.example_ids)
    changes = figures.hover_numbers(scores / size, errors / size)
    cells = [
        {
            "text": minus(f"{round(100 * score / largest)}"),
            "strength": float(score) / largest,
            "title": f"noise {name}: {change}",
        }
        for name, score, change in zip(names, scores, changes, strict=True)
    ]
    label = ", ".join(tile["lines"])
    return {"id": example, "src": tile["src"], "label": label, "cells": cells}


def show_band_tops(explorer: Explorer, bands: BandAnswers) -> int | None:
    """Show the strongest images of every band; return the one clicked."""
    heading(
        f"Top {TOP} at each noise level",
        "Left: what made its details. Right: what made its structure.",
    )
    tops = comparison.band_tops(bands.scores, TOP)
    strips = [
        {
            "title": name,
            "tone": "for",
            "empty": "",
            "tiles": [
                components.example_tile(explorer, int(bands.example_ids[place]))
                for place in places
            ],
        }
        for name, places in zip(comparison.band_names(bands.edges), tops, strict=True)
    ]
    return components.tiles(strips, "band_tops", layout="bands", columns=(1, 1))


explorer = shared.chosen_explorer()
chosen = panel.show_panel(explorer)
with chosen.content:
    how_to_read(
        "An image is drawn from noise. At high noise levels its structure is decided, "
        "at low ones its details; different training images matter for each."
    )
    measurement = st.segmented_control(
        "Measured",
        MEASURED,
        required=True,
        format_func=lambda name: MEASUREMENTS[name].title,
        help="What is looked at over the noise levels. Sampling trajectory: the "
        "exact steps in which this image was drawn.",
        **link.bind("measured", MEASURED, "loss"),
    )
    lens = lens_picker.in_region(Lens("ekfac", measurement), chosen.region)
    clicks = []
    with st.container(border=True):
        there = show_curve(explorer, chosen, measurement)
    if not there:
        st.stop()  # what cannot be measured has no influence either
    with st.container(border=True):
        bands = lens_views.ask_bands(explorer, chosen.query, lens, "bands", height=620)
        if bands is not None:
            if bands.note:
                st.caption(text(bands.note))
            clicks.append(show_heat_map(explorer, bands, lens))
    if bands is not None:
        with st.container(border=True):
            clicks.append(show_band_tops(explorer, bands))
    answers = lens_views.ask_all(explorer, chosen.query, [lens])
    done = [answer for answer in answers if answer is not None]
    lens_views.show_chosen_detail(explorer, chosen.query, done, *clicks)
warm_up.wake_soon(explorer)
