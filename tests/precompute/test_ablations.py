"""Gradients that are kept in fewer bits: the same as if they had been written so."""

import numpy as np
import torch

from core.index.full import GradientIndex
from core.measure.draws import keyed_generator
from precompute.retraining.ablations import recoded


def test_an_index_in_fewer_bits_is_near_one_that_was_written_so(tmp_path):
    """What 8 bits lose moves few 4-bit codes, so products hardly differ."""
    generator = keyed_generator(0, "toy index")
    gradients = torch.randn(300, 5000, generator=generator)
    queries = torch.randn(3, 5000, generator=generator)
    eight, four = (GradientIndex(tmp_path / str(b), 300, 5000, b) for b in (8, 4))
    for index in (eight, four):
        index.create()
        index.write(0, gradients)
    copy = recoded(eight, tmp_path / "copy", 4)
    exact, found = four.scores(queries), copy.scores(queries)
    lost = np.square(exact - (queries @ gradients.T).numpy()).mean()
    assert 0 < np.square(found - exact).mean() < 0.3 * lost
