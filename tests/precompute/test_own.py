"""From a user's own images to answers: settings, names, and the whole line, tiny."""

import sys

import numpy as np
import pandas as pd
import pytest

from core.config import DataConfig, TrainConfig
from core.data.datasets import load_dataset
from core.data.sources import Record, Source
from core.explorer.explorer import open_explorer
from core.measure.draws import keyed_generator
from core.model.build import make_denoiser
from core.presets import RECIPES, collection_config
from core.recipes import named_config, with_settings
from precompute.__main__ import main, parser
from precompute.imports.images import make_own
from precompute.imports.selection import Selection, parse_keep
from precompute.verbs.settings import selection
from tests.helpers import layouts
from tests.kinds.folders import images
from tests.pages.test_app import (  # noqa: F401  (a fixture among them)
    app_runs_first,
    open_app,
    wait_for_jobs,
    words,
)

# The paper's recipe at the size of a toy: as many levels and kinds of block.
TOY = """
    model.block_out_channels=8,8,8,8 model.norm_num_groups=4 model.layers_per_block=1
    train.num_steps=3 train.warmup_steps=1 train.batch_size=4
    curvature.factor_draws=1 curvature.eigenvalue_draws=1
    gradients.num_draws=4 gradients.sketch_dim=1024 gradients.slice_examples=4
    samples.num_samples=2 samples.num_steps=4 samples.num_draws=8
""".split()


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """Return the folder of the user's own data sets."""
    folder = tmp_path / "sets"
    monkeypatch.setenv("AFTERIMAGE_SETS", str(folder))
    return folder


def run(monkeypatch, *arguments) -> int:
    """Run a command as from the command line; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["precompute", *map(str, arguments)])
    return main()


def test_the_paper_s_model_is_built():
    """38.3 million parameters (App. J.2), attention at 16x16, dropout in training."""
    config = RECIPES["cifar"][0]("x", collection_config("glyphs").data)
    denoiser = make_denoiser(config.model, 32, 3, 0, keyed_generator(0, "x"))
    count = sum(p.numel() for p in denoiser.unet.parameters())
    assert round(count / 1e6, 1) == 38.3
    found = dict(denoiser.unet.config)
    assert found["down_block_types"] == (
        "DownBlock2D",
        "AttnDownBlock2D",
        "DownBlock2D",
        "DownBlock2D",
    )
    assert found["up_block_types"][2] == "AttnUpBlock2D"
    assert (found["dropout"], found["resnet_time_scale_shift"]) == (0.1, "scale_shift")
    wanted = TrainConfig(num_steps=32_000, batch_size=128, warmup_steps=3_200)
    assert config.train == TrainConfig(**vars(wanted) | {"horizontal_flip": True})


def test_settings_that_came_later_change_no_name():
    """What shipped before a setting existed keeps its fingerprint."""
    config = collection_config("glyphs")
    assert config.fingerprint("data", "model", "train") == "f77e261b4561"
    changed = with_settings(config, ["model.dropout=0.1"])
    assert changed.fingerprint("model") != config.fingerprint("model")


def test_single_settings_are_parsed_by_their_kind():
    config = collection_config("glyphs")
    changed = with_settings(
        config,
        [
            "train.num_steps=5",
            "train.learning_rate=1e-2",
            "train.horizontal_flip=True",
            "model.attention=true,false",
            "model.attention_head_dim=none",
            "curvature.max_positions=7",
            "data.limit=none",
        ],
    )
    assert changed.train.num_steps == 5 and changed.train.learning_rate == 0.01
    assert changed.train.horizontal_flip is True
    assert changed.model.attention == (True, False)
    assert changed.model.attention_head_dim is None
    assert changed.curvature.max_positions == 7 and changed.data.limit is None
    assert changed.samples == config.samples


@pytest.mark.parametrize(
    "change, said",
    {
        "steps=5": "names no setting",
        "train.steps=5": "'train' has no setting 'steps'. It has num_steps",
        "train.num_steps=many": "`train.num_steps` cannot be 'many'. Expected: a whole",
        "train.horizontal_flip=1": "Expected: true or false.",
    }.items(),
)
def test_a_wrong_setting_gets_one_sentence(change, said):
    with pytest.raises(ValueError, match="^[^\n]*$") as found:
        with_settings(collection_config("glyphs"), [change])
    assert said in str(found.value)


def test_settings_are_kept_under_a_name(sets, tmp_path):
    """Later commands need the name; the same call again changes nothing."""
    path = layouts.cifar_python(tmp_path / "in")
    selection = Selection("all", parse_keep(["label=automobile,horse"]))
    made = make_own("mine", path, "cifar", selection, TOY)
    assert named_config("mine") == made
    assert make_own("mine", path, "cifar", selection, TOY) == made
    dataset = load_dataset(made.data)
    assert dataset.class_names == (("automobile",), ("horse",))
    assert len(dataset) == 4 and made.data.channels == 3
    with pytest.raises(ValueError, match="exists with other images or settings"):
        make_own("mine", path, "small", selection, [])
    with pytest.raises(ValueError, match="Omit --preset"):
        named_config("mine", "tiny")
    with pytest.raises(ValueError, match="Choose another name"):
        make_own("glyphs", path, "cifar", selection, [])
    with pytest.raises(ValueError, match="cannot name a collection"):
        make_own("../mine", path, "cifar", selection, [])
    with pytest.raises(LookupError, match="Known collections: fashion2, .*mine"):
        named_config("none")
    with pytest.raises(LookupError, match="quick, small, cifar, latent"):
        make_own("other", path, "large", selection, [])
    origin = made.data.path.replace(".parquet", ".origin.json")
    kept = [origin, made.data.path, "mine.json"]
    assert sorted(path.name for path in sets.iterdir()) == kept


def test_pictures_without_classes_make_a_model_without(sets, tmp_path):
    path = layouts.idx(tmp_path / "in", packed=True)
    (path / "train-labels-idx1-ubyte.gz").unlink()
    made = make_own("grey", path, "small", Selection(), ["data.image_size=16"])
    assert made.data.channels == 1 and made.data.label_columns == ()
    assert made.model.label_dropout == 0.0 and made.data.image_size == 16
    dataset = load_dataset(made.data)
    with pytest.raises(ValueError, match="Only 3 images.*at least 4"):
        make_own("few", path, "small", Selection(limit=3), [])
    assert dataset.pixels.shape == (4, 1, 16, 16) and dataset.class_names == ((),)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_preset_from_a_folder_per_class_to_answers(
    sets, tmp_path, monkeypatch, recipe
):
    """At toy step counts, in one command; then the app opens it, and `attribute`."""
    where = ["--root", tmp_path / "root", "--work", tmp_path / "work"]
    levels = RECIPES[recipe][0]("toy", DataConfig()).model.block_out_channels
    channels = ",".join("8" for _ in levels)
    changes = [f"model.block_out_channels={channels}", "model.attention_head_dim=8"]
    changes = [*TOY, *changes]
    arguments = ["build", "--collection", "toy", "--preset", recipe, "--limit", 6]
    arguments += ["--data", layouts.image_folder(tmp_path)]
    arguments += [part for change in changes for part in ("--set", change)]
    assert run(monkeypatch, *arguments, *where) == 0

    out = tmp_path / "scores.csv"
    ask = ["attribute", "--collection", "toy", "--sample", 1, "--out", out]
    assert run(monkeypatch, *ask, *where[:2]) == 0
    table = pd.read_csv(out)
    assert list(table)[:4] == ["example_id", "score", "standard_error", "rank"]
    assert table["label"].isin(layouts.CLASSES).all() and len(table) == 6
    assert np.isfinite(table["score"]).all() and table["score"].std() > 0

    explorer = open_explorer("toy", where[1])
    assert list(explorer.classes.columns) == ["label"]
    assert explorer.origin["chosen"] == {"at most": "6"}
    used = {value for (value,) in explorer.classes.to_numpy()}
    assert used == set(table["label"])
    if recipe == "cifar":
        settings = explorer.provenance["settings"]
        assert settings["model"]["time_scale_shift"] == "scale_shift"
    for page in ("", "pages/groups.py"):
        link = {"collection": "toy", "sample": "1"}
        app = wait_for_jobs(open_app(where[1], monkeypatch, page, **link))
        assert not app.exception and not app.error, app.exception
    assert "label" in words(app)


def test_what_a_source_notes_is_printed_by_every_command(
    sets, tmp_path, monkeypatch, capsys
):
    """What could not be got is skipped with its reason, not tried as an image."""
    picture = layouts.pixels(4, 0, 8)
    records = [Record(pixels, {}, f"{i}") for i, pixels in enumerate(picture)]
    records.append(Record(b"", {}, "5", "It lies elsewhere."))
    source = Source("Toy", tmp_path, lambda: iter(records), notes=("One is odd.",))
    monkeypatch.setattr(
        "precompute.imports.images.find_source", lambda path, allow_outside: source
    )
    assert run(monkeypatch, "inspect-data", tmp_path) == 0
    assert "\n  5: It lies elsewhere.\nnote: One is odd.\n" in capsys.readouterr().out
    make_own("odd", tmp_path, "small", Selection(), [])
    assert "\n  5: It lies elsewhere.\nnote: One is odd.\n" in capsys.readouterr().out


def test_duplicates_are_named_and_dropped_on_request(
    sets, tmp_path, monkeypatch, capsys
):
    """By the pixels that the model sees; the first of each stays, with its label."""
    root = images(tmp_path / "in", *(f"{i % 2}/{i}.png" for i in range(6)))
    (root / "1" / "0.png").write_bytes((root / "0" / "0.png").read_bytes())
    both = make_own("both", root, "small", Selection(), [])
    said = capsys.readouterr().out
    assert (
        "note: 1 exact duplicate: '1/0.png = 0/0.png'. 1 with another label than the "
        "first: '1/0.png'. --drop-duplicates uses the first of each alone.\n"
    ) in said
    assert len(load_dataset(both.data)) == 7
    options = ["--drop-duplicates", "--split", "all"]
    chosen = selection(parser().parse_args(["inspect-data", str(root), *options]))
    one = load_dataset(make_own("one", root, "small", chosen, []).data)
    assert len(one) == 6 and "is used.\n" in capsys.readouterr().out
    assert set(one.metadata["file"]) == {f"{i % 2}/{i}.png" for i in range(6)}
    assert run(monkeypatch, "inspect-data", root, *options) == 0
    assert "images: 6\n" in capsys.readouterr().out


def test_inspect_data_says_what_is_there(tmp_path, monkeypatch, capsys):
    root = layouts.image_folder(tmp_path)
    (root / "broken.png").write_bytes(b"\x89PNG")
    assert run(monkeypatch, "inspect-data", root) == 0
    said = capsys.readouterr().out
    assert "layout: Image files\nimages: 20\nsizes: 32x32\n" in said
    assert "classes: 8: airplane 1, automobile 2" in said
    assert "skipped: 1\n  broken.png: " in said
    assert run(monkeypatch, "inspect-data", tmp_path / "nothing") == 1
    assert capsys.readouterr().err.count("\n") == 1
