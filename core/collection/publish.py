"""Write a collection file and make it the current version.

A collection is written under a temporary name and published whole: packed, reopened,
verified, and only then given its versioned name and named by the pointer file
`NAME.current`. One process at a time builds a collection; after a kill the current
version is the one before or the new one, whole.

Knows what must fit together (answers and shards cover the examples), but not what any
of it means, nor how a file is read: that is `core.collection.store`, which also has the
schema.
"""

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from core.collection.explained import TABLES
from core.collection.schema import (
    BYTES_DTYPE,
    NAME_PATTERN,
    SCHEMA_STEPS,
    Sample,
    Shard,
    StoredAnswer,
    bytes_sha256,
    content_fingerprint,
    lens_key,
    to_json,
)
from core.collection.store import Collection
from core.files.locks import free_lock, take_lock
from core.files.whole import written_whole

# DuckDB reads 2,048 rows at a time even for one of them. In a file of 0.4 GB a small
# array took 0.02 to 0.1 s with rows of 64 kB and 0.4 s with rows of 1 MB. Rows of 8 kB
# take 1.04 times the data and eight times as long to write.
CHUNK_BYTES = 1 << 16

COPIED_TABLES = [name for name in TABLES if name != "meta"]

# Of the packed file. With DuckDB's own 256 kB, a file of a few small tables takes 5 MB
# and one of 50 MB 1.06 times its data; with 64 kB 1.5 MB and 1.01 times.
BLOCK_BYTES = 1 << 16
# DuckDB's own newest format is read by its own version alone, and takes as much room.
FORMAT = "v1.4.0"


class CollectionWriter:
    """A collection in the making; use it with `with` and end with `publish`.

    Nothing is visible before `publish`. Leaving without it discards everything; what a
    killed process left behind goes at the next build.

    Args:
        root: Folder of all collections; made if it is not there.
        name: Lower-case letters, digits, "-" and "_".

    Raises:
        ValueError: If the name has other characters, or another process holds the lock.
    """

    def __init__(self, root: Path, name: str):
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError(
                f"'{name}' cannot name a collection. Use lower-case letters, digits, "
                "'-' and '_', beginning with a letter or digit."
            )
        self.root, self.name = Path(root), name
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(
            self.root / f".{name}.lock",
            f"Collection '{name}' is being built by another process. Wait for it, or "
            "stop it first.",
        )
        # With the lock held, whatever lies under the temporary names is dead.
        _remove_temporaries(self.root, name)
        self._building = self.root / f".{name}.building.duckdb"
        self._packed = self.root / f".{name}.packed.duckdb"
        self._connection = duckdb.connect(self._building)
        for step in SCHEMA_STEPS:
            self._connection.execute(step)
        self.put_meta("schema_version", len(SCHEMA_STEPS))
        self.put_meta("name", name)

    def __enter__(self) -> "CollectionWriter":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Discard what was not published and let others build."""
        if not self._lock.is_locked:  # the temporary names may be another build's now
            return
        with suppress(duckdb.Error):  # closing writes, which a full disk refuses
            self._connection.close()
        _remove_temporaries(self.root, self.name)
        free_lock(self._lock)

    def put_meta(self, key: str, value: Any) -> None:
        """Store a JSON value: provenance, configuration ("settings"), costs."""
        self._insert("meta", [(key, to_json(value, f"'{key}'"))])

    def put_classes(self, class_names: Sequence[Sequence[str]]) -> None:
        """Store the names of every class, in label order."""
        rows = [(i, to_json(names, "names")) for i, names in enumerate(class_names)]
        self._insert("classes", rows)

    def put_examples(
        self,
        example_ids: Sequence[int],
        labels: Sequence[int],
        images: Sequence[bytes],
        metadata: Sequence[dict],
    ) -> None:
        """Store training images; all four have length N, in any order.

        Args:
            example_ids: Unique ids; their ascending order is the collection's order.
            labels: Class of each example.
            images: The images' own file bytes.
            metadata: Plain JSON values, one dictionary an example.
        """
        columns = zip(example_ids, labels, images, metadata, strict=True)
        rows = [
            (
                int(i),
                int(label),
                image,
                bytes_sha256(image),
                to_json(facts, f"example {i}"),
            )
            for i, label, image, facts in columns
        ]
        self._insert("examples", rows)

    def put_array(self, name: str, array: Any) -> None:
        """Store a numpy array or torch tensor of numbers or booleans.

        Args:
            name: Any text; "samples/..." is used for the gallery.
            array: Any shape; a dtype numpy knows (so not bfloat16).

        Raises:
            ValueError: If the elements are not plain numbers.
        """
        if hasattr(array, "detach"):
            array = array.detach().cpu().numpy()
        array = np.asarray(array, order="C")
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"The array '{name}' has dtype {array.dtype}; only numbers and "
                "booleans can be stored."
            )
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        data = array.reshape(-1).view(np.uint8)
        self._put_chunks(name, array.dtype.str, array.shape, data)

    def put_bytes(self, name: str, data: bytes) -> None:
        """Store a file, such as a safetensors file, under a name."""
        view = np.frombuffer(data, np.uint8)
        self._put_chunks(name, BYTES_DTYPE, view.shape, view)

    def put_sample(self, sample: Sample, image: bytes, x_0: Any) -> None:
        """Store an image of the gallery.

        Args:
            sample: What made it.
            image: PNG bytes.
            x_0: The clean example or its latents, shape (C, H, W).
        """
        facts = to_json(sample.metadata, f"sample {sample.sample_id}")
        drawing = astuple(sample.drawing)  # the columns, in order
        row = (sample.sample_id, *drawing, facts, image, bytes_sha256(image))
        self._insert("samples", [row])
        self.put_array(f"samples/{sample.sample_id}/x_0", x_0)

    def put_answer(self, sample_id: int, lens: dict, answer: StoredAnswer) -> None:
        """Store the answer for a sample; `lens` is plain JSON values."""
        scores = np.asarray(answer.scores, "<f4").tobytes()
        errors = np.asarray(answer.standard_errors, "<f4").tobytes()
        row = (
            int(sample_id),
            lens_key(lens),
            scores,
            errors,
            float(answer.value),
            answer.source,
            bytes_sha256(scores + errors),
        )
        self._insert("answers", [row])

    def put_evaluation(self, name: str, key: str, value: Any) -> None:
        """Store one result of an evaluation as a JSON value."""
        self._insert("evaluations", [(name, key, to_json(value, f"'{name}' '{key}'"))])

    def put_shard(self, shard: Shard) -> None:
        """Add a finished shard file to the catalogue.

        Raises:
            ValueError: If the file is not there or has another size.
        """
        path = self.root / shard.file
        size = path.stat().st_size if path.exists() else 0
        if size != shard.num_bytes:
            raise ValueError(
                f"The shard '{shard.file}' has {size} bytes, not {shard.num_bytes}. "
                "Write it before it is catalogued."
            )
        row = (
            shard.file,
            shard.first_position,
            shard.num_examples,
            to_json(shard.layout, f"shard '{shard.file}'"),
            shard.dtype,
            shard.num_bytes,
            shard.sha256,
        )
        self._insert("shards", [row])

    def put_all_of(self, path: Path) -> None:
        """Store all that a published collection of the same name holds.

        Args:
            path: Its file, open nowhere else in this process.
        """
        Collection(path).close()  # what is not a collection is refused there
        self._connection.execute("attach ? as published (read_only)", [str(path)])
        for table in COPIED_TABLES:
            self._connection.execute(
                f"insert into {table} select * from published.{table}"
            )
        self._connection.execute(
            "insert into meta select * from published.meta "
            "where key not in ('schema_version', 'name', 'fingerprint')"
        )
        self._connection.execute("detach published")

    def publish(self) -> Path:
        """Return the path of what was written, verified and now the current version.

        Answers or shards that do not fit the examples are a ValueError.
        """
        _check_complete(self._connection, self.name)
        fingerprint = content_fingerprint(self._connection)
        self.put_meta("fingerprint", fingerprint)
        self._connection.execute("checkpoint")
        self._connection.close()
        _pack(self._building, self._packed)
        with Collection(self._packed) as packed:
            packed.verify()
        path = self.root / f"{self.name}-{fingerprint[:12]}.duckdb"
        # The name is made from the content: a whole file of that name is this one, and
        # the app may have it open.
        if not _is_whole(path):
            _sync(self._packed)
            os.replace(self._packed, path)
        _point_to(self.root, self.name, path)
        self.close()
        return path

    def _insert(self, table: str, rows: list[tuple]) -> None:
        """Insert rows in one transaction.

        Raises:
            ValueError: If a row of that key is there already.
        """
        if not rows:
            return
        marks = ", ".join("?" * len(rows[0]))
        self._connection.begin()
        try:
            self._connection.executemany(f"insert into {table} values ({marks})", rows)
            self._connection.commit()
        except duckdb.ConstraintException:
            self._connection.rollback()
            raise ValueError(
                f"Two rows of '{table}' have the same key, or a value is missing, near "
                f"'{rows[0][0]}'. Put each thing once."
            ) from None

    def _put_chunks(self, name: str, dtype: str, shape: tuple, data) -> None:
        digest = bytes_sha256(data)
        self._insert("arrays", [(name, dtype, json.dumps(shape), digest)])
        starts = range(0, len(data), CHUNK_BYTES)
        rows = [(name, i, data[i : i + CHUNK_BYTES].tobytes()) for i in starts]
        self._insert("chunks", rows)


def _remove_temporaries(root: Path, name: str) -> None:
    for kind in ("building", "packed"):
        for path in root.glob(f".{name}.{kind}.duckdb*"):
            # DuckDB's own temporary folder may be among them.
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _pack(source: Path, target: Path) -> None:
    """Copy a database into a new file without the holes.

    Every automatic checkpoint rewrites half-filled blocks: the file as built is 1.9
    times the data, the copy 1.01 times.
    """
    with duckdb.connect() as connection:
        connection.execute("attach ? as source (read_only)", [str(source)])
        connection.execute(
            f"attach ? as target (block_size {BLOCK_BYTES}, "
            f"storage_version '{FORMAT}')",
            [str(target)],
        )
        connection.execute("copy from database source to target")
        connection.execute("detach target")  # checkpoints


def _check_complete(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Refuse to publish answers or shards that do not fit the examples.

    Raises:
        ValueError: If an answer has another length or no sample, or the shards of one
            layout do not cover the examples one after another.
    """
    (num_examples,) = connection.execute("select count(*) from examples").fetchone()
    wrong = connection.execute(
        "select sample_id, octet_length(scores) // 4, "
        "octet_length(standard_errors) // 4 from answers "
        "where octet_length(scores) <> 4 * ? or octet_length(standard_errors) <> 4 * ?",
        [num_examples, num_examples],
    ).fetchone()
    if wrong:
        raise ValueError(
            f"An answer for sample {wrong[0]} of '{name}' has {wrong[1]} scores and "
            f"{wrong[2]} standard errors for {num_examples} examples."
        )
    orphan = connection.execute(
        "select sample_id from answers where sample_id not in "
        "(select sample_id from samples)"
    ).fetchone()
    if orphan:
        raise ValueError(
            f"An answer of '{name}' is for sample {orphan[0]}, which is not in the "
            "gallery."
        )
    ends: dict[str, int] = {}
    for file, layout, first, count in connection.execute(
        "select file, layout, first_position, num_examples from shards "
        "where num_examples > 0 order by first_position"
    ).fetchall():
        end = ends.get(layout, 0)
        if first != end:
            raise ValueError(
                f"Shard '{file}' of '{name}' begins at position {first}, not at {end}."
            )
        ends[layout] = first + count
    for layout, end in ends.items():
        if end != num_examples:
            raise ValueError(
                f"The shards of '{name}' with layout {layout} hold {end} of "
                f"{num_examples} examples."
            )


def _is_whole(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with Collection(path) as collection:
            collection.verify()
    except (LookupError, ValueError):
        return False
    return True


def _point_to(root: Path, name: str, path: Path) -> None:
    """Name the current version; a kill leaves the old pointer or the new one."""
    pointer = root / f"{name}.current"
    with written_whole(pointer) as file:
        file.write(f"{path.name}\n".encode())
    _sync(root)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
