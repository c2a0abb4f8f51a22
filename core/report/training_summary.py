"""The public summary of what a collection's model was trained on, as Markdown.

Says what the collection's file records and, in a section of its own, what it does not.
Nothing is inferred: no licence is guessed from a source, no source from a name.
"""

import re
from collections import Counter

import pandas as pd

from core.explorer.explorer import Explorer
from core.files.texts import count_of, shortened
from core.presets import COLLECTIONS

MOST_ROWS = 20  # of a table; more are counted
NOTICE = "data/NOTICE.md"  # beside the program, for the sets that it ships


def training_summary(explorer: Explorer) -> str:
    """Return the public summary of a collection's training images."""
    parts = [
        [f"# What {_text(explorer.title)} was trained on"],
        _general(explorer),
        ["## Where the images came from", *_sources(explorer)],
        ["## Licences and credits", *_credits(explorer)],
        ["## Training opt-outs", *_opt_outs(explorer.origin)],
        ["## What was done to the images", *_processing(explorer)],
        ["## What is not known", *_unknown(explorer)],
    ]
    return "\n\n".join("\n\n".join(part) for part in parts) + "\n"


def _general(explorer: Explorer) -> list[str]:
    """Return how many images, of which size and class, and what model they made."""
    channels, height, width = explorer.image_shape
    colour = "grey" if channels == 1 else "colour"
    lines = [
        f"{count_of(explorer.num_examples, 'training image')}, stored at {width} x "
        f"{height} pixels in {colour}. They lie in the collection "
        f"{_code(explorer.name)} (`{explorer.fingerprint[:12]}`), each with its facts."
    ]
    train = explorer.provenance["settings"]["train"]
    if train.get("imported"):
        lines.append(
            "The model was trained elsewhere. These are the images that its user named "
            "as its training images; whether it saw others is not known."
        )
    elif start := train.get("start_from"):
        lines.append(
            f"Training went on from the model {_code(start)}. What that one was "
            "trained on is not part of this summary."
        )
    else:
        lines.append(
            "The model was trained on these images alone, from random weights."
        )
    for column in explorer.classes.columns:
        if column in explorer.examples.table:
            lines += _table(column, explorer.examples.table[column].value_counts())
    return lines


def _sources(explorer: Explorer) -> list[str]:
    """Return where the images lay and how they were chosen."""
    origin = explorer.origin
    path = explorer.provenance["settings"]["data"]["path"]
    if not origin:
        if path in {config.data.path for config in COLLECTIONS.values()}:
            return [
                f"The data set {_code(path)} comes with the program. Its sources, the "
                f"packages it was made from and the full licences are in `{NOTICE}`."
            ]
        return ["Not recorded."]
    lines = [
        f"Read by the user from {_code(origin['name'])} ({_text(origin['layout'])}). "
        "How they came there is not recorded."
    ]
    if chosen := origin["chosen"]:
        words = [f"{_text(name)}: {_text(value)}" for name, value in chosen.items()]
        lines.append(f"Chosen from it: {'; '.join(words)}.")
    sizes = [f"{w} x {h} ({count:,})" for w, h, count in origin["sizes"]]
    more = f" and {origin['other_sizes']:,} more" if origin["other_sizes"] else ""
    lines.append(f"Sizes before: {', '.join(sizes)}{more} pixels.")
    return lines


def _credits(explorer: Explorer) -> list[str]:
    """Return how many images each credit line and each licence covers."""
    table = explorer.examples.table
    lines = Counter(explorer.credit(int(example)) for example in table.index)
    parts = _table("credit", pd.Series(lines).sort_values(ascending=False))
    if column := explorer.licence_column:
        parts += _table(column, table[column].value_counts())
    else:
        parts.append("No licence is recorded for each image.")
    return parts


def _opt_outs(origin: dict) -> list[str]:
    """Return how many images forbade training, and what became of them."""
    if not origin:
        return ["It is not recorded whether the files said anything against training."]
    count = origin["opted_out"]
    if not count:
        first = "No file said anything against training."
    elif origin["opted_out_left_out"]:
        first = (
            f"{count_of(count, 'image')} left out, because the file forbids training."
        )
    else:
        first = f"{count_of(count, 'image')} used although the file forbids training."
    lines = [
        f"{first} Read were `plus:DataMining` and `tdm:reservation` in XMP, and "
        "`training-mining` in Content Credentials."
    ]
    if origin["unclear"]:
        lines.append(
            f"{count_of(origin['unclear'], 'image')} with metadata on training that "
            "could not be understood. That counts as no opt-out."
        )
    return lines


def _processing(explorer: Explorer) -> list[str]:
    """Return what was changed or left out."""
    lines = []
    if changes := explorer.credit_changes:
        lines.append(_text(changes))
    if origin := explorer.origin:
        if not changes:
            _, height, width = explorer.image_shape
            lines.append(f"Cut to squares and scaled to {width} x {height} pixels.")
        verb = "left out" if origin["duplicates_left_out"] else "kept"
        copies = count_of(origin["duplicates"], "exact duplicate")
        unread = count_of(origin["unreadable"], "file")
        lines.append(f"{copies} {verb}. {unread} could not be read as an image.")
    if explorer.provenance["settings"]["train"].get("horizontal_flip"):
        lines.append("Training also saw each image mirrored.")
    return lines or ["Not recorded."]


def _unknown(explorer: Explorer) -> list[str]:
    """Return what a reader might ask and no file here answers."""
    gaps = [
        "When the images were made or collected, and by whom.",
        "Whether they show people or hold personal data.",
    ]
    if not explorer.credits:
        gaps.append("Whose the images are, and under which licence.")
    if explorer.origin:
        gaps.append("What sites said of training where the images came from.")
    return ["\n".join(f"- {gap}" for gap in gaps)]


def _table(heading: str, counts: pd.Series) -> list[str]:
    """Return how many images each value has, the most frequent ones, as a table."""
    total = int(counts.sum())
    rows = [f"| {_text(heading)} | images | share |", "|---|---|---|"]
    for value, count in counts.iloc[:MOST_ROWS].items():
        name = _text(value) or "(empty)"
        rows.append(f"| {name} | {count:,} | {_share(count / total)} |")
    if (more := len(counts) - MOST_ROWS) > 0:
        left = int(counts.iloc[MOST_ROWS:].sum())
        rows.append(f"| {more:,} more | {left:,} | {_share(left / total)} |")
    return ["\n".join(rows)]


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= 0.01 else "under 1%"


def _code(value: object) -> str:
    """Return a name from anywhere in the type of code, where nothing is obeyed."""
    return "`" + shortened(value, 300).replace("`", "'") + "`"


def _text(value: object) -> str:
    """Return a text from anywhere as one that Markdown shows and does not obey."""
    line = shortened(value, 300)
    return re.sub(r"([\\`*_\[\]<>#|~$]|&(?=#?\w+;))", r"\\\1", line)
