"""Images with the very pixels of another."""

from functools import partial
from pathlib import Path

from precompute.imports.selection import Selection
from tests.kinds import Case, look
from tests.kinds.folders import images


def twice(folder: Path) -> Path:
    root = images(folder / "set", "a/1.png", "a/2.png")
    for copy in ("a/3.png", "b/1.png"):
        (root / copy).parent.mkdir(exist_ok=True)
        (root / copy).write_bytes((root / "a/1.png").read_bytes())
    return root


CASES = [
    Case(
        "exact duplicates",
        "named",
        twice,
        4,
        says=(
            "images: 4\n",
            "note: 2 exact duplicates: 'a/3.png = a/1.png' and 'b/1.png = a/1.png'. 1 "
            "with another label than the first: 'b/1.png'. --drop-duplicates uses the "
            "first of each alone.",
        ),
    ),
    Case(
        "exact duplicates",
        "dropped",
        twice,
        {"a/1.png": {}, "a/2.png": {}},
        says=(
            "images: 2\n",
            "classes: none: every image has the label 'a'; ",
            "The first of each is used.",
        ),
        ask=partial(look, selection=Selection(drop_duplicates=True)),
    ),
]
