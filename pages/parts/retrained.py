"""What happened where a model was trained again without a group of images."""

from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
import streamlit as st

from core.answers import Query
from core.evidence import redrawn
from core.evidence.groups import group_changes
from core.evidence.left_out import group_members
from core.evidence.stored import NOTHING, RANDOM, Evidence
from core.explorer.explorer import Explorer, Lens
from core.files import images
from core.report.left_out import images_of, measured_words
from pages.parts import components, link, trust
from pages.parts.group_picker import Group
from pages.parts.words import text

SQUARE = "width: 100%; aspect-ratio: 1; border-radius: 0.6rem; display: block;"
HOW = (
    "All these models began with the same random weights and were trained once, so "
    "what chance adds to a training is in the change. More on the page Evidence."
)


@dataclass(frozen=True)
class Retrained:
    """What retraining without a group did to one image.

    Attributes:
        row: Of `group_changes`.
        images: The image as each model draws it from its seed, by what the model was
            trained on, in words; empty where it was not drawn again.
        redrawn: Other images of the gallery that were drawn again.
    """

    row: pd.Series
    images: dict[str, np.ndarray]
    redrawn: list[int]


def find(
    explorer: Explorer, query: Query, group: Group, lens: Lens
) -> Retrained | None:
    """Return what was measured of an image without a group, None where nothing was."""
    evidence = trust.find_evidence(explorer).evidence
    if evidence is None or evidence.groups.empty or query.kind != "gallery":
        return None
    if lens.timesteps or lens.region:
        return None
    sample = query.facts["sample_id"]
    changes = changes_of(
        explorer.fingerprint, explorer.evidence_version(), lens.measurement, evidence
    )
    name = group_of(group.members, changes, explorer)
    if name is not None and (name, sample) in changes.index:
        return _of_sample(evidence, name, sample, group, changes)
    return None


@st.cache_data(max_entries=16, show_spinner=False)
def changes_of(collection: str, version: int, measurement: str, _evidence: Evidence):
    """Return the measured changes of all groups; keyed by values."""
    return group_changes(_evidence, measurement)


def group_of(
    members: np.ndarray, changes: pd.DataFrame, explorer: Explorer
) -> str | None:
    """Return which group of `changes_of` some images are, None for none of them."""
    for name in changes.index.unique("group") if len(changes) else ():
        if np.array_equal(group_members(name, explorer.examples.table), members):
            return name
    return None


def _of_sample(evidence, name, sample, group, changes) -> Retrained:
    drawn = redrawn.without_group(evidence, name)
    words = {
        NOTHING: "Trained on every image",
        name: f"Retrained without {images_of(group.size, group.whose)}",
        RANDOM: f"Retrained after a random removal of {group.size:,}",
    }
    shown = {
        label: drawn[model][sample]
        for model, label in words.items()
        if sample in drawn.get(model, ())
    }
    others = sorted(set(drawn.get(name, ())) - {sample})
    return Retrained(changes.loc[(name, sample)], shown, others)


def show_images(found: Retrained) -> None:
    """Show the image as the models with and without the group draw it, side by side."""
    if not found.images:
        return
    places = st.grid(len(found.images), min_column_width=90, wrap=False)
    for label, pixels in found.images.items():
        with places.container():
            # Not `st.image`, which takes its room only once it is loaded.
            source = images.data_uri(images.enlarged(images.png(pixels)))
            alt = escape(f"The image, {label.lower()}")
            st.html(f'<img src="{source}" alt="{alt}" style="{SQUARE}">')
            st.caption(text(label))


def show_words(found: Retrained, group: Group, measurement: str) -> None:
    """Say what changed, against a random removal, and how that was measured."""
    row = found.row
    random = row["random"] if row["controls"] else float("nan")
    words = measured_words(measurement, row["before"], row["change"], random)
    without = group.whose or "the group"
    st.markdown(f"### Measured: retrained without {text(without)}\n{text(words)}")
    with st.popover(":small[:gray[How is this measured?]]", type="tertiary"):
        st.markdown(HOW)


def offer_redrawn(explorer: Explorer, found: Retrained) -> None:
    """Show which other images were drawn again, to look at one of them."""
    if found.images or not found.redrawn:
        return
    tiles = [
        {
            "id": sample,
            "src": images.data_uri(explorer.gallery_png(sample)),
            "alt": explorer.query_from_gallery(sample).description,
        }
        for sample in found.redrawn
    ]
    st.caption("These images were also drawn again by the retrained models:")
    components.tiles(
        [{"title": "Drawn again", "tone": "neutral", "empty": "", "tiles": tiles}],
        "redrawn",
        layout="gallery",
        columns=(8, 4),
        on_pick=lambda: link.ask_about({
            "sample": str(st.session_state.redrawn.picked)
        }),
    )
