"""What a collection file has to be before anything in it is read.

Has the tables, in numbered steps, and refuses a file whose tables are others: a view or
a generated column is computed when it is read, which may never end, and a macro may
stand for what a query means. The views of `core.collection.explained` are allowed, word
for word; no query of this program uses them. Reads no row.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import numpy as np

from core.collection.explained import explanation
from core.drawing import Drawing

# The schema in numbered steps; how many were taken is stored in the file.
SCHEMA_STEPS = (
    """
    create table meta (key text primary key, value text not null);
    create table classes (label integer primary key, names text not null);
    create table examples (
        example_id bigint primary key, label integer not null,
        image blob not null, sha256 text not null, metadata text not null);
    create table arrays (
        name text primary key, dtype text not null, shape text not null,
        sha256 text not null);
    create table chunks (
        name text not null, start bigint not null, data blob not null);
    create table samples (
        sample_id bigint primary key, label integer, seed bigint not null,
        sampler text not null, num_steps integer not null,
        guidance_scale double not null, metadata text not null,
        image blob not null, sha256 text not null);
    create table answers (
        sample_id bigint, lens text, scores blob not null,
        standard_errors blob not null, value double not null, source text not null,
        sha256 text not null, primary key (sample_id, lens));
    create table evaluations (
        name text, key text, value text not null, primary key (name, key));
    create table shards (
        file text primary key, first_position bigint not null,
        num_examples bigint not null, layout text not null, dtype text not null,
        num_bytes bigint not null, sha256 text not null);
    """,
    # An answer's numbers are float32: their standard errors are thousands of times
    # larger than what that rounds away, and a gallery takes half the room.
    """
    comment on column answers.scores is 'float32, little-endian';
    comment on column answers.standard_errors is 'float32, little-endian';
    """,
    explanation(),
)
# A file of another version is refused. The last step changes no table: files from
# before it are read as they are. Its comments may be improved, its views never change.
READ_VERSIONS = (len(SCHEMA_STEPS) - 1, len(SCHEMA_STEPS))

# All that is not a blob; blobs are represented by their checksums. The fingerprint of a
# collection is the checksum of these rows.
CONTENT_QUERIES = (
    "select key, value from meta where key <> 'fingerprint' order by key",
    "select label, names from classes order by label",
    "select example_id, label, sha256, metadata from examples order by example_id",
    "select name, dtype, shape, sha256 from arrays order by name",
    "select sample_id, label, seed, sampler, num_steps, guidance_scale, metadata, "
    "sha256 from samples order by sample_id",
    "select sample_id, lens, value, source, sha256 from answers "
    "order by sample_id, lens",
    "select name, key, value from evaluations order by name, key",
    "select file, first_position, num_examples, layout, dtype, num_bytes, sha256 "
    "from shards order by file",
)

# A collection may come from anyone: it may read no other file and fetch no extension.
READ_CONFIG = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

# No row of ours takes less room. More rows than fit were made up: equal ones are
# compressed to nothing, and reading them would fill any memory.
BYTES_A_ROW = 16


def what_is_computed(connection: duckdb.DuckDBPyConnection, size: int) -> str:
    """Return what of a file would be computed when it is read, in words; "" for none.

    Errors of DuckDB pass through.

    Args:
        connection: To the file.
        size: Of the file, in bytes.
    """
    views = view_texts(connection)
    for view in sorted(views - expected_texts()[1]) if views else ():
        return f"'{view[1]}' is a view, which computes its rows when it is read"
    query = "select function_name from duckdb_functions() where not internal limit 1"
    if macro := connection.execute(query).fetchone():
        return f"it brings a function of its own, '{macro[0]}'"
    query = "select table_name, estimated_size from duckdb_tables() where not internal"
    for name, rows in connection.execute(query).fetchall():
        if rows * BYTES_A_ROW > size:
            return f"'{name}' claims {rows:,} rows in a file of {size:,} bytes"
    return ""


def is_ours(
    connection: duckdb.DuckDBPyConnection, names: Iterable[str] | None = None
) -> bool:
    """Return whether some tables, or all, are as `SCHEMA_STEPS` makes them."""
    stored, (expected, _) = table_texts(connection), expected_texts()
    return all(stored.get(name) == expected[name] for name in names or expected)


def table_texts(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the statement that makes each table, as this version of DuckDB says it."""
    query = "select table_name, sql from duckdb_tables() where not internal"
    return dict(connection.execute(query).fetchall())


def view_texts(connection: duckdb.DuckDBPyConnection) -> set[tuple[str, str, str]]:
    """Return schema, name and statement of each view, as this version says it.

    In lower case: a file of an older format writes "double" where a newer one has it in
    capitals.
    """
    query = (
        "select schema_name, view_name, lower(sql) from duckdb_views() "
        "where not internal"
    )
    return set(connection.execute(query).fetchall())


@cache
def expected_texts() -> tuple[dict[str, str], set[tuple[str, str, str]]]:
    """Return the statements of our own tables, and of our own views."""
    with duckdb.connect() as connection:
        for step in SCHEMA_STEPS:
            connection.execute(step)
        return table_texts(connection), view_texts(connection)


NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]*")


BYTES_DTYPE = "bytes"  # of an array that is a file, such as safetensors


@dataclass(frozen=True)
class Sample:
    """What made an image of the gallery.

    Attributes:
        sample_id: Its number in the gallery.
        drawing: How the model drew it.
        metadata: Whatever else is worth showing, plain JSON values.
    """

    sample_id: int
    drawing: Drawing
    metadata: dict


@dataclass(frozen=True)
class StoredAnswer:
    """The scores of all training examples for one sample under one lens.

    Attributes:
        scores: Shape (N,), float64, in order of example id; kept in float32.
        standard_errors: Shape (N,), float64; NaN where the method has none.
        value: The measured value for the sample, NaN for a similarity.
        source: Where the numbers come from, in words.
    """

    scores: np.ndarray
    standard_errors: np.ndarray
    value: float
    source: str


@dataclass(frozen=True)
class Shard:
    """One file of the gradient index, in a folder beside the collection file.

    Files of one layout together cover the examples.

    Attributes:
        file: Path relative to the collection's folder, with "/".
        first_position: Position of its first example in order of example id.
        num_examples: How many examples it holds; 0 for a file about all of them.
        layout: How to read it, plain JSON values.
        dtype: Of its elements, for instance "|i1".
        num_bytes: Size of the file.
        sha256: Of the file.
    """

    file: str
    first_position: int
    num_examples: int
    layout: dict
    dtype: str
    num_bytes: int
    sha256: str

    def __post_init__(self):
        """Refuse a path that leads out of the collection's folder.

        Raises:
            ValueError: If the path is absolute or climbs.
        """
        path = PurePosixPath(self.file)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(
                f"The shard '{self.file}' lies outside the collection's folder. "
                "Give a path relative to that folder."
            )


def content_fingerprint(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the sha256 of all rows, blobs represented by their checksums."""
    digest = hashlib.sha256()
    for query in CONTENT_QUERIES:
        cursor = connection.execute(query)
        digest.update(query.encode())
        while rows := cursor.fetchmany(1024):
            digest.update("".join(json.dumps(row) + "\n" for row in rows).encode())
    return digest.hexdigest()


def damaged(path: Path, kind: str = "a collection") -> str:
    """Return the sentence for a file that is not what was published."""
    return (
        f"'{path.name}' is damaged or is not {kind}. Get it again from where it came, "
        f"or build it with `{build_command(path)}`."
    )


def build_command(path: Path) -> str:
    """Return the command that makes a collection's file, or one beside it."""
    kinds = "(-eigenvectors|-index|-model|-training-errors)?"
    named = rf"([a-z0-9][a-z0-9_-]*?){kinds}-[0-9a-f]{{12}}"
    match = re.match(named, path.name) or re.match(named, path.parent.name)
    name = match.group(1) if match else "NAME"
    return f"python -m precompute build --collection {name}"


def how_to_build(name: str) -> str:
    """Return the sentence that says how a collection is made."""
    return f"Build it with `python -m precompute build --collection {name}`."


def bytes_sha256(data: bytes) -> str:
    """Return the sha256 of bytes, as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file of any size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lens_key(lens: dict) -> str:
    """Return the text under which the answers of a lens are stored."""
    return json.dumps(json.loads(to_json(lens, "lens")), sort_keys=True)


def to_json(value: Any, what: str) -> str:
    """Return a value as standard JSON text; numpy numbers and arrays count as plain.

    Raises:
        ValueError: If the value has no JSON form.
    """
    try:
        return json.dumps(value, allow_nan=False, default=lambda array: array.tolist())
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{what} cannot be stored as JSON ({error}). Use text, finite numbers, "
            "lists, dictionaries and None."
        ) from None
