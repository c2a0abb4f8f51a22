"""A card carries what made its image, and any reader of XMP gets the same numbers."""

import io
from contextlib import closing
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from core.data.opt_outs import NOTHING_SAID, training_wish, xmp_packet
from core.explorer.explorer import Lens, open_explorer
from core.report.card import card
from core.report.ingredients import COUNT, NAMESPACES, ingredients
from pages.parts.share import font
from tests.helpers.hostile import SCRIPT

OURS = f"{{{NAMESPACES['afterimage']}}}"


@pytest.fixture(scope="module")
def explorer():
    """Return a shipped collection, whose answers are stored."""
    with closing(open_explorer("glyphs")) as opened:
        yield opened


def listed(packet: str | bytes) -> list[dict[str, str]]:
    """Return the facts of each image of the list, by name."""
    root = ElementTree.fromstring(packet)
    items = root.iter(f"{{{NAMESPACES['rdf']}}}li")
    return [{e.tag.removeprefix(OURS): e.text for e in item} for item in items]


@pytest.mark.parametrize("method", ["ekfac", "clip"])
def test_a_card_lists_the_ten_most_influential_images(explorer, method):
    query = explorer.query_from_gallery(0)
    answer = explorer.answer(query, Lens(method))
    data = card(explorer, query, answer, font())
    image = Image.open(io.BytesIO(data))
    assert image.format == "PNG" and xmp_packet(data) == image.info["xmp"]
    found = listed(image.info["xmp"])
    top = answer.top(COUNT)
    assert [int(one["exampleId"]) for one in found] == [*answer.example_ids[top]]
    assert [int(one["rank"]) for one in found] == list(range(1, COUNT + 1))
    kind = "similarity" if method == "clip" else "influence"
    assert [float(one[kind]) for one in found] == [*answer.scores[top]]
    for one, error in zip(found, answer.standard_errors[top], strict=True):
        assert float(one.get("standardError", "nan")) == pytest.approx(
            error, rel=0, abs=0, nan_ok=True
        )
        example = int(one["exampleId"])
        assert one["credit"] == explorer.credit(example)
        assert one["licence"] == explorer.examples.table.at[example, "license"]
    assert np.isfinite(answer.standard_errors).all() == (method == "ekfac")
    assert training_wish(data) == NOTHING_SAID


def test_names_from_anywhere_stay_text(explorer, monkeypatch):
    odd = f"{SCRIPT} ]]> &amp; \ufffe\x00 " + "x" * 1000
    monkeypatch.setattr(explorer, "title", odd)
    monkeypatch.setattr(type(explorer), "credit", lambda self, example: odd)
    query = explorer.query_from_gallery(0)
    packet = ingredients(explorer, query, explorer.answer(query, Lens()))
    found = listed(packet)
    assert (
        all(one["credit"].startswith(SCRIPT) for one in found) and len(found) == COUNT
    )
    assert len(packet) < 20_000
