"""Files that are damaged, missing, foreign, newer, locked or replaced: a sentence each.

The sentence names the file and says what to do; the other collections still work, and
nothing is written.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from core.collection.publish import CollectionWriter
from core.collection.schema import file_sha256
from core.collection.store import find_collection
from core.config import MethodConfig
from core.explorer.explorer import Explorer, Lens, open_explorer
from precompute.stages.methods import compute_methods
from tests.pages.test_app import (  # noqa: F401
    app_runs_first,
    open_app,
    wait_for_jobs,
    words,
)


@pytest.fixture(scope="module")
def whole(tested_collection, tiny_collection, tmp_path_factory) -> Path:
    """Return a folder of two collections, one with all that can lie beside it."""
    root = tmp_path_factory.mktemp("whole")
    shutil.copytree(tested_collection, root, dirs_exist_ok=True)
    for folder in tiny_collection.glob("glyphs-index-*"):
        shutil.copytree(folder, root / folder.name)
    settings, work = MethodConfig(dim=16, num_draws=2), tiny_collection / "work"
    compute_methods(root, "glyphs", work, "cpu", ["trak"], settings)
    with CollectionWriter(root, "other") as writer:
        writer.put_all_of(find_collection(root, "glyphs"))
        writer.publish()
    return root


@pytest.fixture
def root(whole, tmp_path) -> Path:
    """Return a copy that a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "collections"))


def the_file(root: Path, pattern: str) -> Path:
    """Return the first file of that pattern."""
    return sorted(root.glob(pattern))[0]


# --- what happens to files ----------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    """Flip a bit in every 4 kB, but for the first, which says what the file is."""
    data = bytearray(path.read_bytes())
    for place in range(min(5_000, len(data) - 9), len(data), 4096):
        data[place] ^= 4
    path.write_bytes(data)


def header_flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[2] ^= 255
    path.write_bytes(data)


def text(path: Path) -> None:
    path.write_bytes(b"Dear collection,\n\xff\xfe I am no such file." * 50)


def archive(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + b"\0" * 100)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def other_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("create table meta (key text, value text)")


def other_tables(path: Path) -> None:
    path.unlink()
    with duckdb.connect(path) as connection:
        connection.execute("create table meta (words text)")


def newer(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("update meta set value = '99' where key = 'schema_version'")


def climbing(path: Path) -> None:
    path.write_text("../../etc/passwd\n")


# --- what is asked ------------------------------------------------------------------


def asked(root: Path) -> list[str]:
    """Return the sentences that someone sees who asks everything."""
    said = []

    def ask(question):
        try:
            return question()
        except (LookupError, ValueError) as error:
            (sentence,) = error.args
            assert isinstance(error, ValueError) or type(error) is LookupError
            assert "\n" not in sentence and sentence.endswith(("`.", ".")), sentence
            said.append(sentence)

    explorer = ask(lambda: open_explorer("glyphs", root))
    if explorer is None:
        return said
    sample = int(explorer.gallery.index[0])
    ask(lambda: explorer.answer(explorer.query_from_gallery(sample), Lens()))
    example = ask(
        lambda: explorer.query_from_example(int(explorer.examples.table.index[0]))
    )
    if example is not None:
        lenses = [Lens(num_draws=8), Lens("trak", num_draws=8)]
        for lens in [*lenses, Lens(num_draws=8, form="full")]:
            answer = ask(lambda lens=lens: explorer.answer(example, lens))
            if answer is not None:
                ask(lambda answer=answer: explorer.uncertainty(example, answer))
    ask(explorer.evidence)
    ask(explorer.method_facts)
    explorer.close()
    return said


def listing(root: Path) -> dict:
    """Return every file with its time and content."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            file_sha256(path) if path.is_file() else "folder",
        )
        for path in sorted(root.rglob("*"))
    }


def other_works(root: Path) -> None:
    """Check that the other collection answers."""
    explorer = open_explorer("other", root)
    answer = explorer.answer(explorer.query_from_gallery(0), Lens("clip"))
    assert len(answer.scores) == explorer.num_examples
    explorer.close()


COLLECTION, POINTER = "glyphs-[0-9a-f]*.duckdb", "glyphs.current"
VECTORS, ERRORS = "glyphs-eigenvectors-*", "glyphs-training-errors-*"
CODES, SCALES = "glyphs-index-*/codes-*", "glyphs-index-*/scales-*"
RMS = "glyphs-index-*/rms.bin"
METHOD, EVIDENCE = "glyphs-method-trak-*", "glyphs-evidence-*"

BUILD = "python -m precompute build --collection glyphs`"
TABLE = [
    (POINTER, [missing], "There is no collection 'glyphs'; there is 'other'"),
    (
        POINTER,
        [empty, text, climbing],
        f"'glyphs.current' names is not in its .*{BUILD}",
    ),
    (POINTER, [folder], "There is no collection 'glyphs'; there is 'other'"),
    (COLLECTION, [missing], f"that 'glyphs.current' names is not in its .*{BUILD}"),
    (
        COLLECTION,
        [empty, cut, flipped, header_flipped, text, folder],
        f"'FILE' is damaged or is not a collection. Get it again .*{BUILD}",
    ),
    (
        COLLECTION,
        [other_database, other_tables],
        f"'FILE' is damaged or is not .*{BUILD}",
    ),
    (COLLECTION, [newer], f"'FILE' has schema version 99; .*{BUILD}"),
    (VECTORS, [missing, folder], f"'FILE' is not beside the collection. .*{BUILD}"),
    (
        VECTORS,
        [empty, cut, flipped, text],
        f"'FILE' is damaged or is not what .*{BUILD}",
    ),
    *(
        (files, [empty, cut, flipped, folder], f"'FILE' is damaged or is not .*{BUILD}")
        for files in (CODES, SCALES)
    ),
    (RMS, [missing, cut, flipped], f"'FILE' is damaged or is not what .*{BUILD}"),
    (
        ERRORS,
        [empty, cut, flipped, header_flipped, text, archive, folder],
        f"'FILE' is damaged or about other images. .*{BUILD}",
    ),
    (METHOD, [missing], "What 'trak' needs did not come .*--only trak`"),
    (
        METHOD,
        [empty, cut, flipped, header_flipped, text, folder],
        "'FILE' is damaged or no file of a method. .*methods --collection glyphs`",
    ),
    (f"{EVIDENCE}/recipe.json", [missing], "Nothing was retrained to check 'glyphs'"),
    *(
        (
            f"{EVIDENCE}/{name}.parquet",
            [missing, cut, flipped, text, folder],
            "'FILE' of the evidence .* is damaged. .*evidence --collection glyphs`",
        )
        for name in ("masks", "measured", "scores", "pictures", "groups")
    ),
    (
        f"{EVIDENCE}/recipe.json",
        [empty, cut, flipped, text, folder],
        "'FILE' of the evidence .* is damaged. .*evidence --collection glyphs`",
    ),
]


@pytest.mark.parametrize(
    ("pattern", "harm", "sentence"),
    [
        pytest.param(
            pattern, harm, sentence, id=f"{pattern.split('/')[-1]}-{harm.__name__}"
        )
        for pattern, harms, sentence in TABLE
        for harm in harms
    ],
)
def test_a_harmed_file_is_one_sentence(root, pattern, harm, sentence):
    """The file is named with a command, the other collection works, none is written."""
    path = the_file(root, pattern)
    harm(path)
    before = listing(root)
    said = asked(root)
    expected = sentence.replace("FILE", re.escape(path.name))
    assert any(re.search(expected, one) for one in said), said
    other_works(root)
    assert listing(root) == before


def test_whole_files_say_nothing(root):
    """What is not harmed answers everything but what was never made."""
    before = listing(root)
    assert asked(root) == []
    assert listing(root) == before


HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("create table more (number integer)")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_writes_is_said(root):
    """It is not called damaged, and can be opened once the other has ended."""
    path = the_file(root, COLLECTION)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], **pipes) as other:
        assert other.stdout.readline() == b"held\n"
        (sentence,) = asked(root)
        assert sentence.startswith(f"'{path.name}' is being written by another process")
        other_works(root)
        other.kill()
    assert open_explorer("glyphs", root).num_examples > 0


def test_a_file_that_is_replaced_while_it_is_open_goes_on_or_is_said(root):
    """A new file of that name changes nothing for readers; a spoilt one is said."""
    path = the_file(root, COLLECTION)
    explorer = Explorer(path)
    expected = explorer.image_png(int(explorer.examples.table.index[0]))
    text(root / "new")
    os.replace(root / "new", path)
    for example in explorer.examples.table.index:
        explorer.image_png(int(example))
    assert explorer.image_png(int(explorer.examples.table.index[0])) == expected
    explorer.close()

    path = find_collection(root, "other")
    explorer = Explorer(path)
    size = path.stat().st_size
    with open(path, "r+b") as file:  # the very file that is open
        file.write(b"x" * size)
    for sample in map(int, explorer.gallery.index):
        try:
            explorer.query_from_gallery(sample)
            explorer.answer(explorer.query_from_gallery(sample), Lens())
        except ValueError as error:
            assert f"'{path.name}' is damaged" in str(error)


@pytest.mark.parametrize(
    ("pattern", "harm", "sentence"),
    [
        (POINTER, text, "names is not in its folder"),
        (COLLECTION, flipped, "is damaged or is not a collection"),
        (COLLECTION, newer, "has schema version 99"),
        (VECTORS, missing, "is not beside the collection"),
    ],
)
def test_the_app_says_it_and_shows_the_others(
    root, monkeypatch, pattern, harm, sentence
):
    """No traceback, no dead thread; a link to the other collection opens it."""
    path = the_file(root, pattern)
    harm(path)
    before = listing(root)
    failed = []
    monkeypatch.setattr("threading.excepthook", failed.append)
    link = {"sample": "0"}
    if pattern == VECTORS:  # what no other test asks, so that no answer is kept
        link = {"example": "5", "lenses": "ekfac.loss.3-777"}
    app = open_app(root, monkeypatch, collection="glyphs", **link)
    if "jobs" in app.session_state:
        app = wait_for_jobs(app)
    assert not app.exception and not app.error
    assert plain_path(path.name) in plain_path(words(app)) or pattern == POINTER
    assert plain_path(sentence) in plain_path(words(app)), words(app)
    other = wait_for_jobs(open_app(root, monkeypatch, collection="other", sample="0"))
    assert not other.exception and "A bar is the score" in words(other)
    assert not failed and listing(root) == before


def plain_path(said: str) -> str:
    """Return text without the signs that keep Markdown away."""
    return said.replace("\\", "")
