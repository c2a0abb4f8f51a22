"""Imports point one way, between the top folders and between the rooms of core."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Folder or file -> the packages it must not import, at any depth of the syntax tree.
FORBIDDEN = {
    "core": {"streamlit", "pages", "precompute", "app", "visit"},
    "precompute": {"streamlit", "pages", "app", "visit"},
    "pages": {
        "torch",
        "numba",
        "duckdb",
        "diffusers",
        "open_clip",
        "precompute",
        "app",
    },
    "app.py": {"torch", "numba", "duckdb", "diffusers", "open_clip", "precompute"},
    "visit.py": {"torch", "numba", "duckdb", "diffusers", "open_clip", "precompute"},
}


def imported_packages(file: Path) -> set[str]:
    """Return the top-level packages that a source file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_what_the_server_runs_is_there():
    """`app.py` names the file that every visit runs,."""
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / "app.py").read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "App"
    ]
    (script,) = [call.args[0].value for call in calls]
    assert script == "visit.py" and (ROOT / script).is_file()


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_layer_does_not_import_what_it_must_not_know(layer):
    place = ROOT / layer
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert files, f"'{layer}' holds no Python file"
    wrong = {
        str(file.relative_to(ROOT)): sorted(imported_packages(file) & FORBIDDEN[layer])
        for file in files
    }
    assert {file: names for file, names in wrong.items() if names} == {}


# A room of core imports itself and rooms to its left; "" are the words that all share.
ROOMS = (
    "files",
    "",
    "data",
    "collection",
    "model",
    "measure",
    "curvature",
    "index",
    "evidence",
    "scores",
    "engine",
    "unrolled",
    "explorer",
    "report",
    "api",
)
FLOORS = (
    "machinery",
    "imports",
    "stages",
    "planning",
    "retraining",
    "verbs",
)  # of precompute, likewise


def room_of(module: str, top: str) -> str:
    """Return the folder inside the top one in which a module lies, "" for none."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (ROOT / top / parts[1]).is_dir() else ""


def imported_modules(file: Path) -> set[str]:
    """Return the dotted names that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(("top", "order"), [("core", ROOMS), ("precompute", FLOORS)])
def test_a_room_imports_only_rooms_to_its_left(top, order):
    folders = {path.name for path in (ROOT / top).iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == set(order) - {""}
    wrong = []
    for file in sorted((ROOT / top).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        own = room_of(module, top)
        if own not in order:  # the program itself may call every verb
            continue
        for name in imported_modules(file):
            theirs = room_of(name, top) if name.startswith(f"{top}.") else own
            if theirs in order and order.index(theirs) > order.index(own):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_only_their_rooms_know_duckdb_and_numba():
    homes = {"duckdb": "collection", "numba": "index"}
    for package, home in homes.items():
        users = {
            room_of(".".join(file.relative_to(ROOT).with_suffix("").parts), "core")
            for file in (ROOT / "core").rglob("*.py")
            if package in imported_packages(file)
        }
        assert users == {home}


def test_pages_holds_exactly_the_pages():
    from pages.parts.shared import PAGES

    files = {path.stem for path in (ROOT / "pages").glob("*.py")}
    assert files == set(PAGES)


def test_neither_modules_nor_their_folders_import_in_a_circle():
    """Every one can be read after those that it needs."""
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for file in product_files()
    }
    needed = {name: set() for name in modules}
    for name, file in modules.items():
        imported = imported_modules(file)  # a module, or something of one
        imported |= {other.rpartition(".")[0] for other in imported}
        needed[name] = (imported & set(modules)) - {name}
    assert "core.index.full" in needed["core.scores.stored"]
    folders: dict[str, set[str]] = {}
    for name, others in needed.items():
        folder = name.rpartition(".")[0]
        there = {other.rpartition(".")[0] for other in others} - {folder}
        folders.setdefault(folder, set()).update(there)
    for graph in (needed, folders):
        assert len(list(TopologicalSorter(graph).static_order())) == len(graph)
    tops = {folder.partition(".")[0] for folder in folders}
    assert len(tops | {one for one in folders if one[:5] == "core."}) <= MOST_ROOMS


PRODUCT = ("app.py", "visit.py", "core/**/*.py", "pages/**/*.py", "precompute/**/*.py")
# The value that a call carries by itself; the last is Numba's, of compiled code.
GIVEN = {"self", "cls", "typingctx"}
MOST_LINES, MOST_ARGUMENTS, MOST_ROOMS = 400, 7, 22  # rooms with core opened


def product_files() -> list[Path]:
    """Return every Python file but tests."""
    return sorted(file for pattern in PRODUCT for file in ROOT.glob(pattern))


def test_files_and_signatures_are_short_enough_to_be_read_at_once():
    long = {}
    for file in product_files():
        source = file.read_text()
        if (lines := source.count("\n")) > MOST_LINES:
            long[file.name] = lines
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            given = node.args
            arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            names = {argument.arg for argument in arguments} - GIVEN
            if len(names) > MOST_ARGUMENTS:
                long[f"{file.name}: {node.name}"] = len(names)
    assert long == {}


LIGHT = ("files", "collection", "evidence", "report", "api", "")


def test_light_rooms_and_pages_load_no_torch_even_through_others():
    """In a fresh process; `data` alone turns pixels into tensors."""
    modules = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in sorted((ROOT / "core").rglob("*.py"))
        if file.name != "__init__.py"
    ]
    light = [name for name in modules if room_of(name, "core") in LIGHT]
    light += ["core.explorer.explorer"]
    light += [
        f"pages.parts.{path.stem}" for path in (ROOT / "pages" / "parts").glob("*.py")
    ]
    code = (
        f"import importlib, sys\nfor name in {light}: importlib.import_module(name)\n"
        "print([n for n in ('torch', 'numba', 'diffusers', 'open_clip') "
        "if n in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert said.stdout.strip().splitlines()[-1:] == ["[]"], said.stderr[-800:]
