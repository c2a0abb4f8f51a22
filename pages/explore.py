"""Explore: one picture, and the training pictures that made it likely or resemble it."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from core import figures, reading
from core.explorer import Answer, Explorer, Lens, Query
from pages import shared
from pages.shared import text

LENSES = (Lens("ekfac"), Lens("clip"))
STRIP = 6  # pictures in a strip
ORIGINS = {
    "sample": "Gallery",
    "seed": "Generate",
    "upload": "Upload",
    "example": "Training",
}
# Keys of the link that belong to a picture; their values are text, as in the link.
LINK_KEYS = ("sample", "example", "seed", "label", "sampler", "steps", "guidance")
STEPS = (5, 100)  # what the sampler may be asked for
GUIDANCE = (1.0, 7.0)


@dataclass(frozen=True)
class Picture:
    """A training picture in one answer: its rank and printed score."""

    rank: int
    score: str
    error: str


# --- which picture ------------------------------------------------------------------


def current_view(explorer: Explorer) -> dict[str, str]:
    """Return what is asked about: from the link, else from before, else the gallery."""
    link = {key: st.query_params[key] for key in LINK_KEYS if key in st.query_params}
    if link and link != st.session_state.get("linked"):
        ask_about(link)
    if "view" not in st.session_state:
        first = str(explorer.gallery.index[0]) if len(explorer.gallery) else ""
        ask_about({"sample": first})
    view = st.session_state.view
    st.session_state.linked = {key: view[key] for key in LINK_KEYS if key in view}
    wanted = {"collection": explorer.name, **st.session_state.linked}
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
    return view


def ask_about(view: dict[str, str]) -> None:
    """Make a picture the one that is asked about."""
    shared.leave_jobs()
    st.session_state.view = view
    st.session_state.origin = next(key for key in ORIGINS if key in view)


def whole(view: dict[str, str], key: str, default: int | None = None) -> int | None:
    """Return a whole number from the link.

    Raises:
        ValueError: If there is something else.
    """
    if key not in view:
        return default
    try:
        return int(view[key])
    except ValueError:
        raise ValueError(
            f"The link says {key}={view[key]}, which is not a whole number. "
            "Choose a picture here instead."
        ) from None


def find_query(explorer: Explorer, view: dict[str, str]) -> Query | None:
    """Return the picture that is asked about, None while it is being made.

    Raises:
        LookupError: If the collection has no such picture.
        ValueError: If the link or the uploaded file makes no sense.
    """
    if "sample" in view:
        return stored_query(explorer, "gallery", whole(view, "sample"))
    if "example" in view:
        return stored_query(explorer, "example", whole(view, "example"))
    if "upload" in view:
        return explorer.query_from_upload(*st.session_state.uploaded)
    return generated_query(explorer, view)


def stored_query(explorer: Explorer, kind: str, number: int | None) -> Query:
    """Return a picture that the collection holds."""
    if kind == "gallery":
        return explorer.query_from_gallery(number)
    return explorer.query_from_example(number)


def generated_query(explorer: Explorer, view: dict[str, str]) -> Query | None:
    """Return a picture made for a seed, None while the model is at work.

    Raises:
        ValueError: If the link asks for something the model cannot do.
    """
    seed, label = whole(view, "seed"), whole(view, "label")
    steps, sampler = whole(view, "steps", 50), view.get("sampler", "ddim")
    try:
        guidance = float(view.get("guidance", 1.0))
    except ValueError:
        guidance = float("nan")
    known = label is None or label in explorer.classes.index
    if not known or sampler not in ("ddim", "ddpm") or not 0 <= seed < 2**31:
        raise ValueError(
            f"The link asks for class {label}, sampler '{sampler}' and seed {seed}, "
            "which this collection cannot draw. Choose a picture here instead."
        )
    if not (STEPS[0] <= steps <= STEPS[1] and GUIDANCE[0] <= guidance <= GUIDANCE[1]):
        raise ValueError(
            f"The link asks for {steps} steps and guidance {view.get('guidance')}; "
            f"{STEPS[0]} to {STEPS[1]} steps and guidance {GUIDANCE[0]:g} to "
            f"{GUIDANCE[1]:g} are possible."
        )
    settings = (label, seed, sampler, steps, guidance)
    return shared.result_of(
        "picture",
        f"{explorer.fingerprint}/generate/{settings}",
        lambda progress: explorer.generate(*settings, progress=progress),
    )


# --- choosing another picture -------------------------------------------------------


def pick_query(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the four ways to choose a picture."""
    origin = st.segmented_control(
        "Where the picture comes from",
        list(ORIGINS),
        format_func=ORIGINS.get,
        key="origin",
        required=True,
        label_visibility="collapsed",
        width="stretch",
    )
    choose = {
        "sample": pick_from_gallery,
        "seed": pick_by_seed,
        "upload": pick_upload,
        "example": pick_training_picture,
    }
    choose[origin](explorer, view)


def pick_from_gallery(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the pictures that came with the collection."""
    if explorer.gallery.empty:
        st.caption("This collection has no gallery. Generate a picture instead.")
        return
    st.caption(f"{len(explorer.gallery)} pictures the model drew. Choose one.")
    items = [
        {
            "id": int(sample),
            "src": shared.picture_uri(
                explorer.fingerprint, "sample", int(sample), explorer
            ),
            "alt": f"Sample {sample}: {class_words(explorer, row)}, seed {row['seed']}",
        }
        for sample, row in explorer.gallery.iterrows()
    ]
    strip = {"title": "Gallery", "tone": "neutral", "empty": "", "tiles": items}
    shared.tiles(
        [strip],
        "gallery",
        layout="gallery",
        columns=(6, 6),
        chosen=int(view["sample"]) if view.get("sample", "").isdigit() else None,
        on_pick=lambda: ask_about({"sample": str(st.session_state.gallery.picked)}),
    )


def class_words(explorer: Explorer, row: pd.Series) -> str:
    """Return the class of a gallery row in words."""
    return ", ".join(str(row[column]) for column in explorer.classes.columns)


def pick_class(explorer: Explorer, key: str) -> int | None:
    """Show one choice per class column; return the class, None for any."""
    table = explorer.classes
    chosen = {
        column: st.selectbox(
            shared.column_name(column),
            [None, *sorted(table[column].unique())],
            format_func=lambda value: "any" if value is None else str(value),
            key=f"{key}_{column}",
        )
        for column in table.columns
    }
    if None in chosen.values():
        return None
    matches = (table[list(chosen)] == pd.Series(chosen)).all(axis=1)
    return int(table.index[matches][0]) if matches.any() else None


def pick_by_seed(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the settings of a new picture."""
    with st.form("generate", border=False):
        label = pick_class(explorer, "generate")
        seed = st.number_input("Seed", 0, 2**31 - 1, 1184, help="Equal seed, equal noise")
        sampler = st.segmented_control(
            "Sampler", ["ddim", "ddpm"], format_func=str.upper, default="ddim"
        )
        steps = st.slider("Steps", *STEPS, 50)
        guidance = st.slider(
            "Guidance", *GUIDANCE, 2.0, 0.5, help="How strictly the class is followed"
        )
        if len(explorer.classes.columns) > 1:
            st.caption("With any choice left at “any”, no class is asked for.")
        if not st.form_submit_button("Generate and ask", type="primary"):
            return
    settings = {
        "seed": str(seed),
        "sampler": sampler or "ddim",
        "steps": str(steps),
        "guidance": f"{guidance:g}",
    }
    ask_and_run(settings | ({} if label is None else {"label": str(label)}))


def ask_and_run(view: dict[str, str]) -> None:
    """Ask about a picture and run the page again from the top."""
    # `origin` belongs to a widget that is already on the page, so it stays as it is.
    shared.leave_jobs()
    st.session_state.view = view
    st.rerun()


def pick_upload(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the upload."""
    with st.form("upload", border=False):
        file = st.file_uploader("A picture: PNG, JPEG or WebP", key="file")
        label = pick_class(explorer, "upload")
        st.caption("It stays on this machine and is not part of the link.")
        if not st.form_submit_button("Ask about it", type="primary"):
            return
    if file is None:
        st.info("Choose a picture first.")
        return
    st.session_state.uploaded = (file.getvalue(), label)
    ask_and_run({"upload": "1"})


def pick_training_picture(explorer: Explorer, view: dict[str, str]) -> None:
    """Show a search over the training pictures."""
    words = st.text_input(
        "Find a training picture",
        placeholder="words, or its number",
        key="search",
    ).strip()
    if not words:
        st.caption("What would the model lack without its own teachers? Ask about one.")
        return
    found = find_examples(explorer, words)
    if not found:
        st.info(f"Nothing found for “{text(words)}”. Try other words or a number.")
        return
    strip = {
        "title": "Found",
        "tone": "neutral",
        "empty": "",
        "tiles": [example_tile(explorer, example) for example in found],
    }
    shared.tiles(
        [strip],
        "found",
        layout="gallery",
        columns=(4, 6),
        chosen=whole(view, "example") if "example" in view else None,
        on_pick=lambda: ask_about({"example": str(st.session_state.found.picked)}),
    )


def find_examples(explorer: Explorer, words: str) -> list[int]:
    """Return the training pictures for some words, or the one with that number."""
    if words.isdigit():
        return [int(words)] if int(words) in explorer.examples.table.index else []
    try:
        return search(explorer.fingerprint, words, explorer)
    except (LookupError, ValueError) as error:
        st.info(text(shared.error_sentence(error)))
        return []


@st.cache_data(max_entries=256, show_spinner="Looking through the pictures")
def search(collection: str, words: str, _explorer: Explorer) -> list[int]:
    """Return the training pictures nearest to some words; keyed by values."""
    return [example for example, _ in _explorer.search(words, 24)]


# --- the sample ---------------------------------------------------------------------


def show_sample(explorer: Explorer, query: Query) -> None:
    """Show the picture that is asked about."""
    with st.container(border=True):
        st.image(
            reading.enlarged(reading.png(query.pixels)),
            width="stretch",
            alt=query.description,
        )
    st.markdown(f"**{text(query.description)}**")
    names = [shared.column_name(key) for key in query.facts]
    facts = [f"{name} {value}" for name, value in zip(names, query.facts.values())]
    st.caption(text(" · ".join(facts)))


def caption_lines(explorer: Explorer, example: int) -> list[str]:
    """Return what stands under a training picture."""
    row = explorer.examples.table.loc[example]
    return [str(row[column]) for column in explorer.examples.caption_columns]


def example_tile(explorer: Explorer, example: int) -> dict:
    """Return the tile of a training picture, without a score."""
    lines = caption_lines(explorer, example)
    source = shared.picture_uri(explorer.fingerprint, "example", example, explorer)
    return {"id": example, "src": source, "lines": lines, "alt": ", ".join(lines)}


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
    with st.container(border=True):
        st.subheader(text(reading.lens_title(answer.lens)), anchor=False)
        st.caption(lens_caption(answer, scale))
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
        key = f"lens_{answer.lens.method}"
        return shared.tiles(rows, key, layout="lens", columns=(STRIP, STRIP // 2))


def lens_caption(answer: Answer, scale: reading.Scale) -> str:
    """Return what the numbers of a lens are, as Markdown."""
    if reading.is_similarity(answer.lens):
        return "similar, not cause · cosine, 1 is alike"
    unit = f", in {scale.unit.removeprefix('×')}" if scale.unit else ""
    return (
        f"predicted change if removed · {answer.lens.measurement}{unit} "
        f"({answer.lens.measurement} now {answer.value:.3g})"
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
    tile = example_tile(explorer, example)
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


def how_to_read(explorer: Explorer, answers: list[Answer]) -> None:
    """Say in plain words what the first number means and what the marks are."""
    first = answers[0]
    example = int(first.example_ids[first.top(1)[0]])
    name, *rest = caption_lines(explorer, example)
    called = f"“{name}”" + (f" ({', '.join(rest)})" if rest else "")
    st.markdown(f"**How to read this.** {text(reading.sentence(first, called))}")
    st.caption(
        "± is one standard error; a pale number is within two of them, so it may be "
        "nothing. A dark mark such as \\#3 is the picture’s rank in the other column, "
        "−1 its last place. Click a picture for details."
    )


@st.dialog("Side by side", width="large")
def show_detail(
    explorer: Explorer, query: Query, answers: list[Answer], example: int
) -> None:
    """Show a training picture beside the sample, with all that is known of it."""
    row = explorer.examples.table.loc[example]
    left, right = st.columns(2)
    left.image(
        reading.enlarged(reading.png(query.pixels)), width="stretch", alt="The sample"
    )
    left.caption(text(query.description))
    title = ", ".join(caption_lines(explorer, example))
    picture = reading.enlarged(explorer.image_png(example))
    right.image(picture, width="stretch", alt=title)
    right.caption(f"Training picture {example}: {text(title)}")
    for column, answer in zip(st.columns(len(answers)), answers, strict=True):
        position = int(np.flatnonzero(answer.example_ids == example)[0])
        scale = reading.scale(answer)
        error = scale.error(answer.standard_errors[position])
        number = f"{scale.number(answer.scores[position])} {error} {scale.unit}"
        rank = f"rank {answer.ranks()[position]:,} of {len(answer.scores):,}"
        column.markdown(
            f"**{text(reading.lens_title(answer.lens))}**  \n{text(number)} · {rank}"
        )
    facts = [f"{shared.column_name(name)}: {value}" for name, value in row.items()]
    st.caption("  \n".join(text(fact) for fact in facts))
    st.caption(text(explorer.credit(example)))
    if st.button("Ask about this one", type="primary", icon=":material/search:"):
        st.session_state.next_view = {"example": str(example)}
        st.rerun()


def show_shares(explorer: Explorer, answer: Answer) -> None:
    """Show how the positive influence divides over each class column."""
    table = explorer.examples.table.loc[answer.example_ids]
    for place, column in zip(
        st.columns(len(explorer.classes.columns)), explorer.classes.columns, strict=True
    ):
        with place.container(border=True):
            st.subheader(f"By {shared.column_name(column).lower()}", anchor=False)
            frame = reading.shares(answer, table[column])
            if frame.empty:
                st.caption("No training picture made this one more likely.")
                continue
            st.caption("Share of the positive influence; | marks its share of pictures")
            words = "; ".join(f"{r.group} {r.share:.0%}" for r in frame.itertuples())
            st.plotly_chart(
                figures.share_bars(frame),
                config={"displayModeBar": False},
                key=f"shares_{column}",
                alt=f"Share of the positive influence: {words}",
            )


def show_agreement(answers: list[Answer]) -> None:
    """Show how far the two lenses name the same pictures."""
    first, second = answers
    size = len(first.scores)
    counts = [count for count in (5, 10, 20, 50, 100, 200) if count <= size]
    frame = pd.DataFrame({
        "count": counts,
        "shared": [reading.overlap(first, second, count) for count in counts],
        "chance": [count * count / size for count in counts],
    })
    correlation = reading.rank_correlation(first, second)
    with st.container(border=True):
        st.subheader("Do the lenses agree?", anchor=False)
        st.caption(f"Spearman over all pictures {correlation:+.2f}".replace("-", "−"))
        st.plotly_chart(
            figures.overlap_curve(frame),
            config={"displayModeBar": False},
            key="agreement",
            alt="; ".join(
                f"{row.shared} of the first {row.count} shared"
                for row in frame.rename(columns={"count": "first"}).itertuples()
            )
            if False
            else f"Shared pictures among the first {counts}: {list(frame['shared'])}",
        )


# --- the page -----------------------------------------------------------------------

explorer = shared.chosen_explorer()
if "next_view" in st.session_state:
    ask_about(st.session_state.pop("next_view"))
view = current_view(explorer)

st.caption(
    f"**{text(explorer.title)}** · {explorer.num_examples:,} training pictures · "
    f"{text(explorer.device_name)}"
)
body = st.container()
shared.show_credits(explorer)  # below the body, also when the page stops early

with body:
    left, right = st.columns([0.25, 0.75], gap="medium")
with left:
    sample = st.container()
    pick_query(explorer, view)
with right:
    try:
        query = find_query(explorer, view)
    except (LookupError, ValueError) as error:
        st.info(text(shared.error_sentence(error)))
        st.stop()
if query is None:
    sample.skeleton(height=260)
    st.stop()
with sample:
    show_sample(explorer, query)
with right:
    answers = ask(explorer, query)
    if answers is None:
        st.stop()
    clicked = None
    for place, answer in zip(st.columns(len(answers)), answers, strict=True):
        others = [other for other in answers if other is not answer]
        with place:
            clicked = show_lens(explorer, answer, others) or clicked
    show_shares(explorer, answers[0])
    show_agreement(answers)
with sample:
    how_to_read(explorer, answers)
if clicked is not None:
    show_detail(explorer, query, answers, clicked)
