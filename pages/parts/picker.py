"""Choosing the picture to ask about; every page that asks about one shares this.

Not a page. What is asked about is a view (`pages.parts.link`); the panel beside a
page's content shows the picture, the region of it, and the ways to choose another.
"""

import hashlib
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.config import SAMPLERS
from core.drawing import Drawing
from core.explorer.explorer import Explorer, Query
from core.files import images
from core.lenses import check_region, parse_region
from pages.parts import components, link, served, shared, waiting
from pages.parts.link import ORIGINS, ask_about, ask_next, change_view
from pages.parts.words import column_name, heading, sentence, text

STEPS = (1, 1000)  # what the sampler may be asked for
GUIDANCE = (1.0, 7.0)
MAX_SEED = 2**31 - 1


# --- the panel ----------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What a page is asked about.

    Attributes:
        query: The picture.
        region: Box in pixels of the picture that is asked about, None for all of it.
        place: Where the page shows its content, beside the panel.
    """

    query: Query
    region: tuple[int, int, int, int] | None
    place: DeltaGenerator


def show_panel(explorer: Explorer) -> Asked:
    """Show the picture and the ways to choose another; stop the page without one."""
    view = link.current_view()
    st.caption(
        f"**{text(explorer.title)}** · {explorer.num_examples:,} training pictures · "
        f"{text(explorer.device_name)}"
    )
    body = st.container()
    shared.show_credits(explorer)  # below the body, also when the page stops early
    with body:
        left, right = st.columns([0.26, 0.74], gap="medium")
    with left:
        sample = st.container()
        pick_query(explorer, view)
    with right:
        try:
            query = find_query(explorer, view)
            region = find_region(query, view)
        except (LookupError, ValueError) as error:
            st.info(sentence(error))
            st.stop()
    if query is None:
        sample.skeleton(height=300)
        st.stop()
    with sample:
        show_sample(explorer, query, region)
    return Asked(query, region, right)


def find_region(
    query: Query | None, view: dict[str, str]
) -> tuple[int, int, int, int] | None:
    """Return the region that a view names, None for the whole picture.

    A `ValueError` holds the sentence to show where it is no region.
    """
    if query is None or "region" not in view:
        return None
    region = parse_region(view["region"])
    check_region(region, query.pixels.shape[-1])
    return region


def show_sample(
    explorer: Explorer, query: Query, region: tuple[int, int, int, int] | None
) -> None:
    """Show the picture that is asked about, and how to ask about a part of it."""
    height, width = query.pixels.shape[-2:]
    components.region(
        images.data_uri(images.enlarged(images.png(query.pixels))),
        query.description,
        (width, height),
        region,
        "sample_region",
        on_draw=lambda: set_region(st.session_state.sample_region.drawn),
    )
    title, *rest = query.description.split(" · ")
    if query.drawn and query.drawing.guidance_scale != 1:
        rest.append(f"guidance {query.drawing.guidance_scale:g}")
    heading(title, " · ".join(rest))
    with st.container(horizontal=True, vertical_alignment="center"):
        show_region_controls((width, height), region)
        show_asked(query)
        show_link()
    if not query.drawn:
        offer_inversion(explorer, query)


def set_region(box: list[int] | None) -> None:
    """Ask about a box of the picture, or about all of it."""
    if box is not None:
        box = ",".join(str(int(side)) for side in box)
    change_view(region=box)


def show_region_controls(
    size: tuple[int, int], region: tuple[int, int, int, int] | None
) -> None:
    """Say which part of the picture is asked about, with sliders to change it."""
    width, height = size
    x0, y0, x1, y1 = region or (0, 0, width, height)
    st.session_state.across, st.session_state.down = (x0, x1), (y0, y1)
    said = "Asked about: a part" if region else "Part of it"
    with st.popover(
        said,
        icon=":material/crop:",
        help="Ask about one part of the picture only. With a mouse, drag a box on "
        "the picture; the sliders do the same.",
    ):
        st.slider(
            "From left to right",
            0,
            width,
            key="across",
            on_change=region_from_sliders,
            args=(size,),
            help="Columns of pixels that are asked about",
        )
        st.slider(
            "From top to bottom",
            0,
            height,
            key="down",
            on_change=region_from_sliders,
            args=(size,),
            help="Rows of pixels that are asked about",
        )
    if region:
        st.button(
            "All of it",
            type="tertiary",
            help="Ask about the whole picture again",
            on_click=set_region,
            args=(None,),
        )


def region_from_sliders(size: tuple[int, int]) -> None:
    """Ask about the box that the sliders say, if it has any pixels."""
    (x0, x1), (y0, y1) = st.session_state.across, st.session_state.down
    if x0 == x1 or y0 == y1:
        return
    whole = (x0, y0, x1, y1) == (0, 0, *size)
    set_region(None if whole else [x0, y0, x1, y1])


def show_asked(query: Query) -> None:
    """Show the pictures that were asked about before, to go back to one."""
    asked = link.remember(
        lambda: images.data_uri(images.png(query.pixels)), query.description
    )
    with st.popover(
        "Before",
        icon=":material/history:",
        help="Pictures that you asked about before; the browser’s back does the same",
        disabled=len(asked) < 2,
    ):
        tiles = [
            {"id": place, "src": one["src"], "alt": one["words"]}
            for place, one in enumerate(asked)
        ]
        components.tiles(
            [{"title": "Asked before", "tone": "neutral", "empty": "", "tiles": tiles}],
            "asked_before",
            layout="gallery",
            columns=(4, 4),
            chosen=0,
            on_pick=lambda: ask_about(
                st.session_state.asked[st.session_state.asked_before.picked]["view"]
            ),
        )


def show_link() -> None:
    """Show the address of this view, with a button that copies it."""
    with st.popover(
        "Link", icon=":material/link:", help="Opens this very view, on any machine"
    ):
        st.code(link.whole_address(), language=None, wrap_lines=True)


def offer_inversion(explorer: Explorer, query: Query) -> None:
    """Offer approximate sampling steps for a picture that the model did not draw."""
    st.session_state.inverted = query.inverted
    st.toggle(
        "Approximate drawing steps",
        key="inverted",
        help=text(explorer.trajectory_note(query)),
        on_change=lambda: change_view(
            inverted="1" if st.session_state.inverted else None
        ),
    )


# --- which picture ------------------------------------------------------------------


def whole(view: dict[str, str], key: str, default: int | None = None) -> int | None:
    """Return a whole number from the link.

    Raises:
        ValueError: If there is something else.
    """
    if key not in view:
        return default
    found = link.number(view[key])
    if found is None:
        raise ValueError(
            f"The link says {key}={link.shortened(view[key])}, which is not a whole "
            "number of usual size. Choose a picture here instead."
        )
    return found


def find_query(explorer: Explorer, view: dict[str, str]) -> Query | None:
    """Return the picture that is asked about, None while it is being made.

    A `LookupError` or `ValueError` holds the sentence to show instead.
    """
    origin = link.origin_of(view)
    if origin == "sample":
        return explorer.query_from_gallery(whole(view, "sample"))
    if origin == "seed":
        return generated_query(explorer, view)
    if origin == "example":
        query = explorer.query_from_example(whole(view, "example"))
    else:
        query = uploaded_query(explorer, view)
    return explorer.inverted(query) if view.get("inverted") == "1" else query


def known_label(explorer: Explorer, view: dict[str, str]) -> int | None:
    """Return the class that a view names, None for any.

    Raises:
        ValueError: If the collection has no such class.
    """
    label = whole(view, "label")
    if label is None or label in explorer.classes.index:
        return label
    raise ValueError(
        f"The link asks for class {label}; this collection has "
        f"{len(explorer.classes)}, counted from 0. Choose a picture here instead."
    )


def uploaded_query(explorer: Explorer, view: dict[str, str]) -> Query:
    """Return a picture that this visitor uploaded.

    Raises:
        LookupError: If it was somebody else, or too long or too many pictures ago.
    """
    data = served.uploads().find(waiting.visitor(), view["upload"])
    if data is None:
        raise LookupError(
            "This picture was uploaded in another visit or some pictures ago, and is "
            "not kept; a link does not hold it. Upload it here again."
        )
    return explorer.query_from_upload(data, known_label(explorer, view))


def generated_query(explorer: Explorer, view: dict[str, str]) -> Query | None:
    """Return a picture made for a seed, None while the model is at work.

    Raises:
        ValueError: If the link asks for something the model cannot do.
    """
    seed, label = whole(view, "seed"), known_label(explorer, view)
    steps, sampler = whole(view, "steps", 50), view.get("sampler", "ddim")
    try:
        guidance = float(view.get("guidance", 1.0))
    except ValueError:
        guidance = float("nan")
    if sampler not in SAMPLERS or not 0 <= seed <= MAX_SEED:
        raise ValueError(
            f"The link asks for sampler '{link.shortened(sampler)}' and seed {seed}; "
            f"there are {' and '.join(SAMPLERS)}, and seeds from 0 to {MAX_SEED}. "
            "Choose a picture here instead."
        )
    if not (STEPS[0] <= steps <= STEPS[1] and GUIDANCE[0] <= guidance <= GUIDANCE[1]):
        raise ValueError(
            f"The link asks for {steps} steps and guidance "
            f"{link.shortened(view.get('guidance', '1'))}; "
            f"{STEPS[0]} to {STEPS[1]} steps and guidance {GUIDANCE[0]:g} to "
            f"{GUIDANCE[1]:g} are possible."
        )
    drawing = Drawing(label, seed, sampler, steps, guidance)
    return waiting.result_of(
        "picture",
        f"{explorer.fingerprint}/generate/{drawing}",
        lambda progress: explorer.generate(drawing, progress),
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
        help="Which picture to ask about",
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
    items = gallery_items(explorer.fingerprint, explorer)
    strip = {"title": "Gallery", "tone": "neutral", "empty": "", "tiles": items}
    components.tiles(
        [strip],
        "gallery",
        layout="gallery",
        columns=(6, 6),
        chosen=link.number(view.get("sample", "")),
        on_pick=lambda: ask_about({"sample": str(st.session_state.gallery.picked)}),
    )


@st.cache_data(max_entries=4, show_spinner=False)
def gallery_items(collection: str, _explorer: Explorer) -> list[dict]:
    """Return the tiles of the gallery; keyed by the collection."""
    files = _explorer.gallery_pngs()
    return [
        {
            "id": int(sample),
            "src": images.data_uri(files[int(sample)]),
            "alt": f"Sample {sample}: {class_words(_explorer, row['label'])}, "
            f"seed {row['seed']}",
        }
        for sample, row in _explorer.gallery.iterrows()
    ]


def class_words(explorer: Explorer, label: float) -> str:
    """Return the class of a gallery row in words; NaN is none."""
    return explorer.class_words(None if pd.isna(label) else int(label))


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
        values = [None, *sorted(table[column].unique())]
        chosen[column] = st.selectbox(
            text(column_name(explorer.name, column)),
            values,
            index=values.index(table.loc[label, column]) if label in table.index else 0,
            format_func=lambda value: "any" if value is None else value or "(empty)",
            help="The class that the model is told",
        )
    if None in chosen.values():
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
            help="DDIM is quick and without chance; DDPM adds noise at every step",
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
        file = st.file_uploader(
            "A picture: PNG, JPEG, WebP or another common kind",
            key="file",
            help="It is turned upright and made as small as the pictures that the "
            "model knows. What is see-through becomes white; of an animation the first "
            "frame is taken",
        )
        label = pick_class(explorer, {})
        st.caption("It stays on this machine; a link to it does not hold it.")
        if not st.form_submit_button("Ask about it", type="primary"):
            return
    if file is None:
        st.info("Choose a picture first.")
        return
    data = file.getvalue()
    digest = hashlib.sha256(data).hexdigest()[:16]
    served.uploads().keep(waiting.visitor(), digest, len(data), data)
    ask_next({"upload": digest} | ({} if label is None else {"label": str(label)}))


def pick_training_picture(explorer: Explorer, view: dict[str, str]) -> None:
    """Show a search over the training pictures."""
    words = st.text_input(
        "Find a training picture",
        placeholder="words, or its number",
        key="search",
        help="Words are matched with what the pictures show (CLIP)",
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
        "tiles": [components.example_tile(explorer, example) for example in found],
    }
    components.tiles(
        [strip],
        "found",
        layout="gallery",
        columns=(4, 6),
        chosen=link.number(view.get("example", "")),
        on_pick=lambda: ask_about({"example": str(st.session_state.found.picked)}),
    )


def find_examples(explorer: Explorer, words: str) -> list[int]:
    """Return the training pictures for some words, or the one with that number."""
    example = link.number(words)
    if example is not None:
        return [example] if example in explorer.examples.table.index else []
    try:
        return search(explorer.fingerprint, words, 24, explorer)
    except (LookupError, ValueError) as error:
        st.info(sentence(error))
        return []


@st.cache_data(max_entries=256, show_spinner="Looking through the pictures")
def search(collection: str, words: str, count: int, _explorer: Explorer) -> list[int]:
    """Return the training pictures nearest to some words; keyed by values."""
    return [example for example, _ in _explorer.search(words, count)]
