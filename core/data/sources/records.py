"""One image of a source and what is known of it; which of them are wanted."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.data.sources.names import decoded, plain_text

# Folder names that say which split images belong to, as Hugging Face reads them.
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}


def split_word(name: str) -> str | None:
    """Return the split that the first word of a name says, as train-00000-of-1 does."""
    return SPLITS.get(re.split(r"[-_.]", name.lower())[0])


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is one that systems leave behind."""
    return name.startswith((".", "__MACOSX"))


@dataclass(frozen=True)
class Record:
    """An image as it lies in a source.

    Attributes:
        image: The bytes of an image file, or uint8 pixels of shape (H, W, C).
        facts: What is known of it; text by column, such as "label" or "artist".
        location: Where it lies, for messages.
        trouble: Why it cannot be read, in a sentence; "" where its bytes say so.
    """

    image: bytes | np.ndarray
    facts: dict[str, str]
    location: str
    trouble: str = ""

    def plain(self) -> "Record":
        """Return it with facts and a location that a table and a page can hold."""
        facts = {plain_text(c): plain_text(value) for c, value in self.facts.items()}
        return replace(self, facts=facts, location=plain_text(self.location))


@dataclass(frozen=True)
class Source:
    """Where images come from.

    Attributes:
        layout: Name of the layout, for people.
        path: The file or folder that holds it.
        read: Yields every record, always in the same order.
        classes: All class names in their own order, where the layout lists them.
        notes: What a person must know of what was found, a sentence each: what is
            left out, what does not fit together.
        splits: Those of its records, where the layout knows them beforehand.
        wanted_split: The one that is meant where none is asked for.
    """

    layout: str
    path: Path
    read: Callable[[], Iterator[Record]]
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    wanted_split: str = "train"


def selected(
    source: Source,
    split: str | None = None,
    keep: dict[str, tuple[str, ...]] | None = None,
    index: list[int] | None = None,
) -> Iterator[Record]:
    """Yield the wanted records of a source, in its order.

    Args:
        source: Where they come from.
        split: "train", "validation", "test" or "all"; None for the one that the source
            means. A record without a split is in every one.
        keep: Allowed values by column.
        index: Positions to take, counted among those that pass `split` and `keep`, as
            the index files of the paper's CIFAR-2 count them.

    A column that is not there, filters that nothing passes and a position beyond the
    last are a ValueError, once everything was seen.
    """
    split = split or source.wanted_split
    wanted = None if index is None else set(index)
    seen, passed, columns = set(), 0, set()
    for record in source.read():
        record = record.plain()  # whatever the layout, here all texts come by
        columns |= record.facts.keys()
        record_split = record.facts.get("split")
        seen.add(record_split)
        if split != "all" and record_split not in (None, split):
            continue
        if any(
            record.facts.get(column) not in values
            for column, values in (keep or {}).items()
        ):
            continue
        passed += 1
        if wanted is None or passed - 1 in wanted:
            yield record
    _check(split, keep or {}, index, seen, passed, columns)


def _check(split, keep, index, seen, passed, columns) -> None:
    """Raise the errors of `selected`, once everything was seen."""
    for column in keep:
        if column not in columns:
            raise ValueError(
                f"No image has a column '{column}' to select by. There are: "
                f"{', '.join(sorted(columns)) or 'none'}."
            )
    if not passed:
        splits = ", ".join(sorted(filter(None, seen))) or "none"
        conditions = "; ".join(f"{c} = {' or '.join(v)}" for c, v in keep.items())
        conditions = f" with {conditions}" if conditions else ""
        raise ValueError(
            f"No image is in split '{split}'{conditions}. "
            f"Splits that were found: {splits}. Ask for another one."
        )
    if index and max(index) >= passed:
        raise ValueError(
            f"The index file asks for image {max(index)}, counted from 0, of "
            f"{passed} that pass the filters. Check the filters it was made for."
        )


def read_index(path: Path) -> list[int]:
    """Return the positions in an index file: one whole number a line.

    Raises:
        ValueError: If it is not text, or a line is not a number or comes twice.
    """
    try:
        text = decoded(path.read_bytes())
    except UnicodeDecodeError:
        raise ValueError(
            f"'{path.name}' is not text. An index file has one position a line."
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    for number, line in enumerate(lines, 1):
        if not (line.isascii() and line.isdecimal()):
            raise ValueError(
                f"Line {number} of '{path.name}' is '{line[:40]}', not a whole number. "
                "An index file has one position a line."
            )
    index = [int(line) for line in lines]
    if len(set(index)) < len(index) or not index:
        raise ValueError(
            f"'{path.name}' {'names a position twice' if index else 'is empty'}. An "
            "index file has one position a line, each once."
        )
    return index
