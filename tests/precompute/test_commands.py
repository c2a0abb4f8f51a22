"""Every command in the READMEs, run as it is typed, on data small enough for a test."""

import os
import re
import shlex
import shutil
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from diffusers import DDPMPipeline, DDPMScheduler
from PIL import Image

from core.data.datasets import load_dataset
from core.explorer.explorer import list_collections
from core.presets import collection_config
from precompute.__main__ import main
from precompute.stages.build import build
from tests.conftest import linked_copy
from tests.core.model.test_pipelines import unet
from tests.helpers import layouts
from tests.helpers.stable_diffusion import drawings, save_peft_lora, save_pipeline
from tests.precompute.test_own import TOY
from tests.test_readme import LINES

# In the order in which the READMEs have them; torchrun's is run in
# tests/precompute/test_parallel.py.
TYPED = [line for line in LINES if line.startswith("python -m precompute")]
CHANGES = " ".join(f"--set {change}" for change in TOY)
TWO_LEVELS = "--set model.block_out_channels=8,8 --set model.attention_head_dim=8"
# What they have in a size for a long day, and what they write for something of the
# reader's own: pattern -> what a test puts there.
SMALLER = {
    r"\[[^]]*\]": "",
    r"--preset quick": rf"\g<0> {CHANGES} {TWO_LEVELS} --limit 6",
    r"--preset cifar": rf"\g<0> {CHANGES} --limit 6",
    r"import-model .*": rf"\g<0> {CHANGES} --limit 6",
    r"(build|fidelity|retrain|evidence) --collection glyphs": r"\g<0> --preset tiny",
    r"--without style": "--without subgroup",  # the tiny preset has one house
    r"--samples 64": "--samples 2",
    r"--collection fashion2": r"\g<0> --preset tiny",
    r"methods .*": r"\g<0> --dim 64 --draws 2 --only trak,datainf",
    r"fidelity .*": r"\g<0> --examples 8",
    r"evidence --collection fashion2 --preset tiny$": r"\g<0> --probability-draws 0",
    r"--subsets 32": "--subsets 4",
    r"--subsets 8": "--subsets 3",
    r"retrain .*--same-seed": r"\g<0> --subsets 1 --seeds 1",
    r"--sample 0:4": "--sample 0:1",
    r"--index idx_train.csv": "",  # the sets of a test are smaller than CIFAR
    r"automobile,horse": "automobile,horse,airplane,bird",
    r"\bPATH\b": "pictures",
    r"\bFILE\b": "picture.png",
}


def smaller(line: str) -> str:
    """Return a command of a README in the size of a test."""
    for pattern, instead in SMALLER.items():
        line = re.sub(pattern, instead, line)
    return line


@pytest.fixture(scope="module")
def ran(tiny_collection, tmp_path_factory):
    """Return exit status, output and errors of every command, one after the other."""
    place = tmp_path_factory.mktemp("commands")
    (place / "collections").mkdir()
    root = linked_copy(tiny_collection, place / "collections")
    for folder in tiny_collection.glob("glyphs-index-*"):
        shutil.copytree(folder, root / folder.name)
    shutil.copytree(tiny_collection / "work", place / "work")
    fashion = collection_config("fashion2", "tiny")
    build(fashion, root, place / "work", "cpu")
    ids = load_dataset(fashion.data).ids
    pairs = pd.MultiIndex.from_product([range(20), ids], names=["query", "image"])
    scores = np.random.default_rng(0).normal(size=len(pairs))
    pd.DataFrame({"score": scores}, pairs).reset_index().to_parquet(
        place / "mine.parquet"
    )
    pictures = layouts.image_folder(place)
    shutil.copy(next(pictures.rglob("*.png")), place / "picture.png")
    archive = layouts.cifar_archive(place / "in")
    archive.rename(place / "cifar-10-python.tar.gz")
    DDPMPipeline(unet(), DDPMScheduler()).save_pretrained(place / "MODEL_FOLDER")
    save_pipeline(place / "text-to-image").rename(place / "SD_FOLDER")
    save_peft_lora(place / "LORA", place / "SD_FOLDER")
    drawings(place / "drawn", "files").rename(place / "DRAWINGS")
    where = {"--root": root, "--work": place / "work"}
    found, before = {}, Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFTERIMAGE_SETS", str(place / "sets"))
        os.chdir(place)
        try:
            for line in TYPED:
                words = shlex.split(smaller(line))[3:]
                more = [
                    part
                    for option, folder in where.items()
                    if option in OPTIONS[words[0]]
                    for part in (option, str(folder))
                ]
                patch.setattr(sys, "argv", ["precompute", *words, *more])
                found[line] = ended(main)
        finally:
            os.chdir(before)
    return found, place


ROOT_AND_WORK, ROOT = ("--root", "--work"), ("--root",)
OPTIONS = {
    "answers": ROOT_AND_WORK,
    "attribute": ROOT,
    "build": ROOT_AND_WORK,
    "evidence": ROOT_AND_WORK,
    "fidelity": ROOT_AND_WORK,
    "import-model": (),
    "inspect-data": (),
    "methods": ROOT_AND_WORK,
    "plan": ROOT_AND_WORK,
    "retrain": ROOT_AND_WORK,
    "sheet": ROOT,
    "site": ROOT,
    "smoothness": ("--work",),
    "summary": ROOT,
    "unroll": ROOT_AND_WORK,
}


def ended(command) -> tuple[object, str]:
    """Return the exit status, or the error that no person should see, and the words."""
    with redirect_stderr(StringIO()) as said:
        try:
            return command(), said.getvalue()
        except Exception as error:
            return error, said.getvalue()


@pytest.mark.parametrize("line", TYPED)
def test_command_does_what_readme_says(ran, line):
    found, _ = ran
    status, said = found[line]
    assert status == 0, (smaller(line), said[-500:])


def test_commands_left_what_readme_promises(ran):
    """Collections in the picker, tables in their files, all other methods' files."""
    _, place = ran
    names = list_collections(place / "collections")
    assert {"glyphs", "fashion2", "my-drawings", "cifar2", "mine", "my-art"} <= set(
        names
    )
    assert {"example_id", "score"} <= set(pd.read_csv(place / "scores.csv"))
    assert len(pd.read_csv(place / "fidelity.csv")) > 5
    assert Image.open(place / "sheet.webp").width > 100
    assert (place / "site" / "index.html").is_file()
    assert "# What " in (place / "summary.md").read_text()
    written = set(pd.read_parquet(place / "bench.parquet")["name"])
    assert "ekfac" in written and "mine" not in written  # it was forgotten before
    for kind in ("trak", "datainf"):
        assert list((place / "collections").glob(f"glyphs-method-{kind}-*"))
    for name in ("fashion2", "glyphs"):
        assert list((place / "collections").glob(f"{name}-evidence-*/recipe.json"))
