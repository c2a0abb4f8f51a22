"""Lenses: what makes no sense is refused in one sentence, before anything is loaded."""

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name

import pytest

import core.lenses
from core.lenses import (
    Lens,
    check_bands,
    check_lens,
    in_cells,
    lens_notes,
    parse_region,
    parse_timesteps,
    stored_key,
    stored_lenses,
)
from core.measurements import MEASUREMENTS
from core.methods import METHODS, with_features


@pytest.mark.parametrize(
    ("lens", "sentence"),
    [
        (Lens("magic"), "There is no method 'magic'. Choose one of ekfac, kfac"),
        (Lens("ekfac", "mood"), "There is no measurement 'mood'. Choose one of loss"),
        (Lens("ekfac", "log-probability"), "gives a value for an image but no scores"),
        (Lens(timesteps=(5, 5)), "timestep range 5:5 is not inside 0:20"),
        (Lens(timesteps=(-1, 5)), "timestep range -1:5 is not inside 0:20"),
        (Lens(timesteps=(0, 21)), "timestep range 0:21 is not inside 0:20"),
        (Lens(region=(4, 0, 4, 8)), "region 4,0,4,8 is not a box inside the image"),
        (Lens(region=(0, 0, 9, 8)), "of 8x8 pixels. Give left, top, right, bottom"),
        (Lens(num_draws=6), "6 draws cannot be split into 4 equal parts"),
        (Lens(num_draws=0), "0 draws cannot be split"),
        (Lens(damping=0.0), "The damping 0 is not a positive number"),
        (Lens(damping=float("nan")), "The damping nan is not a positive number"),
        (Lens(form="zip"), "There is no form 'zip' of the gradients"),
    ],
)
def test_nonsense_is_refused_with_what_would_make_sense(lens, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        check_lens(lens, num_train_timesteps=20, image_size=8)


def test_the_edges_of_the_allowed_are_allowed():
    check_lens(Lens(timesteps=(0, 20), region=(0, 0, 8, 8)), 20, 8)
    check_lens(Lens(timesteps=(19, 20), region=(7, 7, 8, 8)), 20, 8)
    check_lens(Lens("clip", "log-probability"), 20, 8)  # CLIP measures nothing


def test_scores_are_divided_only_where_they_add_up():
    check_bands(Lens(timesteps=(2, 6)), 4, 20)
    with pytest.raises(ValueError, match="scores of 'das' do not add up"):
        check_bands(Lens("das"), 4, 20)
    with pytest.raises(ValueError, match="2:6 cannot be divided into 5 bands"):
        check_bands(Lens(timesteps=(2, 6)), 5, 20)


def test_text_becomes_numbers_or_a_sentence():
    assert parse_timesteps("0:250") == (0, 250)
    assert parse_region("8,8,24,32") == (8, 8, 24, 32)
    with pytest.raises(
        ValueError, match="'5' is not a timestep range. Write two whole"
    ):
        parse_timesteps("5")
    with pytest.raises(ValueError, match="'1,2,3,x' is not a region. Write left, top"):
        parse_region("1,2,3,x")


def test_equal_questions_have_equal_keys():
    """What a method ignores names nothing; what it does not ignore does."""
    assert stored_key(Lens()) == {"method": "ekfac", "measurement": "loss"}
    assert stored_key(Lens("clip", "elbo", (0, 5), (0, 0, 1, 1))) == {"method": "clip"}
    assert stored_key(Lens("d-trak", "elbo")) == stored_key(Lens("d-trak"))
    assert stored_key(Lens("gradient", damping=1.0)) == stored_key(Lens("gradient"))
    keys = [str(stored_key(lens)) for lens in stored_lenses()]
    assert len(set(keys)) == len(keys) == 5
    different = [Lens(damping=1.0), Lens(timesteps=(0, 5)), Lens(region=(0, 0, 1, 1))]
    assert all(stored_key(lens) != stored_key(Lens()) for lens in different)


def test_what_a_method_ignores_is_said():
    said = " ".join(lens_notes(Lens("clip", region=(0, 0, 1, 1))))
    assert (
        said == "Small CLIP compares whole images: timesteps and region change nothing."
    )
    assert "measurement of its own" in " ".join(lens_notes(Lens("d-trak", "elbo")))
    assert "no standard errors" in " ".join(lens_notes(Lens("trak")))
    assert lens_notes(Lens()) == lens_notes(Lens("clip")) == []


def test_every_method_and_measurement_is_explained():
    """Each has one title of its own, a meaning in a sentence, and a source."""
    titles = [facts.title for facts in (*METHODS.values(), *MEASUREMENTS.values())]
    assert len(set(titles)) == len(titles)
    for method in METHODS.values():
        assert method.kind in ("influence", "attribution", "similarity")
        assert method.meaning.endswith(".") and method.paper
    assert all(m.meaning.endswith(".") and m.unit for m in MEASUREMENTS.values())


def test_every_function_that_an_entry_names_is_there():
    entries = [*METHODS.values(), *MEASUREMENTS.values()]
    entries += [one.measurement for one in METHODS.values() if one.measurement]
    entries += with_features().values()
    names = [getattr(one, field.name) for one in entries for field in fields(one)]
    names = [
        name for name in names if isinstance(name, str) and name.startswith("core.")
    ]
    assert len(names) > 20 and all(callable(resolve_name(name)) for name in names)


def test_scoring_and_engine_name_no_method():
    """What is a method's own says its entry; some names also mean something else."""
    rooms = Path(core.lenses.__file__).parent
    files = [rooms / "scores" / "scoring.py", *(rooms / "engine").glob("*.py")]
    words = {
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
    }
    eigenvalues, factor, array = {"ekfac", "kfac"}, {"gradient"}, {"clip"}
    seed = {"patches"}
    assert words & set(METHODS) <= eigenvalues | factor | array | seed


def test_lenses_load_without_torch():
    code = "import sys, core.lenses; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("cell", [1, 4, 8])
def test_a_box_in_cells_is_what_the_mask_of_it_covers(cell):
    """The same as that of all cells with a pixel in the box, one by one."""
    for box in ((0, 0, 1, 1), (3, 5, 9, 17), (8, 8, 16, 16), (31, 0, 32, 32)):
        x0, y0, x1, y1 = box
        across = [x // cell for x in range(x0, x1)]
        down = [y // cell for y in range(y0, y1)]
        expected = (
            min(across) * cell,
            min(down) * cell,
            (max(across) + 1) * cell,
            (max(down) + 1) * cell,
        )
        assert in_cells(box, cell) == expected
