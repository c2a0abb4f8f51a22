"""Taking an answer along: a report, a card, a table; every page with answers offers it.

Nothing is made before somebody clicks.
"""

from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from core.answers import Answer, Query
from core.explorer.explorer import Explorer
from core.files.texts import file_name, safe_csv
from core.report import reading, report
from core.report.card import card
from pages.parts import link, trust
from pages.parts.words import heading

# The app's own font, in the form in which Streamlit sends it to browsers.
FONTS = Path(st.__file__).parent / "static" / "static" / "media"


def font() -> Path:
    """Return the font of the pages."""
    return next(FONTS.glob("SourceSansVF-Upright*.woff2"))


def offer(
    explorer: Explorer,
    query: Query,
    answers: list[Answer],
    left_out: report.LeftOut | None = None,
) -> None:
    """Offer what was answered as a report, as an image and as a table.

    Args:
        explorer: The collection.
        query: The image that was asked about.
        answers: What is known of it, the one to begin with first.
        left_out: A group whose removal was asked about, under the first answer.
    """
    parts = [trust.part_of(explorer, answer) for answer in answers]
    today = datetime.now(UTC)
    made = f"{today.day} {today:%B %Y}"
    address = link.whole_address()  # a download is made outside the page's run

    def name(ending: str) -> str:
        return file_name("afterimage", explorer.name, query.key, ending=ending)

    with st.container(border=True, key="take_along"):
        heading(
            "Take it with you",
            "Images, scores with errors, credits, settings, and the command that "
            "asks again",
        )
        with st.container(horizontal=True):
            st.download_button(
                "Report (HTML)",
                lambda: report.html_report(
                    explorer, query, parts, address, made, left_out
                ),
                file_name=name("html"),
                mime="text/html",
                type="primary",
                icon=":material/description:",
                help="One file that opens in any browser, without a network, and "
                "prints on A4",
                on_click="ignore",
            )
            st.download_button(
                "Card (PNG)",
                lambda: card(explorer, query, report.leading(answers), font()),
                file_name=name("png"),
                mime="image/png",
                icon=":material/image:",
                help="The image, what helped it, and credits, to share: "
                "1200 × 630 pixels",
                on_click="ignore",
            )
            st.download_button(
                "All scores (CSV)",
                lambda: safe_csv(reading.score_table(answers, explorer.examples.table)),
                file_name=name("csv"),
                mime="text/csv",
                icon=":material/table:",
                help="Score, standard error and rank of every training image",
                on_click="ignore",
            )
