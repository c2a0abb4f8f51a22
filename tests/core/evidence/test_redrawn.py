"""Images that retrained models drew: the right model beside the right sample."""

from dataclasses import replace

import numpy as np
import pytest

from core.evidence.redrawn import (
    disjoint_rows,
    group_rows,
    in_twins,
    removal_rows,
    without_group,
)
from core.evidence.stored import NOTHING, RANDOM, Evidence
from tests.helpers.toy_evidence import HOUSES, full_evidence


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """Return evidence with images of every model."""
    return full_evidence({}, 40, num_samples=3)


def stored(evidence, sample, **which) -> np.ndarray:
    """Return one image, found row by row."""
    for row in evidence.pictures.to_dict("records"):
        if row["sample_id"] == sample and all(row[k] == v for k, v in which.items()):
            return np.frombuffer(row["pixels"], np.uint8).reshape(row["shape"])
    raise AssertionError("no such image")


def test_each_sample_is_shown_without_what_mattered_for_it(evidence):
    """Not without what mattered for another sample; the first rows are references."""
    rows = removal_rows(evidence, 0.1)
    assert [name for name, _ in rows] == [NOTHING, RANDOM, "ekfac"]
    for name, pictures in rows:
        assert sorted(pictures) == [0, 1, 2]
        for sample, picture in pictures.items():
            about = {NOTHING: -1, RANDOM: 0}.get(name, sample)
            fraction = 0.0 if name == NOTHING else 0.1
            which = {"method": name, "about": about, "fraction": fraction}
            expected = stored(evidence, sample, kind="removed", **which)
            np.testing.assert_array_equal(picture, expected)
    assert removal_rows(full_evidence({}, 40, removals=False), 0.1) == []


def test_pairs_come_in_the_order_of_their_size(evidence):
    """Both models of a size follow each other."""
    rows = disjoint_rows(evidence)
    sizes = [(count, side) for count, side, _ in rows]
    assert sizes == [(2, 0), (2, 1), (8, 0), (8, 1), (20, 0), (20, 1)]
    expected = stored(evidence, 2, kind="disjoint", fraction=0.2, subset=1)
    np.testing.assert_array_equal(rows[3][2][2], expected)


def test_each_group_left_out_stands_beside_every_picture(evidence):
    """The first row is the model of the same seed that saw everything."""
    rows = group_rows(evidence)
    assert [name for name, _ in rows] == [NOTHING, RANDOM, *HOUSES]
    for place, name in ((3, "house=b"), (1, RANDOM)):
        expected = stored(evidence, 1, kind="removed", method=name, fraction=0.3)
        np.testing.assert_array_equal(rows[place][1][1], expected)
    chance = evidence.pictures.query("method != 'random' or fraction != 0.3")
    rows = group_rows(replace(evidence, pictures=chance))
    assert [name for name, _ in rows] == [NOTHING, *HOUSES]
    assert group_rows(full_evidence({}, 40, groups=())) == []
    alone = replace(evidence, pictures=evidence.pictures.query("method == 'house=a'"))
    assert group_rows(alone) == []


def test_a_group_stands_beside_its_null_and_the_model_of_everything(evidence):
    """The null is a random removal of the group's size, where one was drawn."""
    found = without_group(evidence, "house=b")
    assert list(found) == [NOTHING, RANDOM, "house=b"]
    for method in (RANDOM, "house=b"):
        expected = stored(evidence, 1, kind="removed", method=method, fraction=0.3)
        np.testing.assert_array_equal(found[method][1], expected)
    other = evidence.pictures.query("method != 'random' or fraction != 0.3")
    found = without_group(replace(evidence, pictures=other), "house=b")
    assert list(found) == [NOTHING, "house=b"]
    assert without_group(evidence, "house=z") == {}


@pytest.mark.parametrize("measurement", ["loss", "elbo"])
def test_a_sample_in_every_model_without_a_group(evidence, measurement):
    """Costs row by row from the tables, and the images that were drawn again."""
    found = in_twins(evidence, 1, measurement)
    names = {("none", -1), ("random", 0), ("random", 1)}
    assert set(found) == names | {(house, -1) for house in HOUSES}
    rows = evidence.measured[evidence.measured["kind"] == "removed"]
    for (name, number), one in found.items():
        (cost,) = [
            row.value
            for row in rows.itertuples()
            if (row.method, row.about, row.sample_id, row.measurement, row.low)
            == (name, number, 1, measurement, -1)
            and row.fraction in (0, 0.3)
        ]
        assert one.value == cost
    drawn = without_group(evidence, HOUSES[0])
    np.testing.assert_array_equal(found[HOUSES[0], -1].pixels, drawn[HOUSES[0]][1])
    np.testing.assert_array_equal(found["random", 0].pixels, drawn["random"][1])
    assert found["random", 1].pixels is None
