"""A class by its number or name; others are refused in a sentence that lists them."""

import io

import pytest
from PIL import Image

from core.drawing import Drawing
from core.explorer.explorer import open_explorer
from core.labels import check_label, label_of
from tests.precompute.test_own import run

NAMES = ("noto, food-fruit", "noto, heart", "twemoji, heart", "Heart", "7")
MANY = [f"artist {number:03}" for number in range(120)]


@pytest.mark.parametrize(
    "text, label",
    {
        "0": 0,
        "7": 4,
        " 4 ": 4,
        "noto, heart": 1,
        "NOTO,heart": 1,
        "heart": 3,
        "twemoji,  Heart": 2,
    }.items(),
)
def test_a_class_is_found_by_number_and_by_name(text, label):
    assert label_of(text, NAMES) == label


@pytest.mark.parametrize(
    "text, names, said",
    [
        ("5", NAMES, "There is no class 5; the model has 5, numbered 0 to 4. Choose"),
        ("-1", NAMES, "There is no class -1;"),
        ("cat", NAMES, "There is no class 'cat'. Choose one of: noto, food-fruit; no"),
        ("", NAMES, "There is no class ''."),
        ("artist 11", MANY, "Of its 120, for example: artist 11"),
        ("zzz", MANY, "for example: artist 000; artist 001"),
        ("0", (), "The model has no classes. Omit the label."),
        ("cat", (), "The model has no classes. Omit the label."),
        ("a  b", ("a b", "A B", "ab"), "There is no class 'a  b'."),
    ],
)
def test_another_is_refused_in_a_sentence(text, names, said):
    with pytest.raises(ValueError, match="^[^\n]*[.]$") as found:
        label_of(text, names)
    assert said in str(found.value) and len(str(found.value)) < 250


def test_no_class_is_a_choice():
    check_label(None, ())
    check_label(None, NAMES)


@pytest.fixture
def picture(tmp_path):
    """Return the path of an image, and its bytes."""
    file = io.BytesIO()
    Image.new("L", (28, 28), 90).save(file, "PNG")
    (tmp_path / "one.png").write_bytes(file.getvalue())
    return tmp_path / "one.png", file.getvalue()


def test_the_explorer_takes_no_class_that_its_model_does_not_have(picture):
    explorer = open_explorer("fashion2")
    assert explorer.class_names() == ["Bag", "Sneaker"]
    for ask in (
        lambda: explorer.query_from_upload(picture[1], 2),
        lambda: explorer.generate(Drawing(-1, 0, "ddim", 2)),
    ):
        with pytest.raises(ValueError, match="Choose one of: Bag; Sneaker[.]$"):
            ask()
    explorer.close()


@pytest.mark.parametrize(
    "options, said",
    [
        (("--label", "Boot"), "There is no class 'Boot'. Choose one of: "),
        (("--label", "2"), "There is no class 2; the model has 2, numbered 0 to 1."),
        (("--label", "1"), "class 1: Sneaker\n"),
        (("--label", "sneaker"), "class 1: Sneaker\n"),
        (("--label", "bag", "--sample", "0"), "have a class of their own. Omit it."),
    ],
)
def test_the_command_takes_names(options, said, picture, monkeypatch, capsys):
    which = () if "--sample" in options else ("--image", picture[0])
    ask = ["attribute", "--collection", "fashion2", "--method", "pixel", *which]
    failed = run(monkeypatch, *ask, *options)
    told = capsys.readouterr()
    assert said in told.err and failed == ("class 1" not in said)
    assert failed or told.out.startswith("example_id,score")
