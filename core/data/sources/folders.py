"""Images as files in folders, with what lies beside them says of each."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePath

from core.data.sources import captions, text_tables
from core.data.sources.artbench import ARTBENCH_TABLE, artbench_table
from core.data.sources.below import below
from core.data.sources.beside import tables_beside
from core.data.sources.captions import TEXTS, captions_beside
from core.data.sources.image_files import image_bytes, likely_first, looks_like_image
from core.data.sources.places import arranged
from core.data.sources.records import Record, Source
from core.files.texts import count_of, listed

# Files of these kinds lie beside images and are none; everything else is tried.
ARCHIVES = {".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"}
OTHER_TABLES = {".json", ".xlsx", ".xls", ".ods", ".arrow", ".feather"}
BESIDE = {
    *ARCHIVES, *OTHER_TABLES, *text_tables.SUFFIXES, *captions.SUFFIXES,
    ".md", ".html", ".xml", ".yaml", ".yml", ".ini", ".db", ".lock", ".pdf", ".py",
}  # fmt: skip


def may_be_image(file: PurePath) -> bool:
    """Return whether a file's name does not say that it is something else."""
    return file.suffix.lower() not in BESIDE


def image_folder(folder: Path, allow_outside: bool = False) -> Source | None:
    """Return images in folders by class and perhaps split, None if there are none.

    Args:
        folder: That was given.
        allow_outside: Whether tables may name images out of the folder.

    Errors of `tables_beside` pass through.
    """
    listing = below(folder)
    files = [file.relative_to(folder) for file in listing.files]
    images = [file for file in files if may_be_image(file)]
    others = [file for file in files if not may_be_image(file)]
    if any(looks_like_image(folder / file) for file in likely_first(images)):
        source = _image_files(folder, images, others, allow_outside)
        return replace(source, notes=(*source.notes, *listing.notes()))
    # A folder of a table alone, whose images lie elsewhere.
    if allow_outside and any(f.suffix.lower() in text_tables.SUFFIXES for f in others):
        source = _image_files(folder, [], others, allow_outside)
        return source if next(source.read(), None) else None
    return None


def _image_files(
    folder: Path, images: list[PurePath], others: list[PurePath], allow_outside: bool
) -> Source:
    tables_of = [file for file in others if file.name != ARTBENCH_TABLE]
    tables = tables_beside(folder, images, tables_of, allow_outside)
    places = arranged(file for file in images if file.as_posix() not in tables.second)
    texts = captions_beside(folder, places.files, others)
    art, classes = artbench_table(folder), places.classes()
    if art is not None and not classes & art.styles:
        art = None

    def known(file: PurePath) -> dict[str, str]:
        facts = places.facts(file)
        if file in texts.texts:
            facts["caption"] = texts.texts[file]
        cells = tables.facts.get(file.as_posix(), {})
        facts |= {c: value for c, value in cells.items() if value or c not in facts}
        if art is not None:
            facts |= art.of(facts, file.name)
        if places.words(file) and not any(map(facts.get, TEXTS)):
            facts["caption"] = places.words(file)  # as kohya's scripts do
        return facts

    def read() -> Iterator[Record]:
        for file in places.files:
            data, trouble = image_bytes(folder / file)
            yield Record(data, known(file), str(file), trouble)
        for path, facts in tables.outside.items():
            names = {"file": path.as_posix(), "name": path.stem}
            data, trouble = image_bytes(path)
            yield Record(data, names | facts, str(path), trouble)

    notes = [*places.notes, *tables.notes, *texts.notes, *not_read(others)]
    if art is not None:
        notes += art.notes((places.facts(file), file.name) for file in places.files)
    return Source(
        "Image files" if art is None else "ArtBench-10, image files",
        folder,
        read,
        tuple(sorted(classes)),
        tuple(notes),
        tuple(sorted(filter(None, {known(f).get("split") for f in places.files}))),
    )


def not_read(others: Iterable[PurePath]) -> list[str]:
    """Return a sentence for each kind of file that may hold more and is not read."""
    others = list(others)
    notes = []
    if packed := [file for file in others if file.suffix.lower() in ARCHIVES]:
        notes.append(
            f"{count_of(len(packed), 'archive')} beside other files, not read: "
            f"{listed(packed)}. To use what is inside, unpack it in this folder."
        )
    if tables := [file for file in others if file.suffix.lower() in OTHER_TABLES]:
        notes.append(
            f"{count_of(len(tables), 'file')} of kinds that are not read: "
            f"{listed(tables)}. Tables are read as CSV, TSV, JSON lines or parquet."
        )
    return notes
