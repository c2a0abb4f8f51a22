"""What the place of an image file says: its split, its class, its folders.

Knows paths only: nothing here opens a file.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

from core.data.sources.records import SPLITS
from core.files.texts import count_of, listed

# As kohya's scripts name folders: how often an image is shown, and the words for it.
REPEATS = re.compile(r"(\d+)_(.+)", re.DOTALL)
# Of images that only keep a model from forgetting, beside those.
REGULAR = {"reg", "regs", "regularization", "regularisation", "reg_images"}


@dataclass(frozen=True)
class Places:
    """How a folder is arranged.

    Attributes:
        files: Relative paths of the images that are read.
        split: The level of folders, from 0, that are splits; None for no such level.
        first: The level that is the class; folders that all images share say nothing.
        repeats: Whether folders are named as kohya's are.
        notes: What a person must know of it, a sentence each.
    """

    files: tuple[PurePath, ...]
    split: int | None = None
    first: int = 0
    repeats: bool = False
    notes: tuple[str, ...] = field(default=())

    def facts(self, file: PurePath) -> dict[str, str]:
        """Return what a file's place says: its split, class, inner folders and name."""
        facts = {"file": file.as_posix(), "name": file.stem}
        if self.split is not None:
            facts["split"] = SPLITS[file.parts[self.split].lower()]
        for level, folder in enumerate(file.parts[self.first : -1], 1):
            facts[level_name(level)] = folder
        return facts

    def words(self, file: PurePath) -> str:
        """Return the words for an image in the name of one of kohya's folders."""
        if not self.repeats:
            return ""
        repeats = [m for name in file.parts[:-1] if (m := REPEATS.fullmatch(name))]
        return repeats[-1][2].strip() if repeats else ""

    def classes(self) -> set[str]:
        """Return the folders that are classes, in all splits."""
        return {
            facts["label"] for f in self.files if "label" in (facts := self.facts(f))
        }


def level_name(level: int) -> str:
    """Return the column of folders at a level: 1 the class, 2 a folder within it."""
    return {1: "label", 2: "subfolder"}.get(level, f"subfolder_{level - 1}")


def arranged(files: Iterable[PurePath]) -> Places:
    """Return how image files are arranged.

    Args:
        files: Their paths, relative to the folder that was given.
    """
    files, notes = tuple(files), []
    regular = [file for file in files if _is_regular(file)]
    trained = [file for file in files if not _is_regular(file)]
    repeats = bool(trained) and all(map(_repeats, trained))
    if regular and repeats:
        files = tuple(trained)
        folders = sorted({_until_regular(file) for file in regular})
        notes.append(
            f"{count_of(len(regular), 'regularisation image')} left out: "
            f"{listed(folders)}."
        )
    repeats = bool(files) and all(map(_repeats, files))
    if repeats:
        counts = Counter(folder for file in files for folder in _repeats(file)[-1:])
        shown = [name for name in counts if REPEATS.fullmatch(name)[1] != "1"]
        if shown:
            notes.append(
                "Folder names begin with a number of repeats, as kohya's scripts read "
                f"them: {listed(sorted(shown))}. Each image is used once all the same."
            )
    split, first = _levels([file.parts[:-1] for file in files])
    return Places(files, split, first, repeats, tuple(notes))


def _levels(folders: list[tuple[str, ...]]) -> tuple[int | None, int]:
    """Return the level of splits, if there is one, and the level of classes."""
    split, first = None, 0
    while folders:
        tops = {inside[first] if inside[first:] else "" for inside in folders}
        if split is None and all(top.lower() in SPLITS for top in tops):
            split = first
        elif len(tops) > 1 or "" in tops or all(len(f) == first + 1 for f in folders):
            break
        first += 1
    return split, first


def _repeats(file: PurePath) -> list[str]:
    return [name for name in file.parts[:-1] if REPEATS.fullmatch(name)]


def _is_regular(file: PurePath) -> bool:
    return any(name.lower() in REGULAR for name in file.parts[:-1])


def _until_regular(file: PurePath) -> str:
    number = next(i for i, name in enumerate(file.parts) if name.lower() in REGULAR)
    return "/".join(file.parts[: number + 1])
