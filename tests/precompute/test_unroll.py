"""Going back through a real training: resumable, and true of real removals."""

import io
import sys
from contextlib import redirect_stderr
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from core.config import TrainConfig
from core.data.datasets import load_dataset
from core.evidence.same_seed import UNROLLED, read_masks, unrolled_rows
from core.files.table_files import read_table
from core.model.checkpoint import denoiser_from_bytes
from core.presets import collection_config
from precompute.__main__ import main
from precompute.machinery.workspace import open_workspace
from precompute.retraining import unroll as unrolling
from precompute.retraining.ready import open_gallery
from precompute.retraining.same_seed import common_config
from precompute.retraining.smoothness import last_state, smoothness, verdict
from precompute.retraining.unroll import open_unrolling, segment_length, unroll
from precompute.stages.train import train


@pytest.fixture(scope="module")
def config():
    """Return Fashion-2 in seconds, by a step that can be differentiated."""
    config = collection_config("fashion2", "tiny")
    settings = TrainConfig(
        num_steps=14,
        batch_size=8,
        learning_rate=3e-3,
        warmup_steps=3,
        ema_decay=0.8,
        checkpoint_every=4,
        horizontal_flip=True,
        root_epsilon=1e-6,
    )
    return common_config(replace(config, train=settings))


@pytest.fixture(scope="module")
def work(config, tmp_path_factory):
    """Return a folder of work in which the model is trained and its gallery drawn."""
    work = tmp_path_factory.mktemp("work")
    train(config, load_dataset(config.data), open_workspace(config, work))
    open_gallery(config, work, "cpu")
    return work


class Interrupted(Exception):
    """Raised in the middle of long work."""


def test_training_goes_on_to_the_same_bits(config, tmp_path, monkeypatch):
    """Interrupted between checkpoints; and it is the recursion that is gone through."""
    dataset = load_dataset(config.data)
    whole = train(config, dataset, open_workspace(config, tmp_path / "whole"))
    workspace = open_workspace(config, tmp_path / "parts")
    from precompute.stages import batches

    real = batches.training_batch

    def failing(config, denoiser, ids, step):
        if step == 10:
            raise Interrupted
        return real(config, denoiser, ids, step)

    monkeypatch.setattr(batches, "training_batch", failing)
    with pytest.raises(Interrupted):
        train(config, dataset, workspace)
    monkeypatch.setattr(batches, "training_batch", real)
    assert workspace.load("train", "checkpoint")[1]["step"] == 8
    again = denoiser_from_bytes(train(config, dataset, workspace)).state_dict()
    first = denoiser_from_bytes(whole)
    assert all(torch.equal(again[n], value) for n, value in first.state_dict().items())
    gallery = open_gallery(config, tmp_path / "whole", "cpu")
    one = open_unrolling(config, gallery, tmp_path / "states", "cpu", 1 << 30)
    average = last_state(one.training).average.half()
    stored = torch.cat([value.flatten() for value in first.unet.parameters()])
    assert torch.equal(average, stored.half())


def test_a_stopped_way_back_goes_on_to_the_same_bits(
    config, work, tmp_path, monkeypatch
):
    """Whatever the memory of a segment, and wherever it was stopped."""
    wanted = unroll(config, (tmp_path / "a", work), range(2), "loss")
    first = read_table(wanted)
    for path in (work / config.name).glob("retrain-*/unrolled/*"):
        path.unlink()
    real, calls = unrolling.slopes_before_segment, []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise Interrupted
        return real(*arguments)

    monkeypatch.setattr(unrolling, "slopes_before_segment", failing)
    tight = partial_memory(config, work)
    with pytest.raises(Interrupted):
        unroll(config, (tmp_path / "b", work), range(2), "loss", memory=tight)
    found = unroll(config, (tmp_path / "b", work), range(2), "loss", memory=tight)
    assert len(calls) == 3 + 5  # segments of two steps; two were done, the third not
    again = read_table(found)
    for name in ("scores", "mean"):
        assert all(
            np.array_equal(a, b) for a, b in zip(first[name], again[name], strict=True)
        )
    other = unroll(config, (tmp_path / "b", work), range(1, 2), "elbo")
    kept = read_table(other)
    assert kept["sample_id"].tolist() == [1, 0, 1]
    assert kept["measurement"].tolist() == ["elbo", "loss", "loss"]


def partial_memory(config, work) -> int:
    """Return the bytes that two states take."""
    gallery = open_gallery(config, work, "cpu")
    weights = denoiser_from_bytes(gallery.weights).unet.parameters()
    return 2 * 16 * sum(value.numel() for value in weights)


def test_a_segment_is_the_root_of_all_steps_or_what_memory_holds():
    assert segment_length(3_000, 1_000, 1 << 30) == 55
    assert segment_length(3_000, 1_000, 160_000) == 10
    assert segment_length(1, 1_000, 1) == 1


def test_slopes_predict_what_a_lowered_weight_does(config, work):
    """A smooth recipe is said to be one; changes are those of real trainings."""
    table = smoothness(config, work, 2)
    assert len(table) == 2 * 2 * 4
    little = table[table["lowered"] == 0.1]
    predicted, measured = little["predicted"], little["measured"]
    assert abs(np.polyfit(predicted, measured, 1)[0] - 1) < 0.1
    assert verdict(table).startswith("This recipe can be differentiated.")
    rough = table.assign(measured=table["measured"] * 3)
    assert "too rough" in verdict(rough) and "root_epsilon" in verdict(rough)


def test_exact_scores_predict_removals_beside_the_others(tmp_path):
    """Rows of the same table as other methods; a removal is the sum of its scores."""
    masks = pd.DataFrame({
        "fraction": [0.5, 0.5],
        "subset": [0, 1],
        "kept": [
            np.packbits([1, 0, 0, 1]).tobytes(),
            np.packbits([0, 1, 1, 1]).tobytes(),
        ],
    })
    masks.to_parquet(tmp_path / "masks.parquet")
    exact = pd.DataFrame({
        "measurement": ["loss"],
        "sample_id": [3],
        "mean": [0.5],
        "scores": [np.array([4.0, 8.0, -4.0, 0.0], np.float32)],
    })
    (row,) = unrolled_rows(exact, read_masks(tmp_path)).to_dict("records")
    assert row["method"] == UNROLLED and row["sample_id"] == 3
    assert row["predicted"].tolist() == [1.0, 1.0]  # (8 - 4) / 4 and 4 / 4


def test_commands_refuse_in_a_sentence(monkeypatch):
    for options, words in (
        (["--sample", "5:2"], "a range such as 0:20"),
        (["--sample", "x"], "a range such as 0:20"),
        (["--sample", "0", "--measurement", "trajectory"], "loss, noise-loss or elbo"),
    ):
        call = ["precompute", "unroll", "--collection", "fashion2", *options]
        monkeypatch.setattr(sys, "argv", call)
        with redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit):
            main()
        assert words in said.getvalue(), said.getvalue()
