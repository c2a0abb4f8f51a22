"""Cards that set lenses beside each other: agreement, spread of scores, shares.

Every page that shows training images under several lenses shares this.
"""

import streamlit as st

from core.explorer.explorer import Answer, Explorer
from core.lenses import lens_title
from core.numbers import signed
from core.report import comparison, figures, reading
from pages.parts import components, lens_picker, link
from pages.parts.lens_views import CHART
from pages.parts.words import column_word, heading


def last_word(name: str) -> str:
    """Return how a comparison of lenses stands in a link: "10", "50" or "order"."""
    return name.split()[-1]


def show_agreement(answers: list[Answer], key: str) -> None:
    """Show how far lenses name the same images, as a table of all pairs."""
    heading("Do the lenses agree?", "Images that two lenses have in common")
    chosen = st.segmented_control(
        "Compare",
        list(comparison.COMPARISONS),
        required=True,
        help="First 10, first 50: how many images stand at the top of both. Whole "
        "order: Spearman’s rank correlation over all training images.",
        **link.bind("agreement", comparison.COMPARISONS, "First 10", last_word),
    )
    size = len(answers[0].scores)
    count = min(int(chosen.split()[1]), size) if chosen.startswith("First") else 1
    table = comparison.agreement(answers, comparison.COMPARISONS[chosen])
    names = lens_picker.short_titles([answer.lens for answer in answers])
    rows = [
        {
            "label": name,
            "cells": [
                {
                    "text": f"{value:.0f}" if count > 1 else signed(value),
                    "strength": float(value) / count,
                    "title": f"{name} and {other}",
                }
                for other, value in zip(names, values, strict=True)
            ],
        }
        for name, values in zip(names, table, strict=True)
    ]
    components.matrix(names, rows, key, alt=f"Agreement between lenses: {chosen}")
    if count > 1:
        st.caption(f"By chance, two orders share {count * count / size:.2g}.")


def show_distribution(answers: list[Answer], key: str) -> None:
    """Show how the scores of lenses are spread over the training images."""
    heading("Concentrated or spread out?", "A long right tail: a few images stand out")
    names = lens_picker.short_titles([answer.lens for answer in answers])
    scores = {name: answer.scores for name, answer in zip(names, answers, strict=True)}
    st.plotly_chart(
        figures.distribution(comparison.distribution(scores)),
        config=CHART,
        key=key,
        alt="How many training images have which score, for " + ", ".join(names),
    )


def show_shares(explorer: Explorer, answer: Answer, column: str) -> None:
    """Show how the positive influence divides over the values of a class column."""
    groups = explorer.examples.table.loc[answer.example_ids, column]
    frame = reading.shares(answer, groups)
    heading(
        f"Share by {column_word(explorer.name, column)}",
        "of the influence that helped · " + lens_title(answer.lens),
    )
    if frame.empty:
        st.caption("No training image helped.")
        return
    words = "; ".join(f"{row.group} {row.share:.0%}" for row in frame.itertuples())
    st.plotly_chart(
        figures.share_bars(frame),
        config=CHART,
        key=f"shares_{column}",
        alt=f"Share of the positive influence: {words}",
    )
    if frame["error"].notna().any():
        st.caption("± treats images as independent: too small where images are alike.")
