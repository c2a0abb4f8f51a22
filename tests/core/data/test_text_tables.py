"""Tables come back as they were written, or one sentence says what is wrong."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.data.sources.text_tables import read_table

# Letters that formats treat specially, among others; blanks around a cell are lost.
CELL = st.text("aé猫,;|\t\"'\\ \u2028\u0085\v=#{}", max_size=6).map(str.strip)
HEADING = st.text("abcdef_ ", min_size=1, max_size=4).map(str.strip).filter(bool)
LOOSE = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def tables(draw) -> tuple[list[str], list[list[str]]]:
    """Return headings, of which one names files, and rows of which none is empty."""
    others = draw(st.lists(HEADING, max_size=3, unique=True))
    headings = ["file_name", *others]
    row = st.lists(CELL, min_size=len(headings), max_size=len(headings))
    rows = draw(st.lists(row, max_size=4))
    return headings, [[f"{i}.png", *cells[1:]] for i, cells in enumerate(rows)]


def delimited(delimiter: str, end: str, mark: str):
    def write(headings, rows) -> bytes:
        file = io.StringIO(newline="")
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end)
        writer.writerows([headings, *rows])
        return (mark + file.getvalue()).encode()

    return write


def lines(headings, rows) -> bytes:
    objects = (dict(zip(headings, row, strict=True)) for row in rows)
    return "".join(f"{json.dumps(o, ensure_ascii=False)}\n" for o in objects).encode()


def parquet(headings, rows) -> bytes:
    columns = zip(*rows, strict=True) if rows else [[] for _ in headings]
    arrays = [pa.array(column, pa.string()) for column in columns]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, headings), file)
    return file.getvalue()


WRITERS = {
    "commas.csv": delimited(",", "\n", ""),
    "semicolons.csv": delimited(";", "\r\n", "\ufeff"),
    "bars.csv": delimited("|", "\n", ""),
    "tabs.tsv": delimited("\t", "\n", ""),
    "lines.jsonl": lines,
    "table.parquet": parquet,
}


@pytest.mark.parametrize("name", WRITERS)
@LOOSE
@given(table=tables())
def test_a_table_comes_back_as_it_was_written(name, table, tmp_path):
    headings, rows = table
    (tmp_path / name).write_bytes(WRITERS[name](headings, rows))
    found = read_table(tmp_path / name)
    assert found.rows == [dict(zip(headings, row, strict=True)) for row in rows]
    assert found.notes == ()
    if rows or "lines" not in name:  # lines have no headings of their own
        assert list(found.columns) == headings


@pytest.mark.parametrize("name", ["any.csv", "any.tsv", "any.jsonl", "any.parquet"])
@LOOSE
@given(data=st.binary(max_size=60) | st.text('{}[]":,;\n\r\t1a\0', max_size=30))
def test_whatever_is_no_table_gets_one_sentence(name, data, tmp_path):
    data = data.encode() if isinstance(data, str) else data
    (tmp_path / name).write_bytes(data)
    try:
        found = read_table(tmp_path / name)
    except ValueError as error:
        (said,) = error.args
        assert f"'{name}'" in said and said.endswith(".") and "\n" not in said
        assert "Arrow" not in said and "codec" not in said
    else:
        assert len(set(found.columns)) == len(found.columns)
        assert all(list(row) == list(found.columns) for row in found.rows)
