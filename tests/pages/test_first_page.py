"""The first page of a new server is light: none of what takes seconds is loaded."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.helpers.server import ROOT

HEAVY = ("torch", "numba", "diffusers", "open_clip", "scipy.optimize", "scipy.stats")
PAGES = sorted((ROOT / "pages").glob("*.py"))

# Draws the first page as a visitor gets it; the model is not loaded beside it.
FIRST_PAGE = """
import json, sys
from streamlit.testing.v1 import AppTest
import streamlit.runtime.scriptrunner.script_runner as runner
from core.explorer.explorer import Explorer
import os

def run(path):
    code = compile(open(path).read(), path, "exec")
    exec(code, {"__name__": "__main__", "__file__": path})

runner._mpa_v1 = run
Explorer.wake = lambda self: None
Explorer.device_name = "CPU"  # a card is named by torch
app = AppTest.from_file(os.path.abspath("visit.py"), default_timeout=120).run()
shown = [tile for key in ("lens_0", "lens_1") for tile in [app.session_state[key]]]
print(json.dumps([len(shown), [e.value for e in app.exception], sorted(sys.modules)]))
"""

# Draws every page in turn; what needs the model waits for it for ever.
EVERY_PAGE = """
import json, os, sys, threading
from streamlit.testing.v1 import AppTest
from core.explorer.explorer import Explorer
from pages.parts.shared import PAGES

Explorer.wake = lambda self: None
Explorer._wait_for_model = lambda self, progress: threading.Event().wait()
Explorer.device_name = "CPU"
app, errors = AppTest.from_file(os.path.abspath("visit.py"), default_timeout=120), []
for page in PAGES:
    app.switch_page(f"pages/{page}.py").run()
    errors += [f"{page}: {error.value}" for error in app.exception]
print(json.dumps([errors, sorted(sys.modules)]))
"""


def loaded(*command: str, **environment: str) -> list:
    """Return what a fresh Python printed as JSON in its last line."""
    done = subprocess.run(
        [sys.executable, "-c", *command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def imported_by(file: Path) -> set[str]:
    """Return the modules of this project that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found |= {
            name
            for name in names
            if (ROOT / name.replace(".", "/")).with_suffix(".py").exists()
        }
    return found


def test_no_page_imports_what_takes_seconds_to_load():
    """Not even through what its imports import, in a process of its own."""
    modules = sorted(set().union(*map(imported_by, PAGES)))
    assert "core.explorer.groups" in modules and "pages.parts.lens_views" in modules
    code = "import json, sys\n" + "".join(f"import {name}\n" for name in modules)
    names = loaded(code + "print(json.dumps(sorted(sys.modules)))")
    assert "core.explorer.explorer" in names
    assert not [name for name in HEAVY if name in names]


def test_the_first_page_is_drawn_without_what_takes_seconds_to_load(tiny_collection):
    """Stored answers and all; the model is loaded behind it."""
    count, errors, names = loaded(
        FIRST_PAGE, AFTERIMAGE_COLLECTIONS=str(tiny_collection)
    )
    assert count == 2 and errors == []
    assert not [name for name in HEAVY if name in names]


def test_no_page_waits_in_its_own_thread_for_what_the_model_needs(tiny_collection):
    """A page that imports torch is held up by the thread that is loading it."""
    errors, names = loaded(EVERY_PAGE, AFTERIMAGE_COLLECTIONS=str(tiny_collection))
    assert errors == [] and "pages.parts.group_views" in names
    assert not {"torch", "numba", "diffusers", "open_clip"} & set(names)


# What a server does at its start, and how long the first collection takes after it.
PREPARED = """
import json, sys
from pages.parts import shared, warm_up
warm_up._prepare_pages()
opened = list(shared._opened_early.values())
again = shared.open_collection(opened[0].name)
known = "first_image" in vars(again)
print(json.dumps([len(opened), again is opened[0], known, sorted(sys.modules)]))
"""


def test_a_server_opens_the_first_collection_before_anybody_asks(tiny_collection):
    """Once, for whoever comes first; without the model."""
    count, same, known, names = loaded(
        PREPARED, AFTERIMAGE_COLLECTIONS=str(tiny_collection)
    )
    assert (count, same, known) == (1, True, True)
    assert not [name for name in HEAVY if name in names]
    explore = imported_by(ROOT / "pages" / "explore.py")
    assert {name for name in explore if name.startswith("pages.")} <= set(names)


def test_a_server_without_a_collection_begins_all_the_same(tmp_path):
    code = "import json\nfrom pages.parts import shared, warm_up\n"
    code += "warm_up._prepare_pages()\nprint(json.dumps([len(shared._opened_early)]))"
    assert loaded(code, AFTERIMAGE_COLLECTIONS=str(tmp_path)) == [0]


def test_no_list_of_source_files_is_shown():
    """Until the app has run once, Streamlit would list the files of pages/."""
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert settings["client"]["showSidebarNavigation"] is False
