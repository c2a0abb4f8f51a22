"""Which noise levels predict which?"""

import numpy as np

from core import numbers
from core.evidence import timesteps
from pages.parts import components
from pages.parts.evidence.card import Basis, offer, say


def show_timesteps(basis: Basis) -> None:
    """Show which noise levels' scores predict which noise levels' cost."""
    table = basis.table("timesteps")
    finding = timesteps.timestep_finding(table)
    finding += f" {timesteps.proxy_finding(basis.table('observations'))}".rstrip()
    say(
        "Which noise levels predict which",
        "LDS of EK-FAC’s scores for the noise levels of a row, against the cost at "
        "those of a column",
        finding,
    )
    own = table[table["method"] == "ekfac"]
    if own.empty:
        return
    heat = own.pivot(
        index=["scored_low", "scored_high"], columns=["low", "high"], values="lds"
    )
    largest = float(np.nanmax(np.abs(heat.to_numpy()), initial=0.0)) or 1.0
    columns = [band_name(*band) for band in heat.columns]
    rows = [
        {
            "label": band_name(*scored),
            "cells": [
                heat_cell(value, largest, band_name(*scored), column)
                for value, column in zip(heat.loc[scored], columns, strict=True)
            ],
        }
        for scored in heat.index
    ]
    components.matrix(columns, rows, "timestep_lds", alt=finding, layout="heat")
    offer(basis, table, "timesteps")


def heat_cell(value: float, largest: float, scored: str, measured: str) -> dict:
    """Return a cell of the table of noise levels."""
    if not np.isfinite(value):
        return {"text": "–", "strength": 0.0}
    title = f"scores for noise {scored}, cost at noise {measured}"
    shown = numbers.number(value)
    return {"text": shown, "strength": value / largest, "title": title}


def band_name(low: int, high: int) -> str:
    """Return what to call a range of timesteps in a small table."""
    return "all" if low < 0 else f"{low}–{high}"
