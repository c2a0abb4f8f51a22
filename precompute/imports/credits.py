"""Whose a user's images are, and under which licence: `--credits FILE`.

A text file is the credit of all images. A CSV table has two columns: its first heading
names a column of the images, the second is `credit`; each row gives the credit of the
images with one value. Pages, reports and cards show what is read here.
"""

import csv
import io
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from core.columns import free_names
from core.data.sets import RESERVED
from core.files.texts import listed, one_line
from core.files.whole import written_whole

MOST_BYTES = 1_000_000
HOW = (
    "Expected: a text of one or two lines for all images, or a .csv with two columns, "
    "the name of one of theirs and 'credit'."
)


@dataclass(frozen=True)
class Credits:
    """What a file of credits says.

    Attributes:
        column: Of the images, as the user calls it; None where one is for all.
        lines: Value -> credit; "" where one is for all.
    """

    column: str | None
    lines: dict[str, str]


def read_credits(path: Path) -> Credits:
    """Return what a file of credits says.

    Raises:
        ValueError: If it is not a file of credits.
    """
    try:
        data = path.read_bytes()[: MOST_BYTES + 1]
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ValueError(
            f"`--credits` cannot be '{path}' ({error.strerror}). {HOW}"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"`--credits` '{path}' is not text in UTF-8. {HOW}") from None
    if len(data) > MOST_BYTES or not text.strip():
        what = "empty" if not text.strip() else f"more than {MOST_BYTES:,} bytes"
        raise ValueError(f"`--credits` '{path}' is {what}. {HOW}")
    if path.suffix.lower() != ".csv":
        return Credits(None, {"": one_line(text.strip())})
    (*heading,), *rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if len(heading) != 2 or heading[1].strip().lower() != "credit":
        columns = ", ".join(map(one_line, heading))
        raise ValueError(f"`--credits` '{path}' has the columns {columns}. {HOW}")
    for number, row in enumerate(rows, 2):
        if len(row) != 2 or not row[1].strip():
            raise ValueError(f"Row {number} of '{path}' has no credit. {HOW}")
    return Credits(heading[0], {value: one_line(credit) for value, credit in rows})


def write_credits(
    credits: Credits, values: dict[str, Counter | None], size: int, made: Path
) -> list[str]:
    """Write credits beside a set of images.

    Args:
        credits: What the user said.
        values: How often each value stands in each column of the images.
        size: Side of the images, pixels.
        made: The set.

    Returns:
        What a person should know: values without a credit.

    Raises:
        ValueError: If no image has the column.
    """
    column, notes = credits.column, []
    if column is not None:
        names = free_names(sorted(values), RESERVED)
        if column not in names:
            raise ValueError(
                f"No image has the column '{column}' that the credits are for. There "
                f"are: {', '.join(map(one_line, names)) or 'none'}."
            )
        if missing := sorted(set(values[column] or ()) - credits.lines.keys()):
            notes.append(f"no credit for {one_line(column)} {listed(missing)}.")
        column = names[column]
    facts = {
        "column": column,
        "lines": credits.lines,
        "changes": f"Cut to squares and scaled to {size} x {size} pixels.",
    }
    with written_whole(made.with_suffix(".credits.json")) as file:
        file.write(json.dumps(facts, indent=1).encode())
    return notes
