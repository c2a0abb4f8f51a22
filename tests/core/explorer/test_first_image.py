"""Which gallery image opens first: counted again from the answers, one by one."""

import numpy as np
import pandas as pd
import pytest

from core.evidence.groups import group_changes
from core.explorer.explorer import Lens, open_explorer
from core.explorer.first_image import (
    CLEAREST,
    FirstImage,
    clearest_first,
    first_image,
    label_share,
)


@pytest.fixture(scope="module")
def glyphs():
    """Return the explorer of the shipped collection."""
    return open_explorer("glyphs")


def share_by_hand(explorer, sample: int, lens: Lens) -> float:
    """Return how often the ten first of an answer have the labels of a sample."""
    query = explorer.query_from_gallery(sample)
    answer = explorer.answer(query, lens)
    own, right = explorer.class_of(query.label), 0
    for example in answer.example_ids[answer.top(10)]:
        row = explorer.examples.table.loc[example]
        right += sum(row[column] == value for column, value in own.items())
    return right / (10 * len(own))


def test_no_clear_image_has_a_larger_margin(glyphs):
    """Whose margin is larger is one where retraining contradicts the prediction."""
    first = glyphs.first_image
    margins = {
        sample: share_by_hand(glyphs, sample, Lens())
        - share_by_hand(glyphs, sample, Lens("clip"))
        for sample in glyphs.gallery_order[:CLEAREST]
    }
    assert first.by_labels and first.influence > first.similarity
    assert first.influence - first.similarity == pytest.approx(margins[first.sample])
    changes = group_changes(glyphs.evidence(), "loss")["measured"]
    for sample, margin in margins.items():
        if margin > margins[first.sample] + 1e-9:
            style = glyphs.class_of(glyphs.query_from_gallery(sample).label)["style"]
            assert changes[f"style={style}", sample] < 0, sample
    style = glyphs.class_of(glyphs.query_from_gallery(first.sample).label)["style"]
    assert changes[f"style={style}", first.sample] > 0


def test_what_opens_is_found_without_the_model(glyphs):
    fresh = open_explorer("glyphs")
    assert fresh.first_image == glyphs.first_image
    assert fresh._engine is None


def test_a_gallery_without_classes_opens_with_its_clearest():
    explorer = open_explorer("fashion2")
    assert explorer.first_image.sample == explorer.gallery_order[0]
    assert not explorer.first_image.by_labels


@pytest.mark.parametrize("name", ["glyphs", "fashion2"])
def test_clearest_images_are_first_by_loss_and_by_clip(name):
    """Ranks are counted here from the answers of the gallery, one by one."""
    explorer = open_explorer(name)
    losses, nearest = {}, {}
    for sample in map(int, explorer.gallery.index):
        query = explorer.query_from_gallery(sample)
        losses[sample] = explorer.answer(query, Lens()).value
        nearest[sample] = explorer.answer(query, Lens("clip")).scores.max()
    sums = [
        sum(other < losses[i] for other in losses.values())
        + sum(other > nearest[i] for other in nearest.values())
        for i in explorer.gallery_order
    ]
    assert sums == sorted(sums) and sorted(explorer.gallery_order) == sorted(losses)


def test_no_stored_answers_leave_the_order_as_it_is():
    assert clearest_first({5: np.nan, 2: np.nan}, {}) == [5, 2]
    assert first_image([5, 2], {}, pd.DataFrame(), {}, {}) == FirstImage(5)


def test_a_share_counts_every_label_column():
    labels = pd.DataFrame({"house": list("aab") * 5, "kind": list("xyz") * 5})
    scores = np.r_[np.ones(9), np.zeros(6)]  # three of each row, and the next row
    own = {"house": "a", "kind": "x"}
    assert label_share(scores, labels, own) == pytest.approx((0.7 + 0.4) / 2)
