"""What the page Evidence says first, recomputed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from core.evidence.groups import group_table
from core.evidence.lds import lds_table
from core.evidence.opening import opening, predicted_share, without_the_named
from core.evidence.stored import NOTHING, RANDOM
from tests.helpers.toy_evidence import full_evidence


@pytest.fixture(scope="module")
def evidence():
    return full_evidence({}, 40)


def test_images_become_worse_by_what_was_measured(evidence):
    """Per cent of each sample's own error, the mean over samples; the best first."""
    found = without_the_named(evidence)
    rows = evidence.measured.query(
        "kind == 'removed' and measurement == 'loss' and low == -1"
    )
    largest = rows[rows["method"].isin(["ekfac", "clip"])]["fraction"].max()
    before = rows[rows["method"] == NOTHING].groupby("sample_id")["value"].mean()
    own = rows[(rows["method"] == "ekfac") & (rows["fraction"] == largest)]
    own = own[own["about"] == own["sample_id"]].groupby("sample_id")["value"].mean()
    change = 100 * (own / before.loc[own.index] - 1).to_numpy()
    row = found.rows[found.rows["name"] == "EK-FAC"].iloc[0]
    assert row["value"] == pytest.approx(change.mean())
    assert row["error"] == pytest.approx(change.std(ddof=1) / len(change) ** 0.5)
    assert found.rows["value"].is_monotonic_decreasing
    random = rows[(rows["method"] == RANDOM) & (rows["fraction"] == largest)]
    random = random.groupby("sample_id")["value"].mean().loc[own.index]
    change = 100 * (random / before.loc[own.index] - 1).to_numpy()
    row = found.rows[found.rows["name"] == "a random removal"].iloc[0]
    assert row["value"] == pytest.approx(change.mean())
    best = found.rows.iloc[0]
    assert f"{best['name']} named is {best['value']:.0f}% worse" in found.finding


def test_without_removals_it_is_the_share_of_what_can_be_predicted():
    """LDS over the most that can be reached; none where no seed was repeated."""
    evidence = full_evidence({}, 40, removals=False)
    found = opening(evidence)
    assert found.finding == predicted_share(evidence).finding
    table = lds_table(evidence, "loss").set_index("method")
    wanted = 100 * table.at["ekfac", "lds"] / table.at["reachable", "lds"]
    shown = found.rows.set_index("name")["value"]
    np.testing.assert_allclose(shown["EK-FAC"], wanted)
    alone = evidence.measured[evidence.measured["seed"] == 0]
    assert opening(replace(evidence, measured=alone)) is None


def test_with_groups_alone_it_is_how_often_the_right_one_was_named(evidence):
    """Counted sample by sample: largest predicted against largest measured change."""
    removed = evidence.measured["method"].str.contains("=|none|random")
    alone = evidence.measured[removed & (evidence.measured["kind"] == "removed")]
    alone = alone[alone["about"] < 0]
    groups = replace(evidence, measured=alone, scores=evidence.scores[:0])
    found = opening(groups)
    table = group_table(groups, "loss")
    table = table[table["method"] == "ekfac"]
    hits = [
        part.set_index("group")["predicted"].idxmax()
        == part.set_index("group")["measured"].idxmax()
        for _, part in table.groupby("sample_id")
    ]
    share = np.mean(hits)
    rows = found.rows.set_index("name")
    assert rows.at["EK-FAC", "value"] == pytest.approx(100 * share)
    error = 100 * (share * (1 - share) / len(hits)) ** 0.5
    assert rows.at["EK-FAC", "error"] == pytest.approx(error)
    assert rows.at["guessing", "value"] == pytest.approx(100 / 3)
    assert "each of 3 groups" in found.finding
    assert opening(evidence).axis != found.axis  # halves say more, where there are any
