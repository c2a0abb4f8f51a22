"""What Hugging Face's `save_to_disk` wrote, with or without splits."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from core.data.sources.image_tables import (
    class_names,
    image_table,
    notes_of,
    records_of,
    splits_of,
    unreadable,
)
from core.data.sources.inside import lies_inside
from core.data.sources.records import Record, Source
from core.files.texts import listed


def saved_dataset(folder: Path, allow_outside: bool = False) -> Source | None:
    """Return what `save_to_disk` wrote, with or without splits; None for other."""
    if (folder / "dataset_dict.json").exists():
        splits = _listed_in(folder / "dataset_dict.json", "splits", str)
        folders = [(split, folder / split) for split in splits]
    elif (folder / "state.json").exists() and (folder / "dataset_info.json").exists():
        folders = [(_json(folder / "state.json").get("_split"), folder)]
    else:
        return None
    files = [
        (split, split_folder / str(entry.get("filename")))
        for split, split_folder in folders
        for entry in _listed_in(split_folder / "state.json", "_data_files", dict)
    ]
    if not files:
        raise ValueError(f"'{folder.name}' was saved without any data file.")
    for _, path in files:
        if not lies_inside(path, folder):
            raise ValueError(
                f"'{folder.name}' names the data file {listed([path])}, out of its "
                "folder. Save the data set again."
            )
    features = _json(folders[0][1] / "dataset_info.json").get("features")
    features = features if isinstance(features, dict) else {}
    tables = []
    for split, path in files:
        try:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as rows:
                table = image_table(path, rows.schema, features)
        except (pa.ArrowException, OSError):
            raise unreadable(path) from None
        tables.append(
            replace(table, root=folder, split=split, allow_outside=allow_outside)
        )

    def read() -> Iterator[Record]:
        for table in tables:
            try:
                file = pa.memory_map(str(table.path))
                with file, pa.ipc.open_stream(file) as rows:
                    yield from records_of(table, rows)
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                raise unreadable(table.path) from None

    title = "Hugging Face, saved to disk"
    classes = class_names(features)
    return Source(title, folder, read, classes, notes_of(tables), splits_of(tables))


def _json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(
            f"'{path}' is missing or is not JSON. Save the data set again."
        )
    return content


def _listed_in(path: Path, name: str, kind: type) -> list:
    """Return a list in a JSON file.

    Raises:
        ValueError: If the entry is not a list, or holds something of another kind.
    """
    entries = _json(path).get(name, [])
    if not isinstance(entries, list) or not all(isinstance(f, kind) for f in entries):
        raise ValueError(
            f"'{path}' holds no list of '{name}'. Save the data set again."
        )
    return entries
