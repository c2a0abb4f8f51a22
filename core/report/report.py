"""An answer as evidence that stands for itself: one HTML file, to keep, print and send.

The file needs nothing else: images are inside it, there is no script, and it asks the
reader's browser to load nothing. All text from data is escaped by the template. Knows
neither Streamlit nor how a visitor came to ask.
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from core.answers import Answer, Query
from core.evidence.trust import size_note
from core.explorer.explorer import Explorer
from core.files import images
from core.files.texts import minus, one_line, shortened
from core.report import comparison, reading, reproduce
from core.report.left_out import LeftOut
from core.report.parts import LONGEST_NAME, STRIP, Part, lens_block

CAUSES_OF_ERROR = (
    "± is one standard error, from the Monte Carlo draws and from compressing "
    "gradients. It does not cover training the model again. Pale numbers are within "
    "noise: less than two standard errors from zero."
)


def html_report(
    explorer: Explorer,
    query: Query,
    parts: list[Part],
    link: str = "",
    made: str = "",
    left_out: LeftOut | None = None,
) -> str:
    """Return the report of a question as an HTML file.

    Args:
        explorer: The collection.
        query: The image that was asked about.
        parts: Its lenses, the one that matters most first.
        link: Address of the same view.
        made: When, in words.
        left_out: A group whose removal was asked about, under the first lens.
    """
    answers = [part.answer for part in parts]
    shown = sorted({
        int(answer.example_ids[place])
        for answer in answers
        for strip in reading.strips(answer, STRIP)
        for place in strip.positions
    })
    return template("report.html").render(
        title=one_line(f"{explorer.title}: {query.description}"),
        explorer=explorer,
        made=made,
        link=link if link.startswith(("http://", "https://")) else "",
        sample=image_block(query, answers[0].lens.region),
        facts=_sample_facts(explorer, query),
        unlike=explorer.resemblance.sentence,
        sentence=opening(explorer, parts),
        lenses=[lens_block(explorer, part, answers) for part in parts],
        errors=CAUSES_OF_ERROR,
        left_out=left_out and _left_out(answers[0], left_out),
        shares=shares_block(explorer, answers),
        agreement=_agreement(explorer, answers),
        credits=credit_lines(explorer, query, shown),
        commands=[reproduce.command(explorer.name, query, a.lens) for a in answers],
        is_upload=query.kind == "upload",
        provenance=_provenance(explorer, query),
    )


def template(name: str):
    """Return a page to fill; what is put into it is escaped."""
    # A page shows the button that makes a report long before anybody wants one.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


# --- the sample ---------------------------------------------------------------------


def image_block(query: Query, region: tuple[int, int, int, int] | None) -> dict:
    """Return the image that was asked about, and the box on it in per cent."""
    height, width = query.pixels.shape[-2:]
    box = None
    if region is not None:
        x0, y0, x1, y1 = region
        box = {
            "left": 100 * x0 / width,
            "top": 100 * y0 / height,
            "width": 100 * (x1 - x0) / width,
            "height": 100 * (y1 - y0) / height,
        }
    picture = images.data_uri(images.enlarged(images.png(query.pixels)))
    return {"src": picture, "alt": one_line(query.description), "box": box}


ORIGINS = {
    "gallery": "drawn by the model, from the gallery",
    "generated": "drawn by the model",
    "example": "a training image",
    "upload": "somebody’s own image",
}


def _sample_facts(explorer: Explorer, query: Query) -> list[tuple[str, str]]:
    """Return what is known of the image that was asked about."""
    facts = [("What it is", ORIGINS[query.kind])]
    facts += [
        (name.replace("_", " ").capitalize(), one_line(value))
        for name, value in (_drawn_by(query) | query.facts).items()
    ]
    facts += [
        (f"Class by {one_line(column)}", one_line(value))
        for column, value in explorer.class_of(query.label).items()
    ]
    if query.label is not None:
        facts.append(("Label", str(query.label)))
    if query.inverted:
        facts.append(("Sampling steps", "approximate, found by DDIM inversion"))
    facts.append(("Pixels", "{}×{}".format(*query.pixels.shape[:0:-1])))
    facts.append(("SHA-256 of the pixels", reproduce.image_hash(query)))
    return facts


def _drawn_by(query: Query) -> dict:
    """Return the settings that drew an image, besides its class."""
    settings = asdict(query.drawing) if query.drawn else {}
    return {name: value for name, value in settings.items() if name != "label"}


def first_sentence(explorer: Explorer, answer: Answer, helped: str = "helped") -> str:
    """Return what an answer says first, its first image called by name."""
    example = int(answer.example_ids[answer.top(1)[0]])
    by = explorer.titled(answer.lens) if answer.lens.method == "clip" else ""
    return reading.sentence(answer, called(explorer, example), by, helped)


def called(explorer: Explorer, example: int) -> str:
    """Return how a training image is called in a sentence.

    By its maker and its name, "Twemoji’s black heart", where the caption's second line
    is the label that credits go by; otherwise “name” (rest). A name that others have,
    too, gets the image's number.
    """
    name, *rest = explorer.examples.caption(example)
    columns = explorer.examples.caption_columns
    if len(rest) == 1 and columns[1] == explorer.credit_column:
        return f"{rest[0][:1].upper()}{rest[0][1:]}’s {name}"
    if columns and not rest and explorer.examples.names().count(name) > 1:
        rest = [f"training image {example}"]
    return f"“{name}”" + (f" ({', '.join(rest)})" if rest else "")


def leading(answers: list[Answer]) -> Answer:
    """Return the answer to begin with: the first that speaks of influence."""
    return next((a for a in answers if a.lens.kind == "influence"), answers[0])


def opening(explorer: Explorer, parts: list[Part]) -> str:
    """Return how to read the first lens of influence: an example, and its worth."""
    first = leading([part.answer for part in parts])
    tested = next(part for part in parts if part.answer is first)
    note = size_note(first.lens, tested.trust, tested.groups)
    return f"{first_sentence(explorer, first)} {note}".rstrip()


# --- between lenses -----------------------------------------------------------------


def _left_out(answer: Answer, group: LeftOut) -> dict:
    """Return what leaving a group out would change, in words."""
    return {
        "name": one_line(group.name),
        "size": f"{group.size:,} of {len(answer.scores):,} images",
        "sentence": group.change,
        "against": group.against,
    }


def shares_block(explorer: Explorer, answers: list[Answer]) -> list[dict]:
    """Return how the positive influence divides over the groups, per label column."""
    answer = leading(answers)
    if answer.lens.kind != "influence":
        return []
    tables = []
    for column in explorer.classes.columns:
        values = explorer.examples.table.loc[answer.example_ids, column]
        frame = reading.shares(answer, values)
        rows = [
            {
                "group": shortened(row.group, LONGEST_NAME),
                "share": f"{row.share:.1%}",
                "error": f"± {row.error:.1%}" if np.isfinite(row.error) else "",
                "width": 100 * row.share,
                "images": f"{row.images:.1%}",
            }
            for row in frame.itertuples()
        ]
        if rows:
            name = one_line(column).replace("_", " ")
            title = explorer.titled(answer.lens)
            tables.append({"column": name, "lens": title, "rows": rows})
    return tables


def _agreement(explorer: Explorer, answers: list[Answer]) -> list[dict]:
    """Return how far each pair of lenses names the same images."""
    pairs = []
    for place, first in enumerate(answers):
        for second in answers[place + 1 :]:
            compared = {
                name: compare(first, second)
                for name, compare in comparison.COMPARISONS.items()
            }
            pairs.append({
                "first": explorer.titled(first.lens),
                "second": explorer.titled(second.lens),
                "ten": f"{compared['First 10']:.0f} of 10",
                "order": minus(f"{compared['Whole order']:+.2f}"),
            })
    return pairs


# --- whose art, and how it was made -------------------------------------------------


def credit_lines(explorer: Explorer, query: Query, shown: list[int]) -> list[dict]:
    """Return the credit lines of all images in the report, each with its images."""
    lines = {}
    if query.kind == "example" and query.facts["example_id"] not in shown:
        shown = [query.facts["example_id"], *shown]
    for example in shown:
        lines.setdefault(one_line(explorer.credit(example)), []).append(str(example))
    return [{"line": line, "images": ", ".join(ids)} for line, ids in lines.items()]


def _provenance(explorer: Explorer, query: Query) -> dict[str, list[tuple[str, str]]]:
    """Return what the answers rest on: content, seeds, versions, settings."""
    made = explorer.provenance
    settings = made["settings"]
    seeds = [("of the collection", str(settings.get("seed", 0)))]
    if query.drawn:
        seeds.append(("of the image", str(query.drawing.seed)))
    sections = {
        name: _flat(values)
        for name, values in settings.items()
        if isinstance(values, dict)
    }
    return {
        "collection": [
            ("name", explorer.name),
            ("fingerprint", explorer.fingerprint),
            ("training images", f"{explorer.num_examples:,}"),
        ],
        "seeds": seeds,
        "made with": _flat(made.get("versions") or {}),
        "asked with": _flat(reproduce.running_versions()),
        **sections,
    }


def _flat(values: dict) -> list[tuple[str, str]]:
    """Return settings as names and plain values."""
    frame = pd.Series(values, dtype=object)
    return [(one_line(name), one_line(value)) for name, value in frame.items()]
