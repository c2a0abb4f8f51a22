"""What people bring, kind by kind: a table of cases that anyone can add to.

A case writes something into an empty folder, asks for it, and says what has to come
out: these images with these facts and these words, or one sentence that refuses. Each
module of this package has its own `CASES`; `tests/core/data/test_kinds.py` tries them
all, and `python -m tests.benchmarks kinds` counts them by kind.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from core.data.sets import Summary, readable
from core.data.sources import find_source, opened
from core.files.whole import trouble
from precompute.imports.images import inspect_data
from precompute.imports.selection import Selection

ANSWERED, REFUSED = "answered", "refused in a sentence"
WRONG, TRACEBACK = "wrong", "traceback"
OUTCOMES = (ANSWERED, REFUSED, WRONG, TRACEBACK)
# What no text for people holds: the words of libraries.
UNSAID = (
    "pyarrow", "Arrow", "schema", "Traceback", "codec", "NoneType", "KeyError",
    "PosixPath", "torch.", "duckdb", " at 0x",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What came out of asking.

    Attributes:
        text: What a person reads.
        images: The facts of each image by its file, else by its place.
    """

    text: str = ""
    images: dict[str, dict[str, str]] | None = None


def look(path: Path, selection: Selection | None = None) -> Found:
    """Return what `inspect-data` says of a path, and the images that are read there."""
    selection = selection or Selection("all")
    text = inspect_data(path, selection)
    with opened(path) as inside:
        records = selection.records(find_source(inside, selection.allow_outside))
        summary = Summary(
            dropped=selection.drop_duplicates, excluded=selection.exclude_opted_out
        )
        read = readable(records, summary)
        images = {r.facts.get("file", r.location): r.facts for r, _, _ in read}
    return Found(text, images)


@dataclass(frozen=True)
class Case:
    """One thing that people bring.

    Attributes:
        kind: What its like have in common, such as "tables beside images".
        name: What is special about it.
        make: Writes it into an empty folder; returns the path that is asked about.
        images: How many images there are, or what each file's facts must hold; None
            asks nothing of them.
        says: Parts of the text for people.
        never: What that text must not hold.
        refused: Part of the sentence that refuses; "" where it must be answered.
        ask: Asks about the path; an error for people is a refusal.
    """

    kind: str
    name: str
    make: Callable[[Path], Path]
    images: int | dict[str, dict[str, str]] | None = None
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    refused: str = ""
    ask: Callable[[Path], Found] = look

    def __str__(self) -> str:
        """Return its name, for a list of tests."""
        return f"{self.kind}: {self.name}"


def outcome(case: Case, folder: Path) -> tuple[str, str]:
    """Return which of `OUTCOMES` a case has, and why if that is one of the last two.

    What makes the case must work: its errors pass through.
    """
    path = case.make(folder)
    try:
        found = case.ask(path)
    except (LookupError, ValueError, OSError) as error:  # as the command takes them
        return _refusal(case, error)
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {error}"
    if case.refused:
        return WRONG, f"answered, not refused: {found.text}"
    why = [f"it does not say {part!r}" for part in case.says if part not in found.text]
    why += [f"it says {part!r}" for part in case.never if part in found.text]
    why += _differences(case.images, found.images)
    return (
        (WRONG, f"{'; '.join(why)}. It says: {found.text}") if why else (ANSWERED, "")
    )


def _refusal(case: Case, error: Exception) -> tuple[str, str]:
    said = trouble(error) if isinstance(error, OSError) else str(error.args[0])
    if said != said.strip() or "\n" in said or not said.endswith("."):
        return TRACEBACK, f"{type(error).__name__}, no sentence: {said}"
    if words := [word for word in UNSAID if word in said]:
        return TRACEBACK, f"{type(error).__name__} speaks of {words}: {said}"
    if not case.refused or case.refused not in said:
        return WRONG, f"refused: {said}"
    return REFUSED, ""


def _differences(wanted: int | dict | None, found: dict | None) -> list[str]:
    """Return in words how the images differ from what was wanted."""
    if wanted is None:
        return []
    if isinstance(wanted, int):
        return [] if len(found) == wanted else [f"{len(found)} images: {list(found)}"]
    if sorted(wanted) != sorted(found):
        return [f"the images are {sorted(found)}"]
    return [
        f"{file!r} has {found[file]}"
        for file, facts in wanted.items()
        if not facts.items() <= found[file].items()
    ]


def all_cases() -> list[Case]:
    """Return the cases of every module of this package."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return [case for module in modules for case in module.CASES]
