"""A card of evidence: a figure, the sentence that it amounts to, and its table."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from core.evidence import names, redrawn, untested
from core.evidence.evaluation import Calibration
from core.evidence.stored import Evidence
from core.evidence.tables import make_table
from core.explorer.explorer import Explorer
from core.files import images
from core.files.texts import file_name, safe_csv
from core.methods import METHODS
from pages.parts import components, lens_views, link, trust
from pages.parts.words import heading, sentence, text


@dataclass(frozen=True)
class Basis:
    """What every card is about.

    Attributes:
        explorer: The collection.
        evidence: About its scores.
        version: Of the evidence.
        measurement: What was measured in every retrained model.
    """

    explorer: Explorer
    evidence: Evidence
    version: int
    measurement: str

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of the evidence; errors are those of `make_table`."""
        key = (self.explorer.fingerprint, self.version, name, self.measurement)
        return cached_table(*key, self.evidence)

    def calibration(self, method: str) -> Calibration:
        """Return the map from a method's predicted changes to measured ones."""
        key = (self.explorer.fingerprint, self.version, method, self.measurement)
        return trust.calibrated(*key, self.evidence)


@st.cache_data(max_entries=64, show_spinner="Comparing with the retrained models")
def cached_table(
    collection: str, version: int, name: str, measurement: str, _evidence: Evidence
) -> pd.DataFrame:
    """Return a table of the evidence; keyed by values."""
    return make_table(_evidence, name, measurement)


def card(place, show: Callable[[Basis], None], basis: Basis) -> None:
    """Show one card, or in its place the sentence why it cannot be made."""
    with place.container(border=True, height="stretch"):
        try:
            show(basis)
        except (LookupError, ValueError) as error:
            st.info(sentence(error))


def say(title: str, note: str, finding: str) -> None:
    """Show a card's title and what its figure says."""
    heading(title, note)
    st.markdown(text(finding))


def chart(figure, key: str, alt: str) -> None:
    """Show a figure; the finding beside it serves those who do not see it."""
    st.plotly_chart(figure, config=lens_views.CHART, key=key, alt=alt)


def show_commands(explorer: Explorer, option: str, add: bool = True) -> None:
    """Show how to retrain the models that a card lacks.

    Args:
        explorer: The collection.
        option: Which models `retrain` shall train.
        add: Whether to what is stored already.
    """
    flags = untested.command_flags(explorer.config)
    missing, adding = (" --missing", " --add") if add else ("", "")
    st.code(
        f"python -m precompute retrain {flags} {option}{missing}\n"
        f"python -m precompute evidence {flags}{adding}",
        language="bash",
        wrap_lines=True,
    )


def offer(basis: Basis, table: pd.DataFrame, name: str) -> None:
    """Offer a table as a file."""
    st.download_button(
        "These figures (CSV)",
        safe_csv(table),
        file_name=file_name(basis.explorer.name, name, basis.measurement, ending="csv"),
        mime="text/csv",
        icon=":material/download:",
        type="tertiary",
        key=f"download_{name}",
        help="The same table as `python -m precompute evidence --table`",
        on_click="ignore",
    )


def lds_points(
    table: pd.DataFrame, titles: list[str], tones: list[str]
) -> pd.DataFrame:
    """Return LDS rows as the figure wants them."""
    return pd.DataFrame({
        "name": titles,
        "value": table["lds"].to_numpy(),
        "error": table["standard_error"].to_numpy(),
        "tone": tones,
    })


def chosen_method(methods: list[str], key: str) -> str:
    """Show a choice among methods, named `key` in the address; return the chosen."""
    usual = "ekfac" if "ekfac" in methods else methods[0]
    return st.selectbox(
        "Method",
        methods,
        format_func=names.method_name,
        help="Whose predictions are compared with what was measured",
        **link.bind(key, methods, usual),
    )


def predicts_size(rows: pd.DataFrame) -> bool:
    """Return whether the method of some changes predicts their size, not only order."""
    method = rows["method"].iloc[0]
    return method in METHODS and METHODS[method].kind == "influence"


def show_redrawn(rows: list[tuple[str, redrawn.Pictures]], key: str, alt: str) -> None:
    """Show the samples as several models drew them, a row per model and its name."""
    samples = sorted(rows[0][1])
    shown = [
        {
            "label": label,
            "cells": [image_cell(pictures, sample, label) for sample in samples],
        }
        for label, pictures in rows
    ]
    st.caption(f"{alt}.")
    components.matrix([f"{sample}" for sample in samples], shown, key, alt=alt)


def image_cell(pictures: redrawn.Pictures, sample: int, label: str) -> dict:
    """Return a cell with the image of a sample, or a dash."""
    if sample not in pictures:
        return {"text": "–", "strength": 0.0}
    source = images.data_uri(images.png(pictures[sample]))
    return {"src": source, "title": f"sample {sample}, {label}"}
