"""Captions in text files beside images, as trainers of LoRAs keep them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from core.data.sources.matching import FileNames
from core.data.sources.names import decoded
from core.files.texts import count_of, listed

SUFFIXES = (".txt", ".caption")  # the first one counts where an image has both
LONGEST = 1 << 20  # bytes of a caption that are read
TEXTS = ("caption", "text", "prompt")  # columns that hold what an image was shown with


@dataclass(frozen=True)
class Captions:
    """What text files say.

    Attributes:
        texts: The caption of an image by its relative path.
        notes: What a person must know of them, a sentence each.
    """

    texts: dict[PurePath, str]
    notes: tuple[str, ...] = ()


def captions_beside(
    folder: Path, images: Iterable[PurePath], others: Iterable[PurePath]
) -> Captions:
    """Return the captions in text files that are called as an image is.

    Args:
        folder: That was given.
        images: Relative paths of the images.
        others: Relative paths of all other files.
    """
    by_stem = {}
    for image in images:
        for stem in (image.with_suffix(""), image):  # "1.txt", or "1.png.txt"
            by_stem.setdefault(stem.as_posix(), []).append(image)
    known = FileNames(by_stem)
    by_image, unused, damaged = {}, [], []
    texts = [file for file in others if file.suffix.lower() in SUFFIXES]
    for file in sorted(texts, key=lambda f: (SUFFIXES.index(f.suffix.lower()), f)):
        stem = known.find(file.with_suffix("").as_posix())
        if stem is None:
            unused.append(file.as_posix())
            continue
        try:
            with (folder / file).open("rb") as opened:
                data = opened.read(LONGEST)
        except OSError:
            data = b"\xff"  # as good as letters that cannot be read
        try:
            text = decoded(data)
        except UnicodeDecodeError:
            damaged.append(file.as_posix())
            text = data.decode("utf-8", "replace")
        for image in by_stem[stem]:
            by_image.setdefault(image, []).append((file, text.strip()))
    if not by_image:
        return Captions({})
    notes = []
    if without := sorted({
        image.as_posix() for image in images if image not in by_image
    }):
        notes.append(
            f"{count_of(len(without), 'image')} without a caption file beside "
            f"{'it' if len(without) == 1 else 'them'}: {listed(without)}."
        )
    if unused:
        notes.append(
            f"{count_of(len(unused), 'text file')} without an image of that name: "
            f"{listed(unused)}."
        )
    if damaged:
        notes.append(
            f"{count_of(len(damaged), 'caption file')} not in UTF-8, with letters that "
            f"cannot be read: {listed(damaged)}. Save them again, as UTF-8."
        )
    unlike = [
        image.as_posix()
        for image, captions in by_image.items()
        if len({text for _, text in captions}) > 1
    ]
    if unlike:
        notes.append(
            f"{count_of(len(unlike), 'image')} with two caption files that differ: "
            f"{listed(sorted(unlike))}. The '.txt' is used."
        )
    return Captions(
        {image: captions[0][1] for image, captions in by_image.items()}, tuple(notes)
    )
