"""The stages from end to end: equal results however often they were interrupted."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from core.collection.store import Collection, find_collection
from core.data.datasets import load_dataset
from core.drawing import Drawing
from core.explorer.explorer import Lens, open_explorer
from core.presets import collection_config
from precompute.__main__ import main
from precompute.machinery.workspace import open_workspace
from precompute.stages.batches import batch_indices
from precompute.stages.build import build
from precompute.stages.curvature import CurvatureStage
from precompute.stages.train import new_denoiser, train

ROOT = Path(__file__).resolve().parents[2]


def start_build(folder) -> subprocess.Popen:
    """Start a tiny build in a process of its own; what it prints goes to a file."""
    command = [sys.executable, "-m", "precompute", "build", "--collection", "glyphs"]
    command += ["--preset", "tiny", "--device", "cpu", "--root", str(folder)]
    command += ["--work", str(folder / "work")]
    with open(folder / "log", "w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def content(root) -> dict:
    """Return the fingerprint of every array in a collection."""
    with Collection(find_collection(root, "glyphs")) as collection:
        return {
            name: collection.blob(name)
            if name == "denoiser"
            else collection.array(name).tobytes()
            for name in collection.arrays()
        }


def test_training_that_was_interrupted_ends_in_the_same_weights(tmp_path):
    """Stopped twice and resumed, training gives the bytes of an undisturbed run."""
    config = collection_config("glyphs", "tiny")
    config = replace(
        config, train=replace(config.train, num_steps=9, checkpoint_every=2)
    )
    dataset = load_dataset(config.data)
    straight = train(config, dataset, open_workspace(config, tmp_path / "straight"))

    workspace = open_workspace(config, tmp_path / "broken")
    for stop in (3, 6):
        with pytest.MonkeyPatch.context() as patch:

            def failing(step, *args, stop=stop):
                if step == stop:
                    raise KeyboardInterrupt
                return batch_indices(step, *args)

            patch.setattr("precompute.stages.batches.batch_indices", failing)
            with pytest.raises(KeyboardInterrupt):
                train(config, dataset, workspace)
    assert train(config, dataset, workspace) == straight


def test_every_example_is_seen_once_an_epoch():
    """Steps walk through whole random orders, also where batches do not divide them."""
    seen = [batch_indices(step, 4, 10, 0) for step in range(5)]
    order = np.concatenate(seen)
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    assert (order[:10] != order[10:]).any()


def test_a_build_that_was_killed_resumes_to_the_same_collection(
    tiny_collection, tmp_path
):
    """Kill -9 at random moments, start again: the same content to the last bit."""
    moments = np.random.default_rng(0).uniform(0.0, 4.0, 2)
    for moment in moments:
        process = start_build(tmp_path)
        while process.poll() is None and not (tmp_path / "work").exists():
            time.sleep(0.05)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
    process = start_build(tmp_path)
    assert process.wait(timeout=120) == 0, (tmp_path / "log").read_text()
    assert content(tmp_path) == content(tiny_collection)


@pytest.mark.long
def test_sixty_kills_in_every_stage_change_nothing(tmp_path):
    """Of building, methods, answers, retraining and evidence: the same bytes."""
    out = tmp_path / "kills.json"
    command = [sys.executable, "-m", "tests.benchmarks", "kills", "--out", str(out)]
    assert subprocess.run(command, cwd=ROOT).returncode == 0
    result = json.loads(out.read_text())
    assert result["differ"] == []
    assert result["kills"] >= 50 and min(result["by_stage"].values()) > 0
    (ROOT / "tests/benchmarks/results/kills.json").write_text(out.read_text())


def test_the_command_and_the_explorer_agree(tiny_collection, tiny_explorer, tmp_path):
    """`attribute` writes the explorer's own numbers with ranks and metadata."""
    out = tmp_path / "scores.csv"
    arguments = ["attribute", "--collection", "glyphs", "--root", str(tiny_collection)]
    arguments += ["--example", "5", "--draws", "8", "--out", str(out)]
    assert ask(arguments) == 0
    table = pd.read_csv(out)
    assert list(table.columns[:4]) == ["example_id", "score", "standard_error", "rank"]
    assert {"style", "name", "group", "license"} <= set(table.columns)
    answer = tiny_explorer.answer(
        tiny_explorer.query_from_example(5), Lens(num_draws=8)
    )
    table = table.set_index("example_id").loc[answer.example_ids]
    np.testing.assert_allclose(table["score"], answer.scores, rtol=1e-8)
    np.testing.assert_allclose(
        table["standard_error"], answer.standard_errors, rtol=1e-8
    )
    np.testing.assert_array_equal(table["rank"], answer.ranks())


def ask(arguments) -> int:
    """Run the command line in this process; return its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["precompute", *arguments])
        return main()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--collection", "nope", "--sample", "0"], "There is no collection 'nope'"),
        (["--sample", "99"], "has no sample 99"),
        (["--image", "missing.png"], "'missing.png' cannot be read"),
        (["--sample", "0", "--out", "no/where.csv"], "cannot be written"),
    ],
)
def test_mistakes_on_the_command_line(tiny_collection, capsys, arguments, sentence):
    """Exit status 1, one sentence on stderr, no traceback."""
    prefix = ["attribute", "--root", str(tiny_collection)]
    if "--collection" not in arguments:
        prefix += ["--collection", "glyphs"]
    assert ask(prefix + arguments) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error


def test_an_unknown_method_lists_those_there_are(capsys):
    """Refused as the line is read, like every choice: exit status 2."""
    with pytest.raises(SystemExit) as ended:
        ask(["attribute", "--collection", "glyphs", "--method", "magic"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "cannot be 'magic'. Expected: ekfac, kfac," in error
    assert "Traceback" not in error


def test_an_unknown_preset_lists_those_there_are(capsys):
    """A typing mistake costs no time."""
    assert ask(["build", "--collection", "glyphs", "--preset", "huge"]) == 1
    assert "Known presets: cpu, tiny, gpu" in capsys.readouterr().err


def test_a_pixel_model_without_classes_is_built_and_asked(tmp_path):
    """Fashion-2: grey pixels, mirrored draws, no classes; errors cover the sketch."""
    config = collection_config("fashion2", "tiny")
    build(config, tmp_path, tmp_path / "work", "cpu")
    explorer = open_explorer("fashion2", tmp_path)
    assert explorer.gallery["label"].isna().all()
    query = explorer.query_from_example(10)
    sketch, full = (
        explorer.answer(query, Lens(num_draws=8, form=form))
        for form in ("sketch", "full")
    )
    off = np.abs(sketch.scores - full.scores)
    assert np.mean(off < 2 * sketch.standard_errors) > 0.9
    assert full.standard_errors.mean() < sketch.standard_errors.mean()
    made = explorer.generate(Drawing(None, 5, "ddim", 5))
    assert made.pixels.shape == (1, 16, 16)


def test_the_command_line_chooses_the_curvature(tmp_path):
    """Each GGN and approximation has a result of its own, found by its settings."""
    stage = ["curvature", "--collection", "fashion2", "--preset", "tiny"]
    stage += ["--work", str(tmp_path), "--device", "cpu"]
    config, found = collection_config("fashion2", "tiny"), []
    for ggn, approximation in (("model", "expand"), ("loss", "reduce")):
        assert ask([*stage, "--ggn", ggn, "--kfac-approx", approximation]) == 0
        chosen = replace(config.curvature, ggn=ggn, kfac_approx=approximation)
        workspace = open_workspace(replace(config, curvature=chosen), tmp_path)
        found.append(workspace.load("curvature", "curvature")[0]["kfac"])
    assert not torch.allclose(*found)


def test_curvature_sees_every_picture_mirrored_or_not():
    """Augmentation is inside the expectation: each draw mirrors its image or not.

    With GGN^loss the target is the noise, so the image can be told from x_t.
    """
    config = collection_config("fashion2", "tiny")
    config = replace(config, curvature=replace(config.curvature, ggn="loss"))
    dataset = load_dataset(config.data)
    denoiser, x_0 = new_denoiser(config, dataset), dataset.images()
    stage = CurvatureStage(config, dataset, denoiser, x_0)
    batches = stage.samples("mirrors", 6, 24, range(8))
    seen = {(i, mirrored): 0 for i in range(len(x_0)) for mirrored in (False, True)}
    for samples in batches:
        signal = denoiser.alphas_cumprod[samples.timesteps].view(-1, 1, 1, 1)
        clean = (samples.x_t - (1 - signal).sqrt() * samples.targets) / signal.sqrt()
        for picture in clean:
            for mirrored in (False, True):
                pictures = x_0.flip(-1) if mirrored else x_0
                off = (pictures - picture).abs().amax((1, 2, 3))
                if off.min() < 1e-2:
                    seen[int(off.argmin()), mirrored] += 1
    count = len(dataset)
    assert all(seen[i, False] + seen[i, True] == 6 for i in range(count))
    mirrored = sum(seen[i, True] for i in range(count)) / (6 * count)
    assert abs(mirrored - 0.5) < 4 * (0.25 / (6 * count)) ** 0.5
