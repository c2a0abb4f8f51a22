"""What does another damping make of the ranking?"""

from core.evidence import damping, names
from core.report import evidence_figures
from pages.parts.evidence.card import Basis, chart, offer, say


def show_damping(basis: Basis) -> None:
    """Show what another damping makes of the ranking."""
    table = basis.table("damping")
    finding = damping.damping_finding(table)
    say("Damping", "A ring marks the damping that the app uses", finding)
    if table.empty:
        return
    frame = table.assign(name=table["method"].map(names.method_name))
    chart(evidence_figures.damping_curves(frame), "damping_sweep", finding)
    offer(basis, table, "damping")
