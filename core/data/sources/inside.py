"""Where a path that somebody else wrote leads: to a file, and inside of a folder."""

import os
from pathlib import Path


def lies_inside(path: Path, folder: Path) -> bool:
    """Return whether a path stays in a folder, links followed."""
    try:
        real, root = os.path.realpath(path), os.path.realpath(folder)
    except ValueError:  # a zero byte, which no path has
        return True  # to nowhere
    return os.path.commonpath([real, root]) == root


def is_file(path: Path) -> bool:
    """Return whether a file is there; no name is too long or too odd to ask."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
