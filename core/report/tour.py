"""What the tour says of one image: sentences made of stored answers and of evidence.

Every number in them can be read off the page that a sentence stands on. Where nothing
is stored, a sentence says what to look at and claims nothing.
"""

from collections.abc import Callable

import pandas as pd

from core.evidence.groups import group_changes
from core.evidence.headline import UNTESTED, first_group
from core.evidence.left_out import group_name
from core.evidence.opening import opening
from core.evidence.stored import Evidence
from core.explorer.explorer import Explorer
from core.explorer.first_image import alike_in_top
from core.lenses import Lens
from core.report.left_out import measured_words

MEASURED = "loss"
Word = Callable[[str], str]  # column of labels -> how it is called in a sentence


def counted(explorer: Explorer, sample: int | None, lens: Lens) -> dict[str, int]:
    """Return `alike_in_top` of a gallery sample; {} where nothing is stored of it."""
    own = labels_of(explorer, sample)
    if not own:
        return {}
    answer = explorer.stored_answer(explorer.query_from_gallery(sample), lens)
    if answer is None:
        return {}
    return alike_in_top(answer.scores, explorer.examples.table, own)


def labels_of(explorer: Explorer, sample: int | None) -> dict[str, str]:
    """Return the labels by column that a gallery sample was drawn for; {} for none."""
    if sample is None or sample not in explorer.gallery.index:
        return {}
    label = explorer.gallery["label"].get(sample)
    return {} if pd.isna(label) else dict(explorer.class_of(int(label)))


def _shares(counts: dict[str, int], whose: str, word: Word) -> str:
    """Return "8 are of its own design house and 9 of its own subject"."""
    parts = [f"{count} of {whose} {word(name)}" for name, count in counts.items()]
    first, *others = parts
    number, rest = first.split(" ", 1)
    verb = "is" if number == "1" else "are"
    return " and ".join([f"{number} {verb} {rest}", *others])


def drawn_words(explorer: Explorer, sample: int | None) -> str:
    """Return where the image comes from."""
    own = labels_of(explorer, sample)
    wanted = f", asked for “{', '.join(own.values())}”" if own else ""
    return f"The model drew this image{wanted}. Choose another, or stay."


def helped_words(explorer: Explorer, sample: int | None, word: Word) -> str:
    """Return what the most influential images have in common with the image."""
    counts = counted(explorer, sample, Lens("ekfac"))
    if not counts:
        return "Without an image of the green row this one would be less likely."
    shares = _shares(counts, "its own", word)
    return f"Of its ten most influential training images, {shares}."


def alike_words(explorer: Explorer, sample: int | None, word: Word) -> str:
    """Return how that differs from look-alikes."""
    counts = counted(explorer, sample, Lens("clip"))
    claim = "The small CLIP finds look-alikes. Influence finds causes."
    if not counts:
        return f"{claim} The dark badge is an image’s rank in the other column."
    return f"{claim} Of its ten, {_shares(counts, 'that', word)}."


def group_of(explorer: Explorer, sample: int | None) -> str | None:
    """Return the group that the page What if begins with: of the first label."""
    own = labels_of(explorer, sample)
    return group_name(*next(iter(own.items()))) if own else None


def without_words(
    explorer: Explorer, evidence: Evidence | None, sample: int | None, who: str
) -> str:
    """Return what retraining without the image's first label measured.

    Args:
        explorer: The collection.
        evidence: What was measured, None for nothing.
        sample: The gallery sample, None for another image.
        who: What the first label is called in a sentence.
    """
    group = group_of(explorer, sample)
    if evidence is not None and group is not None and not evidence.groups.empty:
        changes = group_changes(evidence, MEASURED)
        if (group, sample) in changes.index:
            row = changes.loc[(group, sample)]
            words = measured_words(
                MEASURED, row["before"], row["change"], row["random"]
            )
            return f"Retrained without this {who}: {words[0].lower()}{words[1:]}"
    return (
        f"What if this {who} had never been there? Compare with random removals of "
        "the same size."
    )


def right_words(evidence: Evidence | None, word: Word) -> str:
    """Return how often the scores were right, as far as that was tested."""
    if evidence is None:
        return UNTESTED
    lens = Lens("ekfac")
    found = first_group(lens, evidence)
    if found is not None:
        column, share, chance = found
        return (
            f"Asked which {word(column)} mattered most, EK-FAC is right for "
            f"{share:.0%} of images (chance: {chance:.0%})."
        )
    try:
        first = opening(evidence)
    except (LookupError, ValueError):  # too little was measured to say anything
        return UNTESTED
    return UNTESTED if first is None else first.finding
