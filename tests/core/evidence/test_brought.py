"""A stranger's method beside ours, and our figures in a stranger's hands."""

import sys
from pathlib import Path
from shutil import copy, copytree

import numpy as np
import pandas as pd
import pytest

from core.evidence.brought import (
    benchmark,
    brought_scores,
    with_method,
    without_method,
)
from core.evidence.lds import lds_table
from core.evidence.paired import paired_table
from core.evidence.stored import read_evidence
from core.files.table_files import table_bytes
from precompute.__main__ import main
from tests.helpers.toy_evidence import full_evidence

IDS = np.array([3, 5, 8, 13, 21, 34, 55, 89, 144, 233])
SHAPE = (4, len(IDS))
SCORES = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
COLLECTIONS = Path(__file__).resolve().parents[3] / "data" / "collections"


@pytest.fixture(scope="module")
def evidence():
    """Return evidence of ten images, sixteen halves and four samples."""
    return full_evidence({}, len(IDS), removals=False)


def rows() -> pd.DataFrame:
    """Return the scores as a table in no order, one sample more than measured."""
    table = pd.DataFrame(
        [
            (q, i, s)
            for q, row in enumerate(SCORES)
            for i, s in zip(IDS, row, strict=True)
        ],
        columns=["query", "Image", "score"],
    )
    more = table[table["query"] == 0].assign(query=4)
    return pd.concat([table, more]).sample(frac=1, random_state=1)


def test_every_format_gives_the_same_scores(tmp_path):
    """Columns by any of their names; rows in any order."""
    rows().to_parquet(tmp_path / "a.parquet")
    rows().to_csv(tmp_path / "b.csv", index=False)
    np.save(tmp_path / "c.npy", SCORES.astype(np.float64))
    for path in sorted(tmp_path.iterdir()):
        found = brought_scores(path, 4, IDS)
        np.testing.assert_allclose(found, SCORES, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.rename(columns={"score": "x"}), "no column score; it has"),
        (
            lambda t: t[t["Image"] != 8],
            "no score of 4 pairs, such as sample 0 and image 8",
        ),
        (lambda t: t[t["query"] != 2], "samples 0 to 3"),
        (lambda t: pd.concat([t, t[:1]]), "twice for sample"),
        (lambda t: t.assign(score=np.inf), "scores in 'a.csv' are not finite"),
        (lambda t: t.assign(score="much"), "Expected: numbers of shape"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, change, words):
    change(rows()).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=words):
        brought_scores(tmp_path / "a.csv", 4, IDS)


def test_an_array_that_does_not_fit_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", SCORES[:, 1:])
    with pytest.raises(ValueError, match="4 samples and 9 images"):
        brought_scores(tmp_path / "a.npy", 4, IDS)
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read"):
        brought_scores(tmp_path / "a.npy", 4, IDS)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 is all there is")
    with pytest.raises(ValueError, match="cannot be read"):
        brought_scores(tmp_path / "a.parquet", 4, IDS)
    with pytest.raises(ValueError, match="ends in .parquet, .csv, .npy"):
        brought_scores(tmp_path / "none.txt", 4, IDS)


def test_a_brought_method_is_in_the_tables_and_can_be_forgotten(evidence):
    """EK-FAC's own scores under another name get EK-FAC's own figures."""
    theirs = np.stack(list(evidence.default_scores("ekfac", "loss")))
    more = with_method(evidence, "mine", theirs)
    table = lds_table(more, "loss").set_index("method")
    assert table.at["mine", "lds"] == table.at["ekfac", "lds"]
    tests = paired_table(more, "loss")
    pair = tests[
        (tests["method"].isin(["mine", "ekfac"]))
        & tests["other"].isin(["mine", "ekfac"])
    ]
    assert pair["difference"].tolist() == [0.0]
    again = with_method(more, "mine", -theirs)  # replaces the first
    assert lds_table(again, "loss").set_index("method").at["mine", "lds"] == (
        pytest.approx(-table.at["ekfac", "lds"])
    )
    pd.testing.assert_frame_equal(without_method(again, "mine").scores, evidence.scores)
    with pytest.raises(LookupError, match="Brought: mine"):
        without_method(more, "ekfac")
    with pytest.raises(ValueError, match="one of ours"):
        with_method(evidence, "ekfac", theirs)


def test_the_benchmark_gives_our_figures_without_our_code(evidence, tmp_path):
    """From the one file alone: the LDS of every method, by its definition."""
    path = tmp_path / "bench.parquet"
    path.write_bytes(table_bytes(benchmark(evidence)))
    table = pd.read_parquet(path)
    kept = np.stack(table[table["what"] == "kept"].sort_values("number")["values"])
    ours = lds_table(evidence, "loss").set_index("method")["lds"]
    costs = table[(table["what"] == "measured") & (table["measurement"] == "loss")]
    first = np.stack(costs[costs["seed"] == 0].sort_values("number")["values"])
    second = np.stack(costs[costs["seed"] == 1].sort_values("number")["values"])
    assert np.isnan(second).any() and not np.isnan(first).any()
    mine = table[(table["what"] == "scores") & (table["measurement"] == "loss")]
    assert set(mine["name"]) == set(ours.index) - {"retraining", "reachable"}
    for name, part in mine.groupby("name"):
        scores = np.stack(part.sort_values("number")["values"])
        predicted = scores @ (1 - kept).T
        each = [
            pd.Series(a).corr(pd.Series(b), method="spearman")
            for a, b in zip(predicted, first, strict=True)
        ]
        assert np.mean(each) == pytest.approx(ours[name], abs=1e-6)


def test_the_command_brings_compares_and_forgets(tmp_path, monkeypatch, capsys):
    """On a copy of the shipped evidence, as a stranger would do it."""
    for path in COLLECTIONS.glob("fashion2*"):
        place = tmp_path / path.name
        copytree(path, place) if path.is_dir() else copy(path, place)
    (folder,) = tmp_path.glob("fashion2-evidence-*")
    before = read_evidence(folder).scores
    mine = np.random.default_rng(3).normal(size=(20, 1000))
    np.save(tmp_path / "my-method.npy", mine)
    call = [
        "precompute",
        "evidence",
        "--collection",
        "fashion2",
        "--root",
        str(tmp_path),
    ]

    def run(*options) -> str:
        monkeypatch.setattr(sys, "argv", [*call, *map(str, options)])
        assert main() == 0
        return capsys.readouterr().out

    assert "'my-method' stands beside" in run("--scores", tmp_path / "my-method.npy")
    assert "\nmy-method," in run("--table", "lds")
    said = run("--export", tmp_path / "all.parquet")
    assert said.strip() == str(tmp_path / "all.parquet")
    names = pd.read_parquet(tmp_path / "all.parquet")["name"]
    assert {"my-method", "ekfac", "clip"} <= set(names)
    run("--forget", "my-method")
    pd.testing.assert_frame_equal(read_evidence(folder).scores, before)
