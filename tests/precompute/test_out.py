"""Where commands write: files are replaced whole, anything else is written into."""

import io
import os
import stat
import subprocess
import sys
import threading

import pandas as pd
import pytest
from PIL import Image

from core.files.whole import is_stream, written_whole
from precompute.__main__ import main
from precompute.machinery.out import check_out, write_out
from precompute.stages.fidelity import write_fidelity


def run(monkeypatch, *words) -> int:
    """Run a command as from the command line; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["precompute", *map(str, words)])
    return main()


def read_by_another(path, ask) -> bytes:
    """Return what comes out of a named pipe while something is asked."""
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    ask()
    reader.join(60)
    return found[0]


def test_a_file_is_replaced_whole_and_keeps_its_rights(tmp_path):
    """Whoever has it open goes on reading the old one; a private one stays private."""
    path = tmp_path / "out.csv"
    path.write_text("old")
    path.chmod(0o600)
    with open(path) as reader:
        write_out(path, b"new")
        assert reader.read() == "old"
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["out.csv"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link(tmp_path, there):
    """What it leads to is written, in its own folder, also where that is not there."""
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target.csv", tmp_path / "link.csv"
    if there:
        target.write_text("old")
    link.symlink_to("far/target.csv")
    check_out("attribute", link)
    write_out(link, b"new")
    assert link.is_symlink() and os.readlink(link) == "far/target.csv"
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["target.csv"]
    assert sorted(os.listdir(tmp_path)) == ["far", "link.csv"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_device_stays_a_device(tmp_path, linked):
    path = tmp_path / "null" if linked else "/dev/null"
    if linked:
        path.symlink_to("/dev/null")
    with written_whole(type(tmp_path)(path)) as file:
        file.write(b"gone")
    assert stat.S_ISCHR(os.stat(path).st_mode) and not os.path.exists(f"{path}.part")


def test_a_full_device_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="^'/dev/full' cannot be written: No space le"):
        write_out(type(tmp_path)("/dev/full"), b"x" * 100_000)


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_file_is_written_where_it_is(tmp_path, place):
    """`--out /dev/stdout >> file` loses neither what was there nor what comes after."""
    path = tmp_path / "log"
    path.write_text("before\n")
    code = (
        "import sys; from pathlib import Path\n"
        "from precompute.machinery.out import check_out, write_out\n"
        "place = Path(sys.argv[1]); check_out('attribute', place)\n"
        "write_out(place, b'result\\n'); print('after')\n"
    )
    with open(path, "ab") as log:
        subprocess.run([sys.executable, "-c", code, place], stdout=log, check=True)
    assert path.read_text() == "before\nresult\nafter\n"


def test_commands_write_into_a_pipe(tiny_collection, tmp_path, monkeypatch):
    """`attribute`, `sheet`, `fidelity`: the reader gets all of it, the pipe stays."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_stream(pipe)
    about = ["--collection", "glyphs", "--root", tiny_collection, "--out", pipe]

    def ask(*words):
        return read_by_another(pipe, lambda: run(monkeypatch, *words, *about))

    table = pd.read_csv(io.BytesIO(ask("attribute", "--sample", 0)))
    assert table["rank"].tolist() == list(range(1, len(table) + 1))
    assert Image.open(io.BytesIO(ask("sheet"))).format == "PNG"
    rows = [{"format": "x", "spearman": {}, "top_ten": {}, "bytes": 1, "bits": 8}]
    monkeypatch.setattr("precompute.stages.fidelity.table", pd.DataFrame)
    said = read_by_another(pipe, lambda: write_fidelity({"rows": rows}, pipe))
    assert said.startswith(b"format,")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize(
    ("verb", "name", "said"),
    [
        ("attribute", "folder", "'PLACE' is a folder. Give --out the name of a file"),
        ("attribute", "none/x.csv", "'PLACE' cannot be written: there is no folder"),
        ("sheet", "x.txt", "'PLACE' ends in none of .png, .webp, so it is not clear"),
        ("fidelity", "x.txt", "'PLACE' ends in none of .csv, .json, so it is not"),
        (
            "clip",
            "pipe",
            "'PLACE' is not a file, and unfinished training is kept beside",
        ),
    ],
)
def test_a_place_is_refused_before_anything_is_computed(
    tmp_path, monkeypatch, capsys, verb, name, said
):
    """There is no such collection, and nothing gets as far as to miss it."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    place, about = tmp_path / name, ["--collection", "nothing", "--root", tmp_path]
    words = [verb, "--out", place, *(about if verb != "clip" else [])]
    words += ["--sample", 0] if verb == "attribute" else []
    words += ["--work", tmp_path / "work"] if verb == "fidelity" else []
    assert run(monkeypatch, *words) == 1
    assert capsys.readouterr().err.startswith(said.replace("PLACE", str(place)))
    assert sorted(os.listdir(tmp_path)) == before
