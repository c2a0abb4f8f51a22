"""The Python face: the README's lines run, and say what the command and the app say."""

import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from diffusers import DDPMPipeline, DDPMScheduler
from PIL import Image

import core.api
from core.api import build, open_collection
from core.api.opened import Opened
from core.lenses import Lens
from precompute.__main__ import main
from tests.core.model.test_pipelines import TOY, trained, unet
from tests.helpers import layouts

README = Path(__file__).resolve().parents[3] / "core" / "README.md"
DRAWS = {"num_draws": 8}


@pytest.fixture(scope="module")
def opened(tiny_collection) -> Opened:
    """Return the tiny collection."""
    return open_collection("glyphs", tiny_collection)


def test_the_lines_of_the_readme_run(tmp_path, monkeypatch):
    """With a small pipeline and six images, in folders of their own."""
    section = README.read_text().split("## In Python\n", 1)[1]
    (lines,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.S)
    assert len([line for line in lines.splitlines() if line]) <= 10
    monkeypatch.setenv("AFTERIMAGE_SETS", str(tmp_path / "sets"))
    monkeypatch.chdir(tmp_path)
    options = [word for change in TOY for word in ("--set", change)]
    own = {"folder": "made", "options": [*options, "--limit", 6]}
    monkeypatch.setattr(core.api, "build", partial(build, **own))
    opening = partial(open_collection, folder="made")
    monkeypatch.setattr(core.api, "open_collection", opening)
    layouts.image_folder(tmp_path).rename("drawings")
    Image.new("RGB", (40, 30), "red").save("photo.png")
    model, scheduler = unet(), DDPMScheduler()
    trained(model, scheduler)
    names = {"pipeline": DDPMPipeline(model, scheduler)}
    exec(lines, names)
    answer, alike = names["answer"], pd.read_parquet("alike.parquet")
    assert len(answer.top(10)) == len(alike) == 6 and answer.answer.scores.std() > 0
    assert "What made this image?" in Path("report.html").read_text()
    assert "plotly" in Path("scores.html").read_text()


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--sample", "1"], lambda c: c.ask(c.sample(1))),
        (
            ["--example", "5", "--draws", "8", "--region", "8,8,24,32"],
            lambda c: c.ask(c.training_image(5), region=(8, 8, 24, 32), **DRAWS),
        ),
        (
            ["--seed", "3", "--label", "1", "--steps", "4", "--draws", "8"],
            lambda c: c.ask(c.generate(3, 1, steps=4), **DRAWS),
        ),
        (
            ["--image", "x.png", "--method", "ekfac", "--measurement", "elbo"]
            + ["--timesteps", "0:500", "--draws", "8"],
            lambda c: c.ask(
                "x.png", measurement="elbo", timesteps=(0, 500), num_draws=8
            ),
        ),
    ],
    ids=["gallery", "region", "generated", "upload"],
)
def test_an_answer_is_the_command_s_to_the_last_byte(
    opened, tiny_collection, tmp_path, monkeypatch, words, asked
):
    """The file of `attribute` and that of `save_csv`."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(layouts.pixels(1, 0, 40)[0]).save("x.png")
    command = ["attribute", "--collection", "glyphs", "--root", str(tiny_collection)]
    monkeypatch.setattr(
        sys, "argv", ["precompute", *command, *words, "--out", "theirs.csv"]
    )
    assert main() == 0
    asked(opened).save_csv("ours.csv")
    assert Path("ours.csv").read_bytes() == Path("theirs.csv").read_bytes()


def test_an_answer_is_the_app_s(opened):
    """The explorer that the pages ask; the table has its order and its metadata."""
    explorer = opened.explorer
    answer = explorer.answer(explorer.query_from_gallery(0), Lens("clip"))
    table = opened.ask(opened.sample(0), "clip").to_frame()
    assert table["example_id"].tolist() == answer.example_ids[answer.order()].tolist()
    assert table["score"].tolist() == answer.scores[answer.order()].tolist()
    assert set(opened.training_images.columns) <= set(table.columns)


def test_every_kind_of_image_is_the_same_image(opened, tmp_path):
    """A path, bytes, Pillow's image and an array of its pixels."""
    pixels = layouts.pixels(1, 0, 40)[0]
    image, path = Image.fromarray(pixels), tmp_path / "x.png"
    image.save(path)
    same = [path, str(path), path.read_bytes(), image, pixels]
    queries = [opened.image(one, "0") for one in same]
    for query in queries:
        np.testing.assert_array_equal(query.pixels, queries[0].pixels)
        assert query.label == 0
    grey = opened.image(pixels[..., 0]).pixels
    assert grey.shape == opened.explorer.image_shape


def test_a_notebook_shows_the_answer(opened, hostile_collection):
    """The image, the sentence and three strips, escaped, and asking for no file."""
    html = opened.ask(opened.sample(0))._repr_html_()
    for words in ("Helped", "No effect", "Worked against", "helped most"):
        assert words in html
    assert html.count("<img") == 1 + 3 * 6 and "http" not in html
    collection = open_collection("glyphs", hostile_collection)
    html = collection.ask(collection.sample(0))._repr_html_()
    assert "<script" not in html and "onerror=alert(1)>" not in html


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda c: c.image("none.png"), "'none.png' cannot be read"),
        (lambda c: c.image(b"text"), "could not be read as an image"),
        (lambda c: c.image([1.0, 2.0]), "list is not an image. Give a path, bytes"),
        (lambda c: c.image(np.zeros((8, 8, 4), np.uint8)), "ndarray is not an image"),
        (lambda c: c.ask(c.sample(0), "magic"), "There is no method 'magic'"),
        (lambda c: c.ask(c.sample(0), region=(9, 0, 3, 5)), "The region 9,0,3,5"),
        (lambda c: c.generate(0, 10**6), "There is no class 1000000"),
        (lambda c: c.generate(0, "none such"), "There is no class 'none such'"),
        (lambda c: build("x", data="/none/such"), "/none/such"),
        (lambda c: build("Bad name", data="/none"), "cannot name a collection"),
    ],
)
def test_a_mistake_gets_one_sentence(opened, wrong, said):
    with pytest.raises(ValueError, match="^[^\n]*$") as found:
        wrong(opened)
    assert said in str(found.value)
