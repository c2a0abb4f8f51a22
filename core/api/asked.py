"""An answer in Python: as a table, a figure, a report, and in a notebook."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from core.answers import Answer, Query
from core.explorer.explorer import Explorer
from core.report.comparison import distribution
from core.report.parts import lens_block, tested_part
from core.report.report import html_report, image_block, opening, template
from core.report.table import answer_csv, answer_table

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Asked:
    """What each training image did for an image, under one lens.

    Attributes:
        explorer: The collection that was asked.
        query: The image that was asked about.
        answer: Scores, standard errors and ids as arrays, in order of example id.
    """

    explorer: Explorer = field(repr=False)
    query: Query
    answer: Answer = field(repr=False)

    def to_frame(self) -> pd.DataFrame:
        """Return every training image with its score and metadata, best first.

        Columns example_id, score, standard_error, rank, then the data set's own.
        """
        return answer_table(self.answer, self.explorer.examples.table)

    def top(self, count: int = 10) -> pd.DataFrame:
        """Return the training images that helped most, as `to_frame` has them."""
        return self.to_frame().head(count)

    def plot(self) -> "go.Figure":
        """Return how many training images have which score, as the app shows it."""
        from core.report import figures

        name = self.explorer.titled(self.answer.lens)
        return figures.distribution(distribution({name: self.answer.scores}))

    def save_csv(self, path: str | Path) -> None:
        """Write all scores, as `python -m precompute attribute` writes them."""
        text = answer_csv(self.answer, self.explorer.examples.table)
        Path(path).write_bytes(text.encode())

    def save_report(self, path: str | Path) -> None:
        """Write the report that the app offers: one HTML file that needs no other."""
        parts = [tested_part(self.explorer, self.answer)]
        report = html_report(self.explorer, self.query, parts)
        Path(path).write_bytes(report.encode())

    def _repr_html_(self) -> str:
        """Return the image and its strips, for a notebook."""
        part = tested_part(self.explorer, self.answer)
        return template("answer.html").render(
            sample=image_block(self.query, self.answer.lens.region),
            said=opening(self.explorer, [part]),
            lens=lens_block(self.explorer, part, [self.answer]),
        )
