"""What is known of a collection whose scores no retraining has tested, in sentences."""

import shlex

from core.config import CollectionConfig, RemovalConfig
from core.numbers import clock, listed, number
from core.presets import COLLECTIONS, preset_of


def stored_finding(quality: dict) -> str:
    """Return what was measured of a collection when it was built, in one sentence."""
    sentences = {
        "reliability": "with other draws of the training gradients, the order of its "
        "scores agrees to {}",
        "sketch_agreement": "the sketch agrees with the exact order to {}",
        "index_agreement": "the full index to {}",
        "exact_again": "asked again with all noise new, stored answers agree to {}",
        "sketch_again": "answers by the sketch to {}",
    }
    known = [
        words.format(number(quality[name]))
        for name, words in sentences.items()
        if quality.get(name) is not None
    ]
    if not known:
        return "Nothing was measured when the collection was built."
    return f"Measured when it was built: {listed(known)} (Spearman)."


def command_flags(config: CollectionConfig) -> str:
    """Return what names a collection and its preset in a command."""
    flags, preset = f"--collection {config.name}", preset_of(config)
    return flags if preset in (None, "cpu") else f"{flags} --preset {preset}"


def untested_finding(config: CollectionConfig) -> str:
    """Return what was not measured of a collection, and the commands that do."""
    sentence = (
        "How well these scores rank random halves of the images was not measured: no "
        "model was trained again on such halves. "
    )
    if config.train.imported:
        return sentence + (
            "Its model was trained elsewhere, so there is no recipe here to train it "
            "again by."
        )
    flags, why = command_flags(config), "Do it with "
    if config.train.start_from:
        why = (
            "Its model went on from weights that had seen every image, so only a "
            "build that starts anew can be tested"
        )
        if config.name not in COLLECTIONS:
            return f"{sentence}{why}."
        flags, why = (
            f"--collection {config.name} --preset gpu",
            f"{why}: build that, then ",
        )
    return (
        f"{sentence}{why}`python -m precompute retrain {flags}`, then "
        f"`python -m precompute evidence {flags}`."
    )


def twins_offer(config: CollectionConfig, column: str, groups: int, costs: dict) -> str:
    """Return how to get models that never saw a group, "" where there is no recipe.

    Args:
        config: Of the collection.
        column: Whose values are left out in turn.
        groups: How many values it has.
        costs: Seconds that each stage of the build took.
    """
    if config.train.imported:
        return ""
    models = 1 + groups + RemovalConfig().num_group_controls
    took = ""
    if seconds := costs.get("train"):
        took = f", at most {clock(models * seconds)} where this one took "
        took += clock(seconds)
    flags = f"{command_flags(config)} --without {shlex.quote(column)}"
    return (
        "To have any image drawn again by models that never saw one of these groups: "
        f"`python -m precompute retrain {flags}`. It trains {models} models{took}."
    )
