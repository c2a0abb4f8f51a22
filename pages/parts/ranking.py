"""Methods in one table that sorts: what each finds first, how far it agrees, its cost.

Sorting happens in the browser; a click on a row comes back.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from core.answers import Answer
from core.explorer.explorer import Explorer
from core.files.texts import minus
from core.methods import KINDS, METHODS
from core.numbers import duration, plus_minus, signed, size
from core.report import reading
from pages.parts import components, trust

TOP = 6  # training images of each method
BASE = "ekfac"  # the method that the others are compared with
COLUMNS = (
    ("Method", ""),
    ("Finds first", ""),
    ("Agrees with EK-FAC", "Spearman’s rank correlation over all training images"),
    ("LDS", "How well it predicts what retraining measures; 0 is chance"),
    ("Time", "To prepare, once for the whole collection"),
    ("Space", "Of what it needs besides the collection"),
    ("Scores", "Exact, or estimated from compressed gradients"),
)
FORMS = {"exact": "exact", "full index": "full index"}  # the others are estimates

_mount = components.component("ranking")


def show(
    explorer: Explorer,
    facts: pd.DataFrame,
    by_method: dict[str, Answer | str | None],
    chosen: str,
    key: str,
    on_pick: Callable[[], None],
) -> None:
    """Show the table.

    Args:
        explorer: The collection.
        facts: Of `Explorer.method_facts`, indexed by method.
        by_method: Each method's answer, the sentence why it has none, or None while it
            is computed.
        chosen: The method whose row is marked.
        key: The component's key; the row that was clicked is
            `st.session_state[key].picked`.
        on_pick: Called before the page runs again after a click.
    """
    answers = {k: a for k, a in by_method.items() if isinstance(a, Answer)}
    tops = {k: a.example_ids[a.top(TOP)].tolist() for k, a in answers.items()}
    components.example_uris(explorer, sorted({i for ids in tops.values() for i in ids}))
    rows = []
    for name, answer in by_method.items():
        cells, images = [{"text": "…"}] * 2, []
        if isinstance(answer, Answer):
            cells = answer_cells(explorer, answer, answers.get(BASE))
            images = [components.example_tile(explorer, i) for i in tops[name]]
        rows.append({
            "id": name,
            "title": METHODS[name].title,
            "kind": KINDS[METHODS[name].kind],
            "images": [{"src": one["src"], "alt": one["alt"]} for one in images],
            "wait": "Waiting" if answer is None else "No answer",
            "cells": [*cells, *cost_cells(facts.loc[name]), form_cell(answer)],
        })
    _mount(
        key=key,
        data={
            "columns": [{"name": name, "help": words} for name, words in COLUMNS],
            "rows": rows,
            "chosen": chosen,
        },
        on_picked_change=on_pick,
    )


def answer_cells(explorer: Explorer, answer: Answer, base: Answer | None) -> list[dict]:
    """Return how far an answer agrees with EK-FAC's, and how far it was tested."""
    agrees = {"text": "…"}
    if base is not None:
        value = reading.rank_correlation(base, answer)
        agrees = {"text": signed(value), "value": value}
    tested = trust.trust_of(explorer, answer.lens, answer.source)
    if tested is None:
        return [agrees, {"text": "untested"}]
    words = plus_minus(tested.lds, tested.standard_error)
    return [agrees, {"text": words, "value": float(tested.lds)}]


def cost_cells(row: pd.Series) -> list[dict]:
    """Return what a method took to prepare: seconds and bytes."""
    return [
        {"text": minus(words(row[name])), "value": float(row[name])}
        if np.isfinite(row[name])
        else {"text": "none", "value": 0.0}
        for name, words in (("seconds", duration), ("bytes", size))
    ]


def form_cell(answer: Answer | str | None) -> dict:
    """Return whether the scores are exact."""
    if not isinstance(answer, Answer):
        return {"text": "…"}
    return {"text": FORMS.get(answer.source, "sketch"), "title": answer.source}
