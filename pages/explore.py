"""Explore: one picture, and the training pictures that made it or resemble it."""

import re

import numpy as np
import pandas as pd
import streamlit as st

from core import figures, reading
from core.explorer import Answer, Explorer, Lens, Query
from pages import picker, shared
from pages.shared import text

LENSES = (Lens("ekfac"), Lens("clip"))
STRIP = 6  # pictures in a strip
SOURCES = {
    "exact": "exact",
    "full index": "from the full index",
    "sketch": "estimated from the sketch",
}
LEGEND = (
    "± is one standard error; a pale number is within two of them of zero, so it may "
    "be nothing. A dark mark is the picture’s rank in the other column: \\#3 is third "
    "from the top, \\#−1 the very last. Click a picture for details."
)


# --- the sample ---------------------------------------------------------------------


def show_sample(explorer: Explorer, query: Query) -> None:
    """Show the picture that is asked about."""
    picture = reading.enlarged(reading.png(query.pixels))
    st.image(picture, width="stretch", alt=query.description)
    title, *rest = query.description.split(" · ")
    if query.facts.get("guidance_scale", 1) != 1:
        rest.append(f"guidance {query.facts['guidance_scale']:g}")
    shared.heading(title, " · ".join(rest))


# --- the answers --------------------------------------------------------------------


def ask(explorer: Explorer, query: Query) -> list[Answer] | None:
    """Return the answer of each lens, None while they are being computed."""
    key = f"{explorer.fingerprint}/{query.key}"
    if query.kind == "gallery":
        return stored_answers(key, query, explorer)
    return shared.result_of(
        "answers",
        f"{key}/{LENSES}",
        lambda progress: [explorer.answer(query, lens, progress) for lens in LENSES],
    )


@st.cache_data(max_entries=64, show_spinner="Reading the answer")
def stored_answers(key: str, _query: Query, _explorer: Explorer) -> list[Answer]:
    """Return the answers that came with a gallery picture; keyed by values."""
    return [_explorer.answer(_query, lens) for lens in LENSES]


def show_lens(explorer: Explorer, answer: Answer, others: list[Answer]) -> int | None:
    """Show one lens column; return the training picture that was clicked."""
    scale = reading.scale(answer)
    other_marks = {other.lens: reading.marks(other, STRIP) for other in others}
    rows = [
        {
            "title": strip.title,
            "tone": strip.tone,
            "empty": strip.empty,
            "tiles": [
                answer_tile(explorer, answer, scale, int(position), other_marks)
                for position in strip.positions
            ],
        }
        for strip in reading.strips(answer, STRIP)
    ]
    with st.container(border=True, height="stretch"):
        return shared.tiles(
            rows,
            f"lens_{answer.lens.method}",
            layout="lens",
            columns=(STRIP, STRIP // 2),
            title=reading.lens_title(answer.lens),
            note=lens_note(answer, scale),
        )


def lens_note(answer: Answer, scale: reading.Scale) -> str:
    """Return what the numbers of a lens are."""
    if reading.is_similarity(answer.lens):
        return "similar, not cause · cosine, 1 is alike"
    unit = f", in {scale.unit.removeprefix('×')}" if scale.unit else ""
    return (
        f"predicted change if removed · {answer.lens.measurement}{unit} "
        f"(now {reading.plain(answer.value)}) · {SOURCES.get(answer.source, '')}"
    )


def answer_tile(
    explorer: Explorer,
    answer: Answer,
    scale: reading.Scale,
    position: int,
    other_marks: dict[Lens, dict[int, str]],
) -> dict:
    """Return the tile of a training picture under a lens."""
    example = int(answer.example_ids[position])
    tile = shared.example_tile(explorer, example)
    tile["score"] = scale.number(answer.scores[position])
    tile["error"] = scale.error(answer.standard_errors[position])
    tile["sure"] = reading.is_sure(answer, position)
    said = [*tile["lines"], f"{tile['score']} {tile['error']} {scale.unit}".strip()]
    for lens, marks in other_marks.items():
        if example in marks:
            tile["mark"] = f"#{marks[example]}"
            said.append(f"rank {marks[example]} under {reading.lens_title(lens)}")
    tile["alt"] = ", ".join(said)
    return tile


def how_far_tested(explorer: Explorer, answer: Answer) -> str:
    """Return how reliable this collection's rankings were when tested, in words."""
    quality = explorer.provenance.get("quality") or {}
    said = {
        "reliability": "asked again with other noise, its order agrees to",
        "sketch_agreement": "the sketch agrees with the exact order to",
    }
    if answer.source != "sketch":
        del said["sketch_agreement"]
    tests = [
        f"{words} {quality[name]:.2f}"
        for name, words in said.items()
        if quality.get(name) is not None
    ]
    return f"Tested on the gallery: {'; '.join(tests)} (Spearman)." if tests else ""


def how_to_read(explorer: Explorer, answers: list[Answer]) -> None:
    """Say in plain words what the first number means."""
    first = answers[0]
    example = int(first.example_ids[first.top(1)[0]])
    name, *rest = shared.caption_lines(explorer, example)
    called = f"“{name}”" + (f" ({', '.join(rest)})" if rest else "")
    st.markdown(f"**How to read this.** {text(reading.sentence(first, called))}")


@st.dialog("Side by side", width="medium")
def show_detail(
    explorer: Explorer, query: Query, answers: list[Answer], example: int
) -> None:
    """Show a training picture beside the sample, with all that is known of it."""
    title = ", ".join(shared.caption_lines(explorer, example))
    # A grid stays side by side on a phone; columns would stack.
    pictures = st.grid(2, min_column_width=120, wrap=False)
    with pictures.container():
        picture = reading.enlarged(reading.png(query.pixels))
        st.image(picture, width="stretch", alt=query.description)
        shared.heading("The picture asked about", query.description)
    with pictures.container():
        picture = reading.enlarged(explorer.image_png(example))
        st.image(picture, width="stretch", alt=title)
        shared.heading(title, f"Training picture {example}")
    for place, answer in zip(st.columns(len(answers)), answers, strict=True):
        with place.container(border=True):
            shared.heading(reading.lens_title(answer.lens), standing(answer, example))
    row = explorer.examples.table.loc[example]
    facts = [f"{shared.column_name(name)} {value}" for name, value in row.items()]
    st.caption(text(" · ".join(facts)) + "  \n" + text(explorer.credit(example)))
    if st.button("Ask about this one", type="primary", icon=":material/search:"):
        picker.ask_next({"example": str(example)})


def standing(answer: Answer, example: int) -> str:
    """Return the score and the rank of a training picture under a lens, in words."""
    position = int(np.flatnonzero(answer.example_ids == example)[0])
    scale = reading.scale(answer)
    parts = (
        scale.number(answer.scores[position]),
        scale.error(answer.standard_errors[position]),
        scale.unit,
    )
    rank = f"rank {answer.ranks()[position]:,} of {len(answer.scores):,}"
    return " ".join(part for part in parts if part) + f" · {rank}"


def show_shares(explorer: Explorer, answer: Answer, column: str) -> None:
    """Show how the positive influence divides over the values of a class column."""
    groups = explorer.examples.table.loc[answer.example_ids, column]
    frame = reading.shares(answer, groups)
    shared.heading(
        f"Share by {shared.column_name(column).lower()}",
        "of the influence that made it more likely",
    )
    if frame.empty:
        st.caption("No training picture made this one more likely.")
        return
    words = "; ".join(f"{row.group} {row.share:.0%}" for row in frame.itertuples())
    st.plotly_chart(
        figures.share_bars(frame),
        config={"displayModeBar": False},
        key=f"shares_{column}",
        alt=f"Share of the positive influence: {words}",
    )


def show_agreement(first: Answer, second: Answer) -> None:
    """Show how far two lenses name the same pictures."""
    size = len(first.scores)
    counts = [count for count in (5, 10, 20, 50, 100, 200) if count <= size]
    frame = pd.DataFrame({
        "count": counts,
        "shared": [reading.overlap(first, second, count) for count in counts],
        "chance": [count * count / size for count in counts],
    })
    correlation = f"{reading.rank_correlation(first, second):+.2f}".replace("-", "−")
    shared.heading(
        "Do the lenses agree?",
        f"Pictures in both columns’ first k · Spearman {correlation}",
    )
    st.plotly_chart(
        figures.overlap_curve(frame),
        config={"displayModeBar": False},
        key="agreement",
        alt=f"Of the first {counts} pictures, {frame['shared'].tolist()} are in both.",
    )


def show_summaries(explorer: Explorer, answers: list[Answer]) -> None:
    """Show the cards under the lens columns."""
    columns = list(explorer.classes.columns)
    cards = st.grid(len(columns) + 1, min_column_width=240)
    for column in columns:
        with cards.container(border=True, height="stretch"):
            show_shares(explorer, answers[0], column)
    with cards.container(border=True, height="stretch"):
        show_agreement(*answers)


def offer_download(explorer: Explorer, query: Query, answers: list[Answer]) -> None:
    """Offer the scores of all training pictures as a table."""
    st.download_button(
        "All scores as a table (CSV)",
        lambda: reading.score_table(answers, explorer.examples.table).to_csv(),
        file_name=f"{explorer.name}-{re.sub(r'[^A-Za-z0-9]+', '-', query.key)}.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
    )


# --- the page -----------------------------------------------------------------------

explorer = shared.chosen_explorer()
view = picker.current_view(explorer)

st.caption(
    f"**{text(explorer.title)}** · {explorer.num_examples:,} training pictures · "
    f"{text(explorer.device_name)}"
)
body = st.container()
shared.show_credits(explorer)  # below the body, also when the page stops early

with body:
    left, right = st.columns([0.27, 0.73], gap="medium")
with left:
    sample = st.container()
    picker.pick_query(explorer, view)
with right:
    try:
        query = picker.find_query(explorer, view)
    except (LookupError, ValueError) as error:
        st.info(shared.sentence(error))
        st.stop()
if query is None:
    sample.skeleton(height=300)
    st.stop()
with sample:
    show_sample(explorer, query)
with right:
    answers = ask(explorer, query)
    if answers is None:
        st.stop()
    how_to_read(explorer, answers)
    clicked = None
    for place, answer in zip(st.columns(len(answers)), answers, strict=True):
        others = [other for other in answers if other is not answer]
        with place:
            clicked = show_lens(explorer, answer, others) or clicked
    st.caption(f"{LEGEND} {text(how_far_tested(explorer, answers[0]))}")
    show_summaries(explorer, answers)
    offer_download(explorer, query, answers)
shared.wake(explorer.fingerprint, explorer)  # stored answers need no model, others do
if clicked is not None:
    show_detail(explorer, query, answers, clicked)
