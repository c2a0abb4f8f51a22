"""A gallery as a folder of pages: whole, small, escaped, and seen in a browser."""

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import sync_playwright

from core.explorer.explorer import open_explorer
from core.lenses import measures
from core.report import site as sites
from core.report.site import SCORES, Site, answers_of, write_site
from precompute.__main__ import main
from tests.pages.test_browser import FLAGS


def run(*words) -> int:
    """Run a command; return its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["precompute", *map(str, words)])
        return main()


@pytest.fixture(scope="module")
def made(tested_collection, tmp_path_factory) -> Path:
    """Return the site of the tiny collection with evidence."""
    out = tmp_path_factory.mktemp("site") / "site"
    words = ["--collection", "glyphs", "--root", tested_collection, "--out", out]
    assert run("site", *words) == 0
    return out


@pytest.fixture(scope="module")
def explorer(tested_collection):
    """Return the collection."""
    return open_explorer("glyphs", tested_collection)


class Addresses(HTMLParser):
    """Collects what a page shows or leads to."""

    def __init__(self, text: str):
        super().__init__()
        self.found, self.tags = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Keep a tag and its addresses."""
        self.tags.add(tag)
        self.found |= {value for name, value in attrs if name in ("src", "href")}


def test_every_address_is_a_file_of_the_folder(made, explorer):
    """And no page has a script, or asks anything of the network."""
    pages = sorted(made.glob("*.html"))
    assert len(pages) == 1 + len(explorer.gallery)
    used = set()
    for page in pages:
        read = Addresses(page.read_text())
        assert "script" not in read.tags
        assert all((made / address).is_file() for address in read.found), page
        used |= read.found
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert files - used == {"index.html"}
    first = f"image-{explorer.first_image.sample}.html"
    assert (made / "index.html").read_bytes() == (made / first).read_bytes()


def test_the_page_says_what_the_report_says(made, explorer):
    """The first sentence, the test, the strips of every stored lens, the credits."""
    sample = explorer.first_image.sample
    text = (made / "index.html").read_text()
    for answer in answers_of(explorer, sample):
        assert explorer.titled(answer.lens) in text
        for place in answer.top(3):
            assert f'src="images/{answer.example_ids[place]}"' in text
    assert " helped most." in text and "Tested: LDS" in text
    assert "Worked against" in text and "Apache-2.0" in text


def test_scores_are_those_of_the_collection(made, explorer):
    table = pd.read_parquet(made / SCORES)
    for sample in explorer.gallery.index:
        for answer in answers_of(explorer, sample):
            lens = answer.lens
            measured = lens.measurement if measures(lens.method) else ""
            rows = table[table["query_id"] == sample]
            rows = rows[rows["method"].eq(lens.method)]
            rows = rows[rows["measurement"].eq(measured)]
            rows = rows.set_index("example_id").loc[answer.example_ids]
            np.testing.assert_array_equal(rows["score"], answer.scores.astype("f4"))
            np.testing.assert_array_equal(rows["rank"], answer.ranks())


def test_a_site_that_would_be_too_large_keeps_the_extremes(
    explorer, tmp_path, monkeypatch
):
    """Then it is refused: the limit is of the whole folder."""
    write_site(Site(explorer, tmp_path, None))
    whole, pages = (tmp_path / SCORES).stat().st_size, sites._size(tmp_path)
    monkeypatch.setattr(sites, "FEWER", (5, 2))
    for left in (whole - 1, 10):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        monkeypatch.setattr(sites, "MOST_BYTES", pages - whole + left)
        if left == 10:
            with pytest.raises(ValueError, match="more than .* bytes. Build the"):
                write_site(Site(explorer, tmp_path, None))
            continue
        assert write_site(Site(explorer, tmp_path, None)) <= sites.MOST_BYTES
        table = pd.read_parquet(tmp_path / SCORES)
        kept = table[(table["method"] == "clip") & (table["query_id"] == 0)]
        (answer,) = [a for a in answers_of(explorer, 0) if a.lens.method == "clip"]
        ends = [*answer.top(5), *answer.opposing(5)]
        assert set(kept["example_id"]) == set(answer.example_ids[ends])


def test_only_a_site_of_ours_is_replaced(made, tested_collection, tmp_path, capsys):
    """A folder of something else, or a file, stays as it is; ours is made anew."""
    words = ["site", "--collection", "glyphs", "--root", tested_collection, "--out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    assert run(*words, tmp_path / "mine") == 1
    assert "holds something else, which is not replaced" in capsys.readouterr().err
    assert run(*words, tmp_path / "mine" / "index.html") == 1
    assert "is a file. Give --out" in capsys.readouterr().err
    assert (tmp_path / "mine" / "index.html").read_text() == "mine"
    old = tmp_path / "old"
    old.mkdir()
    shutil.copy(made / "index.html", old)
    (old / "left-over").write_text("x")
    assert run(*words, old) == 0
    assert not (old / "left-over").exists() and (old / SCORES).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "old"]


def test_hostile_names_are_shown_and_not_obeyed(hostile_collection, tmp_path):
    explorer = open_explorer("glyphs", hostile_collection)
    write_site(Site(explorer, tmp_path, None))
    for page in tmp_path.glob("*.html"):
        read = Addresses(page.read_text())
        assert "script" not in read.tags and "here" not in read.tags
        assert not any("javascript:" in one or "evil" in one for one in read.found)
        assert re.search(r"onerror=alert\(1\)>", page.read_text()) is None
    explorer.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_in_a_browser_from_the_disk(made, chromium, scheme, width):
    """Images arrive, nothing sticks out, another lens and the next image are seen."""
    failed = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        size = {"width": width, "height": 900}
        page = browser.new_page(viewport=size, color_scheme=scheme)
        page.on("requestfailed", lambda request: failed.append(request.url))
        page.on("console", lambda message: failed.append(message.text))
        page.goto((made / "index.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(
            "document.querySelectorAll('img').forEach(i => i.loading='eager')"
        )
        seen = "[...document.images].filter(i => i.offsetParent !== null)"
        page.wait_for_function(f"{seen}.every(i => i.complete)")
        sizes = page.evaluate(f"{seen}.map(i => i.naturalWidth)")
        assert len(sizes) > 20 and min(sizes) > 0
        dark = scheme == "dark"
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (json.loads(f"[{ground[4:-1]}]")[0] < 100) == dark
        heading = page.locator("h1:visible")
        assert heading.count() == 1
        labels = page.locator("fieldset label")
        if labels.count() > 1:
            labels.nth(1).click()
            assert page.locator(".view-1 h1").is_visible()
            assert heading.count() == 1
        before = page.url
        page.get_by_role("link", name="Next").click()
        assert page.url != before and page.locator("h1:visible").count() == 1
        browser.close()
    assert failed == []
