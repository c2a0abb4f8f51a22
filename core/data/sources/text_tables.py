"""Small tables as people write them: CSV, TSV, JSON lines, parquet; every cell as text.

Knows nothing of images. What a table holds that is not text is named, never dropped in
silence.
"""

import csv
import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.data.sources.matching import FILE_COLUMNS, plain
from core.data.sources.names import decoded
from core.files.texts import count_of, listed

DELIMITED = {".csv", ".tsv"}
LINES = {".jsonl", ".ndjson"}
SUFFIXES = DELIMITED | LINES | {".parquet"}
DELIMITERS = ",;\t|"
HALVES = re.compile("[\ud800-\udfff]")  # of letters, which no file of text can hold


@dataclass(frozen=True)
class TextTable:
    """A table as text.

    Attributes:
        columns: Its headings, each once.
        rows: The cells of each row by heading; all have every one.
        notes: What a person must know of it, a sentence each.
    """

    columns: tuple[str, ...]
    rows: list[dict[str, str]]
    notes: tuple[str, ...] = ()


def read_table(path: Path) -> TextTable:
    """Return a table as text.

    Raises:
        ValueError: If it is damaged.
    """
    try:
        if path.suffix.lower() in DELIMITED:
            return _delimited(path, decoded(path.read_bytes()))
        if path.suffix.lower() in LINES:
            return _json_lines(path, decoded(path.read_bytes()))
        return _parquet(path)
    except UnicodeDecodeError:
        reason = "is not UTF-8 text"
    except csv.Error as error:
        reason = f"could not be read as a table ({error})"
    except (pa.ArrowException, OSError):
        reason = "could not be read as a table"
    raise ValueError(f"'{path.name}' {reason}. Save it again, as UTF-8.")


def unique_headings(path: Path, headings: list[str]) -> tuple[list[str], list[str]]:
    """Return headings that differ, and notes of those that did not.

    The second "caption" becomes "caption_2"; one without letters "column_3", by its
    place.
    """
    made, twice = [], []
    for number, heading in enumerate(headings, 1):
        heading = heading.strip() or f"column_{number}"
        name, count = heading, 1
        while name in made or (count > 1 and name in headings):
            count += 1
            name = f"{heading}_{count}"
        if count > 1:
            twice.append((heading, name))
        made.append(name)
    notes = [
        f"'{path.name}' has more than one column '{heading}'; the later one is read as "
        f"'{name}'."
        for heading, name in twice
    ]
    return made, notes


# --- CSV and TSV ---------------------------------------------------------------------


def _delimited(path: Path, text: str) -> TextTable:
    if "\n" not in text:  # line ends of old Macs
        text = text.replace("\r", "\n")
    lines = io.StringIO(text, newline="")
    first = lines.readline()
    stated = re.fullmatch("sep=(.)\r?\n?", first)  # as Excel writes and obeys it
    if not stated:
        lines.seek(0)
    delimiter = stated[1] if stated else _delimiter(text)
    reader = csv.reader(
        lines, delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True
    )
    rows = []  # (line, cells)
    try:
        for cells in reader:
            if any(map(str.strip, cells)):  # spreadsheets leave empty rows behind
                rows.append((reader.line_num + bool(stated), cells))
    except csv.Error as error:
        wrong = "has a quotation mark that is not closed"
        wrong = wrong if "quote" in str(error) or "end of data" in str(error) else error
        raise csv.Error(
            f"what begins after line {rows[-1][0] if rows else 0} {wrong}"
        ) from None
    if not rows:
        return TextTable((), [])
    (_, head), *rows = rows
    while (
        head
        and not head[-1].strip()
        and all(
            len(cells) < len(head) or not cells[len(head) - 1].strip()
            for _, cells in rows
        )
    ):
        head = head[:-1]  # a comma at the end of every line
    columns, notes = unique_headings(path, head)
    longer = [
        f"line {line}"
        for line, cells in rows
        if any(map(str.strip, cells[len(columns) :]))
    ]
    if longer:
        notes.append(
            f"'{path.name}' has {count_of(len(longer), 'row')} with more cells than "
            f"headings, whose rest is not read: {listed(longer)}. Put texts that "
            f"contain '{delimiter}' in quotation marks."
        )
    filled = [
        dict(zip(columns, [*cells, *[""] * len(columns)], strict=False))
        for _, cells in rows
    ]
    return TextTable(tuple(columns), filled, tuple(notes))


def _delimiter(text: str) -> str:
    """Return what is between the cells: what makes the most of the headings."""
    first = next((line for line in io.StringIO(text) if line.strip()), "")

    def worth(delimiter: str) -> tuple[bool, int]:
        cells = next(csv.reader([first], delimiter=delimiter), [])
        return any(plain(cell) in FILE_COLUMNS for cell in cells), len(cells)

    return max(DELIMITERS, key=worth)  # the first of equals


# --- JSON lines ----------------------------------------------------------------------


class _Pairs(list):
    """The names and values of a JSON object, also where a name comes twice."""


def _json_lines(path: Path, text: str) -> TextTable:
    objects = []
    # Only newlines end a line: str.splitlines would cut texts at U+2028 and others.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            pairs = json.loads(line, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            pairs = None
        if not isinstance(pairs, _Pairs):
            raise ValueError(
                f"Line {number} of '{path.name}' is not a JSON object. Each line needs "
                'one, such as {"file_name": "1.png", "caption": "A cat"}.'
            )
        objects.append(pairs)
    notes, columns, nested, rows = {}, {}, {}, []
    for pairs in objects:
        headings, repeats = unique_headings(path, [str(name) for name, _ in pairs])
        notes.update(dict.fromkeys(repeats))
        row = {}
        for heading, (_, value) in zip(headings, pairs, strict=True):
            text = _text(value)
            (nested if text is None else columns)[heading] = None
            row[heading] = text or ""
        rows.append(row)
    left_out = [column for column in nested if column not in columns]
    notes = [*notes, *not_read(path, left_out)]
    filled = [{column: row.get(column, "") for column in columns} for row in rows]
    return TextTable(tuple(columns), filled, tuple(notes))


# --- parquet -------------------------------------------------------------------------


def _parquet(path: Path) -> TextTable:
    file = pq.ParquetFile(path)  # read_table would add what names of folders say
    schema = file.schema_arrow
    names = [f.name for f in schema if is_text(f.type) or _has_path(f.type)]
    once = all(schema.names.count(name) == 1 for name in names)
    table = file.read(names) if once else file.read()  # vectors and images may be large
    features = features_of(schema)
    headings, notes = unique_headings(path, table.column_names)
    cells, left_out = {}, [name for name in schema.names if name not in names]
    for number, heading in enumerate(headings):
        values = texts(table.column(number), features.get(heading))
        if values is None:
            left_out.append(heading)
        else:
            cells[heading] = values
    rows = [
        dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)
    ]
    notes += not_read(path, left_out)
    return TextTable(tuple(cells), rows, tuple(notes))


def features_of(schema: pa.Schema) -> dict:
    """Return what Hugging Face wrote about the columns; empty if it wrote nothing."""
    try:
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = info.get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}
    return features if isinstance(features, dict) else {}


def texts(values: pa.Array | pa.ChunkedArray, feature=None) -> list[str] | None:
    """Return the cells of a column as text; None where it holds something else.

    Numbers of classes become their names. Of an image that is kept as a file the path
    is taken.
    """
    kind = plain_type(values.type)
    if _has_path(kind):
        return [str((cell or {}).get("path") or "") for cell in values.to_pylist()]
    if not is_text(kind):
        return None
    try:
        cells = values.to_pylist()
    except ValueError:  # times finer than Python's
        cells = values.cast(pa.string()).to_pylist()
    names = feature.get("names") if isinstance(feature, dict) else None
    if not isinstance(names, list):
        return [_text(cell) or "" for cell in cells]
    return [
        str(names[cell])
        if isinstance(cell, int) and 0 <= cell < len(names)
        else _text(cell) or ""
        for cell in cells
    ]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return what a type holds, without what only says how it is kept."""
    while isinstance(kind, pa.BaseExtensionType | pa.DictionaryType):
        extended = isinstance(kind, pa.BaseExtensionType)
        kind = kind.storage_type if extended else kind.value_type
    return kind


def _has_path(kind: pa.DataType) -> bool:
    """Return whether a column holds files, or what is left of them, by their paths."""
    return pa.types.is_struct(kind) and kind.get_field_index("path") >= 0


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column can be read as text: no bytes, nothing within others."""
    kind = plain_type(kind)
    is_one = not holds_bytes(kind) and not pa.types.is_nested(kind)
    return is_one or _is_list_of_texts(kind)


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether a column holds bytes."""
    return (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_list_of_texts(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return lists and (
        pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)
    )


# --- cells ---------------------------------------------------------------------------


def _text(value) -> str | None:
    """Return a cell as text, several texts with commas between; None for other."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, list):
        if isinstance(value, _Pairs) or not all(isinstance(v, str) for v in value):
            return None
        value = ", ".join(value)
    if isinstance(value, bytes):
        return None
    return HALVES.sub("\ufffd", str(value))


def not_read(path: Path, columns: list[str]) -> list[str]:
    """Return a sentence on columns that hold no text; none where there are none."""
    if not columns:
        return []
    many = len(columns) > 1
    return [
        f"{'Columns' if many else 'A column'} of '{path.name}' that "
        f"{'hold' if many else 'holds'} no text {'are' if many else 'is'} not read: "
        f"{listed(columns)}."
    ]
