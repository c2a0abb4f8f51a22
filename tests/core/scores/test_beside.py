"""Every file beside a collection goes through a checked door, in every command."""

import ast
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.collection.schema import file_sha256
from core.collection.store import Collection, find_collection
from core.evidence import stored as evidence
from core.explorer.explorer import open_explorer
from core.files import tensor_files
from core.files.table_files import read_table, write_table
from core.files.whole import Damaged
from core.index.full import GradientIndex
from precompute.__main__ import main
from precompute.machinery.rows import Rows
from precompute.stages.gradients import is_whole
from tests.core.collection.test_damage import (  # noqa: F401  (fixtures among them)
    CODES,
    COLLECTION,
    ERRORS,
    EVIDENCE,
    METHOD,
    POINTER,
    RMS,
    SCALES,
    VECTORS,
    root,
    the_file,
    whole,
)

HERE = Path(__file__).resolve().parents[3]
TABLES = ("masks", "measured", "scores", "pictures", "groups")

ASK = "attribute --collection glyphs --example 5 --draws 8 --out OUT"
MAKE = "methods --collection glyphs --dim 16 --draws 2 --work WORK"
SHOW = "sheet --collection glyphs --out OUT.png"
TELL = "evidence --collection glyphs --preset tiny --table lds"
MORE = "answers --collection glyphs --work WORK"
# Which commands read which files; the uncertainty of sums is asked for by pages alone.
READ_BY = {
    COLLECTION: [ASK, MAKE, SHOW, MORE],
    POINTER: [ASK, MAKE, SHOW, MORE],
    VECTORS: [ASK, f"{MAKE} --only das", f"{MAKE} --only curvature", MORE],
    CODES: [f"{ASK} --index full", f"{MAKE} --only trak", f"{MAKE} --only datainf"],
    SCALES: [f"{ASK} --index full", f"{MAKE} --only trak", f"{MAKE} --only datainf"],
    RMS: [f"{ASK} --index full", f"{MAKE} --only trak", f"{MAKE} --only datainf"],
    METHOD: [f"{ASK} --method trak", f"{ASK} --method cosine"],
    **{f"{EVIDENCE}/{name}.parquet": [TELL] for name in TABLES},
    f"{EVIDENCE}/recipe.json": [TELL],
}


@pytest.mark.parametrize(
    ("pattern", "command"),
    [(pattern, command) for pattern, many in READ_BY.items() for command in many],
)
def test_flipped_bytes_end_a_command(
    root,  # noqa: F811
    monkeypatch,
    capsys,
    tmp_path,
    pattern,
    command,
):
    """One sentence that names the file, status 1, and nothing is written."""
    if MAKE in command:  # else there is nothing to do
        the_file(root, METHOD).unlink()
    path = the_file(root, pattern)
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data), 512):  # of arrays, their numbers
        data[place] ^= 64
    path.write_bytes(data)
    before = {file: file_sha256(file) for file in root.rglob("*") if file.is_file()}
    words = [
        part.replace("OUT", str(tmp_path / "out")).replace("WORK", str(tmp_path / "w"))
        for part in command.split()
    ]
    monkeypatch.setattr(sys, "argv", ["precompute", *words, "--root", str(root)])
    assert main() == 1
    lines = re.split(r"[\r\n]+", capsys.readouterr().err)
    wanted = "not in its folder" if pattern == POINTER else f"'{path.name}'.*damaged"
    assert len([line for line in lines if re.search(wanted, line)]) == 1, lines
    assert not any("Traceback" in line for line in lines)
    assert not list(tmp_path.glob("out*"))
    after = {file: file_sha256(file) for file in root.rglob("*") if file.is_file()}
    assert after == before


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_no_flipped_bit_of_a_recipe_is_believed(root, place):  # noqa: F811
    """Also where it stays JSON: a number that became another one, a name."""
    path = the_file(root, f"{EVIDENCE}/recipe.json")
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="'recipe.json' of the evidence .* is damaged"):
        evidence.read_evidence(path.parent)


def test_evidence_without_checksums_is_still_read(root):  # noqa: F811
    """As it was written before there were any."""
    path = the_file(root, f"{EVIDENCE}/recipe.json")
    expected = evidence.read_evidence(path.parent).recipe
    assert "files" not in expected and "sha256" not in expected
    path.write_text(json.dumps(expected))
    assert evidence.read_evidence(path.parent).recipe == expected


def test_the_facts_of_a_damaged_file_are_not_believed(root):  # noqa: F811
    """What a method cost is not read out of a file whose tensors were changed."""
    path = the_file(root, METHOD)
    facts = tensor_files.read_facts(path)
    assert tensor_files.read_facts(path) == facts
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        tensor_files.read_facts(path)


def test_the_index_is_made_again_where_it_is_gone_or_damaged(root):  # noqa: F811
    """A finished build does not take zeros, or flipped bytes, for its gradients."""
    with Collection(find_collection(root, "glyphs")) as collection:
        folder = collection.shard_path(
            next(s for s in collection.shards() if s.layout["kind"] == "codes")
        ).parent
        size = len(collection.labels())
    explorer = open_explorer("glyphs", root)
    index = explorer.engine.scoring.indexed.index
    explorer.close()
    index = GradientIndex(folder, size, index.num_params, index.bits)
    rows = Rows(root / "rows", size, 8, {"seconds": ("<f4", ())})
    assert is_whole(index, "glyphs", rows)
    rows.done[:-1] = 1
    assert is_whole(index, "glyphs", rows)
    rows.done[:] = 1
    assert is_whole(index, "glyphs", rows)
    codes = next(folder.glob("codes-*"))
    kept = codes.read_bytes()
    data = bytearray(kept)
    data[100] ^= 1
    codes.write_bytes(data)
    assert not is_whole(index, "glyphs", rows)
    assert is_whole(index, "other-name", rows)  # nobody knows what it was
    codes.unlink()
    assert not is_whole(index, "other-name", rows)
    rows.forget()
    assert len(rows.missing()) == len(rows.done) and is_whole(index, "glyphs", rows)


def test_no_flipped_bit_of_a_table_is_believed(tmp_path):
    """Of those beside the evidence and of unfinished work: as it was, or `Damaged`."""
    path, rows = tmp_path / "table.parquet", np.random.default_rng(0).normal(size=9)
    table = pd.DataFrame({
        "value": rows,
        "kind": ["half"] * 9,
        "pixels": [bytes([i]) for i in range(9)],
        "shape": [[3, 8, 8]] * 9,
        "none": [np.nan] * 9,
    })
    write_table(path, table)
    pd.testing.assert_frame_equal(read_table(path), pd.read_parquet(path))
    data, expected, damaged = path.read_bytes(), read_table(path), 0
    for place in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            pd.testing.assert_frame_equal(read_table(path), expected)
        except Damaged:
            damaged += 1
    assert damaged > len(data) / 12
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(Damaged):
        read_table(path)


# Which modules may open files by these calls: the doors, and what reads files that lie
# beside no collection (sets to import, rows and models of unfinished work).
DOORS = {
    "shard_path": {"store.py", "beside.py", "facts.py", "gradients.py"},
    "load_file": {"tensor_files.py"},
    "fromfile": {"full.py"},
    "memmap": {"full.py", "batches.py"},
    "read_parquet": {"stored.py", "brought.py"},  # a stranger's, every cell checked
    "read_tensors": {
        "tensor_files.py",
        "beside.py",
        "method_files.py",
        "group_errors.py",
        "checkpoint.py",  # a model, as bytes
        "clip.py",  # the CLIP that ships, and its unfinished training
        "workspace.py",
        "train.py",  # of retrained models
    },
}


@pytest.mark.parametrize("name", DOORS)
def test_no_other_module_opens_such_files(name):
    """A new opening beside the doors fails here."""
    found = {
        file.name
        for folder in ("core", "precompute", "pages")
        for file in (HERE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and name in (getattr(node.func, "attr", ""), getattr(node.func, "id", ""))
    }
    assert found and found <= DOORS[name]
