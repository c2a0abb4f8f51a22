"""The image as models draw it that never saw a group of training images."""

from dataclasses import replace

import streamlit as st

from core.answers import Query, Redrawn
from core.columns import parted
from core.evidence import redrawn, untested
from core.evidence.stored import NOTHING, RANDOM
from core.evidence.twins import Twin
from core.explorer.explorer import Explorer, Lens
from core.files import images
from core.report.left_out import cost_words, growth, twins_words
from pages.parts import components, group_picker, trust, waiting
from pages.parts.words import text

FULL = (NOTHING, -1)  # the model that was trained on every image
# Stands where an image is on its way: one grey pixel.
BLANK = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4"
    "nGO4CwAA3QDcOdmdTgAAAABJRU5ErkJggg=="
)
Place = tuple[str, int]


def show(explorer: Explorer, query: Query, lens: Lens) -> bool:
    """Show an image as drawn without each group, and how much worse it is drawn.

    What was measured of the gallery is shown at once; everything else is asked of the
    models that came along, each shown as it comes. Nothing where there are none.

    Returns:
        Whether the images are there, or on their way.
    """
    twins = {(twin.group, twin.number): twin for twin in explorer.twins}
    lens = replace(lens, method="ekfac", damping=None, form="auto")
    known = _stored(explorer, query, lens)
    places = [
        place for place in {**known, **twins} if place[0] not in (NOTHING, RANDOM)
    ]
    random = sorted(place for place in {**known, **twins} if place[0] == RANDOM)
    if not places:
        return False
    wanted = [FULL, *sorted(places), *random]
    for place in wanted:
        if place not in known:
            _ask(explorer, query, lens, place, twins.get(place))
    found = {
        place: known.get(place) or waiting.result_now(_slot(place)) for place in wanted
    }
    late = [place for place, one in found.items() if one is None]
    drawn = any(one.pixels is not None for one in found.values() if one is not None)
    drawn = drawn or (bool(late) and query.drawn)
    with st.container(border=True, key="twins"):
        if drawn:
            _show_tiles(lens, [*wanted[: 1 + len(places)], *random[:1]], found)
        if late:
            waiting.show_wait(_slot(late[0]), height=0)
        else:
            _say(lens, places, random, found)
    return drawn


def offer(explorer: Explorer) -> None:
    """Say how to get models without groups where none came along."""
    if explorer.twins or not explorer.facets:
        return
    column = explorer.facets[0]
    groups = explorer.examples.table[column].nunique()
    costs = explorer.provenance.get("costs", {})
    if words := untested.twins_offer(explorer.config, column, groups, costs):
        st.caption(words)


def _slot(place: Place) -> str:
    return f"twin {place[0]} {place[1]}"


def _stored(explorer: Explorer, query: Query, lens: Lens) -> dict[Place, Redrawn]:
    """Return what retraining measured of a gallery image; nothing of a part of it."""
    evidence = trust.find_evidence(explorer).evidence
    if evidence is None or query.kind != "gallery" or lens.timesteps or lens.region:
        return {}
    sample = query.facts["sample_id"]
    found = redrawn.in_twins(evidence, sample, lens.measurement)
    drawn = {place: one for place, one in found.items() if one.pixels is not None}
    others = {place: one for place, one in found.items() if place[0] == RANDOM}
    return {**others, **drawn} if explorer.twins else {**others, **found}


def _ask(
    explorer: Explorer, query: Query, lens: Lens, place: Place, twin: Twin | None
) -> None:
    """Ask a model what it makes of the image; without a twin the full model."""

    def work(progress) -> Redrawn:
        if twin is not None:
            return explorer.redrawn(query, lens, twin, progress)
        measured = explorer.measure(
            query, lens.measurement, lens.timesteps, lens.region, progress=progress
        )
        return Redrawn(query.pixels, measured.value)

    asked = lens.measurement, lens.timesteps, lens.region
    key = f"{explorer.fingerprint}/{query.key}/{asked}/{place}"
    waiting.ask(_slot(place), key, work)


def _show_tiles(
    lens: Lens, places: list[Place], found: dict[Place, Redrawn | None]
) -> None:
    """Show a tile for each model; a click leaves its group out below."""
    before = found[FULL].value if found[FULL] else None
    tiles = []
    for number, place in enumerate(places):
        one = found[place]
        name = _name(place)
        change = ""
        if one is not None and before is not None and place != FULL:
            how = growth(before, one.value - before)
            change = f"{cost_words(lens.measurement)} {how}"
        source = BLANK
        if one is not None and one.pixels is not None:
            source = images.data_uri(images.enlarged(images.png(one.pixels)))
        lines = [name, *filter(None, [change])]
        alt = ", ".join(lines)
        tiles.append({"id": number, "src": source, "lines": lines, "alt": alt})
    title = "Drawn again by models that never saw …"
    picked = components.tiles(
        [{"title": title, "tone": "plain", "empty": "", "tiles": tiles}],
        "twin_tiles",
        layout="lens",
        columns=(len(tiles), 3),
    )
    if picked is not None and "=" in places[picked][0]:
        group_picker.choose(group_picker.value_code(*parted(places[picked][0], "=")))
        waiting.run_again()


def _name(place: Place) -> str:
    if place == FULL:
        return "Every image seen"
    if place[0] == RANDOM:
        return "A random group"
    return group_picker.display(parted(place[0], "=")[1])


def _say(
    lens: Lens,
    places: list[Place],
    random: list[Place],
    found: dict[Place, Redrawn],
) -> None:
    """Say which group is missed most, against random ones."""
    words = twins_words(
        lens.measurement,
        found[FULL].value,
        {_name(place): found[place].value for place in places},
        [found[place].value for place in random],
    )
    st.markdown(f"**Measured, not predicted.** {text(words)}")
