"""What tables beside image files say of each, and what in them fits no image."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from core.data.sources.inside import is_file
from core.data.sources.matching import (
    FILE_COLUMNS,
    FileNames,
    even,
    is_outside,
    plain,
    training_columns,
)
from core.data.sources.records import SPLITS, split_word
from core.data.sources.text_tables import SUFFIXES, TextTable, read_table
from core.files.texts import count_of, listed

METADATA = "metadata"  # a table of this name has to be about the images


@dataclass
class Beside:
    """What tables say.

    Attributes:
        facts: Text by column, by the relative path of an image.
        second: Relative paths of images that only stand beside another one, such as
            its mask.
        outside: Files out of the folder that rows name, with what these say.
        notes: What a person must know of the tables, a sentence each.
    """

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    second: set[str] = field(default_factory=set)
    outside: dict[Path, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class _Used:
    """A table that names images.

    Attributes:
        name: Its path, relative to the folder.
        column: That names the images.
        table: What it says.
        rows: The row of each image that it names.
        second: Images that its other columns name, by the column.
    """

    name: PurePath
    column: str
    table: TextTable
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    second: dict[str, set[str]] = field(default_factory=dict)


def tables_beside(
    folder: Path,
    images: Iterable[PurePath],
    others: Iterable[PurePath],
    allow_outside: bool = False,
) -> Beside:
    """Return what the tables in a folder say of its images.

    Args:
        folder: That was given.
        images: Relative paths of the images.
        others: Relative paths of all other files.
        allow_outside: Whether rows may name files out of the folder.

    A table called metadata that cannot be read or names no files is a ValueError.
    """
    images = [image.as_posix() for image in images]
    names, gathered, used = FileNames(images), Beside(), []
    tables = [file for file in others if file.suffix.lower() in SUFFIXES]
    for file in sorted(tables, key=lambda f: (f.stem.lower() != METADATA, f)):
        table = _used_table(folder, file, names, gathered)
        if table is not None:
            _match(folder, table, names, gathered, allow_outside)
            used.append(table)
    _merge(used, gathered)
    named = set().union(*(table.rows for table in used))
    for table in used:
        for column, files in table.second.items():
            if left := sorted(files - named):
                gathered.second |= set(left)
                gathered.notes.append(
                    f"{count_of(len(left), 'image')} that only '{column}' of "
                    f"'{table.name}' names {_is(len(left))} not for training: "
                    f"{listed(left)}."
                )
    _note_images_without(
        used, [i for i in images if i not in gathered.second], gathered
    )
    return gathered


def _used_table(
    folder: Path, file: PurePath, names: FileNames, gathered: Beside
) -> _Used | None:
    """Return a table with its column of files; None, and a note, if it has none."""
    required = file.stem.lower() == METADATA
    try:
        table = read_table(folder / file)
        column = _file_column(file, table, names)
    except ValueError as error:
        if required:
            raise
        gathered.notes.append(f"A table is not used. {error}")
        return None
    if column is not None:
        gathered.notes += table.notes
        return _Used(file, column, table)
    headings = f"'{file.name}' has the columns {listed(table.columns, 8) or 'none'}."
    if any(names.find(heading) for heading in table.columns):
        headings = f"The first line of '{file.name}' names an image, not the columns."
    if required:
        raise ValueError(f"{headings} It needs 'file_name', relative to the table.")
    gathered.notes.append(
        f"A table is not used. {headings} To use it, name images in 'file_name', "
        "relative to the table."
    )
    return None


def _file_column(file: PurePath, table: TextTable, names: FileNames) -> str | None:
    """Return the column that names the images; None if there is none.

    Raises:
        ValueError: If there are several and their headings do not tell.
    """
    preference = {
        c: FILE_COLUMNS.index(plain(c)) for c in table.columns if _is_known(c)
    }
    known = sorted(preference, key=preference.get)
    if known and plain(known[0]) == FILE_COLUMNS[0]:
        return known[0]
    suffixed = [c for c in table.columns if plain(c).endswith(FILE_COLUMNS[0])]
    if suffixed:
        stems = {c.lower().removesuffix("file_name").rstrip("_"): c for c in suffixed}
        chosen = [stems[stem] for stem in training_columns(stems)]
        if len(chosen) == 1:
            return chosen[0]
        raise ValueError(
            f"'{file.name}' names files in several columns, {listed(chosen)}. Call the "
            "one with the training images 'file_name'."
        )
    for column in known:
        if any(_found(row[column], file, names) for row in table.rows):
            return column
    return None


def _is_known(heading: str) -> bool:
    return plain(heading) in FILE_COLUMNS


def _found(name: str, table: PurePath, names: FileNames) -> str | None:
    """Return the image that a table means: relative to the table, or to the folder."""
    if not name.strip():
        return None
    return names.find((table.parent / even(name)).as_posix()) or names.find(name)


def _match(
    folder: Path, used: _Used, names: FileNames, gathered: Beside, allow_outside: bool
) -> None:
    """Find the images that a table's rows name, and note what they do not fit."""
    unknown, twice, outside = [], [], []
    roots = {even(str(start)) + "/" for start in (folder.absolute(), folder.resolve())}
    for number, row in enumerate(used.table.rows, 1):
        cell = row[used.column]
        name = even(cell) if cell.strip() else ""
        for root in roots:
            name = name.removeprefix(root)
        image = _found(cell, used.name, names) or _found(name, used.name, names)
        facts = {c: value for c, value in row.items() if c != used.column}
        if image in used.rows:
            twice.append(cell)
        elif image:
            used.rows[image] = facts
        elif name and is_outside((used.name.parent / name).as_posix()):
            path = folder / used.name.parent / cell
            if allow_outside and is_file(path):
                gathered.outside.setdefault(path, facts)
            else:
                (unknown if allow_outside else outside).append(cell)
        else:
            unknown.append(cell or f"row {number}")
    rows = f"of {count_of(len(used.table.rows), 'row')} in '{used.name}'"
    if unknown:
        gathered.notes.append(
            f"{len(unknown):,} {rows} {_name(len(unknown))} no image here: "
            f"{listed(unknown)}."
        )
    if outside:
        gathered.notes.append(
            f"{len(outside):,} {rows} {_name(len(outside))} files outside of the "
            f"folder: {listed(outside)}. --allow-outside reads them."
        )
    if twice:
        gathered.notes.append(
            f"{len(twice):,} {rows} {_name(len(twice))} an image again: "
            f"{listed(twice)}. Its first row is used."
        )
    for column in used.table.columns:
        if column != used.column:
            used.second[column] = _images_in(used, column, names)


def _images_in(used: _Used, column: str, names: FileNames) -> set[str]:
    """Return the images in a column that holds nothing but their names."""
    is_named_so, images = plain(column).endswith(FILE_COLUMNS[0]), set()
    for row in used.table.rows:
        if not row[column].strip():
            continue
        image = _found(row[column], used.name, names)
        if image is not None:
            images.add(image)
        elif not is_named_so:  # the first cell tells of most columns
            return set()
    return images


def _merge(used: list[_Used], gathered: Beside) -> None:
    """Put together what tables say of the same image; the earlier table wins."""
    origins = {}  # (image, column) -> table
    for table in used:
        in_split = any(name.lower() in SPLITS for name in table.name.parent.parts)
        split = None if in_split else split_word(table.name.stem)
        unlike = {}  # (earlier table, column) -> images
        for image, row in table.rows.items():
            if split and "split" not in row:
                row = row | {"split": split}
            facts = gathered.facts.setdefault(image, {})
            for column, value in row.items():
                if column == "split":
                    value = SPLITS.get(value.strip().lower(), value)
                if not facts.get(column):
                    facts[column] = value
                    origins[image, column] = table.name
                elif value and value != facts[column]:
                    key = origins[image, column], column
                    unlike.setdefault(key, []).append(image)
        gathered.notes += [
            f"'{first}' and '{table.name}' differ in '{column}' of "
            f"{count_of(len(images), 'image')}: {listed(images)}. '{first}' is used."
            for (first, column), images in unlike.items()
        ]


def _note_images_without(
    used: list[_Used], images: list[str], gathered: Beside
) -> None:
    """Note the images that a table should know, being below it, and does not."""
    groups = {}  # tables that each hold one split belong together
    for table in used:
        whole = table.name.parent if split_word(table.name.stem) else table.name
        groups.setdefault(whole, []).append(table)
    for tables in groups.values():
        below = tables[0].name.parent
        rows = set().union(*(table.rows for table in tables))
        inside = [i for i in images if PurePath(i).is_relative_to(below)]
        if without := [image for image in inside if image not in rows]:
            gathered.notes.append(
                f"{len(without):,} of {count_of(len(inside), 'image')} "
                f"{'has' if len(without) == 1 else 'have'} no row in "
                f"{listed([table.name for table in tables])}: {listed(without)}."
            )


def _name(number: int) -> str:
    return "names" if number == 1 else "name"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
