"""What was seen of a user's images, in lines for a person, and which classes they give.

Said by `inspect-data`, `plan` and `build` alike, before anything is trained.
"""

from collections import Counter

from core.columns import free_names
from core.data.sets import RESERVED, SHOWN, Summary
from core.files.texts import count_of, listed, one_line

MOST_CLASSES = 1000  # with more values a label names images, not classes


def class_columns(
    summary: Summary, wanted: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return the columns whose combination is the class of an image.

    Args:
        summary: What was seen of the images.
        wanted: The columns, as the user calls them; None takes `label`, where it has
            more than one value and at most `MOST_CLASSES`.

    Returns:
        The columns as a set of images calls them.

    Raises:
        ValueError: If one that is asked for is not there, or has so many values that
            it names images.
    """
    if wanted is None:
        values = summary.values.get("label")
        few = values is not None and 1 < len(values) <= MOST_CLASSES
        return ("label",) if few else ()
    names = free_names(sorted(summary.values), RESERVED)
    for column in wanted:
        if column not in names:
            raise ValueError(
                f"`--classes` cannot be '{column}': no image has such a column. "
                f"Expected: {', '.join(map(one_line, sorted(names))) or 'none'}."
            )
        values = summary.values[column]
        if values is None or len(values) > MOST_CLASSES:
            count = f"more than {summary.MOST_VALUES:,}"
            count = count if values is None else f"{len(values):,}"
            raise ValueError(
                f"`--classes` cannot be '{column}': it has {count} values. Expected: "
                f"a column with at most {MOST_CLASSES:,}."
            )
    return tuple(names[column] for column in wanted)


def described_classes(summary: Summary, columns: tuple[str, ...]) -> list[str]:
    """Return which classes the model will be told, or why there are none."""
    if not columns:
        values = summary.values.get("label", Counter())
        if values is not None and len(values) == 1:
            (name,) = values
            why = f"every image has the label '{one_line(name)}'"
        elif "label" in summary.values:
            why = f"'label' has more than {MOST_CLASSES:,} values"
        else:
            why = "no image has a label"
        return [f"classes: none: {why}; --classes COLUMN takes another column"]
    given_name = {
        name: column
        for column, name in free_names(sorted(summary.values), RESERVED).items()
    }
    if len(columns) > 1:
        parts = [
            f"{given_name[name]} ({len(summary.values[given_name[name]]):,})"
            for name in columns
        ]
        return [f"classes: each combination of {one_line(' and '.join(parts))}"]
    values = sorted(summary.values[given_name[columns[0]]].items())
    counts = [f"{one_line(name) or '(empty)'} {count:,}" for name, count in values]
    more = len(counts) - SHOWN
    return [
        f"classes: {len(counts):,}: {', '.join(counts[:SHOWN])}"
        + (f" and {more:,} more" if more > 0 else "")
        + ("" if columns == ("label",) else f"; by {one_line(given_name[columns[0]])}")
    ]


def described(
    summary: Summary, columns: tuple[str, ...], notes: tuple[str, ...] = ()
) -> list[str]:
    """Return what was seen of images, a line for each thing.

    Args:
        summary: What was seen.
        columns: Whose combination is the class, as `class_columns` returns them.
        notes: Of the source.
    """
    lines = [f"images: {summary.count:,}" + (", all grey" if summary.grey else "")]
    sizes = [f"{w}x{h}" for (w, h), _ in summary.sizes.most_common(3)]
    more = len(summary.sizes) - len(sizes)
    lines.append(f"sizes: {', '.join(sizes)}" + (f" and {more:,} more" if more else ""))
    lines += described_classes(summary, columns)
    names = map(one_line, sorted(summary.values))
    lines.append(f"columns: {', '.join(names) or 'none'}")
    lines.append(f"skipped: {len(summary.skipped):,}")
    named = (f"{place}: {reason}" for place, reason in summary.skipped[:SHOWN])
    lines += [f"  {one_line(line)}" for line in named]
    if len(summary.skipped) > SHOWN:
        lines.append(f"  and {len(summary.skipped) - SHOWN:,} more")
    notes = [*notes, *described_duplicates(summary), *described_opt_outs(summary)]
    return lines + [f"note: {one_line(note)}" for note in notes]


def described_duplicates(summary: Summary) -> list[str]:
    """Return a sentence or two on images that have the same pixels as another."""
    if not summary.duplicates:
        return []
    pairs = [f"{place} = {earlier}" for place, earlier in summary.duplicates]
    sentence = f"{count_of(len(pairs), 'exact duplicate')}: {listed(pairs)}."
    if summary.unlike:
        sentence += (
            f" {len(summary.unlike):,} with another label than the first: "
            f"{listed(summary.unlike)}."
        )
    end = (
        " The first of each is used."
        if summary.dropped
        else (" --drop-duplicates uses the first of each alone.")
    )
    return [sentence + end]


def described_opt_outs(summary: Summary) -> list[str]:
    """Return a sentence or two on images whose files forbid training, or may."""
    sentences = []
    if summary.opted_out:
        named = listed([f"{place}: {words}" for place, words in summary.opted_out])
        end = (
            "These images are left out."
            if summary.excluded
            else "--exclude-opted-out leaves these images out."
        )
        count = count_of(len(summary.opted_out), "training opt-out")
        sentences.append(f"{count}: {named}. {end}")
    if summary.unclear:
        named = listed([f"{place}: {words}" for place, words in summary.unclear])
        count = count_of(len(summary.unclear), "image")
        sentences.append(
            f"{count} with metadata on training that cannot be understood: {named}. "
            "That counts as no opt-out."
        )
    return sentences
