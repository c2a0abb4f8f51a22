"""What becomes of everything people bring: the table of cases, counted by kind."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kinds import OUTCOMES, all_cases, outcome


def run(collection: str, root: Path | None) -> dict:
    """Return how many cases of each kind were answered, refused, wrong, or failed."""
    counts, failed = {}, []
    for case in all_cases():
        with TemporaryDirectory() as folder:
            inside = Path(folder) / "folder"  # a name that sentences may hold
            inside.mkdir()
            result, why = outcome(case, inside)
        counts.setdefault(case.kind, Counter())[result] += 1
        if why:
            failed.append(f"{case}: {why}")
    counts["all"] = sum(counts.values(), Counter())
    kinds = {
        kind: {"tried": count.total(), **{name: count[name] for name in OUTCOMES}}
        for kind, count in counts.items()
    }
    head = ["kind", "tried", *OUTCOMES]
    rows = [[kind, *row.values()] for kind, row in kinds.items()]
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return {"kinds": kinds, "lines": [*lines, *failed]}
