"""A gallery under its stored lenses as a folder of plain pages, for a paper's web site.

A page a generated image, its training images as files, all scores as one parquet file.
No script, and nothing that a browser would fetch from elsewhere: it opens from a disk.
All text from data is escaped by the template.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from core.answers import Answer, Query
from core.evidence.headline import headline
from core.evidence.stored import Evidence
from core.evidence.trust import ORDER, size_note
from core.explorer.explorer import Explorer
from core.files.images import WHITE
from core.files.table_files import table_bytes
from core.files.texts import one_line
from core.lenses import Lens, measures
from core.measurements import MEASUREMENTS
from core.methods import KINDS
from core.report.parts import Part, lens_block, tested_part
from core.report.report import credit_lines, first_sentence, shares_block, template

MOST_BYTES = 30_000_000  # of a whole site
SCORES = "scores.parquet"
# Scores of an answer that are kept where all would make the site too large: so many of
# the largest, and so many of the smallest.
FEWER = (1000, 200, 40)

OnPage = Callable[[int, int], None]  # (pages done, pages in all)


@dataclass(frozen=True)
class Site:
    """What every page of a site needs.

    Attributes:
        explorer: The collection; its model is not asked.
        folder: Where the site goes.
        evidence: What retraining says of the collection, if anything.
    """

    explorer: Explorer
    folder: Path
    evidence: Evidence | None
    _tested: dict = field(default_factory=dict, repr=False)

    def part(self, answer: Answer) -> Part:
        """Return an answer with how far its lens was tested, found once a lens."""
        key = answer.lens.canonical(), answer.source
        if key not in self._tested:
            self._tested[key] = tested_part(self.explorer, answer)
        return replace(self._tested[key], answer=answer)

    def training_image(self, example: int) -> str:
        """Return the address of a training image, whose file is written once."""
        return self._file(f"images/{example}", lambda: self.explorer.image_png(example))

    def generated(self, sample: int) -> str:
        """Return the address of a generated image, likewise."""
        name = f"images/generated-{sample}"
        return self._file(name, lambda: self.explorer.gallery_png(sample))

    def _file(self, name: str, read: Callable[[], bytes]) -> str:
        path = self.folder / name
        if not path.exists():  # browsers tell the kind of an image by its bytes
            path.write_bytes(read())
        return name


def write_site(site: Site, on_page: OnPage = lambda done, total: None) -> int:
    """Write the site of a collection into an empty folder.

    Returns:
        The bytes of all its files.

    Raises:
        ValueError: If there is nothing to show, or it would be too large.
    """
    explorer, folder = site.explorer, site.folder
    order = [
        sample for sample in explorer.gallery_order if answers_of(explorer, sample)
    ]
    if not order:
        raise ValueError(
            f"The gallery of '{explorer.name}' has no stored answers to show. Build it "
            f"with `python -m precompute build --collection {explorer.name}`."
        )
    (folder / "images").mkdir()
    for place, sample in enumerate(order):
        page = _page(site, order, place)
        (folder / f"image-{sample}.html").write_text(page, "utf-8")
        on_page(place + 1, len(order))
    first = explorer.first_image.sample
    first = first if first in order else order[0]
    (folder / "index.html").write_bytes((folder / f"image-{first}.html").read_bytes())
    left = MOST_BYTES - _size(folder)
    (folder / SCORES).write_bytes(_scores(explorer, order, left))
    return _size(folder)


def answers_of(explorer: Explorer, sample: int) -> list[Answer]:
    """Return the stored answers for a gallery sample: influence first, CLIP last."""
    query = explorer.query_from_gallery(sample)
    lenses = [Lens(**key) for key in explorer.stored_keys(sample)]
    kinds, measured = list(KINDS), list(MEASUREMENTS)
    lenses.sort(key=lambda x: (kinds.index(x.kind), measured.index(x.measurement)))
    answers = [explorer.stored_answer(query, lens) for lens in lenses]
    return [answer for answer in answers if answer is not None]


def _page(site: Site, order: list[int], place: int) -> str:
    """Return the page of a generated image."""
    explorer, sample = site.explorer, order[place]
    query, answers = explorer.query_from_gallery(sample), answers_of(explorer, sample)
    parts = [site.part(answer) for answer in answers]
    beside = [part for part in parts if part.answer.lens.kind == "similarity"][:1]
    chosen = [part for part in parts if part not in beside] or parts[:1]
    views = [_view(site, query, part, beside) for part in chosen]
    shown = sorted({
        tile["id"]
        for view in views
        for lens in view["columns"]
        for strip in lens["strips"]
        for tile in strip["tiles"]
    })
    return template("site.html").render(
        title=one_line(explorer.title),
        about=f"{explorer.num_examples:,} training images",
        # Frames take the ground that the collection's images have, as in the app.
        ground="rgb({}, {}, {})".format(*(explorer.ground or WHITE)),
        image=site.generated(sample),
        description=one_line(query.description),
        views=views,
        gallery=[
            {"page": f"image-{i}.html", "src": site.generated(i), "here": i == sample}
            for i in order
        ],
        before=f"image-{order[place - 1]}.html",
        after=f"image-{order[(place + 1) % len(order)]}.html",
        credits=credit_lines(explorer, query, shown),
        scores=SCORES,
    )


def _view(site: Site, query: Query, part: Part, beside: list[Part]) -> dict:
    """Return one choice of a page: a lens, what stands beside it, and its groups."""
    explorer, answer = site.explorer, part.answer
    columns = [part, *(other for other in beside if other is not part)]
    answers = [column.answer for column in columns]
    said = headline(answer.lens.canonical(), part.trust, site.evidence)
    if answer.lens.kind == "influence":
        known = part.trust is not None and np.isfinite(part.trust.size)
        said += " " + (size_note(answer.lens, part.trust) if known else ORDER)
    return {
        "title": explorer.titled(answer.lens),
        "sentence": first_sentence(explorer, answer),
        "tested": said,
        "columns": [
            lens_block(explorer, column, answers, site.training_image)
            for column in columns
        ],
        "shares": shares_block(explorer, [answer]),
    }


def _scores(explorer: Explorer, order: list[int], most: int) -> bytes:
    """Return the scores of all samples as a parquet file of so many bytes at most.

    Raises:
        ValueError: If even the fewest take more.
    """
    for count in (explorer.num_examples, *FEWER):
        parts = []
        for sample in order:
            for answer in answers_of(explorer, sample):
                places = answer.order()
                if 2 * count < len(places):
                    places = np.concatenate([places[:count], places[-count:]])
                lens = answer.lens
                measured = lens.measurement if measures(lens.method) else ""
                parts.append(
                    pd.DataFrame({
                        "query_id": np.int32(sample),
                        "example_id": answer.example_ids[places],
                        "method": lens.method,
                        "measurement": measured,
                        "score": answer.scores[places].astype(np.float32),
                        "standard_error": answer.standard_errors[places].astype(
                            np.float32
                        ),
                        "rank": answer.ranks()[places].astype(np.int32),
                    })
                )
        data = table_bytes(pd.concat(parts, ignore_index=True))
        if len(data) <= most:
            return data
    raise ValueError(
        f"The site of '{explorer.name}' would have more than {MOST_BYTES:,} bytes. "
        "Build the collection with a smaller gallery: --set samples.num_samples=24."
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
