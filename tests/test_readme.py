"""What the READMEs tell a person to type is what the program takes, and what they say.

Figures that lie in a file are compared with it; links, names and rooms are looked up.
"""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from core.evidence.evaluation import mean_and_error
from core.evidence.groups import group_table
from core.evidence.tables import make_table
from core.lenses import Lens
from core.presets import RECIPES, collection_config
from precompute.__main__ import parser
from tests.helpers.readme_tables import figures, made, shipped_evidence
from tests.test_layers import ROOMS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("", "precompute", "core", "data", "pages", "tests")
READMES = {name or ".": ROOT / name / "README.md" for name in FOLDERS}
TEXTS = {name: path.read_text() for name, path in READMES.items()}
RESULTS = ROOT / "tests" / "benchmarks" / "results"
# Indented lines that begin with a program; what follows "#" says what it does.
LINES = list(
    dict.fromkeys(
        line.split(" #")[0].strip()
        for text in TEXTS.values()
        for line in text.splitlines()
        if re.match(r"    (python|torchrun|make|streamlit) ?", line)
    )
)
INLINE = [
    command
    for text in TEXTS.values()
    for command in re.findall(r"`(python -m precompute [^`]+)`", text)
    if "VERB" not in command
]
COMMANDS = sorted({line for line in LINES + INLINE if "-m precompute" in line})
PAGE = (ROOT / "pages" / "collections.py").read_text()
ON_PAGES = sorted(set(re.findall(r"python (-m precompute [^\"\\{]+)", PAGE)))
LONGEST = 140  # lines of the first README


def arguments(command: str) -> list[str]:
    """Return the arguments of a command, without what stands in brackets."""
    plain = re.sub(r"\[[^]]*\]", "", command)
    return shlex.split(plain)[shlex.split(plain).index("precompute") + 1 :]


def test_commands_were_found():
    """Or the next test would test nothing."""
    assert len(COMMANDS) > 12 and len(ON_PAGES) >= 3, (COMMANDS, ON_PAGES)
    assert "make app" in LINES and "make test" in LINES


@pytest.mark.parametrize("command", [*COMMANDS, *ON_PAGES])
def test_commands_are_understood(command):
    """Verb, options and choices; numbers where numbers are expected."""
    words = [
        word.replace("N", "1") if word in ("N", "ID") else word
        for word in arguments(command)
    ]
    if words[-1] == "--collection":  # a page fills in the name
        words.append("glyphs")
    assert parser().parse_args(words).verb == words[0]


def test_the_first_readme_is_short():
    """A newcomer reads it whole; what is longer lies in the folders."""
    assert len(TEXTS["."].splitlines()) <= LONGEST


def test_benchmarks_are_there_and_all_are_named():
    known = (ROOT / "tests" / "benchmarks" / "__main__.py").read_text()
    known = {*re.findall(r'^    "(\w+)": ', known, re.MULTILINE), "cifar"}
    text = "\n".join(TEXTS.values())
    run = set(re.findall(r"python -m tests\.benchmarks ([a-z_]+)", text))
    assert run and run <= known
    table = rows_after("tests", "| question | names |")
    assert {name for row in table for name in re.findall(r"`(\w+)`", row[1])} == known


def test_every_room_is_in_the_tree_in_the_order_of_the_rule():
    """A folder that README does not name was forgotten, or should not be there."""
    text = TEXTS["."]
    start = text.index("```\napp.py")
    tree = text[start : text.index("```", start + 3)]
    core = tree[tree.index("\ncore/") : tree.index("\nprecompute/")]
    named = re.findall(r"^  (\w+)(?:/|\.py \.\.\.) ", core, re.MULTILINE)
    assert ["" if name == "config" else name for name in named] == list(ROOMS)
    floors = tree[tree.index("\nprecompute/") : tree.index("\ntests/")]
    folders = {path.parent.name for path in (ROOT / "precompute").glob("*/__init__.py")}
    assert set(re.findall(r"(\w+)/", floors)) - {"precompute"} == folders
    rule = ", ".join(name or "the shared words" for name in ROOMS)
    assert f"    {rule}\n" in TEXTS["core"]


def test_the_paper_s_equations_point_at_code():
    """Every dotted name in the table of equations can be imported."""
    rows = rows_after("core", "| paper | code |")
    names = re.findall(r"`((?:core|precompute)\.[\w.]+)`", str(rows))
    assert len(names) > 15
    for name in names:
        module, _, rest = name.partition(".")
        found = import_module(module)
        for part in rest.split("."):
            if not hasattr(found, part):
                found = import_module(f"{found.__name__}.{part}")
            else:
                found = getattr(found, part)


def test_presets_and_settings_are_those_of_the_program():
    rows = rows_after("precompute", "| preset | model | for |")
    assert [row[0].strip("`") for row in rows] == list(RECIPES)
    names = re.findall(r"`([\w.]+)=?\w*`", str(rows_after("precompute", "| setting |")))
    assert len(names) > 5 and "seed" in names
    for name in names:
        settings = collection_config("glyphs", "cpu")
        for part in name.split("."):
            assert hasattr(settings, part), name
            settings = getattr(settings, part)


def anchors(text: str) -> set[str]:
    """Return what a host calls the headings of a text."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("name", READMES)
def test_links_lead_somewhere(name):
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", TEXTS[name])
    links = [one or other for one, other in links]
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        target = (READMES[name].parent / path).resolve()
        assert target.is_file() and target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target.read_text()), link


@pytest.mark.parametrize("name", READMES)
def test_files_that_are_named_are_there(name):
    """Paths from the top folder; `data` also holds what only some machines have."""
    paths = re.findall(r"`((?:core|pages|precompute|tests)/[\w./]+)`", TEXTS[name])
    words = re.findall(r"PYTEST_ARGS='(tests/[^']+)'", TEXTS[name])
    assert [path for path in paths + words if not (ROOT / path).exists()] == []


SHUNNED = r"foretold|as many random|likeness|pictures?|else|is no|leave away|put away"


@pytest.mark.parametrize("name", READMES)
def test_readmes_speak_plainly(name):
    """One term for one thing; code, addresses and file names may have others."""
    text = re.sub(r"^```.*?^```|^    .*?$", "", TEXTS[name], flags=re.S | re.M)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    found = re.findall(rf".*\b(?:{SHUNNED})\b.*", text, re.IGNORECASE)
    assert found == []


# --- figures that lie in files


def rows_after(name: str, header: str) -> list[list[str]]:
    """Return the cells of the table with a header, a list for each row."""
    text = TEXTS[name]
    lines = text[text.index(header) :].splitlines()[2:]
    table = lines[: next(i for i, line in enumerate(lines) if line[:1] != "|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def result(name: str) -> dict:
    """Return what a benchmark found."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def signed(mean: float, error: float) -> str:
    """Return a change with its error, in whole units."""
    return f"{mean:+,.0f} ± {error:,.0f}".replace("-", "−")


@pytest.mark.parametrize("name", ["README.md", "tests/README.md"])
def test_tables_of_evidence_are_those_of_the_files(name):
    """As `python -m tests.helpers.readme_tables` writes them."""
    text = (ROOT / name).read_text()
    found = [table for (where, _), table in made().items() if where == name]
    assert found and all(f"\n{table}\n\n" in text for table in found)


def test_removals_are_what_was_measured():
    table = make_table(shipped_evidence("fashion2"), "removal", "loss")
    means = table[table["sample_id"] == -1].set_index(["fraction", "method"])
    for title, *cells in rows_after(
        "tests", "| removed | EK-FAC | TRAK | small CLIP |"
    ):
        share = {"a tenth": 0.1, "a fiftieth": 0.02}[title]
        found = [means.loc[share, method] for method in ("ekfac", "trak", "clip")]
        expected = [figures(one["excess"], one["standard_error"]) for one in found]
        assert [cell.replace("−0.00", "0.00") for cell in expected] == cells


def test_groups_are_what_was_measured():
    """The mean over samples; of three other houses a sample has one figure."""
    evidence = shipped_evidence("glyphs")
    expected = {"the image's own house": [], "another house": []}
    for measurement in ("loss", "elbo"):
        table = group_table(evidence, measurement).query("method == 'ekfac'")
        own = table["share"] > 0.5
        for title, rows in zip(expected, (table[own], table[~own]), strict=True):
            by_sample = rows.groupby("sample_id")[["measured", "predicted"]].mean()
            expected[title] += [
                signed(*mean_and_error(by_sample[column].to_numpy()))
                for column in by_sample
            ]
    header = "| removed | loss, measured | predicted by EK-FAC | ELBO"
    assert dict((row[0], row[1:]) for row in rows_after("tests", header)) == expected


def test_scores_over_a_lora_are_what_was_measured():
    found = result("lora")
    rows = rows_after("tests", "| what is asked about | EK-FAC over the LoRA")
    for row, kind in zip(rows, ("held in", "held out", "samples"), strict=True):
        by = [found[f"lds {name}"][kind] for name in ("EK-FAC", "pixels")]
        # The file has three digits, so a half may have been rounded either way.
        for cell, (mean, error) in zip(row[1:], by, strict=True):
            said, its_error = map(float, cell.split(" ± "))
            assert said == pytest.approx(mean, abs=0.0051)
            assert its_error == pytest.approx(error, abs=0.0051)
    assert found["own_ranks_among_all"] == [1] * 12
    assert f"{found['auc_of_held_in_for_samples']:.2f}" == "0.46"


def test_counts_of_stable_diffusion_are_what_was_counted():
    found, once = result("stable_diffusion"), result("stable_diffusion_pass")
    text = str(rows_after("tests", "| | |"))
    passes = found["passes"]
    for figure in (
        f"{found['unet_parameters']:,} weights; {found['lora_parameters']:,}",
        f"in {found['layers']} layers",
        f"{found['teraflop_forward_and_backward'] + 1e-9:.2f} TFLOP",
        f"keeps {once['gigabytes_kept']:.1f} GB",
        f"{round(sum(passes.values()), -3):,}: gradients "
        f"{round(passes['gradients'], -3):,}, check of the index "
        f"{round(passes['checks'], -3):,}, gallery {round(passes['samples'], -3):,}, "
        f"curvature {passes['curvature']:,}",
        f"sustains {found['assumed_teraflop_per_second']:.0f} TFLOP/s",
        f"{found['hours_in_all']} hours",
        f"{max(found['memory_gb'].values())} GB of 24",
        f"{found['index_megabytes_per_picture']:.1f} MB of index an image, "
        f"{sum(found['disk_gb'].values()):.1f} GB in all",
    ):
        assert figure in text, figure


def test_speed_of_the_index_is_what_was_measured():
    rows = rows_after("precompute", "| | one query | with its five folds")
    for row, found in zip(rows, result("scale")["bits"].values(), strict=True):
        seconds = ("one_query", "five_queries", "copying")
        expected = [f"{found[f'seconds_{name}']:.2f} s" for name in seconds]
        assert row[0].startswith(f"{found['numbers']:,} numbers")
        assert row[1:] == [*expected, f"{int(found['private_megabytes'])} MB"]
    bits = result("queries")["bits"]
    for row in rows_after("tests", "| bits | one query | five | 32 |"):
        found = bits[row[0]]["queries"]
        speeds = [found[n]["billion_products_per_second"] for n in ("1", "5", "32")]
        assert row[1:] == [*map(str, speeds), f"{found['1']['of_copy']:.2f}"]


def test_sizes_by_the_exact_curvature_are_what_was_measured():
    found = {
        (f"{row['steps']:,}", row["curvature"], row["removed"]): row
        for row in result("sizes")["rows"]
        if row["damping"] == 0.001
    }
    rows = rows_after("tests", "| steps | curvature | 2% removed |")
    assert len(rows) == 8
    for steps, curvature, *cells in rows:
        for removed, cell in zip((0.02, 0.1, 0.5), cells, strict=True):
            one = found[steps, curvature, removed]
            size = f"{one['slope']:.2f} ± {one['slope_error']:.2f}"
            assert cell == f"{size}; {one['lds']:.2f}"


def test_errors_are_what_was_measured():
    found = result("errors-fashion2")
    kinds = [*found["kinds"].values(), *result("errors-glyphs")["kinds"].values()]
    rows = rows_after("tests", "| scores | the ten images shown")
    assert len(rows) == len(kinds)
    for row, parts in zip(rows, kinds, strict=True):
        cells = [parts[name] for name in ("top", "all")]
        assert row[1:] == [f"{x['coverage']:.0%}; {x['ratio']:.2f}" for x in cells]
    (row,) = rows_after("tests", "| bytes | 2,048 (shipped)")
    agreement = found["agreement"]
    orders = [agreement["sketch"], *found["sizes"].values(), agreement["exact"]]
    assert row[1:] == [f"{value:.2f}" for value in orders]
    asked = {
        (name, row["form"]): row["clock"]
        for name in ("fashion2", "glyphs")
        for row in result(f"question-{name}")["rows"]
        if row["draws"] == Lens().num_draws
    }
    text = " ".join(TEXTS["tests"].split())
    assert f"takes {asked['fashion2', 'full']:.1f} seconds of one core" in text
    assert f"as long; {asked['glyphs', 'sketch']:.1f} on Glyphs" in text
    assert round(asked["fashion2", "sketch"], 1) == round(asked["fashion2", "full"], 1)
