"""In which generated images a group mattered: loops over images and random groups."""

import numpy as np
import pytest

from core.collection.schema import StoredAnswer
from core.evidence.groups import group_changes
from core.explorer.groups import random_members
from core.explorer.mattered import where_it_mattered
from core.report.left_out import mattered_words
from tests.helpers.toy_evidence import HOUSES, full_evidence

COUNT, SAMPLES = 40, 4


@pytest.fixture(scope="module")
def evidence():
    """Return evidence about four samples and three houses."""
    return full_evidence({}, COUNT, num_samples=SAMPLES)


@pytest.fixture(scope="module")
def answers() -> dict[int, StoredAnswer]:
    """Return scores that are not centred, of samples that are not in order."""
    rng = np.random.default_rng(0)
    return {
        i: StoredAnswer(rng.normal(0.3, 1, COUNT), np.ones(COUNT), 2.0 + i, "exact")
        for i in (2, 0, 3, 1)
    }


def test_predictions_equal_sums_and_stand_among_random_groups(answers):
    members = np.arange(COUNT) < 9
    table = where_it_mattered(answers, members, 5).set_index("sample_id")
    random = random_members(COUNT, 9, 5)
    for sample, answer in answers.items():
        scores, row = answer.scores, table.loc[sample]
        sums = [sum(scores[i] for i in np.flatnonzero(m)) for m in (members, *random)]
        average = 9 * scores.mean()
        assert row["predicted"] == pytest.approx((sums[0] - average) / COUNT)
        below = np.mean([one < sums[0] for one in sums[1:]])
        assert row["below"] == pytest.approx(below) and row["cost"] == 2.0 + sample
    assert table["change"].isna().all()
    share = (table["predicted"] / table["cost"]).to_numpy()
    assert (np.diff(share) <= 0).all()


def test_what_was_measured_decides_the_order_and_stands_against_chance(
    answers, evidence
):
    rows = evidence.measured
    rows = rows[(rows["kind"] == "removed") & (rows["measurement"] == "loss")]
    rows = rows[rows["low"] == -1]
    measured = group_changes(evidence, "loss").loc[HOUSES[1]]
    table = where_it_mattered(answers, np.arange(COUNT) < 9, 5, measured)
    shares = []
    for row in table.itertuples():
        own = rows[rows["sample_id"] == row.sample_id]
        before = own[own["method"] == "none"]["value"].mean()
        without = own[own["method"] == HOUSES[1]]["value"].item()
        random = own[(own["method"] == "random") & (own["fraction"] == 0.3)]["value"]
        assert row.before == pytest.approx(before)
        assert row.change == pytest.approx(without - before)
        assert row.chance == pytest.approx(random.max() - before)
        shares.append(row.change / row.before)
    assert len(shares) == SAMPLES and (np.diff(shares) <= 0).all()


def test_it_is_told_in_how_many_images(answers, evidence):
    table = where_it_mattered(answers, np.arange(COUNT) < 9, 5)
    table["below"] = [0.99, 0.5, 0.98, 0.1]
    predicted = (
        "Predicted: removing Noto raises the loss of 2 of 4 generated images more than "
        "97.5% of random removals of the size would."
    )
    assert mattered_words(table, "Noto", "loss") == predicted
    table["change"], table["chance"] = [3.0, 1.0, -1.0, 2.0], [2.0, 2.0, -2.0, 1.0]
    assert mattered_words(table, "Noto", "loss") == (
        "Measured: without Noto the loss of 2 of 4 generated images rose by more than "
        f"any random removal of the size did. {predicted}"
    )
