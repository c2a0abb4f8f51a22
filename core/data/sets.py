"""A user's images as one parquet file, the same whatever layout they came in.

Every image is made an upright square of the model's size. Examples are numbered in
the order of the hashes of their pixels, so that the same images get the same ids, and
with them the same scores, from any layout. Images stream through: memory holds a few
hundred at a time.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from core.columns import free_names
from core.data.opt_outs import NOTHING_SAID, training_wish
from core.data.sources.records import Record
from core.files.images import fit_square, open_image

ROWS = 256  # read together
GROUP = 2048  # images of a set that are written, and later read, together
RESERVED = {"id", "image", "sha256", "source_row"}
SHOWN = 20  # skipped files that a message lists


@dataclass
class Summary:
    """What was seen of the images of a source.

    Attributes:
        count: How many could be read.
        sizes: How many have each (width, height).
        grey: Whether all are.
        values: How often each value stands in each column; at most `MOST_VALUES` are
            counted, then the column is None.
        skipped: (location, reason) of what could not be read.
        duplicates: (location, that of the earlier one) of those with the same pixels as
            another.
        unlike: Locations of those among them whose label is another one.
        dropped: Whether these were left out.
        opted_out: (location, what says so) of those that forbid training.
        unclear: (location, what) of those of which that cannot be told.
        excluded: Whether those that forbid it were left out.
    """

    MOST_VALUES = 10_000

    count: int = 0
    sizes: Counter = field(default_factory=Counter)
    grey: bool = True
    values: dict[str, Counter | None] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)
    dropped: bool = False
    opted_out: list[tuple[str, str]] = field(default_factory=list)
    unclear: list[tuple[str, str]] = field(default_factory=list)
    excluded: bool = False
    _first: dict[bytes, tuple[str, str | None]] = field(
        default_factory=dict, repr=False
    )

    def add(self, record: Record, image: Image.Image, digest: bytes) -> bool:
        """Count an image that could be read; return whether it is to be used."""
        data = record.image
        wish = training_wish(data) if isinstance(data, bytes) else NOTHING_SAID
        if wish.unclear:
            self.unclear.append((record.location, wish.unclear))
        if wish.forbids:
            self.opted_out.append((record.location, wish.forbids))
            if self.excluded:
                return False
        label = record.facts.get("label")
        if digest not in self._first:
            self._first[digest] = record.location, label
        else:
            earlier, earlier_label = self._first[digest]
            self.duplicates.append((record.location, earlier))
            if label != earlier_label:
                self.unlike.append(record.location)
            if self.dropped:
                return False
        self.count += 1
        self.sizes[image.size] += 1
        self.grey = self.grey and is_grey(image)
        for column, value in record.facts.items():
            counter = self.values.setdefault(column, Counter())
            if counter is not None:
                counter[value] += 1
                if len(counter) > self.MOST_VALUES:
                    self.values[column] = None
        return True

    def classes(self) -> dict[str, int]:
        """Return how many images each class has, by its name."""
        return dict(sorted((self.values.get("label") or {}).items()))


def image_of(record: Record) -> Image.Image:
    """Return a record's image, upright and in RGB.

    Raises:
        ValueError: If it is not an image that can be read, or its source could not
            get it.
    """
    if record.trouble:
        raise ValueError(record.trouble)
    if isinstance(record.image, bytes):
        return open_image(record.image)
    pixels = record.image
    if pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    return Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")


def is_grey(image: Image.Image) -> bool:
    """Return whether an RGB image has no colour."""
    red, green, blue = (np.asarray(band) for band in image.split())
    return bool((red == green).all() and (green == blue).all())


def readable(
    records: Iterable[Record], summary: Summary, size: int | None = None
) -> Iterator[tuple[Record, Image.Image, bytes]]:
    """Yield (record, image, hash of its pixels), and note in `summary` what is met.

    Args:
        records: The source.
        summary: Counts what was read, and lists what could not be.
        size: Side of the square that each image is fitted into; None leaves it.
    """
    for record in records:
        try:
            image = image_of(record)
        except ValueError as error:
            summary.skipped.append((record.location, str(error)))
            continue
        fitted = image if size is None else fit_square(image, size)
        digest = hashlib.sha256(str(fitted.size).encode() + fitted.tobytes()).digest()
        if summary.add(record, image, digest):
            yield record, fitted, digest


def inspect(
    records: Iterable[Record],
    progress: Callable[[Iterable], Iterable] = iter,
    drop_duplicates: bool = False,
    exclude_opted_out: bool = False,
) -> Summary:
    """Return what is seen of the images of a source; a ValueError if nothing is.

    Args:
        records: The source.
        progress: Wraps the loop, to show how far it is.
        drop_duplicates: Whether those with the pixels of an earlier one are left out.
        exclude_opted_out: Whether those that forbid training are left out.
    """
    summary = Summary(dropped=drop_duplicates, excluded=exclude_opted_out)
    for _ in progress(readable(records, summary)):
        pass
    check_any(summary)
    return summary


def check_any(summary: Summary) -> None:
    """Raise ValueError if no image could be read."""
    if not summary.count and summary.excluded and summary.opted_out:
        raise ValueError(
            f"No image is left: {len(summary.opted_out):,} forbid training, and "
            "--exclude-opted-out leaves them out. Give others, or omit the option."
        )
    if not summary.count:
        location, reason = summary.skipped[0]
        raise ValueError(
            f"None of {len(summary.skipped)} files could be read as an image. The "
            f"first, '{location}': {reason}"
        )


def write_set(
    records: Iterable[Record],
    folder: Path,
    name: str,
    size: int,
    progress: Callable[[Iterable], Iterable] = iter,
    drop_duplicates: bool = False,
    exclude_opted_out: bool = False,
) -> tuple[Path, Summary]:
    """Write the images of a source as `NAME-HASH.parquet`.

    The file appears whole or not at all. Columns: `id`, `image` (file bytes), `sha256`
    of its pixels, `source_row`, and the facts of the records as text. No readable
    image is a ValueError.

    Args:
        records: The source.
        folder: Where the file goes.
        name: Of the data set.
        size: Side of the images, pixels.
        progress: Wraps the loop, to show how far it is.
        drop_duplicates: Whether those with the pixels of an earlier one are left out.
        exclude_opted_out: Whether those that forbid training are left out.

    Returns:
        The file, and what was seen on the way.
    """
    folder.mkdir(parents=True, exist_ok=True)
    summary = Summary(dropped=drop_duplicates, excluded=exclude_opted_out)
    with TemporaryDirectory(dir=folder, prefix=".import-") as scratch:
        made = Path(scratch) / "sorted.parquet"
        with open(Path(scratch) / "unsorted", "w+b") as unsorted:
            slots = _put_aside(progress(readable(records, summary, size)), unsorted)
            check_any(summary)
            _write_sorted(unsorted, slots, sorted(summary.values), made)
        path = folder / f"{name}-{content_hash(made)}.parquet"
        os.replace(made, path)
    return path, summary


@dataclass(frozen=True, order=True)
class Slot:
    """Where an image was put aside; images are numbered in this order.

    Attributes:
        digest: Of its pixels.
        label: Its label, "" for none.
        row: Its number in the source.
        start: Of its facts, as JSON, in the file.
        image: Where these end and its bytes begin.
        end: Of these.
    """

    digest: bytes
    label: bytes
    row: int
    start: int
    image: int
    end: int


def _put_aside(
    read: Iterable[tuple[Record, Image.Image, bytes]], file: BinaryIO
) -> list[Slot]:
    """Write facts and images one after the other.

    In memory stays what an image is numbered by, not the image.

    Returns:
        Where they are, in the order of their numbers.
    """
    slots = []
    for row, (record, image, digest) in enumerate(read):
        start = file.tell()
        file.write(json.dumps(record.facts).encode())
        middle = file.tell()
        image.save(file, "WEBP", lossless=True)
        label = record.facts.get("label", "").encode(errors="surrogatepass")
        slots.append(Slot(digest, label, row, start, middle, file.tell()))
    return sorted(slots)


def _write_sorted(
    unsorted: BinaryIO, slots: list[Slot], facts: list[str], made: Path
) -> None:
    """Write the images in the order of their slots, with ids from 0.

    Args:
        unsorted: Of `_put_aside`.
        slots: In order.
        facts: Names of those that become columns, "" where an image has none.
        made: The parquet file.
    """
    names = free_names(facts, RESERVED)
    texts = [(name, pa.string()) for name in names.values()]
    schema = pa.schema([
        ("id", pa.int64()),
        ("image", pa.binary()),
        ("sha256", pa.string()),
        ("source_row", pa.int64()),
        *texts,
    ])
    numbered = enumerate(slots)
    with pq.ParquetWriter(made, schema, compression="zstd") as writer:
        while some := list(islice(numbered, GROUP)):
            rows = []
            for number, slot in some:
                unsorted.seek(slot.start)
                facts_of_image = json.loads(unsorted.read(slot.image - slot.start))
                rows.append({
                    "id": number,
                    "image": unsorted.read(slot.end - slot.image),
                    "sha256": slot.digest.hex(),
                    "source_row": slot.row,
                    **{
                        name: facts_of_image.get(fact, "")
                        for fact, name in names.items()
                    },
                })
            writer.write_table(pa.Table.from_pylist(rows, schema))


def content_hash(path: Path) -> str:
    """Return 12 hex digits of what a set holds, whatever its bytes on disk."""
    digest, table = hashlib.sha256(), pq.ParquetFile(path)
    # The hash of the pixels stands for the image, whose bytes need not be read.
    columns = [name for name in table.schema_arrow.names if name != "image"]
    for batch in table.iter_batches(ROWS, columns=columns):
        for row in batch.to_pylist():
            digest.update(json.dumps(row, sort_keys=True).encode())
    return digest.hexdigest()[:12]
