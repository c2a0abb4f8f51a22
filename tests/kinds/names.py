"""Kinds of image in every carrier, links, strange names, and splits on their own."""

import os
from pathlib import Path

from precompute.imports.selection import Selection
from tests.core.data import test_names
from tests.core.data.test_names import ALONE, CALLED, STRANGE
from tests.helpers.layouts import pixels, png
from tests.helpers.picture_files import encoded, halves
from tests.kinds import Case, Found, look
from tests.kinds.folders import images

CARRIERS = ("in_folder", "in_table", "in_zip", "in_tar")


def one_of_each(carrier: str) -> list[Case]:
    """Return a case for every kind of image in a carrier."""
    write = getattr(test_names, carrier)
    return [
        Case(
            "kinds of image",
            f"{kind} {carrier.replace('_', ' a ')}",
            lambda folder, kind=kind, ending=endings[0]: write(
                folder / "set", f"a{ending}", encoded(halves(size=24), kind)
            ),
            1,
            says=("images: 1", "skipped: 0"),
        )
        for kind, endings in CALLED.items()
    ]


def look_by_default(path: Path) -> Found:
    """Return what is found where no split is asked for."""
    return look(path, Selection())


def strange(name: bytes):
    """Return what writes an image under a name of any bytes."""

    def make(folder: Path) -> Path:
        path = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(png(pixels(1, 0)[0]))
        return folder

    return make


def linked(folder: Path) -> Path:
    """Write a folder with a link to another, a loop, and a link to nothing."""
    root = images(folder / "set", "cat/1.png")
    (root / "dog").symlink_to(images(folder / "other", "2.png"))
    (root / "cat" / "loop").symlink_to("..")
    (root / "gone").symlink_to("nothing")
    return root


def among_others(folder: Path) -> Path:
    """Write an image behind many other files; `test_names.py` takes 10,000."""
    for number in range(300):
        (folder / f"a{number}.npy").write_bytes(b"x")
    return images(folder, "z.png")


CASES = [
    *(case for carrier in CARRIERS for case in one_of_each(carrier)),
    *(
        Case("strange names", repr(name)[:40], strange(name), 1, says=("images: 1",))
        for name in STRANGE
    ),
    *(
        Case("splits on their own", make.__name__, make, count, ask=look_by_default)
        for make, count in ALONE.items()
    ),
    Case(
        "links",
        "to a folder, to one above, to nothing",
        linked,
        {"cat/1.png": {"label": "cat"}, "dog/2.png": {"label": "dog"}},
        says=("it is '.' again", "links to nothing that can be read"),
    ),
    Case("many other files", "300 of them", among_others, 1, says=("skipped: 300",)),
]
