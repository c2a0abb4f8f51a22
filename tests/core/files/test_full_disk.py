"""A disk that gets full: one sentence, the old collection intact, no half file left."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from core.collection.publish import CollectionWriter
from core.collection.store import Collection, find_collection
from core.evidence.stored import evidence_folder, read_evidence, write_evidence
from core.explorer.explorer import open_explorer
from core.files.whole import reserve, trouble, written_whole
from precompute.__main__ import main
from tests.core.collection.test_damage import listing


@pytest.fixture
def small_disk(tested_collection, tmp_path):
    """Return a copy of the collection on a disk with room for hardly anything else."""
    place = tmp_path / "disk"
    place.mkdir()
    files = [path for path in tested_collection.rglob("*") if path.is_file()]
    used = sum(-(-path.stat().st_size // 4096) * 4096 for path in files)
    size = (used + 600_000) // 1024
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk takes 'mount -t tmpfs', which is not permitted here")
    try:
        yield Path(shutil.copytree(tested_collection, place, dirs_exist_ok=True))
    finally:
        subprocess.run(["umount", str(place)], check=True)


def without_lock(root: Path) -> dict:
    """Return all files but the lock, which holds nothing, and times of folders."""
    return {k: v for k, v in listing(root).items() if not k.endswith(".lock")}


def test_publishing_on_a_full_disk_changes_nothing(small_disk, monkeypatch, capsys):
    """The command says one sentence; the collection is as it was, to the last byte."""
    before = without_lock(small_disk)
    noise = np.random.default_rng(0).integers(0, 256, 200_000, np.uint8)

    def fill(*_):
        with CollectionWriter(small_disk, "glyphs") as writer:
            writer.put_all_of(find_collection(small_disk, "glyphs"))
            for number in range(64):
                writer.put_array(f"noise {number}", noise)
            writer.publish()

    with pytest.raises((OSError, duckdb.Error)):
        fill()
    assert without_lock(small_disk) == before
    monkeypatch.setattr("precompute.stages.answers.store_answers", fill)
    arguments = ["precompute", "answers", "--collection", "glyphs"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--root", str(small_disk)])
    assert main() == 1
    said = capsys.readouterr().err
    assert "The disk is full. Make room, then run the same command again" in said
    assert "Traceback" not in said and without_lock(small_disk) == before
    with Collection(find_collection(small_disk, "glyphs")) as collection:
        collection.verify()


def test_a_file_that_does_not_fit_leaves_the_old_one(small_disk):
    """Tables of the evidence, and any other file: whole and old, or whole and new."""
    explorer = open_explorer("glyphs", small_disk)
    folder = evidence_folder(small_disk, explorer.config)
    explorer.close()
    evidence, before = read_evidence(folder), without_lock(small_disk)
    noise = np.random.default_rng(0).bytes(2_000_000)
    evidence.pictures["pixels"] = [noise for _ in range(len(evidence.pictures))]
    evidence.recipe["note"] = noise.hex()
    with pytest.raises(OSError):
        write_evidence(folder, evidence)
    assert without_lock(small_disk).keys() == before.keys()
    read_evidence(folder)
    path = folder / "recipe.json"
    old = path.read_bytes()
    with pytest.raises(OSError) as refused, written_whole(path) as file:
        file.write(noise)
    assert "The disk is full" in trouble(refused.value)
    assert path.read_bytes() == old
    with pytest.raises(OSError):  # and not a crash when the room is written to
        reserve(small_disk / "room", 2_000_000)
    (small_disk / "room").unlink()
    assert without_lock(small_disk).keys() == before.keys()


def test_a_file_too_large_for_the_process_is_no_half_file(tmp_path):
    """The same where not the disk but the size of a file is limited."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from core.files.whole import trouble, written_whole\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "path = Path(sys.argv[1])\n"
        "try:\n"
        "    with written_whole(path) as file: file.write(b'x' * 5000)\n"
        "except OSError as error: print(trouble(error))\n"
    )
    path = tmp_path / "file"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True
    )
    assert done.stdout.startswith("The disk is full. Make room"), done.stderr
    assert os.listdir(tmp_path) == ["file"] and path.read_bytes() == b"old"


def test_trouble_names_the_file():
    """Another refusal of the system is said with the name of the file."""
    error = PermissionError(errno.EACCES, "Permission denied", "there/x")
    said = "'there/x' could not be read or written: Permission denied."
    assert trouble(error) == said
    assert (
        trouble(FileNotFoundError("There is no data set.")) == "There is no data set."
    )
