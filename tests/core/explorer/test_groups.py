"""Groups of images: who is in one, what leaving it out changes, how it is written."""

import numpy as np
import pandas as pd
import pytest
import torch

from core.answers import Uncertainty
from core.evidence.evaluation import calibrate
from core.explorer import groups
from core.seeds import keyed_seed

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=60)


def test_table_of_changes_matches_a_loop_over_the_pictures():
    """One sum of Eq. 6 per value; all values together are everything left out."""
    values = pd.Series(RNG.choice(list("abc"), 60))
    table = groups.change_table(SCORES, values).set_index("group")
    for name in "abc":
        members = [i for i in range(60) if values[i] == name]
        expected = sum(SCORES[i] for i in members) / 60
        assert table.loc[name, "change"] == pytest.approx(expected)
        assert table.loc[name, "images"] == len(members)
    assert table["change"].is_monotonic_decreasing
    assert table["change"].sum() == pytest.approx(SCORES.mean())
    assert table["standard_error"].isna().all()
    order = RNG.permutation(60)
    again = groups.change_table(SCORES[order], values[order].reset_index(drop=True))
    np.testing.assert_allclose(again["change"], table["change"])


def test_error_of_a_sum_is_the_spread_of_redrawn_sums():
    """Of 20,000 redrawn sums; independent errors would be several times too small."""
    rows, own = RNG.normal(size=(5, 60)) + 1, RNG.random(60)
    members = np.stack([np.arange(60) < 20, np.arange(60) == 3])
    causes, alone = RNG.normal(size=(20_000, 5)), RNG.normal(size=(20_000, 60))
    errors = causes @ rows + alone * np.sqrt(own)
    expected = (errors @ members.T / 60).std(0)
    found = Uncertainty(rows, own).of_groups(members)
    np.testing.assert_allclose(found, expected, rtol=0.03)
    independent = np.sqrt((errors.var(0) * members).sum(1)) / 60
    assert found[0] > 2 * independent[0]
    assert found[1] == pytest.approx(independent[1], rel=0.03)


def test_nothing_known_of_errors_is_no_error_of_zero():
    nothing = Uncertainty(np.empty((0, 60)), np.zeros(60))
    assert np.isnan(nothing.of_groups(np.ones((2, 60), bool))).all()


@pytest.mark.parametrize(("count", "size"), [(60, 20), (5, 5), (7, 6), (1, 1), (9, 0)])
def test_random_groups_are_those_of_torch(count, size):
    """So they stay what they were when torch drew them."""
    keyed = keyed_seed(3, "random groups", count, size)
    generator = torch.Generator().manual_seed(keyed)
    members = groups.random_members(count, size, seed=3)
    for row in members:
        drawn = torch.randperm(count, generator=generator)[:size]
        assert set(np.flatnonzero(row)) == set(drawn.tolist())


def test_random_groups_have_the_size_and_every_picture_the_same_chance():
    members = groups.random_members(60, 20, seed=0)
    assert members.shape == (groups.NUM_RANDOM, 60)
    assert (members.sum(1) == 20).all()
    assert len(np.unique(members, axis=0)) == groups.NUM_RANDOM
    share, spread = members.mean(0), (1 / 3 * 2 / 3 / groups.NUM_RANDOM) ** 0.5
    assert np.abs(share - 1 / 3).max() < 4.5 * spread
    np.testing.assert_array_equal(groups.random_members(60, 20, seed=0), members)
    assert (groups.random_members(60, 20, seed=1) != members).any()
    assert groups.random_members(5, 5, seed=0).all()


def test_share_below_counts_by_hand():
    others = np.array([1.0, 2.0, 2.0, 5.0])
    assert groups.share_below(2.0, others) == 0.5
    assert groups.share_below(6.0, others) == 1.0
    assert groups.share_below(0.0, others) == 0.0


def test_facets_leave_out_what_divides_nothing_new():
    """One value, a value each, or an earlier column under another name: no facet."""
    table = pd.DataFrame({
        "style": list("aabb") * 2,
        "license": list("xxyy") * 2,
        "name": [f"n{i}" for i in range(8)],
        "subject": list("abab") * 2,
        "same": ["s"] * 8,
    })
    assert groups.facets(table) == ["style", "subject"]
    numbered = pd.DataFrame({"label": [0, 0, 1, 1] * 2, "name": list("aabb") * 2})
    assert groups.facets(numbered) == ["name"]  # that people can read
    assert groups.facets(numbered[["label"]]) == ["label"]


def test_pasted_ids_are_read_whatever_stands_between_them():
    known = [1, 2, 3, 7, 8, 40]
    assert groups.read_ids("3, 1;40\n#7", known) == ([3, 1, 40, 7], [])
    assert groups.read_ids("2-8 and 99", known) == ([2, 3, 7, 8], [99])
    assert groups.read_ids("0-999999999999", known) == (known, [])
    assert groups.read_ids("3 3 3", known) == ([3], [])
    assert groups.read_ids("nothing here", known) == ([], [])


def test_written_ids_are_read_again():
    assert groups.write_ids([9, 7, 8, 3, 1, 2, 20, 21]) == "1-3,7-9,20,21"
    assert groups.write_ids([]) == ""
    for _ in range(20):
        ids = sorted(RNG.choice(50, 30, replace=False).tolist())
        assert groups.read_ids(groups.write_ids(ids), range(50))[0] == ids


def test_most_telling_keeps_both_ends_in_their_order():
    table = pd.DataFrame({"group": list("abcde"), "change": [3.0, 1, 0.1, -0.2, -4]})
    kept = groups.most_telling(table, 3)
    assert kept["group"].tolist() == ["a", "b", "e"]
    assert groups.most_telling(table, 5) is table


def test_calibrated_change_is_the_map_with_its_interval():
    """Changes twice as large as predicted come out doubled, with nothing left over."""
    predicted = RNG.normal(size=(4, 40))
    found = groups.calibrated(calibrate(predicted, 2 * predicted + 5), 0.5)
    assert found.value == pytest.approx(1.0, abs=0.1)
    assert found.low < found.value < found.high
    assert found.high - found.value == pytest.approx(found.value - found.low)
    assert found.tested
    beyond = groups.calibrated(calibrate(predicted, 2 * predicted), 99.0)
    assert not beyond.tested and beyond.value < 10
