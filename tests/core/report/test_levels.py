"""Noise levels in words, and bars over them."""

import numpy as np

from core.report import levels


def test_high_noise_is_structure_and_low_noise_detail():
    names = [levels.stage_of(timestep, 1000)[0] for timestep in (999, 500, 0)]
    assert names == ["Structure", "In between", "Detail"]
    order = [levels.stage_of(t, 16)[0] for t in range(16)]
    assert order == sorted(order, key=["Detail", "In between", "Structure"].index)


def test_roots_keep_signs_and_order_and_lift_what_is_small():
    values = np.array([[100.0, -4.0], [1.0, 0.0]])
    np.testing.assert_allclose(levels.signed_roots(values), [[1, -0.2], [0.1, 0]])
    assert not levels.signed_roots(np.zeros((2, 2))).any()
