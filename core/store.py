"""The collection file: one DuckDB database with all that a collection knows.

Holds pictures, named arrays, gallery samples, precomputed answers, evaluations and the
catalogue of shard files. Knows nothing of what they mean. Nothing in it is a pickle: a
value is JSON text, an array is little-endian bytes with its dtype and shape.

A collection is written under a temporary name and published whole: packed, reopened,
verified, and only then given its versioned name and named by the pointer file
`NAME.current`. A published file never changes, so that readers need no locks.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import numpy as np
import pandas as pd

# The schema in numbered steps. A published step never changes; its number is stored in
# the file, and a file of another version is refused.
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
)

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

# DuckDB reads 2,048 rows at a time even for one of them. In a file of 0.4 GB a small
# array took 0.02 to 0.1 s with rows of 64 kB and 0.4 s with rows of 1 MB. Rows of 8 kB
# take 1.04 times the data and eight times as long to write.
CHUNK_BYTES = 1 << 16

# Of the packed file. With DuckDB's own 256 kB, a file of a few small tables takes 5 MB
# and one of 50 MB 1.06 times its data; with 64 kB 1.5 MB and 1.01 times.
BLOCK_BYTES = 1 << 16

# A collection may come from anyone: it may read no other file and fetch no extension.
READ_CONFIG = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]*")
BYTES_DTYPE = "bytes"  # of an array that is a file, such as safetensors


@dataclass(frozen=True)
class Sample:
    """What made a picture of the gallery.

    Attributes:
        sample_id: Its place in the gallery.
        label: Class the model was asked for; None for no class.
        seed: Of the initial noise.
        sampler: For instance "ddim".
        num_steps: Denoising steps.
        guidance_scale: 1 is no guidance.
        metadata: Whatever else is worth showing, plain JSON values.
    """

    sample_id: int
    label: int | None
    seed: int
    sampler: str
    num_steps: int
    guidance_scale: float
    metadata: dict


@dataclass(frozen=True)
class StoredAnswer:
    """The scores of all training examples for one sample under one lens.

    Attributes:
        scores: Shape (N,), float64, in order of example id.
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


class CollectionWriter:
    """A collection in the making; use it with `with` and end with `publish`.

    Nothing is visible before `publish`. Leaving without it discards everything; what a
    killed process left behind goes at the next build.

    Args:
        root: Folder of all collections; made if it is not there.
        name: Lower-case letters, digits, "-" and "_".

    Raises:
        ValueError: If the name has other characters.
    """

    def __init__(self, root: Path, name: str):
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError(
                f"'{name}' cannot name a collection. Use lower-case letters, digits, "
                "'-' and '_', beginning with a letter or digit."
            )
        self.root, self.name = Path(root), name
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self.root, name)
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
        if self._lock.closed:  # by now the temporary names may be another build's
            return
        self._connection.close()
        _remove_temporaries(self.root, self.name)
        self._lock.close()

    def put_meta(self, key: str, value: Any) -> None:
        """Store a JSON value: provenance, configuration ("settings"), costs."""
        self._insert("meta", [(key, _to_json(value, f"'{key}'"))])

    def put_classes(self, class_names: Sequence[Sequence[str]]) -> None:
        """Store the names of every class, in label order."""
        rows = [(i, _to_json(names, "names")) for i, names in enumerate(class_names)]
        self._insert("classes", rows)

    def put_examples(
        self,
        example_ids: Sequence[int],
        labels: Sequence[int],
        images: Sequence[bytes],
        metadata: Sequence[dict],
    ) -> None:
        """Store training pictures; all four have length N, in any order.

        Args:
            example_ids: Unique ids; their ascending order is the collection's order.
            labels: Class of each example.
            images: The pictures' own file bytes.
            metadata: Plain JSON values, one dictionary an example.
        """
        columns = zip(example_ids, labels, images, metadata, strict=True)
        rows = [
            (int(i), int(label), image, _sha256(image), _to_json(facts, f"example {i}"))
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

    def put_sample(
        self, sample: Sample, image: bytes, x_0: Any, trajectory: Any = None
    ) -> None:
        """Store a picture of the gallery.

        Args:
            sample: What made it.
            image: PNG bytes.
            x_0: The clean example or its latents, shape (C, H, W).
            trajectory: Optional states or pictures on the way, shape (S, ...).
        """
        facts = _to_json(sample.metadata, f"sample {sample.sample_id}")
        row = (
            int(sample.sample_id),
            None if sample.label is None else int(sample.label),
            int(sample.seed),
            sample.sampler,
            sample.num_steps,
            sample.guidance_scale,
            facts,
            image,
            _sha256(image),
        )
        self._insert("samples", [row])
        self.put_array(f"samples/{sample.sample_id}/x_0", x_0)
        if trajectory is not None:
            self.put_array(f"samples/{sample.sample_id}/trajectory", trajectory)

    def put_answer(self, sample_id: int, lens: dict, answer: StoredAnswer) -> None:
        """Store the answer for a sample; `lens` is plain JSON values."""
        scores = np.asarray(answer.scores, "<f8").tobytes()
        errors = np.asarray(answer.standard_errors, "<f8").tobytes()
        row = (
            int(sample_id),
            _lens_key(lens),
            scores,
            errors,
            float(answer.value),
            answer.source,
            _sha256(scores + errors),
        )
        self._insert("answers", [row])

    def put_evaluation(self, name: str, key: str, value: Any) -> None:
        """Store one result of an evaluation as a JSON value."""
        self._insert("evaluations", [(name, key, _to_json(value, f"'{name}' '{key}'"))])

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
            _to_json(shard.layout, f"shard '{shard.file}'"),
            shard.dtype,
            shard.num_bytes,
            shard.sha256,
        )
        self._insert("shards", [row])

    def publish(self) -> Path:
        """Return the path of what was written, verified and now the current version.

        Answers or shards that do not fit the examples are a ValueError.
        """
        _check_complete(self._connection, self.name)
        fingerprint = _content_fingerprint(self._connection)
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
        digest = hashlib.sha256(data).hexdigest()
        self._insert("arrays", [(name, dtype, json.dumps(shape), digest)])
        starts = range(0, len(data), CHUNK_BYTES)
        rows = [(name, i, data[i : i + CHUNK_BYTES].tobytes()) for i in starts]
        self._insert("chunks", rows)


class Collection:
    """A published collection, read-only; safe to use from several threads.

    Args:
        path: A file that `CollectionWriter.publish` or `find_collection` returned.

    Raises:
        LookupError: If there is no such file.
        ValueError: If the file is damaged or of another schema version.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        if not self.path.exists():
            raise LookupError(
                f"There is no collection file '{self.path.name}'. "
                + _how_to_build("glyphs")
            )
        with _plain_errors(self.path):
            self._connection = duckdb.connect(
                self.path, read_only=True, config=READ_CONFIG
            )
        try:
            self._require_schema()
            self.name, self.fingerprint = self.meta("name"), self.meta("fingerprint")
        except (LookupError, ValueError):
            self.close()
            raise

    def __enter__(self) -> "Collection":
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
                f"'{self.path.name}' records no '{key}'; it records {_listed(keys)}."
            )
        return json.loads(rows[0][0])

    def require_settings(self, expected: dict) -> None:
        """Refuse to go on if the results were made with other settings.

        Args:
            expected: All or a part of `CollectionConfig.to_dict()`; only what is
                named is compared.

        Raises:
            ValueError: If a value differs; the message prints both.
        """
        stored = _flat(self.meta("settings"))
        wanted = _flat(json.loads(_to_json(expected, "settings")))
        differences = [
            f"{key} is {stored.get(key, 'not recorded')!r} there and {value!r} here"
            for key, value in wanted.items()
            if key not in stored or stored[key] != value
        ]
        if differences:
            raise ValueError(
                f"Collection '{self.name}' was made with other settings: "
                f"{'; '.join(differences)}. Use its settings, or build it again with "
                "yours."
            )

    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of every class, in label order."""
        rows = self._rows("select names from classes order by label")
        return tuple(tuple(json.loads(names)) for (names,) in rows)

    def examples(self) -> pd.DataFrame:
        """Return the metadata, one row per example, indexed by ascending example id.

        Row number = position: this is the order of every array over examples.
        """
        rows = self._rows(
            "select example_id, metadata from examples order by example_id"
        )
        ids = pd.Index([row[0] for row in rows], dtype=np.int64, name="example_id")
        return pd.DataFrame([json.loads(row[1]) for row in rows], index=ids)

    def labels(self) -> np.ndarray:
        """Return the class of every example, shape (N,), int64, in order of id."""
        rows = self._rows("select label from examples order by example_id")
        return np.array([row[0] for row in rows], dtype=np.int64)

    def images(self, example_ids: Iterable[int]) -> list[bytes]:
        """Return the file bytes of training pictures, in the order asked for.

        Raises:
            LookupError: If there is no example of that id.
        """
        ids = [int(i) for i in example_ids]
        rows = self._rows(
            "select example_id, image, sha256 from examples "
            "where example_id in (select unnest(?::bigint[]))",
            ids,
        )
        found = {i: self._checked(image, sha256) for i, image, sha256 in rows}
        missing = sorted(set(ids) - set(found))
        if missing:
            raise LookupError(
                f"Collection '{self.name}' has no example {missing[0]}; see "
                "`examples()` for its ids."
            )
        return [found[i] for i in ids]

    def image(self, example_id: int) -> bytes:
        """Return the file bytes of one training picture."""
        return self.images([example_id])[0]

    def arrays(self) -> list[str]:
        """Return the names of all arrays and files."""
        return [row[0] for row in self._rows("select name from arrays order by name")]

    def array(self, name: str) -> np.ndarray:
        """Return an array as it was stored, checked against its checksum.

        Raises:
            ValueError: If the name is a file's, or the array is damaged.
        """
        dtype, shape, data = self._read_chunks(name)
        if dtype == BYTES_DTYPE:
            raise ValueError(f"'{name}' is a file, not an array; read it with `blob`.")
        if np.dtype(dtype).kind not in "biuf":
            raise ValueError(_damaged(self.path))
        return np.frombuffer(data, dtype).reshape(shape)

    def blob(self, name: str) -> bytes:
        """Return a file that was stored, checked against its checksum.

        Raises:
            ValueError: If the name is an array's.
        """
        dtype, _, data = self._read_chunks(name)
        if dtype != BYTES_DTYPE:
            raise ValueError(f"'{name}' is an array, not a file; read it with `array`.")
        return bytes(data)

    def samples(self) -> list[Sample]:
        """Return what made the pictures of the gallery, in order."""
        rows = self._rows(
            "select sample_id, label, seed, sampler, num_steps, guidance_scale, "
            "metadata from samples order by sample_id"
        )
        return [Sample(*row[:-1], metadata=json.loads(row[-1])) for row in rows]

    def sample_image(self, sample_id: int) -> bytes:
        """Return a gallery picture's PNG bytes.

        Raises:
            LookupError: If the gallery has no such sample.
        """
        rows = self._rows(
            "select image, sha256 from samples where sample_id = ?", int(sample_id)
        )
        if not rows:
            raise LookupError(
                f"The gallery of collection '{self.name}' has no sample {sample_id}; "
                "see `samples()` for its ids."
            )
        return self._checked(*rows[0])

    def sample_x_0(self, sample_id: int) -> np.ndarray:
        """Return a gallery picture's clean example or latents, shape (C, H, W)."""
        return self.array(f"samples/{sample_id}/x_0")

    def sample_trajectory(self, sample_id: int) -> np.ndarray | None:
        """Return a gallery picture's trajectory, shape (S, ...), or None."""
        name = f"samples/{sample_id}/trajectory"
        return self.array(name) if name in self.arrays() else None

    def answer(self, sample_id: int, lens: dict) -> StoredAnswer | None:
        """Return the precomputed answer for a sample under a lens, or None."""
        rows = self._rows(
            "select scores, standard_errors, sha256, value, source from answers "
            "where sample_id = ? and lens = ?",
            int(sample_id),
            _lens_key(lens),
        )
        if not rows:
            return None
        scores, errors, sha256, value, source = rows[0]
        self._checked(scores + errors, sha256)
        return StoredAnswer(
            np.frombuffer(scores, "<f8"), np.frombuffer(errors, "<f8"), value, source
        )

    def lenses(self, sample_id: int) -> list[dict]:
        """Return the lenses under which a sample has a precomputed answer."""
        rows = self._rows(
            "select lens from answers where sample_id = ? order by lens", int(sample_id)
        )
        return [json.loads(row[0]) for row in rows]

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Return the results of all evaluations: name -> key -> JSON value."""
        results: dict[str, dict[str, Any]] = {}
        rows = self._rows("select name, key, value from evaluations order by name, key")
        for name, key, value in rows:
            results.setdefault(name, {})[key] = json.loads(value)
        return results

    def shards(self) -> list[Shard]:
        """Return the catalogue of the full index, by first position; often empty.

        The files lie at `shard_path`; a collection may travel without them.
        """
        rows = self._rows(
            "select file, first_position, num_examples, layout, dtype, num_bytes, "
            "sha256 from shards order by first_position"
        )
        return [Shard(*row[:3], json.loads(row[3]), *row[4:]) for row in rows]

    def shard_path(self, shard: Shard) -> Path:
        """Return where a shard file lies, if it came along."""
        return self.path.parent / shard.file

    def verify(self) -> None:
        """Check every checksum, and that no row was lost, added or changed.

        Shard files that did not come along are passed over.

        Raises:
            ValueError: If anything differs from what was published.
        """
        if self._fingerprint() != self.fingerprint:
            raise ValueError(_damaged(self.path))
        for query in (
            "select image, sha256 from examples",
            "select image, sha256 from samples",
            "select scores || standard_errors, sha256 from answers",
        ):
            with _plain_errors(self.path):
                cursor = self._connection.cursor().execute(query)
                while rows := cursor.fetchmany(256):
                    for row in rows:
                        self._checked(*row)
        for name in self.arrays():
            self._read_chunks(name)
        for shard in self.shards():
            path = self.shard_path(shard)
            if path.exists() and file_sha256(path) != shard.sha256:
                raise ValueError(_damaged(path))

    def _require_schema(self) -> None:
        """Refuse a file of another schema version.

        Raises:
            ValueError: If it is one.
        """
        version = self.meta("schema_version")
        if version != len(SCHEMA_STEPS):
            raise ValueError(
                f"'{self.path.name}' has schema version {version}; this program reads "
                f"version {len(SCHEMA_STEPS)}. " + _how_to_build("glyphs")
            )

    def _fingerprint(self) -> str:
        with _plain_errors(self.path):
            return _content_fingerprint(self._connection.cursor())

    def _rows(self, query: str, *parameters) -> list[tuple]:
        """Return all rows of a query.

        A connection shared by threads hands one thread another's rows: every call has
        its own cursor.
        """
        with _plain_errors(self.path):
            return self._connection.cursor().execute(query, parameters).fetchall()

    def _checked(self, data: bytes, sha256: str) -> bytes:
        """Return the bytes if they have that checksum.

        Raises:
            ValueError: If they do not.
        """
        if _sha256(data) != sha256:
            raise ValueError(_damaged(self.path))
        return data

    def _read_chunks(self, name: str) -> tuple[str, list[int], bytearray]:
        """Return dtype, shape and bytes of an array or file.

        Raises:
            LookupError: If there is nothing of that name.
        """
        found = self._rows(
            "select dtype, shape, sha256 from arrays where name = ?", name
        )
        if not found:
            raise LookupError(
                f"Collection '{self.name}' has no array '{name}'; it has "
                f"{_listed(self.arrays())}."
            )
        dtype, shape, sha256 = found[0]
        rows = self._rows("select start, data from chunks where name = ?", name)
        # A bytearray, so that the array is writable, which torch wants.
        data = bytearray().join(part for _, part in sorted(rows))
        self._checked(data, sha256)
        return dtype, json.loads(shape), data


def list_collections(root: Path) -> list[str]:
    """Return the names of the published collections."""
    return sorted(path.stem for path in Path(root).glob("[a-z0-9]*.current"))


def find_collection(root: Path, name: str) -> Path:
    """Return the file of a collection's current version.

    Raises:
        LookupError: If there is no such collection; the message lists those there are
            and says how to build one.
    """
    root, names = Path(root), list_collections(root)
    if name not in names:
        raise LookupError(
            f"There is no collection '{name}'; there is {_listed(names)}. "
            + _how_to_build(name if NAME_PATTERN.fullmatch(name) else "glyphs")
        )
    file = (root / f"{name}.current").read_text().strip()
    if not _is_version(file, name) or not (root / file).exists():
        raise LookupError(
            f"The file '{file}' that '{name}.current' names is not in its folder. "
            + _how_to_build(name)
        )
    return root / file


def prune_collections(root: Path, name: str) -> list[Path]:
    """Delete all versions of a collection but the current one; return their paths."""
    current = find_collection(root, name)
    old = [
        path
        for path in sorted(Path(root).glob(f"{name}-*.duckdb"))
        if _is_version(path.name, name) and path != current
    ]
    for path in old:
        path.unlink()
    return old


def _is_version(file: str, name: str) -> bool:
    return re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{12}}\.duckdb", file) is not None


def _take_lock(root: Path, name: str):
    """Return an open lock file; the system frees it when the process ends, even killed.

    Raises:
        ValueError: If another build holds it.
    """
    lock = open(root / f".{name}.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ValueError(
            f"Collection '{name}' is being built by another process. Wait for it, or "
            "stop it first."
        ) from None
    return lock


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
            f"attach ? as target (block_size {BLOCK_BYTES})", [str(target)]
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
        "select sample_id, octet_length(scores) // 8, "
        "octet_length(standard_errors) // 8 from answers "
        "where octet_length(scores) <> 8 * ? or octet_length(standard_errors) <> 8 * ?",
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


def _content_fingerprint(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the sha256 of all rows, blobs represented by their checksums."""
    digest = hashlib.sha256()
    for query in CONTENT_QUERIES:
        cursor = connection.execute(query)
        digest.update(query.encode())
        while rows := cursor.fetchmany(1024):
            digest.update("".join(json.dumps(row) + "\n" for row in rows).encode())
    return digest.hexdigest()


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
    temporary = root / f".{name}.current.part"
    temporary.write_text(path.name + "\n")
    _sync(temporary)
    os.replace(temporary, pointer)
    _sync(root)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """Turn any error of DuckDB into one plain sentence.

    Yields:
        Nothing.

    Raises:
        ValueError: If DuckDB cannot read the file.
        Error: If the collection is closed or memory runs out; that is no damage.
    """
    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, duckdb.ConnectionException | duckdb.OutOfMemoryException):
            raise
        raise ValueError(_damaged(path)) from None


def _damaged(path: Path) -> str:
    return (
        f"'{path.name}' is damaged or is not a collection. "
        "Get it again from where it came, or build it with "
        "`python -m precompute build --collection NAME`."
    )


def _how_to_build(name: str) -> str:
    return f"Build it with `python -m precompute build --collection {name}`."


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file of any size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lens_key(lens: dict) -> str:
    return json.dumps(json.loads(_to_json(lens, "lens")), sort_keys=True)


def _to_json(value: Any, what: str) -> str:
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


def _flat(settings: dict, prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level: {"data.limit": 32, ...}."""
    flat = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
