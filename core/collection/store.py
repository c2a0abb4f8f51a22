"""The collection file: one DuckDB database with all that a collection knows.

Reads published files: images, named arrays, gallery samples, precomputed answers,
evaluations and the catalogue of shard files. Nothing in a file is a pickle: a value is
JSON text, an array is little-endian bytes with its dtype and shape. A published file
never changes, so that readers need no locks.

Does not know what any of it means, which tables there are (`core.collection.schema`),
which files are refused (`core.collection.checked_file`), nor how a file comes to be
(`core.collection.publish`).
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from core.collection.checked_file import CheckedFile, listed, plain_errors
from core.collection.schema import (
    BYTES_DTYPE,
    NAME_PATTERN,
    Sample,
    Shard,
    StoredAnswer,
    build_command,
    bytes_sha256,
    content_fingerprint,
    damaged,
    file_sha256,
    how_to_build,
    lens_key,
    to_json,
)
from core.drawing import Drawing


class Collection(CheckedFile):
    """A published collection, read-only; safe to use from several threads.

    Args:
        path: A file that `CollectionWriter.publish` or `find_collection` returned; what
            is wrong with it is said as in `CheckedFile`.
    """

    def require_settings(self, expected: dict) -> None:
        """Refuse to go on if the results were made with other settings.

        Args:
            expected: All or a part of `CollectionConfig.to_dict()`; only what is
                named is compared.

        Raises:
            ValueError: If a value differs; the message prints both.
        """
        stored = _flat(self.meta("settings"))
        wanted = _flat(json.loads(to_json(expected, "settings")))
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
        """Return the file bytes of training images, in the order asked for.

        Raises:
            LookupError: If there is no example of that id.
        """
        ids = [int(i) for i in example_ids]
        rows = self._rows(
            "select example_id, image, sha256 from examples "
            "where example_id in (select unnest(?::bigint[]))",
            ids,
        )
        files = {i: self._checked(image, sha256) for i, image, sha256 in rows}
        missing = sorted(set(ids) - set(files))
        if missing:
            raise LookupError(
                f"Collection '{self.name}' has no example {missing[0]}; see "
                "`examples()` for its ids."
            )
        return [files[i] for i in ids]

    def image(self, example_id: int) -> bytes:
        """Return the file bytes of one training image."""
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
            raise ValueError(damaged(self.path))
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
        """Return what made the images of the gallery, in order."""
        rows = self._rows(
            "select sample_id, label, seed, sampler, num_steps, guidance_scale, "
            "metadata from samples order by sample_id"
        )
        return [Sample(row[0], Drawing(*row[1:6]), json.loads(row[6])) for row in rows]

    def sample_image(self, sample_id: int) -> bytes:
        """Return a gallery image's PNG bytes.

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

    def sample_images(self) -> dict[int, bytes]:
        """Return the PNG bytes of all gallery images by sample id, read together."""
        rows = self._rows("select sample_id, image, sha256 from samples")
        return {sample: self._checked(*stored) for sample, *stored in rows}

    def sample_x_0(self, sample_id: int) -> np.ndarray:
        """Return a gallery image's clean example or latents, shape (C, H, W)."""
        return self.array(f"samples/{sample_id}/x_0")

    def answer(self, sample_id: int, lens: dict) -> StoredAnswer | None:
        """Return the precomputed answer for a sample under a lens, or None."""
        rows = self._rows(
            "select scores, standard_errors, sha256, value, source from answers "
            "where sample_id = ? and lens = ?",
            int(sample_id),
            lens_key(lens),
        )
        return self._answer(*rows[0]) if rows else None

    def answers(self, lens: dict) -> dict[int, StoredAnswer]:
        """Return all precomputed answers under a lens by sample id, read together."""
        rows = self._rows(
            "select sample_id, scores, standard_errors, sha256, value, source "
            "from answers where lens = ?",
            lens_key(lens),
        )
        return {sample: self._answer(*stored) for sample, *stored in rows}

    def _answer(self, scores: bytes, errors: bytes, sha256, value, source):
        """Return an answer from its stored bytes, checked against their checksum."""
        self._checked(scores + errors, sha256)
        return StoredAnswer(
            np.frombuffer(scores, "<f4").astype(np.float64),
            np.frombuffer(errors, "<f4").astype(np.float64),
            value,
            source,
        )

    def values(self, lens: dict) -> dict[int, float]:
        """Return the measured value of every sample answered under a lens."""
        key = lens_key(lens)
        rows = self._rows("select sample_id, value from answers where lens = ?", key)
        return dict(rows)

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

    def beside(self, kind: str) -> Path:
        """Return the path of a file beside the collection, after its checksum was met.

        Raises:
            LookupError: If it did not come along.
            ValueError: If it is another file.
        """
        for shard in self.shards():
            if shard.layout["kind"] == kind:
                path = self.shard_path(shard)
                if not path.is_file():
                    raise LookupError(
                        f"The file '{shard.file}' is not beside the collection. Copy "
                        f"it there, or make it with `{build_command(path)}`."
                    )
                if file_sha256(path) != shard.sha256:
                    raise ValueError(damaged(path, "what the collection was built of"))
                return path
        raise LookupError(
            f"The collection catalogues no {kind}. Build it again with "
            f"`{build_command(self.path)}`."
        )

    def denoiser(self) -> bytes:
        """Return the model's file: from the collection, or a large one from beside it.

        Errors of `beside` pass through.
        """
        if "denoiser" in self.arrays():
            return self.blob("denoiser")
        return self.beside("denoiser").read_bytes()

    def denoiser_sha256(self) -> str:
        """Return the checksum of the model's file, which need not have come along."""
        for shard in self.shards():
            if shard.layout["kind"] == "denoiser":
                return shard.sha256
        return bytes_sha256(self.blob("denoiser"))

    def verify(self) -> None:
        """Check every checksum, and that no row was lost, added or changed.

        Shard files that did not come along are passed over.

        Raises:
            ValueError: If anything differs from what was published.
        """
        with plain_errors(self.path):
            fingerprint = content_fingerprint(self._connection.cursor())
        if fingerprint != self.fingerprint:
            raise ValueError(damaged(self.path))
        for query in (
            "select image, sha256 from examples",
            "select image, sha256 from samples",
            "select scores || standard_errors, sha256 from answers",
        ):
            with plain_errors(self.path):
                cursor = self._connection.cursor().execute(query)
                while rows := cursor.fetchmany(256):
                    for row in rows:
                        self._checked(*row)
        for name in self.arrays():
            self._read_chunks(name)
        for shard in self.shards():
            path = self.shard_path(shard)
            if path.exists() and file_sha256(path) != shard.sha256:
                raise ValueError(damaged(path))

    def _read_chunks(self, name: str) -> tuple[str, list[int], bytearray]:
        """Return dtype, shape and bytes of an array or file.

        Raises:
            LookupError: If there is nothing of that name.
        """
        described = self._rows(
            "select dtype, shape, sha256 from arrays where name = ?", name
        )
        if not described:
            raise LookupError(
                f"Collection '{self.name}' has no array '{name}'; it has "
                f"{listed(self.arrays())}."
            )
        dtype, shape, sha256 = described[0]
        rows = self._rows("select start, data from chunks where name = ?", name)
        # A bytearray, so that the array is writable, which torch wants.
        data = bytearray().join(chunk for _, chunk in sorted(rows))
        self._checked(data, sha256)
        return dtype, json.loads(shape), data


def list_collections(root: Path) -> list[str]:
    """Return the names of the published collections."""
    pointers = Path(root).glob("[a-z0-9]*.current")
    return sorted(path.stem for path in pointers if path.is_file())


def find_collection(root: Path, name: str) -> Path:
    """Return the file of a collection's current version.

    Raises:
        LookupError: If there is no such collection; the message lists those there are
            and says how to build one.
    """
    root, names = Path(root), list_collections(root)
    if name not in names:
        raise LookupError(
            f"There is no collection '{name}'; there is {listed(names)}. "
            + how_to_build(name if NAME_PATTERN.fullmatch(name) else "glyphs")
        )
    file = " ".join((root / f"{name}.current").read_text(errors="replace").split())
    version = rf"{re.escape(name)}-[0-9a-f]{{12}}\.duckdb"
    if not re.fullmatch(version, file) or not (root / file).exists():
        raise LookupError(
            f"The file '{file[:80]}' that '{name}.current' names is not in its folder. "
            + how_to_build(name)
        )
    return root / file


def _flat(settings: dict, prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level: {"data.limit": 32, ...}."""
    flat = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
