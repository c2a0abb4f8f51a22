"""What is kept of where a user's images came from, for the public summary of them.

Beside the set, as its credits are. Of a path only its last name is kept: the others say
more of the machine than of the images.
"""

import json
from pathlib import Path

from core.data.sets import Summary
from core.data.sources import Source
from core.files.texts import one_line
from core.files.whole import written_whole
from precompute.imports.selection import Selection


def write_origin(
    made: Path, path: Path, source: Source, selection: Selection, summary: Summary
) -> None:
    """Write what was read, what was chosen and what was left out.

    Args:
        made: The set.
        path: That the user gave.
        source: What lay there.
        selection: What of it was wanted.
        summary: What was seen.
    """
    chosen = {
        "split": selection.split or "",
        **{column: ", ".join(values) for column, values in selection.keep},
        "positions": "" if selection.index is None else selection.index.name,
        "at most": "" if selection.limit is None else f"{selection.limit:,}",
    }
    facts = {
        "name": one_line(path.resolve().name),
        "layout": source.layout,
        "chosen": {one_line(k): one_line(v) for k, v in chosen.items() if v},
        "sizes": [[*size, count] for size, count in summary.sizes.most_common(3)],
        "other_sizes": max(0, len(summary.sizes) - 3),
        "unreadable": len(summary.skipped),
        "duplicates": len(summary.duplicates),
        "duplicates_left_out": summary.dropped,
        "opted_out": len(summary.opted_out),
        "opted_out_left_out": summary.excluded,
        "unclear": len(summary.unclear),
    }
    with written_whole(made.with_suffix(".origin.json")) as file:
        file.write(json.dumps(facts, indent=1).encode())
