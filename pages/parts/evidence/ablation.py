"""What does each setting of the scores change?"""

import numpy as np
import pandas as pd

from core import numbers
from core.evidence import ablation
from core.report import evidence_figures
from pages.parts.evidence.card import Basis, chart, lds_points, offer, say

SETTINGS = ["as usual", "changed"]


def show_ablation(basis: Basis, title: str, rows: pd.DataFrame, finding: str) -> None:
    """Show what one change of EK-FAC's settings does to the LDS."""
    note = "LDS of EK-FAC; of rows with equal draws one thing is changed"
    say(title, note, finding)
    if len(rows) < 2:
        return
    usual = basis.evidence.recipe["num_draws"]
    titles = []
    for row in rows.itertuples():
        name = ablation.setting_name(row.changed, row.setting)
        sized = row.changed == "gradients" and np.isfinite(row.bytes)
        name = f"{name}, {numbers.size_of(row.bytes)}" if sized else name
        other = row.changed == "gradients" and row.num_draws != usual
        titles.append(f"{name}, {row.num_draws} draws" if other else name)
    tones = [SETTINGS[not default] for default in rows["default"]]
    chart(
        evidence_figures.points(lds_points(rows, titles, tones), "LDS", SETTINGS, {}),
        f"ablation_{title}",
        finding,
    )


def show_draws(basis: Basis) -> None:
    """Show what more Monte Carlo draws change."""
    table = basis.table("ablation")
    rows = ablation.draw_rows(table)
    show_ablation(basis, "Monte Carlo draws", rows, ablation.draws_finding(table))
    offer(basis, table, "ablation")


def show_formats(basis: Basis) -> None:
    """Show what storing gradients in fewer bytes loses."""
    table = basis.table("ablation")
    rows = ablation.format_rows(table).sort_values("bytes", ascending=False)
    finding = ablation.format_finding(table)
    show_ablation(basis, "How gradients are kept", rows, finding)


def show_substitution(basis: Basis) -> None:
    """Show what scores for one measurement say of another."""
    table = basis.table("ablation")
    rows = table[table["changed"] == "scored"]
    finding = ablation.substitution_finding(table, basis.measurement)
    show_ablation(basis, "Another measurement’s scores", rows, finding)
