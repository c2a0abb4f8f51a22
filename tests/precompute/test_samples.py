"""The gallery: chosen by what is measured, and drawn again to the same bits."""

import numpy as np

from precompute.stages.samples import best_spread


def test_the_best_of_every_subject_come_first():
    """Two houses, two subjects, two candidates each, worked by hand."""
    names = [("a", "cat"), ("a", "dog"), ("b", "cat"), ("b", "dog")]
    scores = np.array([0.9, 0.1, 0.8, 0.3, 0.7, 0.2, 0.6, 0.25])
    assert best_spread(scores, names, count=2) == [0, 3]  # the best cat and dog
    assert best_spread(scores, names, count=3) == [0, 2, 3]  # the other house's cat
    assert best_spread(scores, names, count=9) == [0, 2, 3, 5]  # one per class


def test_a_gallery_sample_is_drawn_again_to_the_same_bits(tiny_explorer):
    """Generating with a sample's settings gives its x_0 and its pixels exactly."""
    sample = int(tiny_explorer.gallery.index[0])
    query = tiny_explorer.query_from_gallery(sample)
    again = tiny_explorer.generate(query.drawing)
    np.testing.assert_array_equal(again.x_0, tiny_explorer.engine.x_0(query))
    np.testing.assert_array_equal(again.pixels, query.pixels)
