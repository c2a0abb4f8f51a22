"""Which file a name in a table means, and which column names or holds the images.

Knows names only: nothing here opens a file.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable

# Headings of a column that names image files, the likeliest first; letter case and
# all that is neither a letter nor a digit do not count.
FILE_COLUMNS = (
    "filename", "imagefilename", "file", "filepath", "imagefile", "imagepath",
    "imagename", "image", "img", "picture", "photo", "path", "name", "id",
)  # fmt: skip
# Those of columns that hold images.
IMAGE_COLUMNS = (
    "image",
    "img",
    "picture",
    "photo",
    "pixelvalues",
    "jpg",
    "png",
    "webp",
)
# Words in the heading of an image that says something about another one.
SECOND = {
    "mask", "masks", "depth", "conditioning", "condition", "control", "canny", "edge",
    "edges", "seg", "segmentation", "pose", "normal", "normals", "annotation",
    "thumbnail", "thumb", "preview", "alpha",
}  # fmt: skip


def plain(heading: str) -> str:
    """Return a heading as headings are compared."""
    return re.sub(r"[^a-z0-9]", "", heading.lower())


def training_columns(headings: Iterable[str]) -> list[str]:
    """Return which of several columns of images can be that of the training images.

    More than one where the headings do not tell.
    """
    headings = list(headings)
    for wanted in IMAGE_COLUMNS:
        if matching := [h for h in headings if plain(h) == wanted]:
            return matching[:1]
    first = [h for h in headings if not set(re.split("[^a-z0-9]+", h.lower())) & SECOND]
    return first or headings


def even(name: str) -> str:
    """Return a path as paths are compared: NFC, with "/", without "./" or "a/../"."""
    name = unicodedata.normalize("NFC", name.strip()).replace("\\", "/")
    return posixpath.normpath(name)


def _loose(name: str) -> str:
    return unicodedata.normalize("NFC", even(name).casefold())


class FileNames:
    """Finds files by names that were written elsewhere.

    The same letters win; then the same path, whatever its Unicode normal form and its
    separators; then the same path in another letter case. A name that could mean
    several files means none.
    """

    def __init__(self, names: Iterable[str]):
        """Remember the names of the files there are, with "/" between folders."""
        self._exact = set(names)
        self._even, self._loose = {}, {}
        for name in self._exact:
            self._even.setdefault(even(name), []).append(name)
            self._loose.setdefault(_loose(name), []).append(name)

    def find(self, name: str) -> str | None:
        """Return the file that a name means, as it was remembered; None for none."""
        if name in self._exact:
            return name
        for known, key in ((self._even, even(name)), (self._loose, _loose(name))):
            if files := known.get(key):
                return files[0] if len(files) == 1 else None
        return None


def is_outside(name: str) -> bool:
    """Return whether a path, relative to a folder, leads out of it, as it is written.

    Absolute paths lead out.
    """
    name = even(name)
    return name.startswith("/") or name == ".." or name.startswith("../")
