"""Every option of every verb with a wrong value: one sentence that names it."""

import sys

import pytest
from diffusers import DDPMPipeline, DDPMScheduler

from precompute.__main__ import main, parser
from tests.core.model.test_pipelines import unet
from tests.helpers import layouts

(VERBS,) = [action.choices for action in parser()._actions if action.dest == "verb"]

# What a verb cannot do without.
NEEDED = {
    "inspect-data": ["PICTURES"],
    "import-model": ["MODEL", "--collection", "mine", "--data", "PICTURES"],
    "clip": ["--out", "x.safetensors"],
    "sheet": ["--collection", "glyphs", "--out", "x.png"],
    "site": ["--collection", "glyphs", "--out", "site"],
    "attribute": ["--collection", "glyphs", "--sample", "0"],
    "unroll": ["--collection", "glyphs", "--sample", "0"],
}
MADE = ["--data", "PICTURES", "--split", "all"]
# Option -> wrong values, and options that have to be there besides.
WRONG = {
    "--collection": (["../x", ""], []),
    "--preset": (["huge"], []),
    "--set": (["train.num_steps", "train.num_steps=x", "colour=red"], []),
    "--data": (["nowhere"], ["--collection", "mine"]),
    "--split": (["half"], []),
    "--keep": (["label", "colour=red"], MADE),
    "--index": (["nowhere.txt"], MADE),
    "--classes": (["colour"], MADE),
    "--credits": (["nowhere.txt"], MADE),
    "--limit": (["0", "-1", "x"], MADE),
    "--seed": (["x", "1.5"], []),
    "--device": (["cuda", "tpu", "cuda:99"], []),
    "--threads": (["0", "-1", "x"], []),
    "--examples": (["0", "x"], []),
    "--repeats": (["1", "x"], []),
    "--part": (["2/2", "half"], []),
    "--subsets": (["0", "x"], []),
    "--seeds": (["0", "x"], []),
    "--together": (["0", "x"], []),
    "--without": (["colour"], ["--preset", "tiny"]),
    "--table": (["x"], []),
    "--samples": (["0", "x"], []),
    "--probability-draws": (["-1", "x"], []),
    "--ggn": (["x"], []),
    "--kfac-approx": (["x"], []),
    "--lora": (["nowhere"], []),
    "--unet": (["../x"], []),
    "--scheduler": (["nowhere"], []),
    "--steps": (["0", "x"], []),
    "--only": (["x"], []),
    "--dim": (["0", "99999", "x"], []),
    "--projection": (["x"], []),
    "--draws": (["0", "x"], []),
    "--image": (["nowhere.png"], []),
    "--sample": (["-1", "99", "x"], []),
    "--example": (["-1", "99999999", "x"], []),
    "--sampler": (["euler"], []),
    "--guidance": (["-1", "x", "inf"], []),
    "--method": (["x"], []),
    "--measurement": (["x"], []),
    "--timesteps": (["5", "9:3", "0:99999"], []),
    "--region": (["1,2,3", "0,0,99,99"], []),
    "--damping": (["0", "-1", "nan", "x"], []),
    "--memory": (["0", "x"], []),
    "--images": (["0", "x"], []),
    "--scores": (["nowhere.parquet", "nowhere.txt"], []),
    "--models": (["nowhere"], ["--masks", __file__]),
    "--masks": (["nowhere.npy"], ["--models", "."]),
    "--export": (["nowhere/x.parquet", "."], []),
}
# By verb where an option of that name takes something else.
OWN = {
    ("unroll", "--sample"): (["-1", "999", "3:2", "x"], []),
    ("attribute", "--index"): (["half"], []),
    ("attribute", "--draws"): (["7", "0", "x"], []),
    ("sheet", "--out"): (["x.txt", "nowhere/x.png", "."], []),
    ("site", "--out"): (["nowhere/x"], []),
    ("fidelity", "--out"): (["x.txt", "nowhere/x.csv"], []),
    ("clip", "--out"): (["nowhere/x.safetensors", "."], []),
    ("summary", "--out"): (["nowhere/x.md", "."], []),
    ("attribute", "--out"): (["nowhere/x.csv", "."], []),
}
# A folder that is not there is made, or has nothing in it; texts can be anything; a
# class is checked against the model in tests/precompute/test_commands.py, a name of
# brought scores in tests/core/evidence/test_brought.py.
ANYTHING = {"--root", "--work", "--caption", "--prompt", "--label", "--name"}
ANYTHING |= {"--forget"}
OPTIONS = [
    (verb, option)
    for verb, options in VERBS.items()
    for action in options._actions
    for option in action.option_strings
    if option.startswith("--") and action.nargs != 0 and option not in ANYTHING
]
TRIED = [
    pytest.param(verb, option, value, more, id=f"{verb} {option} {value}")
    for verb, option in OPTIONS
    for values, more in [OWN.get((verb, option)) or WRONG.get(option, ((), ()))]
    for value in values
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the folder of a small model that diffusers saved."""
    folder = tmp_path_factory.mktemp("model")
    DDPMPipeline(unet(), DDPMScheduler()).save_pretrained(folder)
    return folder


def test_every_option_is_tried():
    """A new option has to be put into the table."""
    known = {*OWN, *((verb, option) for verb, option in OPTIONS if option in WRONG)}
    assert set(OPTIONS) == known


@pytest.mark.parametrize(("verb", "option", "value", "more"), TRIED)
def test_a_wrong_value_is_one_sentence(
    verb, option, value, more, tiny_collection, model, tmp_path, monkeypatch, capsys
):
    pictures = tmp_path / "in"
    if "PICTURES" in [*NEEDED.get(verb, ()), *more]:
        layouts.image_folder(pictures)
    before = list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AFTERIMAGE_SETS", str(tmp_path / "sets"))
    needed = NEEDED.get(verb, ["--collection", "glyphs"])
    if verb in ("inspect-data", "import-model") and "--data" in more:
        more = more[2:]
    if more and "--data" in more:
        needed = ["--collection", "mine"]
    if more[:1] == ["--collection"]:
        needed = [] if verb != "import-model" else ["MODEL"]
    if option in ("--image", "--example", "--seed") and verb == "attribute":
        needed = needed[:2]
    if option in needed:
        at = needed.index(option)
        needed = needed[:at] + needed[at + 2 :]
    words = [verb, *needed, *more, f"{option}={value}"]
    places = {"PICTURES": str(pictures), "MODEL": str(model)}
    words = [places.get(word, word) for word in words]
    known = {name for action in VERBS[verb]._actions for name in action.option_strings}
    if "--root" in known:
        words += ["--root", str(tiny_collection)]
    if "--work" in known:
        words += ["--work", str(tmp_path / "work")]
    monkeypatch.setattr(sys, "argv", ["precompute", *words])
    try:
        status = main()
    except SystemExit as end:
        status = end.code
    *bars, said = capsys.readouterr().err.strip().splitlines()
    assert status in (1, 2) and said.endswith("."), said
    assert not any("Traceback" in bar or "rror" in bar for bar in bars), bars
    assert option in said or value in said or value.split("=")[0] in said, said
    assert list(tmp_path.iterdir()) == before


def test_verbs_and_missing_options_are_one_sentence(capsys, monkeypatch):
    for words, part in {
        ("evidnce",): "cannot be 'evidnce'. Expected: one of 'train', ",
        ("build",): "required: --collection. `python -m precompute build --help` lists",
        (
            "build",
            "--collection",
            "x",
            "--colour",
            "3",
        ): "Unrecognized arguments: --",
        ("attribute", "--collection", "x"): "One of the arguments --image --sample ",
    }.items():
        monkeypatch.setattr(sys, "argv", ["precompute", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr().err
        assert end.value.code == 2 and part in said and said.count("\n") == 1
