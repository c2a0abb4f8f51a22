"""Searching among the training images: who is left, and what is said of none."""

import numpy as np
import pandas as pd
import pytest

from core.explorer import filters
from core.explorer.explorer import Answer, Lens
from core.report import reading

TABLE = pd.DataFrame(
    {
        "style": ["noto", "noto", "fluent", "a&b=c ~ü", "fluent"],
        "group": ["food", "face", "food", "food", "face"],
        "year": [1, 2, 1, 2, 1],
    },
    index=[3, 5, 6, 9, 12],
)
COLUMNS = ["style", "group", "year"]


def test_one_of_the_values_in_every_column():
    """Against the conditions written out."""
    facets = {"style": ("noto", "fluent"), "group": ("food",)}
    found = filters.search(TABLE, facets, "", [])
    expected = TABLE["style"].isin(["noto", "fluent"]) & (TABLE["group"] == "food")
    np.testing.assert_array_equal(found.members, expected)
    assert found.size == 2 and found.words == "noto or fluent; food"
    assert filters.search(TABLE, {"year": ("2",)}, "", []).members.tolist() == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_words_and_facets_have_both_to_match():
    found = filters.search(TABLE, {"group": ("food",)}, "pear", [5, 9, 12], "CLIP")
    assert TABLE.index[found.members].tolist() == [9]
    assert found.words == "food, nearest to “pear” by CLIP"
    named = filters.search(TABLE, {"group": ("food",)}, "pear", [5, 9])
    assert named.words == "food, “pear” in name or label"


def test_nothing_found_says_why():
    found = filters.search(TABLE, {"style": ("noto",)}, "zebra", [6, 9], "CLIP")
    assert not found.size
    assert found.empty == (
        "No image of ‘noto’ matches “zebra”: none is among the 2 nearest to these "
        "words by CLIP. Try other words, or fewer conditions."
    )
    found = filters.search(TABLE, {"style": ("noto",)}, "zebra", [6])
    assert found.empty == (
        "No image of ‘noto’ matches “zebra”: the 1 that do by name or label are "
        "others. Try other words, or fewer conditions."
    )
    found = filters.search(TABLE, {"style": ("noto",), "year": ("9",)}, "", [])
    assert found.empty == "No image is all of ‘noto; 9’. Leave one of these out."


def test_facets_survive_the_link():
    facets = {"style": ("a&b=c ~ü", "noto"), "group": ("food",)}
    text = filters.write_facets(facets)
    assert filters.read_facets(text, TABLE, COLUMNS) == facets
    assert filters.read_facets("", TABLE, COLUMNS) == {}
    twice = filters.read_facets("style=noto&style=noto", TABLE, COLUMNS)
    assert twice == {"style": ("noto",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("style=openmoji", "No training image has “openmoji” as “style”"),
        ("magic=noto", "Choose among style, group, year"),
        ("<script>", "has “” as “<script>”"),
        ("&&", "names no column and value"),
        ("style=" + "x" * 9000, "“" + "x" * 40 + "”"),
    ],
)
def test_a_wrong_text_is_one_sentence(text, said):
    with pytest.raises(ValueError, match=said):
        filters.read_facets(text, TABLE, COLUMNS)


def test_words_match_a_tenth_and_never_many():
    assert [filters.num_nearest(n) for n in (1, 32, 500, 50_000)] == [1, 3, 50, 50]


@pytest.mark.parametrize("method", ["ekfac", "clip"])
def test_strips_hold_what_the_search_leaves_in_the_order_of_all(method):
    """The strips of all images with the others taken out of them."""
    scores = np.random.default_rng(1).normal(size=40)
    ids, nothing = np.arange(40) * 2, np.full(40, np.nan)
    answer = Answer(Lens(method), ids, scores, nothing, "exact", 1.0)
    members = np.arange(40) % 3 == 0
    found = filters.Matches(members, "thirds", "none")
    every = reading.strips(answer, 40)
    for strip, full in zip(reading.strips(answer, 5, found), every, strict=True):
        expected = [place for place in full.positions if members[place]][:5]
        assert strip.positions.tolist() == expected
    marks, all_marks = reading.marks(answer, 5, found), reading.marks(answer, 40)
    assert marks and all(
        int(text.lstrip("−")) <= 40 and example // 2 % 3 == 0
        for example, text in marks.items()
    )
    assert all_marks[int(ids[scores.argmax()])] == "1"


def test_an_empty_search_is_said_in_every_strip():
    scores = np.array([1.0, -1.0])
    answer = Answer(Lens(), np.arange(2), scores, scores * np.nan, "exact", 1.0)
    none = filters.Matches(np.zeros(2, bool), "zebra", "No zebra.")
    assert {strip.empty for strip in reading.strips(answer, 5, none)} == {"No zebra."}
    one = filters.Matches(np.array([True, False]), "first", "")
    against = reading.strips(answer, 5, one)[-1]
    assert not len(against.positions)
    assert against.empty == "No image that you search worked against it."
