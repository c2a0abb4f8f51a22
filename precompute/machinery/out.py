"""Where a command puts what it was asked for: `--out`.

Refuses a place before anything is computed for it. A file is replaced whole; into a
device or a pipe is written, as other programs do (`core.files.whole`).
"""

import os
from pathlib import Path

from core.files.whole import is_stream, written_whole

# What may be written there, by the end of the name; a command that is not listed writes
# one kind of file, whatever it is called. The first is what a device or a pipe gets.
ENDINGS = {"fidelity": (".csv", ".json"), "sheet": (".png", ".webp")}


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
    if path.is_dir():
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
