"""Opening a collection's file: refused with one sentence, or read row by row.

A collection may come from anyone. Before a row is read the file is checked for the
tables of this program and for anything that would compute its rows; every error of
DuckDB becomes one plain sentence.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import duckdb

from core.collection.schema import (
    READ_CONFIG,
    READ_VERSIONS,
    build_command,
    bytes_sha256,
    damaged,
    how_to_build,
    is_ours,
    what_is_computed,
)


class CheckedFile:
    """A collection's file, open for reading; safe to use from several threads.

    Args:
        path: The file.

    Raises:
        LookupError: If there is no such file.
        ValueError: If the file is damaged or of another schema version.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        if not self.path.exists():
            raise LookupError(
                f"There is no collection file '{self.path.name}'. "
                + how_to_build("glyphs")
            )
        with plain_errors(self.path):
            self._connection = duckdb.connect(
                self.path, read_only=True, config=READ_CONFIG
            )
        try:
            self._require_stored()
            self._require_schema()
            self.name, self.fingerprint = self.meta("name"), self.meta("fingerprint")
        except (LookupError, ValueError):
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def meta(self, key: str) -> Any:
        """Return the JSON value that was stored under a key.

        Raises:
            LookupError: If there is none; the message lists the keys.
        """
        rows = self._rows("select value from meta where key = ?", key)
        if not rows:
            keys = [row[0] for row in self._rows("select key from meta order by key")]
            raise LookupError(
                f"'{self.path.name}' records no '{key}'; it records {listed(keys)}."
            )
        return json.loads(rows[0][0])

    def _require_stored(self) -> None:
        """Refuse a file that would compute, perhaps for ever, what is read of it.

        Raises:
            ValueError: If it has views but ours, functions or more rows than fit in it.
        """
        with plain_errors(self.path):
            cursor = self._connection.cursor()
            computed = what_is_computed(cursor, self.path.stat().st_size)
            known = computed or is_ours(cursor, ("meta",))
        if computed:
            raise ValueError(
                f"'{self.path.name}' is not read: {computed}. Get it again from where "
                f"it came, or build it with `{build_command(self.path)}`."
            )
        if not known:
            raise ValueError(damaged(self.path))

    def _require_schema(self) -> None:
        """Refuse a file of another schema version, or with other tables.

        Raises:
            ValueError: If its version or a table differs from this program's.
        """
        version = self.meta("schema_version")
        if version not in READ_VERSIONS:
            read = " and ".join(map(str, READ_VERSIONS))
            raise ValueError(
                f"'{self.path.name}' has schema version {version}; this program reads "
                f"versions {read}. Use the program that made it, or build it again "
                f"with `{build_command(self.path)}`."
            )
        with plain_errors(self.path):
            if not is_ours(self._connection.cursor()):
                raise ValueError(damaged(self.path))

    def _rows(self, query: str, *parameters) -> list[tuple]:
        """Return all rows of a query.

        A connection shared by threads hands one thread another's rows: every call has
        its own cursor.
        """
        with plain_errors(self.path):
            return self._connection.cursor().execute(query, parameters).fetchall()

    def _checked(self, data: bytes, sha256: str) -> bytes:
        """Return the bytes, once their checksum is that of the file's row.

        Raises:
            ValueError: If they have another checksum.
        """
        if bytes_sha256(data) != sha256:
            raise ValueError(damaged(self.path))
        return data


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn any error of DuckDB into one plain sentence.

    Yields:
        Nothing.

    Raises:
        ValueError: If DuckDB cannot read the file.
        Error: If the collection is closed or memory runs out; that is not damage.
    """
    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, duckdb.ConnectionException | duckdb.OutOfMemoryException):
            raise
        if "could not set lock" in str(error).lower():
            raise ValueError(
                f"'{path.name}' is being written by another process. Wait until that "
                "has ended, then open it again."
            ) from None
        raise ValueError(damaged(path)) from None


def listed(names: list[str]) -> str:
    """Return names for a sentence, in quotation marks."""
    return ", ".join(f"'{name}'" for name in names) or "none"
