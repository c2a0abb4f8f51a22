"""Which training images are called by some words, in their names and labels.

Whole words count, singular or plural alike; parts of words only where asked for. All
words have to be found, in any of the columns. Knows neither models nor pages.
"""

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

ARTICLES = {"a", "an", "the"}
IRREGULAR = {  # singular -> plural
    "child": "children",
    "foot": "feet",
    "goose": "geese",
    "man": "men",
    "mouse": "mice",
    "ox": "oxen",
    "person": "people",
    "tooth": "teeth",
    "woman": "women",
}
SHORTEST_PART = 3  # letters of a part of a word


def split_words(text: str) -> list[str]:
    """Return the words of a text in small letters, "face-with tears" as three."""
    return re.findall(r"[^\W_]+", text.casefold())


def plurals(word: str) -> set[str]:
    """Return what the plural of an English word may be."""
    if word in IRREGULAR:
        return {IRREGULAR[word]}
    found = {f"{word}s"}
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        found.add(f"{word}es")
    if word.endswith("y"):
        found.add(f"{word[:-1]}ies")
    if word.endswith("f"):
        found.add(f"{word[:-1]}ves")
    if word.endswith("fe"):
        found.add(f"{word[:-2]}ves")
    return found


def forms(word: str) -> set[str]:
    """Return a word with its plural, or the words that it may be the plural of."""
    back = {plural: singular for singular, plural in IRREGULAR.items()}
    stems = {word[:-1], word[:-2], f"{word[:-3]}y", f"{word[:-3]}f", f"{word[:-3]}fe"}
    singulars = {stem for stem in stems if stem and word in plurals(stem)}
    return {word, back.get(word, word)} | plurals(word) | singulars


def named(
    table: pd.DataFrame, columns: Iterable[str], words: str, parts: bool = False
) -> np.ndarray:
    """Return which images are called by words, bool, shape (N,).

    Args:
        table: Metadata, one row per image.
        columns: Those that hold names and labels.
        words: What was typed; articles do not count. Without a word, none is.
        parts: Whether a part of a word is enough.
    """
    wanted = [word for word in split_words(words) if word not in ARTICLES]
    members = np.full(len(table), bool(wanted))
    texts = [table[column].astype(str) for column in columns]
    for word in wanted:
        found = np.zeros(len(table), dtype=bool)
        for column in texts:
            values = [v for v in column.unique() if _called(v, word, parts)]
            found |= column.isin(values).to_numpy()
        members &= found
    return members


def _called(text: str, word: str, parts: bool) -> bool:
    """Return whether a text has a word, in whole or as a part of another."""
    there = split_words(text)
    if not forms(word).isdisjoint(there):
        return True
    enough = parts and len(word) >= SHORTEST_PART
    return enough and any(word in other for other in there)
