"""Settings are checked before anything is kept, and count for every later command."""

import dataclasses
import inspect
import json
import shutil
from dataclasses import fields, is_dataclass, replace

import pytest

from core import config as settings_of
from core.checks import RULES, check_classes, check_fields, check_settings
from core.config import DataConfig
from core.data.datasets import load_dataset
from core.model.checkpoint import denoiser_to_bytes
from core.presets import COLLECTIONS, PRESETS, RECIPES, collection_config
from core.recipes import named_config, own_path, with_settings
from core.rules import written
from precompute.imports.images import make_own
from precompute.imports.selection import Selection
from precompute.machinery import settings
from precompute.machinery.config import (
    MEASURE_RULES,
    SAME_SEED_RULES,
    MeasureConfig,
    SameSeedConfig,
)
from precompute.machinery.settings import keep_settings, settings_for
from precompute.machinery.workspace import DEPENDS_ON
from precompute.retraining.ready import check_evidence
from precompute.stages.train import new_denoiser
from tests.conftest import linked_copy
from tests.helpers import layouts
from tests.kinds.settings import APART, WRONG
from tests.precompute.test_own import TOY, run, sets  # noqa: F401

KINDS = [
    kind
    for _, kind in inspect.getmembers(settings_of, inspect.isclass)
    if is_dataclass(kind) and kind.__module__ == settings_of.__name__
]


def example(kind):
    """Return settings of a kind, all at their defaults."""
    return kind("mine") if kind is settings_of.CollectionConfig else kind()


FIELDS = {
    f"{kind.__name__}.{field.name}": (kind, field.name)
    for kind in KINDS
    for field in fields(kind)
    if not is_dataclass(field.type)
}


@pytest.mark.parametrize(("kind", "name"), FIELDS.values(), ids=FIELDS)
def test_every_setting_has_a_rule_that_refuses_in_a_sentence(kind, name):
    """A new setting without a rule fails here; so does a rule that allows all."""
    rule = RULES[kind][name]
    assert rule.allows(getattr(example(kind), name))
    wrong = [value for value in WRONG if not rule.allows(value)]
    assert wrong
    for value in wrong:
        with pytest.raises(ValueError, match="^[^\n]*$") as found:
            check_fields(replace(example(kind), **{name: value}), "stage.")
        said = str(found.value)
        assert said.startswith(f"`stage.{name}` cannot be ")
        assert said.endswith(f"Expected: {rule.expected()}.")
        assert written(value) in said


@pytest.mark.parametrize(
    ("kind", "rules"),
    [(MeasureConfig, MEASURE_RULES), (SameSeedConfig, SAME_SEED_RULES)],
)
def test_how_models_are_trained_again_and_measured_has_rules_too(kind, rules):
    assert rules.keys() == {field.name for field in fields(kind)}
    check_fields(kind(), rules=rules)
    for field in fields(kind):
        with pytest.raises(ValueError, match=f"`{field.name}` cannot be -1"):
            check_fields(replace(kind(), **{field.name: -1}), rules=rules)


def test_what_comes_along_keeps_the_rules():
    for name in COLLECTIONS:
        for preset in PRESETS:
            check_settings(collection_config(name, preset))
    for recipe, side in RECIPES.values():
        check_settings(recipe("mine", DataConfig(image_size=side)))


@pytest.mark.parametrize(("change", "said"), APART.items(), ids=list(APART))
def test_settings_that_do_not_go_together_are_refused_in_a_sentence(
    change, said, tmp_path, monkeypatch, capsys
):
    """By every command, before it reads or keeps anything."""
    for verb in ("build", "train", "plan", "fidelity", "evidence"):
        words = [verb, "--collection", "glyphs", "--set", change]
        words += ["--root", tmp_path / "root", "--work", tmp_path / "work"]
        assert run(monkeypatch, *words) == 1
        printed_error = capsys.readouterr().err
        assert said in printed_error and printed_error.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


def test_a_gallery_of_candidates_has_at_most_one_sample_of_a_class():
    config = collection_config("glyphs")
    check_classes(config, 144)
    with pytest.raises(ValueError, match="is 64, .* Expected: at most 4, the number"):
        check_classes(config, 4)


def test_a_refused_build_burns_no_name(sets, tmp_path, monkeypatch, capsys):  # noqa: F811
    """Neither images nor settings are kept, and the same name is free after it."""
    pictures = layouts.image_folder(tmp_path / "in")
    words = ["build", "--collection", "mine", "--data", pictures, "--preset", "cifar"]
    words += ["--root", tmp_path / "root", "--work", tmp_path / "work"]
    read = []
    monkeypatch.setattr(
        "precompute.imports.images.data_settings", lambda *_: read.append(1)
    )
    assert run(monkeypatch, *words, "--set", "gradients.index_bits=2") == 1
    assert "Expected: 8, 4 or 1" in capsys.readouterr().err and read == []
    monkeypatch.undo()
    monkeypatch.setenv("AFTERIMAGE_SETS", str(sets))
    monkeypatch.setattr("precompute.imports.images.FEWEST", 1000)
    assert run(monkeypatch, *words, "--split", "all") == 1
    assert "Only 20 " in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_a_plan_of_own_images_keeps_nothing(sets, tmp_path, monkeypatch):  # noqa: F811
    """Not even folders; and what it says is about the images that were given."""
    pictures = layouts.image_folder(tmp_path / "in")
    seen = []

    def planned(config, work, device, dataset):
        seen.append((config, len(dataset)))

    monkeypatch.setattr("precompute.planning.plan.printed", lambda *_: "a plan")
    monkeypatch.setattr("precompute.planning.plan.plan", planned)
    words = ["plan", "--collection", "mine", "--data", pictures, "--split", "all"]
    words += ["--root", tmp_path / "root", "--work", tmp_path / "work"]
    assert run(monkeypatch, *words) == 0
    ((config, count),) = seen
    assert config.name == "mine" and count == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_settings_of_a_build_count_for_every_later_command(tmp_path):
    root, work = tmp_path / "root", tmp_path / "work"
    config = with_settings(
        collection_config("fashion2", "tiny"), ["train.batch_size=7", "seed=3"]
    )
    assert settings_for("fashion2", root, work) == collection_config("fashion2")
    keep_settings(config, work)
    assert settings_for("fashion2", root, work) == config
    changed = settings_for("fashion2", root, work, None, ["gradients.num_draws=12"])
    assert changed == with_settings(config, ["gradients.num_draws=12"])
    tiny = settings_for("fashion2", root, work, "tiny")
    assert tiny == collection_config("fashion2", "tiny")


def test_a_published_collection_says_what_it_was_made_with(tiny_collection, tmp_path):
    """Where the unfinished work is gone."""
    found = settings_for("glyphs", tiny_collection, tmp_path)
    assert found == collection_config("glyphs", "tiny")


def test_damaged_or_foreign_settings_are_passed_over(tmp_path):
    path = settings.kept_path("fashion2", tmp_path)
    path.parent.mkdir()
    usual = collection_config("fashion2")
    for text in ("", "[]", '{"name": "x"', json.dumps({"data": {"colour": 1}})):
        path.write_text(text)
        assert settings_for("fashion2", tmp_path / "root", tmp_path) == usual


def test_later_settings_of_an_own_collection_are_kept(sets, tmp_path):  # noqa: F811
    pictures = layouts.image_folder(tmp_path / "in")
    made = make_own("mine", pictures, "cifar", Selection("all"), TOY)
    root, work = tmp_path / "root", tmp_path / "work"
    changed = settings_for("mine", root, work, None, ["train.num_steps=5"])
    assert named_config("mine") == made  # asking changes nothing
    keep_settings(changed, work)
    assert named_config("mine") == settings_for("mine", root) == changed
    with pytest.raises(ValueError, match="change its settings with --set"):
        make_own("mine", pictures, "cifar", Selection("all"), TOY)
    assert make_own("mine", pictures, "cifar", Selection("all"), TOY, True) == made
    assert named_config("mine") == made and own_path("mine").exists()


def test_evidence_says_what_is_missing(tiny_collection, tmp_path, monkeypatch, capsys):
    """Nothing trains, and nothing is left."""
    root, work = tmp_path / "root", tmp_path / "work"
    words = ["evidence", "--collection", "fashion2", "--root", root, "--work", work]
    assert run(monkeypatch, *words, "--set", "seed=5") == 1
    said = capsys.readouterr().err
    assert said.startswith("The model of 'fashion2' is not trained yet. Run `python -m")
    assert "build --collection fashion2` first" in said
    words[0] = "fidelity"
    assert run(monkeypatch, *words, "--set", "seed=5") == 1
    assert "is not trained yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

    # Without the models that other tests train again in the folder that all share.
    made, retrained = tmp_path / "made", shutil.ignore_patterns("retrain-*")
    shutil.copytree(tiny_collection / "work", made, ignore=retrained)
    config = collection_config("glyphs", "tiny")
    with pytest.raises(LookupError, match="'glyphs' is not built yet. Run `python"):
        check_evidence(config, root, made, False)
    with pytest.raises(LookupError, match="nothing to measure. Run `python"):
        check_evidence(config, tiny_collection, made, False)
    check_evidence(config, tiny_collection, made, True)
    other = dataclasses.replace(config, samples=replace(config.samples, num_steps=4))
    assert other.fingerprint(*DEPENDS_ON["samples"])
    with pytest.raises(ValueError, match="published with other settings"):
        check_evidence(other, linked_copy(tiny_collection, tmp_path), made, False)


def test_weights_of_another_model_are_no_beginning(tmp_path, monkeypatch):
    """Before a step is trained, in a sentence instead of a list of shapes."""
    config = collection_config("fashion2", "tiny")
    dataset = load_dataset(config.data)
    (tmp_path / "models").mkdir()
    monkeypatch.setattr("precompute.stages.train.DATA_DIR", tmp_path)
    begun = denoiser_to_bytes(new_denoiser(config, dataset))
    (tmp_path / "models" / "begun.safetensors").write_bytes(begun)
    config = with_settings(config, ["train.start_from=begun.safetensors"])
    new_denoiser(config, dataset)
    with pytest.raises(ValueError, match="^`train.start_from` cannot be 'begun.safe"):
        new_denoiser(with_settings(config, ["model.layers_per_block=2"]), dataset)
