"""Words find images by their names: against a list made from the data set's names."""

import re

import numpy as np
import pandas as pd
import pytest

from core.explorer.explorer import open_explorer
from core.explorer.named import forms, named

NOUNS = """dog cat heart flower ball tree fish monkey medal dragon bear moon horse mouse
spider rabbit potato mushroom cherry knife""".split()
PLURALS = {"mouse": "mice", "cherry": "cherries", "knife": "knives", "fish": "fishes"}
PLURALS |= {"potato": "potatoes"}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return the metadata of the shipped Glyphs."""
    return open_explorer("glyphs").examples.table


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_finds_all_that_are_called_so(table, noun):
    """All of the images whose name has it, in either number; and few others."""
    plural = PLURALS.get(noun, f"{noun}s")
    called = rf"(?<![a-z])(?:{noun}|{plural})(?![a-z])"
    expected = np.array([bool(re.search(called, name.lower())) for name in table.name])
    assert expected.sum() >= 2
    for words in (noun, plural, f"A {noun.upper()}"):
        found = named(table, ["name"], words)
        assert (found & expected).sum() >= 0.95 * expected.sum(), words
        assert (found & expected).sum() >= 0.95 * found.sum(), words


def test_labels_count_as_names_do(table):
    """A sunflower is a flower by its subject, a rose too."""
    found = set(table.name[named(table, ["name", "subgroup"], "flowers")])
    assert {"sunflower", "rose", "wilted flower"} <= found
    noto = table[named(table, ["name", "style"], "noto dog")]
    assert set(noto["style"]) == {"noto"} and "guide dog" in set(noto["name"])


def test_whole_words_come_before_parts_of_words(table):
    """Ice is no part of rice until parts are asked for, and then still found."""
    whole = set(table.name[named(table, ["name"], "ice")])
    parts = set(table.name[named(table, ["name"], "ice", parts=True)])
    assert "ice cream" in whole and "rice ball" not in whole
    assert whole < parts and "rice ball" in parts
    assert not named(table, ["name"], "the").any()
    assert not named(table, ["name"], "").any()
    assert not named(table, ["name"], "zx", parts=True).any()


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("dog", "dogs"),
        ("cookie", "cookies"),
        ("cherry", "cherries"),
        ("glass", "glasses"),
        ("tomato", "tomatoes"),
        ("shoe", "shoes"),
        ("leaf", "leaves"),
        ("knife", "knives"),
        ("goose", "geese"),
    ],
)
def test_singular_and_plural_are_one_word(one, several):
    assert several in forms(one) and one in forms(several)


@pytest.mark.parametrize(
    ("one", "other"), [("car", "care"), ("rat", "rates"), ("pin", "pines")]
)
def test_other_words_stay_others(one, other):
    assert other not in forms(one) and one not in forms(other)
