"""Captions in text files beside images."""

import unicodedata

from tests.kinds import Case
from tests.kinds.tables import BOTH, CAT, QUIET, beside


def captions(files: dict[str, str | bytes], *names: str):
    return beside(files, *(names or ("1.png", "2.png")))


CASES = [
    Case(
        "captions beside images",
        "text files",
        captions({"1.txt": "A cat\n", "2.txt": "\ufeffA dog"}),
        BOTH,
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "files called .caption",
        captions({"1.caption": "A cat\n", "2.caption": "A dog"}),
        BOTH,
        says=("skipped: 0",),
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "both, which differ",
        captions({"1.txt": "A cat", "1.caption": "A lynx", "2.caption": "A dog"}),
        BOTH,
        says=(
            "1 image with two caption files that differ: '1.png'. The '.txt' is used",
        ),
    ),
    Case(
        "captions beside images",
        "one image without, and a text without an image",
        captions({"1.txt": "A cat", "3.txt": "A bird"}),
        {"1.png": CAT, "2.png": {}},
        says=(
            "1 image without a caption file beside it: '2.png'.",
            "1 text file without an image of that name: '3.txt'.",
        ),
    ),
    Case(
        "captions beside images",
        "a name in other letters",
        captions({unicodedata.normalize("NFD", "É.TXT"): "A cat"}, "é.png"),
        {"é.png": CAT},
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "another image but for letter case",
        captions({"a.txt": "A cat"}, "a.png", "A.png"),
        {"a.png": CAT, "A.png": {"name": "A"}},
        says=("1 image without a caption file beside it: 'A.png'.",),
    ),
    Case(
        "captions beside images",
        "the name of the whole file",
        captions({"1.png.txt": "A cat", "2.png.txt": "A dog"}),
        BOTH,
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "letters in another encoding",
        captions({"1.txt": "chât".encode("latin-1"), "2.txt": "A dog"}),
        {"1.png": {"caption": "ch\ufffdt"}, "2.png": {"caption": "A dog"}},
        says=(
            "1 caption file not in UTF-8, with letters that cannot be read: '1.txt'.",
        ),
    ),
    Case(
        "captions beside images",
        "a readme alone",
        captions({"README.txt": "Mine."}),
        {"1.png": {}, "2.png": {}},
        never=QUIET,
    ),
]
