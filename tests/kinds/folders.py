"""Images as files in folders."""

import unicodedata
from pathlib import Path

from PIL import Image

from tests.helpers import layouts
from tests.kinds import Case

COLOURS = ("red", "green", "blue", "white", "black", "yellow", "purple", "orange")


def images(folder: Path, *names: str) -> Path:
    """Write small images of different colours; return the folder."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), COLOURS[number % len(COLOURS)]).save(path)
    return folder


def write(root: Path, name: str, text: str) -> Path:
    """Write a text file below a folder; return the folder."""
    (root / name).write_text(text)
    return root


def artbench(folder: Path) -> Path:
    """Write ArtBench's files, one without a row, one named in other letters."""
    root = layouts.artbench_files(folder)
    table = folder / "ArtBench-10.csv"
    lost, other = sorted(root.rglob("*.webp"))[:2]
    lines = table.read_text().splitlines()
    lines = [line for line in lines if not line.startswith(lost.name)]
    text = "\n".join(lines).replace(other.name, "ann-bé_sée.webp") + "\n"
    table.write_text(text)
    other.rename(other.with_name(unicodedata.normalize("NFD", "ann-bé_sée.webp")))
    return root


CASES = [
    Case(
        "folders",
        "one folder for each class",
        lambda folder: images(folder, "cat/1.png", "dog/1.png"),
        {"cat/1.png": {"label": "cat"}, "dog/1.png": {"label": "dog"}},
        says=("images: 2", "classes: 2: cat 1, dog 1"),
    ),
    Case(
        "folders",
        "folders within classes",
        lambda folder: images(folder, "cat/red/old/1.png", "dog/2.png"),
        {
            "cat/red/old/1.png": {
                "label": "cat",
                "subfolder": "red",
                "subfolder_2": "old",
            },
            "dog/2.png": {"label": "dog"},
        },
        says=("classes: 2: cat 1, dog 1", "columns: file, label, name, subfolder, sub"),
    ),
    Case(
        "folders",
        "one folder around all classes",
        lambda folder: images(folder, "my set/cat/1.png", "my set/dog/2.png"),
        {"my set/cat/1.png": {"label": "cat"}, "my set/dog/2.png": {"label": "dog"}},
    ),
    Case(
        "folders",
        "one folder around splits, one around classes",
        lambda folder: images(folder, "a/train/b/cat/1.png", "a/test/b/dog/2.png"),
        {
            "a/train/b/cat/1.png": {"split": "train", "label": "cat"},
            "a/test/b/dog/2.png": {"split": "test", "label": "dog"},
        },
    ),
    Case(
        "folders",
        "one class alone",
        lambda folder: images(folder, "cat/1.png", "cat/2.png"),
        {"cat/1.png": {"label": "cat"}, "cat/2.png": {"label": "cat"}},
    ),
    Case(
        "folders of kohya's scripts",
        "repeats, and images against forgetting",
        lambda folder: images(
            folder, "img/10_sks cat/1.png", "img/5_sks dog/2.png", "reg/1_cat/3.png"
        ),
        {
            "img/10_sks cat/1.png": {"label": "10_sks cat", "caption": "sks cat"},
            "img/5_sks dog/2.png": {"label": "5_sks dog", "caption": "sks dog"},
        },
        says=(
            "note: 1 regularisation image left out: 'reg'.",
            "note: Folder names begin with a number of repeats, as kohya's scripts "
            "read them: '10_sks cat' and '5_sks dog'. Each image is used once all the "
            "same.",
        ),
    ),
    Case(
        "folders of kohya's scripts",
        "a caption of an image's own",
        lambda folder: write(
            images(folder, "10_sks/1.png", "10_sks/2.png"), "10_sks/1.txt", "A cat"
        ),
        {"10_sks/1.png": {"caption": "A cat"}, "10_sks/2.png": {"caption": "sks"}},
        says=("'10_sks'. Each image is used once",),
    ),
    Case(
        "folders of kohya's scripts",
        "a class called reg, and none with repeats",
        lambda folder: images(folder, "reg/1.png", "other/2.png"),
        {"reg/1.png": {"label": "reg"}, "other/2.png": {"label": "other"}},
        never=("note:",),
    ),
    Case(
        "folders",
        "ArtBench with a row too few, and a name in other letters",
        artbench,
        24,
        says=("1 of 24 images has no row in 'ArtBench-10.csv': 'jane-doe-", "artist"),
    ),
    Case(
        "folders",
        "nothing at all",
        lambda folder: folder,
        refused="No images were found",
    ),
]
