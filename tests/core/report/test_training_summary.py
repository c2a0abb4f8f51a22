"""The public summary says what is recorded, what is not, and obeys no name."""

import re
from contextlib import closing

import pytest

from core.explorer.explorer import open_explorer
from core.report.training_summary import MOST_ROWS, training_summary
from tests.helpers.hostile import SCRIPT

ORIGIN = {
    "name": "drawings",
    "layout": "Image files",
    "chosen": {"split": "all", "at most": "500"},
    "sizes": [[64, 48, 400], [32, 32, 7]],
    "other_sizes": 2,
    "unreadable": 1,
    "duplicates": 3,
    "duplicates_left_out": True,
    "opted_out": 2,
    "opted_out_left_out": True,
    "unclear": 1,
}


@pytest.fixture
def explorer():
    """Return a shipped collection, to be told what a user's own would record."""
    with closing(open_explorer("fashion2")) as opened:
        yield opened


def told(explorer, **facts) -> str:
    explorer.__dict__["origin"] = {**ORIGIN, **facts}
    return training_summary(explorer)


@pytest.mark.parametrize("name", ["fashion2", "glyphs"])
def test_shipped_collections_are_summed_up(name):
    with closing(open_explorer(name)) as explorer:
        said = training_summary(explorer)
        total = explorer.num_examples
        assert said.startswith(f"# What {explorer.title} was trained on\n\n{total:,} ")
        assert all(line[:40] in said for line in explorer.credits)
    assert "in `data/NOTICE.md`" in said and "Not recorded" not in said
    tables = [block for block in said.split("\n\n") if block.startswith("|")]
    assert len(tables) >= 3
    for table in tables:  # every one accounts for every image
        rows = table.splitlines()
        counts = [int(row.split(" | ")[-2].replace(",", "")) for row in rows[2:]]
        assert sum(counts) == total and len(rows) <= 3 + MOST_ROWS


def test_what_was_left_out_is_said(explorer):
    said = told(explorer)
    for part in (
        "Read by the user from `drawings` (Image files). How they came there is not",
        "Chosen from it: split: all; at most: 500.",
        "Sizes before: 64 x 48 (400), 32 x 32 (7) and 2 more pixels.",
        "2 images left out, because the file forbids training.",
        "1 image with metadata on training that could not be understood.",
        "3 exact duplicates left out. 1 file could not be read as an image.",
        "- What sites said of training where the images came from.",
    ):
        assert part in said, part
    assert "NOTICE" not in said
    used = told(explorer, opted_out=1, opted_out_left_out=False, unclear=0)
    assert "1 image used although the file forbids training." in used
    assert "could not be understood" not in used
    assert "No file said anything against training." in told(explorer, opted_out=0)


def test_what_came_before_is_no_part_of_it(explorer):
    settings = explorer.provenance["settings"]["train"]
    assert "from random weights" in training_summary(explorer)
    settings["start_from"] = "older.safetensors"
    assert "went on from the model `older.safetensors`" in training_summary(explorer)
    settings["imported"] = "mine-model.safetensors"
    said = training_summary(explorer)
    assert "was trained elsewhere" in said and "older" not in said


def test_without_any_record_it_says_so(explorer):
    """As of a collection that was built before anything was kept."""
    explorer.provenance["settings"]["data"]["path"] = "mine-0.parquet"
    explorer.provenance["settings"]["train"]["horizontal_flip"] = False
    explorer._credits = {"column": None, "lines": {}, "changes": ""}
    said = training_summary(explorer)
    assert said.count("Not recorded.") == 2
    assert "No credit is recorded for this data set." in said
    assert "- Whose the images are, and under which licence." in said


def test_names_from_anywhere_stay_text(explorer):
    explorer.title = f"x {SCRIPT} **y** | [z](http://z)\n# w"
    said = told(explorer, name=f"`a_b`\n\n# b {SCRIPT}", layout="<b>")
    headings = re.findall(r"^#.*", said, re.M)
    assert len(headings) == 6 and "**y**" not in said
    assert "`'a_b' # b " in said  # a span of code
    assert not re.search(r"(?<!\\)[<>]", re.sub("`[^`]*`", "", said))
