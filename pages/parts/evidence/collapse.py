"""How alike do models become that share no training image?"""

from core.evidence import collapse, redrawn
from core.report import evidence_figures
from pages.parts.evidence.card import (
    Basis,
    chart,
    offer,
    say,
    show_commands,
    show_redrawn,
)


def show_collapse(basis: Basis) -> None:
    """Show how alike models become that share no image, as they see more."""
    table = basis.table("collapse")
    finding = collapse.collapse_finding(table, basis.measurement)
    say(
        "Two models that share no image",
        "How alike they are, by the number of images that each was trained on",
        finding,
    )
    if table.empty:
        show_commands(basis.explorer, "--disjoint")
        return
    chart(evidence_figures.collapse_curves(table), "collapse", finding)
    rows = redrawn.disjoint_rows(basis.evidence)
    if rows:
        named = [
            (f"{count:,} images, model {'AB'[side]}", pictures)
            for count, side, pictures in rows
        ]
        alt = "What both models of each pair draw from the same seeds"
        show_redrawn(named, "disjoint_pictures", alt)
    offer(basis, table, "collapse")
