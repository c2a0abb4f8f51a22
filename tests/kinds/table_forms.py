"""Every way to write a table, and a name in it, that mean the same."""

import json
import unicodedata

from tests.kinds import Case
from tests.kinds.tables import (
    BOTH,
    CAT,
    CSV,
    JSONL,
    KIND,
    QUIET,
    beside,
    parquet,
    table,
)

WRITTEN = {
    "CSV": table("metadata.csv", CSV),
    "CSV with a byte order mark": table("metadata.csv", "\ufeff" + CSV),
    "CSV in UTF-16": table("metadata.csv", CSV.encode("utf-16")),
    "CSV with line ends of Windows": table("metadata.csv", CSV.replace("\n", "\r\n")),
    "CSV with line ends of old Macs": table("metadata.csv", CSV.replace("\n", "\r")),
    "CSV with semicolons": table("metadata.csv", CSV.replace(",", ";")),
    "CSV with semicolons, mark and commas in texts": table(
        "metadata.csv",
        "\ufefffile_name;caption;more\n1.png;A cat;a, b\n2.png;A dog;c, d\n",
    ),
    "CSV that Excel says the separator of": table(
        "metadata.csv", "sep=;\r\n" + CSV.replace(",", ";")
    ),
    "CSV with blanks after commas": table("metadata.csv", CSV.replace(",", ", ")),
    "CSV with empty rows and columns": table(
        "metadata.csv", "file_name,caption,,\n1.png,A cat,,\n,,,\n2.png,A dog,,\n,,,\n"
    ),
    "TSV": table("metadata.tsv", CSV.replace(",", "\t")),
    "CSV in capitals": table("METADATA.CSV", CSV.replace("file_name", "File Name")),
    "JSON lines": table("metadata.jsonl", JSONL),
    "JSON lines with a mark and line ends of Windows": table(
        "metadata.jsonl", "\ufeff" + JSONL.replace("\n", "\r\n")
    ),
    "parquet": parquet(
        {"file_name": ["1.png", "2.png"], "caption": ["A cat", "A dog"]},
        "metadata.parquet", "1.png", "2.png",
    ),
    "another name of the table": table("captions.csv", CSV),
    "another name of the column": table("list.csv", CSV.replace("file_name", "image")),
    "a column of numbers before": table(
        "metadata.csv", ",file_name,caption\n0,1.png,A cat\n1,2.png,A dog\n"
    ),
    "two tables, a caption each": beside({
        "a.csv": "file_name,caption\n1.png,A cat\n2.png,\n",
        "b.jsonl": '{"file_name": "2.png", "caption": "A dog"}\n'
        '{"file_name": "1.png"}\n',
    }),
}  # fmt: skip

COMPOSED = unicodedata.normalize("NFC", "é.png")
APART = unicodedata.normalize("NFD", COMPOSED)

# How a row may name the one image that it means: file on the disk, name in the table.
NAMED = {
    "composed letters in the table": (APART, COMPOSED),
    "letters apart in the table": (COMPOSED, APART),
    "another separator": ("a/b/1.png", "a\\b\\1.png"),
    "a leading dot": ("a/1.png", "./a/1.png"),
    "two separators": ("a/1.png", "a//1.png"),
    "another letter case": ("A/1.PNG", "a/1.png"),
    "all of it at once": (f"Ä/{APART}", f".\\ä\\{COMPOSED.upper()}"),
    "blanks around": ("1.png", " 1.png "),
}


def named(on_disk: str, in_table: str):
    row = {"file_name": in_table, "caption": "A cat"}
    return table("metadata.jsonl", json.dumps(row), on_disk)


CASES = [
    *(
        Case(KIND, name, make, BOTH, says=("columns: caption",), never=QUIET)
        for name, make in WRITTEN.items()
    ),
    *(
        Case(KIND, name, named(*names), {names[0]: CAT}, never=QUIET)
        for name, names in NAMED.items()
    ),
]
