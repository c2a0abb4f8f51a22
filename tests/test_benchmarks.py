"""Benchmarks run at toy size: what they compute, not how long it takes."""

import json
from dataclasses import replace

import pytest
import torch

from core.model.parameters import parameter_layout
from tests.benchmarks import cifar_gpu, peers, question, scale, stable_diffusion
from tests.helpers.toys import random_samples, tiny_denoiser


def test_the_paper_unet_has_its_size():
    """The paper's CIFAR UNet has 38.3 million parameters."""
    with torch.device("meta"):
        denoiser = cifar_gpu.paper_denoiser(cifar_gpu.GPU_SIZE)
    count = sum(p.numel() for p in denoiser.unet.parameters())
    assert round(count / 1e6, 1) == 38.3


def test_stable_diffusion_and_its_lora_have_their_sizes():
    """What is published of SD 1.5, and of a LoRA of rank 16 around its attention."""
    unet = stable_diffusion.adapted_unet(16)
    adapters = parameter_layout(unet).num_params
    assert sum(p.numel() for p in unet.parameters()) - adapters == 859_520_964
    assert adapters == 3_188_736


def test_the_cifar_timing_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """A part that was measured is not measured again; hours scale with its seconds."""
    out = tmp_path / "cifar.json"
    monkeypatch.setattr(cifar_gpu, "SAVE_EVERY", 0.0)
    size = replace(cifar_gpu.TINY_SIZE, image_size=8)
    made_with = {**cifar_gpu.facts(), **vars(size)}
    stopped = cifar_gpu.Progress(out.with_suffix(".part.json"), made_with)
    stopped.parts = {"factors": {"samples": 8, "seconds": 80.0}}
    stopped.save()
    result = cifar_gpu.run(size, out, "cpu")
    passes = result["passes"]
    assert passes["factors"]["seconds"] == 80.0
    assert passes["factors"]["hours"] == pytest.approx(10 * 5_000 * 250 / 3600)
    assert all(p["samples"] == 8 and p["seconds"] > 0 for p in passes.values())
    stored = json.loads(out.with_suffix(".part.json").read_text())["parts"]
    assert stored["gradients"]["samples"] == 8
    assert "the paper 3.51 hours on an NVIDIA A100" in result["lines"][0]


def test_a_large_index_is_asked_in_bounded_memory(monkeypatch):
    """Its last shard is not whole; equal vectors have equal scores in all shards."""
    monkeypatch.setattr(scale, "EXAMPLES", 3 * scale.SHARD_EXAMPLES + 7)
    monkeypatch.setattr(scale, "BYTES", 512)
    found = scale.run("", None)["bits"]
    assert list(found) == ["8", "1"]
    for bits in found.values():
        assert bits["equal_vectors_score_alike"]
        assert bits["gigabytes"] == pytest.approx(775 * (512 + 4) / 1e9)


def test_a_missing_kronfluence_is_said_and_skipped(monkeypatch):
    """Without it there is nothing to compare, and the sentence says how to get it."""
    monkeypatch.setattr(peers, "Task", None)
    denoiser = tiny_denoiser()
    assert peers.kronfluence_seconds(denoiser, [random_samples(denoiser, 2)]) is None
    assert "pip install kronfluence==1.0.1" in peers.KRONFLUENCE_MISSING


def test_curvlinops_is_timed_without_its_decompositions():
    """The timing leaves the library as it was, and is positive."""
    denoiser = tiny_denoiser().float()
    before = peers.curvlinops.ekfac.eigh
    samples = [random_samples(denoiser, 2)]
    samples = [
        type(s)(s.x_t.float(), s.timesteps, s.labels, s.probes.float()) for s in samples
    ]
    layout = parameter_layout(denoiser.unet)
    assert peers.curvlinops_seconds(denoiser, layout, samples) > 0
    assert peers.curvlinops.ekfac.eigh is before


def test_a_new_question_is_timed_by_form_and_draws(tiny_collection, monkeypatch):
    """No gradient is kept between two: more draws take more of the cores."""
    monkeypatch.setattr(question, "DRAWS", (8, 256))
    monkeypatch.setattr(question, "QUERIES", 2)
    rows = question.run("glyphs", tiny_collection)["rows"]
    assert [(row["form"], row["draws"]) for row in rows] == [
        (form, draws) for form in ("sketch", "full") for draws in (8, 256)
    ]
    for few, many in (rows[:2], rows[2:]):
        assert 0 < few["cores"] < many["cores"]
