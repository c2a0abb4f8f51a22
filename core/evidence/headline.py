"""How far retraining tested a lens, in one short line that stands once a page.

Random halves rank single images, so they come first; models without whole groups test
which group matters most. Knows the evidence; no page and no model.
"""

from collections.abc import Callable

from core.columns import parted
from core.evidence.groups import group_summary, group_table
from core.evidence.stored import Evidence
from core.evidence.trust import Trust
from core.lenses import Lens
from core.numbers import number, plus_minus

UNTESTED = "Untested: no model was retrained to check these scores."


def headline(
    lens: Lens,
    trust: Trust | None,
    evidence: Evidence | None,
    word: Callable[[str], str] = lambda column: column,
) -> str:
    """Return the line, plain text.

    Args:
        lens: How the scores were asked.
        trust: How well it ranked random halves, None where that was not tested.
        evidence: Of the collection, None where there is none.
        word: Gives what a group of a column is called, e.g. "house".
    """
    if trust is not None:
        line = f"Tested: LDS {plus_minus(trust.lds, trust.standard_error)}, chance 0"
        return (
            f"{line}, at most {number(trust.most)}." if trust.most > 0 else f"{line}."
        )
    found = first_group(lens, evidence)
    if found is None:
        return UNTESTED
    column, share, chance = found
    return (
        f"Tested: right {word(column)} in {share:.0%} of images, chance {chance:.0%}."
    )


def first_group(
    lens: Lens, evidence: Evidence | None
) -> tuple[str, float, float] | None:
    """Return how often a lens names the group that retraining finds to matter most.

    Returns:
        The groups' column, the share of samples, and what guessing gives; None where
        it was not tested for this lens.
    """
    whole = Lens(lens.method, lens.measurement, num_draws=lens.num_draws).canonical()
    if evidence is None or lens.canonical() != whole:
        return None
    table = group_table(evidence, lens.measurement)
    columns = {parted(name, "=")[0] for name in table["group"].unique()}
    rows = group_summary(table).set_index("method") if len(table) else table
    if len(columns) != 1 or lens.method not in rows.index:
        return None
    row = rows.loc[lens.method]
    if row["num_groups"] < 2:
        return None
    return columns.pop(), float(row["first"]), float(row["chance"])
