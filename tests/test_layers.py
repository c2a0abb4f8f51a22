"""Imports point one way: pages -> core; precompute -> core; core knows no Streamlit."""

import ast
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
