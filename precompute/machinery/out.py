"""Where a command puts what it was asked for: `--out`.

Refuses a place before anything is computed for it. A file is replaced whole; into a
device or a pipe is written, as other programs do (`core.files.whole`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from core.files.whole import is_stream, written_whole

# What may be written there, by the end of the name; a command that is not listed writes
# one kind of file, whatever it is called. The first is what a device or a pipe gets.
ENDINGS = {"fidelity": (".csv", ".json"), "sheet": (".png", ".webp")}
FOLDERS = ("site",)  # commands whose result is a folder
PAGE = "index.html"  # in a folder that may be replaced: one of ours
OURS = b'<meta name="generator" content="Afterimage">'


def check_out(verb: str, path: Path) -> None:
    """Refuse a place where a command's result cannot go.

    Raises:
        ValueError: If it is a folder, is in none, or has another ending.
    """
    endings = ENDINGS.get(verb, ())
    if is_stream(path):
        if verb == "clip":
            raise ValueError(
                f"'{path}' is not a file, and unfinished training is kept beside the "
                "file it is for. Give --out the name of a safetensors file."
            )
        return
    if verb in FOLDERS:
        _check_folder(path)
    elif path.is_dir():
        raise ValueError(f"'{path}' is a folder. Give --out the name of a file in it.")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise ValueError(
            f"'{path}' cannot be written: there is no folder '{folder}'. Make it, or "
            "choose another place."
        )
    if endings and path.suffix.lower() not in endings:
        raise ValueError(
            f"'{path}' ends in none of {', '.join(endings)}, so it is not clear what "
            "to write. Choose another name."
        )


def _check_folder(path: Path) -> None:
    """Refuse a place for a folder where something else is.

    Raises:
        ValueError: If it is a file, or holds anything but an older result.
    """
    if path.is_file():
        raise ValueError(f"'{path}' is a file. Give --out the name of a new folder.")
    page = path / PAGE
    ours = page.is_file() and OURS in page.read_bytes()
    if path.is_dir() and any(path.iterdir()) and not ours:
        raise ValueError(
            f"'{path}' holds something else, which is not replaced. Give --out the "
            "name of a new folder."
        )


@contextmanager
def folder_out(path: Path) -> Iterator[Path]:
    """Write a folder in place of another of ours; a partly written one is removed.

    Yields:
        Where to put the files.
    """
    path = Path(os.path.realpath(path))
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as made:
        inside = Path(made) / "made"
        inside.mkdir()
        yield inside
        if path.is_dir():
            path.rename(Path(made) / "old")
        inside.rename(path)


def ending(verb: str, path: Path) -> str:
    """Return which of `ENDINGS` a command writes into a place."""
    endings = ENDINGS[verb]
    return path.suffix.lower() if path.suffix.lower() in endings else endings[0]


def write_out(path: Path, data: bytes) -> None:
    """Write a result, so that a reader of a file sees all of it or nothing.

    Raises:
        ValueError: If the place cannot be written.
    """
    try:
        with written_whole(path) as file:
            file.write(data)
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be written: {os.strerror(error.errno)}. Choose another "
            "place."
        ) from error
