"""Archives that attack, that are damaged, and that merely have strange names."""

from pathlib import Path
from unittest.mock import patch

from core.data.sources import compressed
from tests.helpers.attacks import IMAGE, REFUSED, tar_of, zip_of
from tests.kinds import Case, Found, look


def look_closely(path: Path) -> Found:
    """Return what is found where bombs explode after fewer bytes."""
    with patch.object(compressed, "SMALL", 10**7):
        return look(path)


def strange(write, path: str) -> Case:
    """Return an archive of an image under names that a disk or a page may not like."""
    names = ("two\nlines/1.png", "\u732b/2.png", "x" * 300 + ".png")
    return Case(
        "names in archives",
        f"newlines, other alphabets and 300 letters in a {path[2:]}",
        lambda folder: write(folder / path, *((name, IMAGE) for name in names)),
        3,
        says=("images: 3", "classes: 2: two lines 1, \u732b 1"),
    )


CASES = [
    *(
        Case("archives that attack", name, make, refused=said, ask=look_closely)
        for name, (make, said) in REFUSED.items()
    ),
    strange(tar_of, "a.tar"),
    strange(zip_of, "a.zip"),
]
