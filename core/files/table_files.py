"""A table in one file that is known to be whole: parquet with a checksum of its cells.

Knows nothing of what the table means.
"""

import hashlib
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from core.files.whole import Damaged, written_whole

CHECKSUM = b"sha256"
# Errors of reading a damaged table; Arrow has some that are not among the others.
DAMAGE = (OSError, KeyError, TypeError, ValueError, MemoryError, pa.ArrowException)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table without its index; it appears whole or not at all."""
    made = pa.Table.from_pandas(table, preserve_index=False)
    facts = (made.schema.metadata or {}) | {CHECKSUM: cells_sha256(made).encode()}
    with written_whole(path) as file:
        pq.write_table(made.replace_schema_metadata(facts), file, compression="zstd")


def table_bytes(table: pd.DataFrame) -> bytes:
    """Return a table as the bytes of a parquet file, without its index."""
    made = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pandas(table, preserve_index=False), made, compression="zstd"
    )
    return made.getvalue().to_pybytes()


def read_table(path: Path) -> pd.DataFrame:
    """Return a table, every cell as it was written.

    Raises:
        Damaged: If it is not whole. Tables older than checksums have none.
    """
    try:
        found = pq.read_table(path, partitioning=None)
        wanted = (found.schema.metadata or {}).get(CHECKSUM)
        if wanted is not None and wanted != cells_sha256(found).encode():
            raise Damaged(path)
        return found.to_pandas()
    except DAMAGE as error:
        raise Damaged(path) from error


def cells_sha256(table: pa.Table) -> str:
    """Return the checksum of all columns' names and cells, and of what pandas noted."""
    noted = (table.schema.metadata or {}).get(b"pandas", b"")
    found = hashlib.sha256(noted)
    for name, column in zip(table.column_names, table.columns, strict=True):
        found.update(repr((name, column.to_pylist())).encode())
    return found.hexdigest()
