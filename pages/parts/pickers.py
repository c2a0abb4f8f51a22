"""The ways to choose an image: gallery, new sample, one's own, training image."""

import pandas as pd
import streamlit as st

from core import drawing
from core.config import SAMPLERS
from core.explorer import groups
from core.explorer import named as names
from core.explorer.explorer import Explorer
from core.explorer.first_image import CLEAREST
from core.files import images
from core.numbers import listed
from pages.parts import components, link, own_image
from pages.parts.class_picker import pick_class, setting
from pages.parts.link import ORIGINS, ask_about, ask_next
from pages.parts.views import GUIDANCE, MAX_SEED, STEPS
from pages.parts.words import column_word, sentence, text

MOST_FOUND = 24  # training images that a search shows
SMALL = 128  # pixels of the side of images whose white ground is cleaned in the gallery


def pick_query(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the ways to choose an image."""
    origin = st.pills(
        "Where the image comes from",
        list(ORIGINS),
        format_func=ORIGINS.get,
        key="origin",
        required=True,
        label_visibility="collapsed",
        wrap=True,
        help="Which image to ask about",
    )
    choose = {
        "sample": pick_from_gallery,
        "seed": pick_by_seed,
        "upload": own_image.pick_upload,
        "draw": own_image.pick_drawing,
        "example": pick_training_image,
    }
    choose[origin](explorer, view)


def pick_from_gallery(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the images that came with the collection."""
    if explorer.gallery.empty:
        st.caption("This collection has no gallery. Generate an image instead.")
        return
    chosen = link.number(view.get("sample", ""))
    items = gallery_items(explorer.fingerprint, explorer)
    first = {tile["id"] for tile in items[:CLEAREST]}
    everything = st.session_state.get("whole_gallery", False)
    everything = everything or (chosen is not None and chosen not in first)
    st.caption(opening_rule(explorer))
    if not everything:
        items = items[:CLEAREST]
    strip = {"title": "Gallery", "tone": "neutral", "empty": "", "tiles": items}
    components.tiles(
        [strip],
        "gallery",
        layout="gallery",
        columns=(6, 6),
        chosen=chosen,
        on_pick=lambda: ask_about({"sample": str(st.session_state.gallery.picked)}),
    )
    if not everything and len(explorer.gallery) > CLEAREST:
        st.button(
            f"All {len(explorer.gallery)}",
            type="tertiary",
            icon=":material/expand_more:",
            help="The clearest come first: low loss, and near to a training image",
            on_click=show_whole_gallery,
        )


def show_whole_gallery() -> None:
    """Show all images of the gallery from now on."""
    st.session_state.whole_gallery = True


def opening_rule(explorer: Explorer) -> str:
    """Return in one sentence how the image that opens first was chosen, as Markdown."""
    first = explorer.first_image
    if not first.by_labels:
        return "The clearest of the model’s images opens first."
    names = [column_word(explorer.name, name) for name in explorer.classes.columns]
    return text(
        "First opens the image whose ten most influential images match its "
        f"{listed(names)} more often than the ten nearest by {explorer.clip_title}, "
        "by the largest margin: "
        f"{first.influence:.0%} against {first.similarity:.0%}."
    )


@st.cache_data(max_entries=4, show_spinner=False)
def gallery_items(collection: str, _explorer: Explorer) -> list[dict]:
    """Return the tiles of the gallery, the clearest first; keyed by the collection."""
    files = _explorer.gallery_pngs()

    def shown(sample: int) -> bytes:
        file = files[int(sample)]
        if _explorer.image_shape[-1] > SMALL:  # it would take seconds
            return file
        pixels = images.decode_image(file, _explorer.image_shape)
        return images.png(images.on_white(pixels))

    return [
        {
            "id": int(sample),
            "src": images.data_uri(shown(sample)),
            "alt": f"Image {sample}: {class_words(_explorer, row['label'])}, "
            f"seed {row['seed']}",
        }
        for sample, row in _explorer.gallery.loc[_explorer.gallery_order].iterrows()
    ]


def class_words(explorer: Explorer, label: float) -> str:
    """Return the class of a gallery row in words; NaN is none."""
    return explorer.class_words(None if pd.isna(label) else int(label))


def pick_by_seed(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the settings of a new image."""
    with st.form("generate", border=False):
        label = pick_class(explorer, view)
        seed = st.number_input(
            "Seed",
            min_value=0,
            max_value=MAX_SEED,
            value=setting(view, "seed", (0, MAX_SEED), 1184),
            help="The same seed gives the same noise",
        )
        sampler = st.segmented_control(
            "Sampler",
            SAMPLERS,
            format_func=str.upper,
            default="ddpm" if view.get("sampler") == "ddpm" else "ddim",
            required=True,
            help="DDIM is fast and deterministic; DDPM adds noise at every step",
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
            setting(view, "guidance", GUIDANCE, drawing.GUIDANCE),
            0.5,
            help="How strictly the class is followed",
        )
        if len(explorer.classes.columns) > 1:
            st.caption("Choose a value in every menu to condition on a class.")
        if not st.form_submit_button("Generate and ask", type="primary"):
            return
    settings = {
        "seed": str(seed),
        "sampler": sampler,
        "steps": str(steps),
        "guidance": f"{guidance:g}",
    }
    ask_next(settings | ({} if label is None else {"label": str(label)}))


def pick_training_image(explorer: Explorer, view: dict[str, str]) -> None:
    """Show a search over the training images."""
    words = st.text_input(
        "Find a training image",
        placeholder="words, or its number",
        key="search",
        help="Names and labels first, then what images show (small CLIP)",
    ).strip()
    if not words:
        st.caption("See which training images helped another one.")
        return
    examples = find_examples(explorer, words)
    if not examples[0]:
        st.info(f"Nothing found for “{text(words)}”. Try other words or a number.")
        return
    found, by_name = examples
    how = (
        "with these words in name or label"
        if by_name
        else f"nearest by {explorer.clip_title}"
    )
    if link.number(words) is None:
        st.caption(f"{len(found)} {how}")
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


def find_examples(explorer: Explorer, words: str) -> tuple[list[int], bool]:
    """Return the training images for some words, or the one with that number.

    Also whether names and labels found them: whole words first, then parts of words;
    CLIP is asked where no image is called so.
    """
    example = link.number(words)
    if example is not None:
        return [example] if example in explorer.examples.table.index else [], True
    whole = named(explorer.fingerprint, words, False, explorer)
    parts = named(explorer.fingerprint, words, True, explorer)
    if parts:
        return list(dict.fromkeys([*whole, *parts]))[:MOST_FOUND], True
    try:
        return search(explorer.fingerprint, words, MOST_FOUND, explorer), False
    except (LookupError, ValueError) as error:
        st.info(sentence(error))
        return [], False


@st.cache_data(max_entries=256, show_spinner=False)
def named(collection: str, words: str, parts: bool, _explorer: Explorer) -> list[int]:
    """Return the training images that are called by words; keyed by values."""
    table = _explorer.examples.table
    columns = {*_explorer.examples.caption_columns, *_explorer.classes.columns}
    columns |= set(groups.facets(table))
    return table.index[names.named(table, sorted(columns), words, parts)].tolist()


@st.cache_data(max_entries=256, show_spinner="Searching")
def search(collection: str, words: str, count: int, _explorer: Explorer) -> list[int]:
    """Return the training images nearest to some words; keyed by values."""
    return [example for example, _ in _explorer.search(words, count)]
