"""Text from anywhere, made harmless for the place where it is shown.

Names, labels and file names come from data sets and visitors. Each function here makes
one of them safe for one reader: a line on a page, a figure, a spreadsheet, a folder.
Markdown is the pages' business (`pages.parts.words`), HTML that of the report's
template.
"""

import html
import re
from collections.abc import Collection
from itertools import islice

import pandas as pd

# How a spreadsheet's formula begins; the last four are the signs of East Asian width.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
INVISIBLE = " \t\r\n\v\f\u00a0\u200b\ufeff"  # a spreadsheet may drop these first
# Controls, halves of letters, and characters that turn the direction of text.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
UNKNOWN = "\ufffd"  # stands for what must not be obeyed


def one_line(value: object) -> str:
    """Return a text as one line that leaves the text around it alone.

    White space becomes a single space. Control characters, and those that turn the
    direction of what follows, become a sign that something was there; scripts that
    are written from right to left, and joined emoji, stay as they are.
    """
    return OBEYED.sub(UNKNOWN, re.sub(r"\s+", " ", str(value)))


def minus(number: str) -> str:
    """Return a printed number with the sign that people read for minus.

    For pages, figures, reports and sentences of commands. What a machine reads again
    (CSV, links, settings, what has to be typed) keeps its hyphen.
    """
    return number.replace("-", "\u2212")


def shortened(value: object, most: int) -> str:
    """Return a text as one line of at most `most` letters."""
    line = one_line(value)
    return line if len(line) <= most else line[: most - 1] + "…"


def listed(names: Collection[object], most: int = 3) -> str:
    """Return names for a sentence: the first few, and how many more there are."""
    shown = [f"'{shortened(name, 80)}'" for name in islice(names, most)]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: "1 image", "2,000 images"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def for_figure(value: object, most: int = 26) -> str:
    """Return a name for a plotly figure, which reads tags such as <b> and <a> in it."""
    return html.escape(shortened(value, most), quote=False)  # plotly decodes it again


def file_name(*parts: object, ending: str) -> str:
    """Return a short file name of plain letters that says what a file holds."""
    words = [re.sub(r"[^A-Za-z0-9]+", "-", str(part)).strip("-") for part in parts]
    return "-".join(word for word in words if word)[:80].strip("-") + f".{ending}"


def safe_csv(table: pd.DataFrame, float_format: str | None = None) -> str:
    """Return a table as CSV that no spreadsheet takes for formulas.

    A text cell, or a heading, that begins as a formula does gets an apostrophe before
    it; numbers stay numbers. The index is left out.
    """
    names = list(map(_no_formula, table.columns))
    cells = [
        cells if pd.api.types.is_numeric_dtype(cells) else cells.map(_no_formula)
        for _, cells in table.items()
    ]
    table = pd.concat(cells, axis=1).set_axis(names, axis=1) if cells else table
    return table.to_csv(index=False, float_format=float_format)


def _no_formula(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    begins = cell.startswith(FORMULAS) or cell.lstrip(INVISIBLE).startswith(FORMULAS)
    return f"'{cell}" if begins and not _is_number(cell) else cell


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) is not None
