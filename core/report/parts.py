"""One lens as people see it: three strips of training images, its test, its settings.

For the report, and for whatever else shows an answer as HTML. Plain values: a template
escapes them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from core import numbers
from core.answers import Answer
from core.evidence.trust import UNTESTED, Trust, lens_trust, reliability
from core.explorer.explorer import Explorer
from core.files import images
from core.files.texts import minus, one_line, shortened
from core.measurements import MEASUREMENTS
from core.methods import METHODS, has_timesteps, measures
from core.report import reading

STRIP = 6  # images in a strip
LONGEST_NAME = 60  # letters under an image; all of them are in the table of scores


@dataclass(frozen=True)
class Part:
    """One lens of a report.

    Attributes:
        answer: What it says.
        trust: How far it was tested by retraining; None where it was not.
        groups: Whether models were retrained without whole groups.
    """

    answer: Answer
    trust: Trust | None
    groups: bool = False


def tested_part(explorer: Explorer, answer: Answer) -> Part:
    """Return an answer as part of a report, with how far its lens was tested."""
    try:
        evidence = explorer.evidence()
    except (LookupError, ValueError):  # nothing was retrained, or another collection
        return Part(answer, None)
    lens, trust = answer.lens.canonical(), None
    if lens.region is None:
        how = lens.method, lens.measurement, lens.timesteps, lens.damping
        trust = lens_trust(evidence, *how, answer.source)
    return Part(answer, trust, not evidence.groups.empty)


def lens_block(
    explorer: Explorer,
    part: Part,
    answers: list[Answer],
    picture: Callable[[int], str] | None = None,
) -> dict:
    """Return a lens with its strips, its test and its settings.

    Args:
        explorer: The collection.
        part: The lens.
        answers: All that are shown, this one among them.
        picture: Returns the address of a training image; None puts it into the page.
    """
    answer, strengths = part.answer, reading.strengths(part.answer)
    if picture is None:
        picture = partial(_inside, explorer)
    others = [
        (explorer.titled(other.lens), reading.marks(other, STRIP))
        for other in answers
        if other is not answer
    ]
    quality = explorer.provenance.get("quality") or {}
    return {
        "title": explorer.titled(answer.lens),
        "note": reading.answer_note(answer, with_value=False),
        "unit": reading.scale(answer).unit,
        "trust": part.trust.words if part.trust else UNTESTED,
        "meaning": part.trust.meaning if part.trust else "",
        "reliability": reliability(quality, answer.lens, answer.source),
        "strips": [
            {
                "title": strip.title,
                "tone": strip.tone,
                "empty": strip.empty,
                "tiles": [
                    _tile(explorer, answer, int(place), others)
                    | {
                        "src": picture(int(answer.example_ids[place])),
                        "strength": float(strengths[place]),
                    }
                    for place in strip.positions
                ],
            }
            for strip in reading.strips(answer, STRIP)
        ],
        "settings": lens_settings(explorer, answer),
    }


def _tile(
    explorer: Explorer,
    answer: Answer,
    position: int,
    others: list[tuple[str, dict[int, str]]],
) -> dict:
    """Return a training image with its score."""
    example = int(answer.example_ids[position])
    scale = reading.scale(answer)
    lines = [
        shortened(line, LONGEST_NAME) for line in explorer.examples.caption(example)
    ]
    score = reading.printed_score(answer, position)
    also = [
        f"{title}: rank {ranks[example]}" for title, ranks in others if example in ranks
    ]
    return {
        "id": example,
        "alt": ", ".join([f"Training image {example}", *lines, score]),
        "score": scale.number(answer.scores[position]),
        "error": scale.error(answer.standard_errors[position]),
        "sure": reading.is_sure(answer, position),
        "lines": lines,
        "also": also,
        "marks": [f"#{ranks[example]}" for _, ranks in others if example in ranks],
    }


def _inside(explorer: Explorer, example: int) -> str:
    """Return a training image as an address that holds all of it."""
    return images.data_uri(explorer.image_png(example))


def lens_settings(explorer: Explorer, answer: Answer) -> list[tuple[str, str]]:
    """Return every setting of a lens, by name; defaults are spelled out."""
    lens = answer.lens
    method = METHODS[lens.method]
    rows = [("Method", f"{method.title} ({method.paper})")]
    if measures(lens.method):
        facts = MEASUREMENTS[lens.measurement]
        rows.append(("Measurement", f"{facts.title}, in {facts.unit}"))
        now = numbers.plain(answer.value)
        if np.isfinite(answer.value_error):
            now += minus(f" ± {answer.value_error:.2g}")
        if np.isfinite(answer.value):
            rows.append(("Value now", now))
    if not has_timesteps(lens.method):
        model = explorer.provenance.get(method.array)
        if model is not None:
            facts = one_line(f"{model['name']}, {model['sha256']}")
            rows.append((f"{method.title} model", facts))
        return rows
    low, high = lens.timesteps or (0, explorer.num_train_timesteps)
    region = "the whole image"
    if lens.region is not None:
        region = "x {0} to {2}, y {1} to {3}, in pixels".format(*lens.region)
    rows += [
        ("Noise levels", f"{low} to {high} of {explorer.num_train_timesteps}"),
        ("Region", region),
        ("Draws of the query", str(lens.num_draws)),
        ("Training gradients", reading.SOURCES.get(answer.source, answer.source)),
    ]
    if method.damped:
        own = "the collection’s own"
        if lens.damping is None and method.kind == "influence":
            usual = minus(f"{explorer.provenance['damping']:.6g}")
            own += f" (EK-FAC: {usual})"
        text = own if lens.damping is None else minus(f"{lens.damping:.6g}")
        rows.append(("Damping", text))
    return rows
