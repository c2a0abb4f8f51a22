"""An image of one's own, uploaded or drawn: made ready, looked at, and asked about.

What is asked about is kept on the server as long as its visitor is there. A drawing in
the making is kept by the browser's tab.
"""

import base64
import hashlib

import numpy as np
import streamlit as st

from core.explorer import own_images
from core.explorer.explorer import Explorer
from core.files import grounds, images
from pages.parts import components, served, waiting
from pages.parts.class_picker import pick_class
from pages.parts.link import ask_next
from pages.parts.words import sentence, text

SHOWN = 192  # pixels that a small image is shown with, at least
MOST_PLACES = 8  # squares of one image that are kept ready
STAYS = "It stays on this machine; links do not include it."
GREYS = {
    "Black": (0, 0, 0),
    "Dark grey": (80, 80, 80),
    "Grey": (140, 140, 140),
    "Light grey": (200, 200, 200),
    "White": (255, 255, 255),
}
COLOURS = {
    "Black": (32, 36, 42),
    "White": (255, 255, 255),
    "Red": (217, 58, 50),
    "Orange": (242, 140, 40),
    "Yellow": (252, 201, 47),
    "Green": (63, 154, 76),
    "Blue": (59, 130, 214),
    "Brown": (138, 90, 53),
}
DRAWN = "data:image/png;base64,"
LONGEST_DRAWING = 2_000_000  # letters in which a drawing comes here

_mount_canvas = components.component("canvas")


@st.fragment
def pick_upload(explorer: Explorer, view: dict[str, str]) -> None:
    """Show the upload: choose a file, look at what the model would see, ask."""
    file = st.file_uploader(
        "An image: PNG, JPEG, WebP or another common format",
        key="file",
        help="It is turned upright, made square and scaled to the model’s size. An "
        "animation gives its first frame",
    )
    if file is None:
        st.caption(STAYS)
        return
    data = file.getvalue()
    try:
        ready = prepared(explorer, data, 0.5)
        ready = choose_square(explorer, data, ready)
    except ValueError as error:
        st.info(sentence(error))
        return
    pixels = choose_ground(explorer, ready)
    show_preview(pixels, ready)
    label = pick_told_class(explorer)
    if st.button("Ask about this image", type="primary", width="stretch"):
        width, height = ready.size
        # A square that is left as it came is asked about as the file itself, so that
        # the command line gives the same digits for it.
        untouched = width == height and pixels is ready.plain
        ask_own("upload", data if untouched else images.png(pixels), label)
    st.caption(STAYS)


def prepared(
    explorer: Explorer, data: bytes, place: float | None
) -> own_images.Prepared:
    """Return an image of one's own as the model would see it.

    Kept in the visitor's session, which ends with the visit, and in no shared cache.
    """
    key = explorer.fingerprint, hashlib.sha256(data).hexdigest()
    kept = st.session_state.get("own_prepared")
    if kept is None or kept[0] != key:
        kept = st.session_state.own_prepared = key, {}
    _, by_place = kept
    if place not in by_place:
        if len(by_place) >= MOST_PLACES:
            by_place.clear()
        by_place[place] = own_images.prepare(explorer, data, place)
    return by_place[place]


def choose_square(
    explorer: Explorer, data: bytes, ready: own_images.Prepared
) -> own_images.Prepared:
    """Show which square of an image is asked about, where it is not one itself."""
    width, height = ready.size
    if width == height:
        return ready
    if st.toggle("Whole image", help="All of it, with ground at its sides"):
        return prepared(explorer, data, None)
    place = st.slider(
        "Which part, from left to right" if width > height else "Which part, downwards",
        0,
        100,
        50,
        format="%d%%",
        help="The model sees squares. Where to cut one out",
    )
    return prepared(explorer, data, place / 100)


def choose_ground(explorer: Explorer, ready: own_images.Prepared) -> np.ndarray:
    """Show that a ground is made the collection's; return the pixels to ask about."""
    if not ready.changes:
        return ready.plain
    even = st.toggle(
        f"Ground made {ground_words(explorer.ground)}",
        value=True,
        help="Around most training images of this collection is that colour, and the "
        "model would notice another one first. Off leaves the image as it came",
    )
    return ready.evened if even else ready.plain


def ground_words(ground: grounds.Colour) -> str:
    """Return the colour of a ground in words."""
    if min(ground) >= images.NEAR_WHITE:
        return "white"
    if max(ground) <= 255 - images.NEAR_WHITE:
        return "black"
    return grounds.hex_words(ground)


def show_preview(pixels: np.ndarray, ready: own_images.Prepared) -> None:
    """Show what the model would see of an image."""
    side = pixels.shape[-1]
    times = max(-(-SHOWN // side), 1)
    large = pixels.repeat(times, 1).repeat(times, 2)
    words = f"As the model sees it: {side} × {side} pixels"
    if ready.frames:
        words += f", {ready.frames}"
    st.image(
        images.png(large),
        caption=text(words),
        width=min(side * times, 256),
        output_format="PNG",
        alt="Your image as the model sees it",
    )


def pick_told_class(explorer: Explorer) -> int | None:
    """Show, on demand, which class the model is told; return it."""
    if not len(explorer.classes.columns):
        return None
    with st.expander("Tell the model a class"):
        if len(explorer.classes.columns) > 1:
            st.caption("Choose a value in every menu.")
        return pick_class(explorer, {})


def pick_drawing(explorer: Explorer, view: dict[str, str]) -> None:
    """Show a canvas to draw on."""
    ground = explorer.ground or images.WHITE
    inks = colours_on(ground, GREYS if explorer.image_shape[0] == 1 else COLOURS)
    result = _mount_canvas(
        key="drawing",
        data={
            "side": explorer.image_shape[-1],
            "ground": grounds.hex_words(ground),
            "colours": [{"name": name, "value": value} for name, value in inks],
            "store": f"afterimage-drawing-{explorer.name}",
        },
        on_asked_change=lambda: None,
    )
    label = pick_told_class(explorer)
    st.caption(STAYS)
    if result.asked is not None:
        try:
            ask_own("draw", drawing_of(result.asked), label)
        except ValueError as error:
            st.info(sentence(error))


def colours_on(
    ground: grounds.Colour, offered: dict[str, grounds.Colour]
) -> list[tuple[str, str]]:
    """Return the names and values of the colours that can be seen on a ground.

    The one that stands out most comes first.
    """

    def distance(name: str) -> int:
        return max(abs(a - b) for a, b in zip(offered[name], ground, strict=True))

    seen = [name for name in offered if distance(name) > grounds.NEAR]
    first = max(seen, key=distance)
    ordered = [first, *(name for name in seen if name != first)]
    return [(name, grounds.hex_words(offered[name])) for name in ordered]


def drawing_of(sent: object) -> bytes:
    """Return the file that a browser sent as text.

    Raises:
        ValueError: If it is none, or too long.
    """
    if (
        not isinstance(sent, str)
        or not sent.startswith(DRAWN)
        or len(sent) > LONGEST_DRAWING
    ):
        raise ValueError("The drawing did not arrive whole. Ask about it again.")
    try:
        return base64.b64decode(sent.removeprefix(DRAWN), validate=True)
    except ValueError:
        raise ValueError(
            "The drawing did not arrive whole. Ask about it again."
        ) from None


def ask_own(origin: str, data: bytes, label: int | None) -> None:
    """Keep an image of one's own, and ask about it."""
    digest = hashlib.sha256(data).hexdigest()[:16]
    served.uploads().keep(waiting.visitor(), digest, len(data), data)
    ask_next({origin: digest} | ({} if label is None else {"label": str(label)}))
