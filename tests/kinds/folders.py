"""Images as files in folders."""

from pathlib import Path

from PIL import Image

from tests.kinds import Case

COLOURS = ("red", "green", "blue", "white", "black", "yellow", "purple", "orange")


def images(folder: Path, *names: str) -> Path:
    """Write small images of different colours; return the folder."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), COLOURS[number % len(COLOURS)]).save(path)
    return folder


CASES = [
    Case(
        "folders",
        "one folder for each class",
        lambda folder: images(folder, "cat/1.png", "dog/1.png"),
        {"cat/1.png": {"label": "cat"}, "dog/1.png": {"label": "dog"}},
        says=("pictures: 2", "classes: 2: cat 1, dog 1"),
    ),
    Case(
        "folders",
        "nothing at all",
        lambda folder: folder,
        refused="No pictures were found",
    ),
]
