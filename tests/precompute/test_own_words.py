"""A user's own words: classes, credits and column names as the user gave them."""

import json

import pytest

from core.config import DataConfig
from core.data.datasets import load_credits, load_dataset
from pages.parts.words import column_name, column_word, several_of
from precompute.imports.credits import read_credits
from precompute.imports.images import inspect_data, make_own
from precompute.imports.selection import Selection
from tests.helpers import layouts
from tests.precompute.test_own import TOY, run, sets  # noqa: F401


@pytest.fixture
def pictures(tmp_path):
    """Return a folder of images with a table of artists and years, in two labels."""
    root = layouts.image_folder(tmp_path / "in")
    files = sorted(path.relative_to(root) for path in root.rglob("*.png"))
    rows = [
        f"{file},{'Ada' if i % 2 else 'Bo'},{2000 + i % 3}"
        for i, file in enumerate(files)
    ]
    (root / "metadata.csv").write_text("file_name,Artist,id\n" + "\n".join(rows))
    return root


def test_the_classes_that_will_be_used_are_said(pictures):
    """By label; by a column; by several; by one whose name this program has too."""
    said = inspect_data(pictures, Selection("all"))
    assert "\nclasses: 8: airplane 1, " in said
    said = inspect_data(pictures, Selection("all", classes=("Artist",)))
    assert "\nclasses: 2: Ada 10, Bo 10; by Artist\n" in said
    said = inspect_data(pictures, Selection("all", classes=("Artist", "label")))
    assert "\nclasses: each combination of Artist (2) and label (8)\n" in said
    said = inspect_data(pictures, Selection("all", classes=("id",)))
    assert "\nclasses: 3: 2000 7, 2001 7, 2002 6; by id\n" in said


def test_why_there_are_no_classes_is_said(tmp_path):
    one = next(layouts.image_folder(tmp_path).rglob("*.png")).parent
    said = inspect_data(one, Selection("all"))
    assert "\nclasses: none: no image has a label; --classes COLUMN takes " in said


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (
            ("colour",),
            "cannot be 'colour': no image has such a column. Expected: A",
        ),
        (
            ("file",),
            "cannot be 'file': it has 20 values. Expected: a column with at",
        ),
    ],
)
def test_classes_that_cannot_be_are_refused(pictures, classes, message, monkeypatch):
    monkeypatch.setattr("precompute.imports.described.MOST_CLASSES", 10)
    with pytest.raises(ValueError, match=message):
        inspect_data(pictures, Selection("all", classes=classes))


def test_classes_and_credits_are_those_of_the_collection(
    sets,  # noqa: F811
    pictures,
    tmp_path,
    monkeypatch,
):
    credits = tmp_path / "credits.csv"
    credits.write_text("Artist,credit\nAda,© Ada · CC BY 4.0\nBo,Bo; all rights\n")
    words = ["--split", "all", "--classes", "Artist", "--credits", credits]
    changes = [part for change in TOY for part in ("--set", change)]
    monkeypatch.setattr("precompute.stages.build.build", lambda config, *_: None)
    words += ["--root", tmp_path / "root", "--work", tmp_path / "work", *changes]
    words = ["build", "--collection", "mine", "--data", pictures, *words]
    assert run(monkeypatch, *words, "--preset", "cifar") == 0
    made = json.loads((sets / "mine.json").read_text())
    assert made["data"]["label_columns"] == ["Artist"]
    assert made["model"]["label_dropout"] == 0.0  # as the paper's recipe has it
    data = DataConfig(
        path=made["data"]["path"], image_size=32, label_columns=("Artist",)
    )
    assert load_dataset(data).class_names == (("Ada",), ("Bo",))
    found = load_credits(data)
    assert found["column"] == "Artist"
    assert found["lines"] == {"Ada": "© Ada · CC BY 4.0", "Bo": "Bo; all rights"}
    assert found["changes"] == "Cut to squares and scaled to 32 x 32 pixels."


def test_a_text_is_the_credit_of_all_images(sets, pictures, tmp_path):  # noqa: F811
    text = tmp_path / "LICENCE"
    text.write_text("© 2026 Ada Painter\nCC BY-NC 4.0\n")
    selection = Selection("all", credits=text)
    made = make_own("mine", pictures, "cifar", selection, TOY)
    found = load_credits(made.data)
    assert found["column"] is None
    assert found["lines"] == {"": "© 2026 Ada Painter CC BY-NC 4.0"}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("c.txt", b"", "is empty. Expected: a text of one or two lines"),
        ("c.txt", b"\xff\xfe", "is not text in UTF-8"),
        ("c.csv", b"artist\nAda\n", "has the columns artist. Expected"),
        ("c.csv", b"artist,credit\nAda\n", "Row 2 of .* has no credit"),
        ("c.csv", b"artist,credit\nAda, \n", "Row 2 of .* has no credit"),
        ("c.txt", b"x" * 1_000_001, "is more than 1,000,000 bytes"),
    ],
)
def test_no_credits_are_refused_in_a_sentence(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"^[^\n]*{message}[^\n]*$"):
        read_credits(path)


def test_credits_name_what_they_do_not_cover(sets, pictures, tmp_path, capsys):  # noqa: F811
    path = tmp_path / "c.csv"
    path.write_text("Artist,credit\nAda,© Ada\n")
    make_own("mine", pictures, "cifar", Selection("all", credits=path), TOY)
    assert "note: no credit for Artist 'Bo'." in capsys.readouterr().out
    path.write_text("Painter,credit\nAda,© Ada\n")
    with pytest.raises(ValueError, match="No image has the column 'Painter'"):
        make_own("yours", pictures, "cifar", Selection("all", credits=path), TOY)
    assert not list(sets.glob("yours*"))


def test_options_about_images_need_images(tmp_path, monkeypatch, capsys):
    where = ["--root", tmp_path / "root", "--work", tmp_path / "work"]
    for verb in ("build", "train", "plan"):
        for option, value in (("classes", "x"), ("credits", "x"), ("limit", "5")):
            words = [verb, "--collection", "glyphs", f"--{option}", value, *where]
            assert run(monkeypatch, *words) == 1
            assert f"`--{option}` is about the images that" in capsys.readouterr().err


def test_a_plan_says_the_classes(sets, pictures, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr("precompute.planning.plan.plan", lambda *_: None)
    monkeypatch.setattr("precompute.planning.plan.printed", lambda *_: "a plan")
    words = ["plan", "--collection", "mine", "--data", pictures, "--split", "all"]
    words += ["--classes", "Artist", "--root", tmp_path, "--work", tmp_path]
    assert run(monkeypatch, *words) == 0
    assert "classes: 2: Ada 10, Bo 10; by Artist" in capsys.readouterr().out


def test_columns_are_called_as_their_owner_calls_them():
    """The words of the shipped collections are for these alone."""
    assert column_name("glyphs", "style") == "Design house"
    assert column_word("glyphs", "style") == "design house"
    assert several_of("glyphs", "style") == "Design houses"
    for column in ("style", "name", "my_Column", "ÖL"):
        assert column_name("mine", column) == column
        assert column_word("mine", column) == column
        assert several_of("mine", column) == f"Values of {column}"
