"""A build leaves out the images that forbid training, and keeps how many they were."""

import pytest

from core.data.datasets import load_dataset, load_origin
from precompute.__main__ import parser
from precompute.imports.images import make_own
from precompute.verbs.settings import check_data_options, selection
from tests.kinds.opt_outs import some_opt_out


@pytest.mark.parametrize("leave_out", [False, True])
def test_images_that_forbid_training_are_left_out_on_request(
    leave_out, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("AFTERIMAGE_SETS", str(tmp_path / "sets"))
    root = some_opt_out(tmp_path)
    (root / "copy.png").write_bytes((root / "plain.png").read_bytes())
    (root / "torn.png").write_bytes(b"\x89PNG")
    words = ["build", "--collection", "mine", "--data", str(root), "--split", "all"]
    words += ["--exclude-opted-out"] * leave_out
    chosen = selection(parser().parse_args(words))
    made = make_own("mine", root, "small", chosen, [])
    files = set(load_dataset(made.data).metadata["file"])
    assert ({"no.png", "reserved.jpg"} & files == set()) == leave_out
    assert len(load_dataset(made.data)) == (4 if leave_out else 6)
    said = capsys.readouterr().out
    assert "note: 2 training opt-outs: " in said
    assert ("These images are left out." in said) == leave_out
    origin = load_origin(made.data)
    assert origin == {
        "name": "set",
        "layout": "Image files",
        "chosen": {"split": "all"},
        "sizes": [[24, 16, 4 if leave_out else 6]],
        "other_sizes": 0,
        "unreadable": 1,
        "duplicates": 1,
        "duplicates_left_out": False,
        "opted_out": 2,
        "opted_out_left_out": leave_out,
        "unclear": 1,
    }
    assert make_own("mine", root, "small", chosen, [], True) == made


@pytest.mark.parametrize("option", ["--exclude-opted-out", "--drop-duplicates"])
def test_an_option_that_would_leave_nothing_out_is_refused(option):
    """Or somebody would take the images of a finished set for checked."""
    words = ["build", "--collection", "mine", option]
    with pytest.raises(ValueError, match=f"`{option}` is about the images that --data"):
        check_data_options(parser().parse_args(words))
