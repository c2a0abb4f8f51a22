"""Showing answers: strips of images, details of one, agreement between lenses.

Every page that shows training images under a lens shares this.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import streamlit as st

from core.explorer.explorer import Answer, BandAnswers, Explorer, Lens, Query
from core.explorer.filters import Matches
from core.explorer.stored_levels import BANDS
from core.files import images
from core.lenses import lens_title
from core.report import comparison, figures, reading
from pages.parts import components, lens_meta, link, trust, waiting
from pages.parts.words import column_name, heading, text

STRIP = 6  # images in a strip
CHART = {"displayModeBar": False}
LEGEND = (
    "A bar is the score as a share of the strongest; a pale one is within noise, less "
    "than two standard errors from zero. Beside it is the rank; −1 is the last. A dark "
    "badge is the rank in another column. Click an image for details."
)

# --- asking -------------------------------------------------------------------------


@st.cache_data(max_entries=128, show_spinner="Reading the answer")
def stored_answer(
    collection: str, query: str, lens: Lens, _query: Query, _explorer: Explorer
) -> Answer | None:
    """Return the answer that came with a gallery image; keyed by values."""
    return _explorer.stored_answer(_query, lens)


def ask_all(
    explorer: Explorer, query: Query, lenses: list[Lens], slot: str = "answer"
) -> list[Answer | None]:
    """Ask the queue for the answers that did not come with the collection.

    Args:
        explorer: The collection.
        query: The image.
        lenses: How to ask, one per place.
        slot: Jobs wait in "`slot` 0", "`slot` 1", ...

    Returns:
        Per lens its answer, or None while it is computed (see `waiting.result_now`).
    """
    answers = [
        stored_answer(explorer.fingerprint, query.key, lens, query, explorer)
        for lens in lenses
    ]
    jobs = {
        place: waiting.ask(
            f"{slot} {place}",
            f"{explorer.fingerprint}/{query.key}/{lens.canonical()}",
            lambda job, lens=lens: explorer.answer(query, lens, job, job.show),
        )
        for place, lens in enumerate(lenses)
        if answers[place] is None
    }
    waiting.wait_briefly(list(jobs.values()))
    for place in jobs:
        answers[place] = waiting.result_now(f"{slot} {place}")
    return answers


@st.cache_data(max_entries=128, show_spinner=False)
def stored_bands(
    collection: str, query: str, lens: Lens, _query: Query, _explorer: Explorer
) -> BandAnswers | None:
    """Return what came with a gallery image of its bands; keyed by values."""
    return _explorer.stored_bands(_query, lens, BANDS)


def ask_bands(
    explorer: Explorer,
    query: Query,
    lens: Lens,
    slot: str,
    height: int,
    example: int | None = None,
) -> BandAnswers | None:
    """Return an answer divided over bands of noise levels, None while it is made.

    Args:
        explorer: The collection.
        query: The image.
        lens: How to ask.
        slot: As in `waiting.result_of`.
        height: As there.
        example: A training image that has to be among those answered; None where the
            strongest are enough.
    """
    lens = lens.canonical()
    stored = stored_bands(explorer.fingerprint, query.key, lens, query, explorer)
    if stored is not None and (example is None or example in stored.example_ids):
        return stored
    return waiting.result_of(
        slot,
        f"{explorer.fingerprint}/{query.key}/{lens}/bands {BANDS}",
        lambda progress: explorer.band_answers(query, lens, BANDS, progress),
        height,
    )


# --- strips -------------------------------------------------------------------------


def show_strips(
    explorer: Explorer,
    answer: Answer,
    others: list[Answer],
    key: str,
    tones: tuple[str, ...] = ("for", "neutral", "against"),
    count: int = STRIP,
    among: Matches | None = None,
) -> int | None:
    """Show the strips of an answer.

    Args:
        explorer: The collection.
        answer: What to show.
        others: Answers whose ranks are marked on images that they share.
        key: The component's key.
        tones: Which strips.
        count: Images in a strip.
        among: What a search leaves to be shown, None for all images.

    Returns:
        The training image that was clicked just now, or None.
    """
    strips = reading.strips(answer, count, among)
    places = np.concatenate([strip.positions for strip in strips]).astype(int)
    components.example_uris(explorer, answer.example_ids[places].tolist())
    marks = [(other.lens, reading.marks(other, count, among)) for other in others]
    seen = Seen(explorer, answer)
    whose = explorer.titled(answer.lens)
    if answer.lens.form != Lens.form:  # as beside the same lens by another
        whose += f", {answer.lens.form}"
    rows = [
        {
            "title": strip.title,
            "label": f"{strip.title}, {whose}",
            "tone": strip.tone,
            "empty": strip.empty,
            "tiles": [
                seen.tile(int(position), strip.tone, marks)
                for position in strip.positions
            ],
        }
        for strip in strips
        if strip.tone in tones
    ]
    return components.tiles(rows, key, layout="lens", columns=(count, 3))


class Seen:
    """An answer as its tiles show it.

    Args:
        explorer: The collection.
        answer: Under a lens.
    """

    def __init__(self, explorer: Explorer, answer: Answer):
        self.explorer, self.answer = explorer, answer
        self.scale = reading.scale(answer)
        self.ranks = answer.ranks()
        self.strengths = reading.strengths(answer)
        self.numbers = lens_meta.numbers_shown()

    def tile(
        self,
        position: int,
        tone: str,
        marks: Iterable[tuple[Lens, dict[int, str]]] = (),
    ) -> dict:
        """Return the tile of a training image (see tiles.js).

        Args:
            position: Of the image in the answer.
            tone: Of the strip that it stands in.
            marks: Of other lenses, `reading.marks` of each.
        """
        answer, scale = self.answer, self.scale
        example = int(answer.example_ids[position])
        tile = components.example_tile(self.explorer, example)
        score = scale.number(answer.scores[position])
        error = scale.error(answer.standard_errors[position])
        printed = f"{score} {error} {scale.unit}"
        rank = int(self.ranks[position])
        lines = [*tile["lines"], " ".join(printed.split())]
        lines.append(f"rank {rank:,} of {len(answer.scores):,}")
        for lens, ranks in marks:
            if example in ranks:
                tile.setdefault("mark", f"#{ranks[example]}")
                lines.append(
                    f"rank {ranks[example]} under {self.explorer.titled(lens)}"
                )
        return tile | {
            "alt": ", ".join(lines),
            "rank": reading.rank_words(rank, len(answer.scores), tone),
            "strength": round(float(self.strengths[position]), 3),
            "sure": reading.is_sure(answer, position),
            "tip": " ".join(printed.split()),
            "score": score if self.numbers else "",
            "error": error if self.numbers else "",
        }


def show_members(
    explorer: Explorer, answer: Answer, members: np.ndarray, most: int, key: str
) -> int | None:
    """Show the most influential of some training images.

    Args:
        explorer: The collection.
        answer: Says how influential they are.
        members: Which images, bool, shape (N,).
        most: Images shown.
        key: The component's key.

    Returns:
        The image that was clicked just now, or None.
    """
    order = answer.order()
    first = order[members[order]][:most]
    seen = Seen(explorer, answer)
    similar = reading.is_similarity(answer.lens)
    title = "Most similar of them" if similar else "Most influential of them"
    components.example_uris(explorer, answer.example_ids[first].tolist())
    tiles = [seen.tile(int(place), "for") for place in first]
    picked = components.tiles(
        [{"title": title, "tone": "for", "empty": "", "tiles": tiles}],
        key,
        layout="lens",
        columns=(min(most, 12), 3),
    )
    lines = dict.fromkeys(explorer.credit(int(answer.example_ids[i])) for i in first)
    more = int(members.sum()) - len(first)
    shown = f"{more:,} more are not shown. " if more else ""
    note = reading.answer_note(answer, False)
    st.caption(f"{text(note)}. {shown}Art: " + " · ".join(map(text, lines)))
    return picked


# --- details ------------------------------------------------------------------------


def show_chosen_detail(
    explorer: Explorer, query: Query, answers: list[Answer], *clicks: int | None
) -> None:
    """Open the details of the training image that was clicked, or that the link names.

    Args:
        explorer: The collection.
        query: The image that was asked about.
        answers: What is known of it.
        clicks: Per part of the page what was clicked just now; the last one counts.
    """
    clicked = components.last_click(*clicks)
    if clicked is not None:
        st.session_state.detail = clicked
        link.write(explorer)
    example = st.session_state.get("detail")
    if example in explorer.examples.table.index and answers:
        show_detail(explorer, query, answers, example)


def close_detail() -> None:
    """Forget which image's details are open."""
    st.session_state.detail = None


@st.dialog("Side by side", width="medium", on_dismiss=close_detail)
def show_detail(
    explorer: Explorer, query: Query, answers: list[Answer], example: int
) -> None:
    """Show a training image beside the sample, with all that is known of it."""
    title = ", ".join(explorer.examples.caption(example))
    # A grid stays side by side on a phone; columns would stack.
    pictures = st.grid(2, min_column_width=120, wrap=False)
    with pictures.container():
        picture = images.enlarged(images.png(images.on_white(query.pixels)))
        st.image(picture, width="stretch", alt=query.description)
        heading("The image asked about", query.description)
    with pictures.container():
        picture = images.enlarged(explorer.image_png(example))
        st.image(picture, width="stretch", alt=title)
        heading(title, f"Training image {example}")
    for answer in answers:
        # What nobody tested is said once, on the page.
        found = trust.trust_of(explorer, answer.lens, answer.source)
        tested = "" if found is None else f"  \n:gray[{text(found.words)}]"
        st.markdown(
            f"**{text(explorer.titled(answer.lens))}** · "
            f":gray[{text(reading.standing(answer, example))}]{tested}"
        )
        st.caption(text(reading.error_note(answer)))
    show_pair_curve(explorer, query, answers, example)
    row = explorer.examples.table.loc[example]
    facts = [
        f"{column_name(explorer.name, name)} {value}" for name, value in row.items()
    ]
    st.caption(text(" · ".join(facts)) + "  \n" + text(explorer.credit(example)))
    if st.button(
        "Ask about this one",
        type="primary",
        icon=":material/search:",
        help="See which training images helped this one",
    ):
        link.ask_next({"example": str(example)})


def show_pair_curve(
    explorer: Explorer, query: Query, answers: list[Answer], example: int
) -> None:
    """Show at which noise levels a training image matters for the sample."""
    lens = next((a.lens for a in answers if a.lens.kind == "influence"), None)
    if lens is None:
        return
    # A stored answer may rest on fewer draws than what is asked now, here as elsewhere.
    lens = replace(lens, num_draws=Lens.num_draws)
    heading("When it matters", f"{lens_title(lens)}, over the noise levels")
    bands = ask_bands(explorer, query, lens, "bands of details", 260, example)
    if bands is None:
        return
    position = int(np.flatnonzero(bands.example_ids == example)[0])
    size = explorer.num_examples
    frame = comparison.band_curve(
        bands.edges,
        bands.scores[:, position] / size,
        bands.standard_errors[:, position] / size,
    )
    strongest = frame.loc[frame["value"].abs().idxmax()]
    st.plotly_chart(
        figures.timestep_curve(frame, "change if removed", reference=0.0),
        config=CHART,
        key="pair_curve",
        alt="Predicted change over the noise levels, strongest between "
        f"{strongest['low']:g} and {strongest['high']:g}.",
    )
