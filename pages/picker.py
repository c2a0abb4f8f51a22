"""Choosing the picture to ask about; every page that asks about one shares this.

Not a page. What is asked about is a `view`: the key and text values that stand in the
link, e.g. {"sample": "12"}. It lives in the session and is written to the link.
"""

import pandas as pd
import streamlit as st

from core.explorer import Explorer, Query
from pages import shared
from pages.shared import text

ORIGINS = {
    "sample": "Gallery",
    "seed": "Generate",
    "upload": "Upload",
    "example": "Training",
}
# Keys of the link that belong to a picture; their values are text, as in the link.
LINK_KEYS = ("sample", "example", "seed", "label", "sampler", "steps", "guidance")
SAMPLERS = ("ddim", "ddpm")
STEPS = (1, 1000)  # what the sampler may be asked for
GUIDANCE = (1.0, 7.0)
MAX_SEED = 2**31 - 1

# --- which picture ------------------------------------------------------------------


def current_view(explorer: Explorer) -> dict[str, str]:
    """Return what is asked about: from the link, else from before, else the gallery."""
    if "next_view" in st.session_state:
        ask_about(st.session_state.pop("next_view"))
    link = {key: st.query_params[key] for key in LINK_KEYS if key in st.query_params}
    new = link.keys() & ORIGINS.keys() and link != st.session_state.get("linked")
    if not st.session_state.pop("own_run", False) and new:
        ask_about(link)
    if "view" not in st.session_state:
        ask_about(first_view(explorer))
    view = st.session_state.view
    st.session_state.setdefault("origin", origin_of(view))  # lost on other pages
    st.session_state.linked = {key: view[key] for key in LINK_KEYS if key in view}
    wanted = {"collection": explorer.name, **st.session_state.linked}
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
    return view


def ask_about(view: dict[str, str]) -> None:
    """Make a picture the one that is asked about."""
    shared.leave_jobs()
    st.session_state.view = view
    st.session_state.origin = origin_of(view)


def origin_of(view: dict[str, str]) -> str:
    """Return which of the four ways a picture was chosen in."""
    return next(key for key in ORIGINS if key in view)


def first_view(explorer: Explorer) -> dict[str, str]:
    """Return what to ask about before anybody chose."""
    if explorer.gallery.empty:
        return {"example": str(explorer.examples.table.index[0])}
    return {"sample": str(explorer.gallery.index[0])}


def ask_next(view: dict[str, str]) -> None:
    """Make a picture the one that is asked about, from below the picker.

    The picker's widgets are on the page already, so their values cannot change in this
    run; the next one begins with the new picture.
    """
    st.session_state.next_view = view
    shared.run_again()


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

    A `LookupError` or `ValueError` holds the sentence to show instead.
    """
    if "sample" in view:
        return explorer.query_from_gallery(whole(view, "sample"))
    if "example" in view:
        return explorer.query_from_example(whole(view, "example"))
    if "upload" in view:
        return explorer.query_from_upload(*st.session_state.uploaded)
    return generated_query(explorer, view)


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
    if not known or sampler not in SAMPLERS or not 0 <= seed <= MAX_SEED:
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
        wrap=True,
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
    words = row[list(explorer.classes.columns)].dropna()
    return ", ".join(map(str, words)) or "no class"


def setting(view: dict[str, str], key: str, bounds: tuple, default: float) -> float:
    """Return a number of the view to start a widget with, or the default."""
    try:
        value = type(default)(view.get(key, default))
    except ValueError:
        return default
    return value if bounds[0] <= value <= bounds[1] else default


def pick_class(explorer: Explorer, view: dict[str, str]) -> int | None:
    """Show one choice per class column; return the class, None for any."""
    table = explorer.classes
    label = setting(view, "label", (0, len(table) - 1), -1)
    chosen = {}
    for column in table.columns:
        values = ["", *sorted(table[column].unique())]
        chosen[column] = st.selectbox(
            shared.column_name(column),
            values,
            index=values.index(table.loc[label, column]) if label in table.index else 0,
            format_func=lambda value: str(value) or "any",
        )
    if "" in chosen.values():
        return None
    matches = (table[list(chosen)] == pd.Series(chosen)).all(axis=1)
    return int(table.index[matches][0]) if matches.any() else None


def pick_by_seed(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the settings of a new picture."""
    with st.form("generate", border=False):
        label = pick_class(explorer, view)
        seed = st.number_input(
            "Seed",
            min_value=0,
            max_value=MAX_SEED,
            value=setting(view, "seed", (0, MAX_SEED), 1184),
            help="Equal seed, equal noise",
        )
        sampler = st.segmented_control(
            "Sampler",
            SAMPLERS,
            format_func=str.upper,
            default="ddpm" if view.get("sampler") == "ddpm" else "ddim",
            required=True,
        )
        steps = st.number_input(
            "Steps",
            *STEPS,
            setting(view, "steps", STEPS, 50),
            help="DDIM needs about 50, DDPM is at its best with all 1000",
        )
        guidance = st.slider(
            "Guidance",
            *GUIDANCE,
            setting(view, "guidance", GUIDANCE, 2.0),
            0.5,
            help="How strictly the class is followed",
        )
        if len(explorer.classes.columns) > 1:
            st.caption("A class is asked for once every choice above is made.")
        if not st.form_submit_button("Generate and ask", type="primary"):
            return
    settings = {
        "seed": str(seed),
        "sampler": sampler,
        "steps": str(steps),
        "guidance": f"{guidance:g}",
    }
    ask_next(settings | ({} if label is None else {"label": str(label)}))


def pick_upload(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the upload."""
    with st.form("upload", border=False):
        file = st.file_uploader("A picture: PNG, JPEG or WebP", key="file")
        label = pick_class(explorer, {})
        st.caption("It stays on this machine and is not part of the link.")
        if not st.form_submit_button("Ask about it", type="primary"):
            return
    if file is None:
        st.info("Choose a picture first.")
        return
    st.session_state.uploaded = (file.getvalue(), label)
    ask_next({"upload": "1"})


def pick_training_picture(explorer: Explorer, view: dict[str, str]) -> None:
    """Show a search over the training pictures."""
    words = st.text_input(
        "Find a training picture",
        placeholder="words, or its number",
        key="search",
    ).strip()
    if not words:
        st.caption("Which training pictures made another training picture likely?")
        return
    found = find_examples(explorer, words)
    if not found:
        st.info(f"Nothing found for “{text(words)}”. Try other words or a number.")
        return
    strip = {
        "title": "Found",
        "tone": "neutral",
        "empty": "",
        "tiles": [shared.example_tile(explorer, example) for example in found],
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
        st.info(shared.sentence(error))
        return []


@st.cache_data(max_entries=256, show_spinner="Looking through the pictures")
def search(collection: str, words: str, _explorer: Explorer) -> list[int]:
    """Return the training pictures nearest to some words; keyed by values."""
    return [example for example, _ in _explorer.search(words, 24)]
