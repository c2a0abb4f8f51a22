"""The report, the card and the table of an answer: complete, harmless, reproducible."""

import io
import shlex
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from core.drawing import Drawing
from core.evidence.trust import lens_trust
from core.explorer.explorer import Explorer, Lens, open_explorer
from core.files import images
from core.files.texts import shortened
from core.report import reading, report, reproduce
from core.report.card import SIZE, card
from core.report.left_out import LeftOut
from pages.parts.share import font
from precompute.__main__ import main
from tests.helpers.hostile import SCRIPT, TEXTS

LOADING = ("src", "srcset", "data", "poster", "background", "action", "formaction")


class Page(HTMLParser):
    """What a browser finds in a page.

    Attributes:
        tags: Every element that opens, with its attributes.
        text: All that is read, joined.
    """

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


def made(explorer: Explorer, lenses: list[Lens], query=None, **options):
    """Return the report of a question and its answers."""
    query = query or explorer.query_from_gallery(0)
    answers = [explorer.answer(query, lens) for lens in lenses]
    parts = [report.Part(answer, None) for answer in answers]
    return report.html_report(explorer, query, parts, **options), answers


LENSES = [Lens(), Lens("clip")]


def test_report_needs_nothing_but_itself(tiny_explorer):
    """Nothing is loaded, nothing runs; the one link is a link that a person follows."""
    html, _ = made(tiny_explorer, LENSES, link="http://localhost/?sample=0")
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"script", "iframe", "object", "link"}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in LOADING:
                assert value.startswith((
                    "data:image/png;base64,",
                    "data:image/jpeg;base64,",
                )), (tag, name)
    assert [a["href"] for a in page.all("a")] == ["http://localhost/?sample=0"]
    assert "url(" not in html and "@import" not in html
    assert all(image["alt"] for image in page.all("img"))


def test_report_shows_every_strip_with_its_scores_and_credits(tiny_explorer):
    html, answers = made(tiny_explorer, LENSES)
    page = Page(html)
    shown = set()
    for answer in answers:
        for strip in reading.strips(answer, report.STRIP):
            for place in map(int, strip.positions):
                example = int(answer.example_ids[place])
                score = reading.printed_score(answer, place)
                alts = [i["alt"] for i in page.all("img")]
                said = f"Training image {example}, "
                assert any(a.startswith(said) and a.endswith(score) for a in alts)
                shown.add(example)
    for line in {tiny_explorer.credit(example) for example in shown}:
        assert line in page.text
    for facts in (
        tiny_explorer.fingerprint,
        reproduce.image_hash(tiny_explorer.query_from_gallery(0)),
        tiny_explorer.provenance["versions"]["torch"],
        "Untested",
        "Noise levels",
    ):
        assert facts in page.text


def test_report_says_how_far_its_lenses_were_tested(tested_collection):
    """The figure is that of the mark in the app, with its ceiling and what it means."""
    explorer = open_explorer("glyphs", tested_collection)
    query = explorer.query_from_gallery(0)
    answer = explorer.answer(query, Lens())
    trust = lens_trust(explorer.evidence(), "ekfac", "loss", source=answer.source)
    html = report.html_report(explorer, query, [report.Part(answer, trust)])
    text = Page(html).text
    assert trust.words in text and "at most" in trust.words
    assert trust.meaning in text


def test_group_shares_carry_their_errors(tiny_explorer):
    html, (answer,) = made(tiny_explorer, [Lens()])
    text = Page(html).text
    styles = tiny_explorer.examples.table.loc[answer.example_ids, "style"]
    for row in reading.shares(answer, styles).itertuples():
        assert f"{row.group} {row.share:.1%} ± {row.error:.1%}" in text


def test_group_that_was_left_out_is_part_of_the_report(tiny_explorer):
    said = "Loss +1.50 ± 0.25.", "More than 97% of random removals."
    group = LeftOut("Style: noto", 8, *said)
    html, _ = made(tiny_explorer, [Lens()], left_out=group)
    text = Page(html).text
    assert "Removed: Style: noto" in text and "+1.50 ± 0.25" in text
    assert "More than 97% of random removals" in text


def questions(explorer: Explorer) -> list[tuple]:
    """Return images of every origin, each with a lens that differs in something."""
    picture = images.png(explorer.query_from_gallery(1).pixels)
    example = int(explorer.examples.table.index[3])
    damping = 2 * float(explorer.provenance["damping"])
    return [
        (explorer.query_from_gallery(0), Lens()),
        (explorer.query_from_gallery(1), Lens("ekfac", "elbo", (0, 500))),
        (explorer.query_from_example(example), Lens("gradient", region=(0, 0, 8, 6))),
        (
            explorer.generate(Drawing(1, 7, "ddpm", 4, 1.5)),
            Lens(num_draws=8, damping=damping),
        ),
        (explorer.query_from_upload(picture, 2), Lens("clip")),
    ]


@pytest.mark.parametrize("number", range(5))
def test_the_printed_command_gives_the_same_scores(
    tiny_collection, tiny_explorer, tmp_path, monkeypatch, capsys, number
):
    """Run as printed; all nine digits that it writes are those of the answer."""
    query, lens = questions(tiny_explorer)[number]
    answer = tiny_explorer.answer(query, lens)
    html, _ = made(tiny_explorer, [lens], query)
    printed = reproduce.command("glyphs", query, answer.lens)
    assert printed in Page(html).text
    picture = tmp_path / "picture.png"
    picture.write_bytes(images.png(query.pixels))
    start, module, verb, *words = shlex.split(printed)
    assert (start, module, verb) == ("python", "-m", "precompute")
    words = [str(picture) if word == "FILE" else word for word in words]
    words += ["--root", str(tiny_collection)]
    monkeypatch.setattr(sys, "argv", ["precompute", *words])
    assert main() == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("example_id")
    scores = table.loc[answer.example_ids, "score"]
    np.testing.assert_allclose(scores, answer.scores, rtol=1e-6, atol=1e-12)


def test_card_shows_the_sample_and_credits_at_the_size_of_a_link(tiny_explorer):
    query = tiny_explorer.query_from_gallery(0)
    answer = tiny_explorer.answer(query, Lens())
    image = Image.open(io.BytesIO(card(tiny_explorer, query, answer, font())))
    assert image.size == SIZE == (1200, 630)
    other = tiny_explorer.answer(query, Lens("clip"))
    changed = Image.open(io.BytesIO(card(tiny_explorer, query, other, font())))
    assert image.crop((0, 0, 440, 470)).tobytes() == (
        changed.crop((0, 0, 440, 470)).tobytes()
    )  # the sample is the same, what made it is not
    assert image.tobytes() != changed.tobytes()
    # The credits' line is written: its ground is not all of one colour.
    assert len(image.crop((48, 555, 1152, 600)).getcolors(10_000)) > 1


def test_no_text_becomes_an_element_of_the_report(hostile_collection):
    """All that data says is read as it stands; elements are those of the template."""
    explorer = open_explorer("glyphs", hostile_collection)
    link = "javascript:alert(1)"
    left_out = LeftOut(SCRIPT, 3, SCRIPT, SCRIPT)
    html, answers = made(explorer, LENSES, link=link, left_out=left_out)
    page = Page(html)
    allowed = {"img", "b", "i", "bdi", "a", "br", "script"}
    assert not page.all("script") and not page.all("br") and not page.all("a")
    assert "onerror" not in {name for _, given in page.tags for name in given}
    assert all(i["src"].startswith("data:image/") for i in page.all("img"))
    assert {tag for tag, _ in page.tags} & allowed == {"img", "b", "i", "bdi"}
    assert SCRIPT in page.text and shortened(TEXTS[1], 60) in page.text
    assert "\u202e" not in html and "javascript:alert(1)" in page.text
    picture = Image.open(
        io.BytesIO(card(explorer, explorer.query_from_gallery(0), answers[0], font()))
    )
    assert picture.size == SIZE


def test_long_names_do_not_stretch_the_report(tiny_explorer):
    query = replace(tiny_explorer.query_from_gallery(0), description="x" * 5000)
    answer = tiny_explorer.answer(tiny_explorer.query_from_gallery(0), Lens())
    made_card = Image.open(io.BytesIO(card(tiny_explorer, query, answer, font())))
    assert made_card.size == SIZE
