"""Scores over a LoRA on the shipped Glyphs model mean what they say."""

import pytest
import torch

from core.model.checkpoint import denoiser_from_bytes
from core.presets import collection_config
from precompute.stages.stages import shipped_weights
from tests.benchmarks.lora import Size, drawings, own_ranks, run, scores, tuned


def test_pictures_that_a_lora_was_tuned_on_find_themselves_first():
    """Among as many of the same house and group that were held out, by other draws."""
    size = Size(pictures=12, queries=8, steps=40, batch=6, draws=32)
    weights = shipped_weights(collection_config("glyphs"))
    both = drawings(denoiser_from_bytes(weights), 24)
    denoiser = tuned(weights, both[:12], size)
    plain = denoiser_from_bytes(weights)
    timesteps = torch.full((12,), 300)
    noise = torch.randn(both[:12].shape, generator=torch.Generator().manual_seed(0))
    losses = [
        model.losses(both[:12], noise, timesteps, model.labels(None, 12)).mean()
        for model in (denoiser, plain)
    ]
    assert losses[0] < losses[1]  # it was tuned
    assert own_ranks(scores(denoiser, both[:12], both[:8], both, size)) == [1] * 8


@pytest.mark.long
def test_scores_over_a_lora_predict_what_tuning_without_a_picture_does():
    """LDS over twelve halves: far above chance, and above likeness of pixels.

    The bounds are half of what `tests/benchmarks/results/lora.json` has.
    """
    result = run("glyphs", None)
    ours, pixels = result["lds EK-FAC"], result["lds pixels"]
    assert result["own_ranks_among_all"] == [1] * 12
    for name, least in {"held in": 0.45, "held out": 0.3, "samples": 0.3}.items():
        mean, error = ours[name]
        assert mean > max(least, 3 * error, pixels[name][0]), (name, ours, pixels)
