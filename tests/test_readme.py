"""What README tells a person to type is what the program takes."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from precompute.__main__ import parser

ROOT = Path(__file__).resolve().parents[1]
# Indented lines that begin with a program; what follows "#" says what it does.
LINES = [
    line.split(" #")[0].strip()
    for line in (ROOT / "README.md").read_text().splitlines()
    if re.match(r"    (python|torchrun|make|streamlit) ?", line)
]
COMMANDS = sorted({line for line in LINES if "-m precompute" in line})
PAGE = (ROOT / "pages" / "collections.py").read_text()
ON_PAGES = sorted(set(re.findall(r"python (-m precompute [^\"\\{]+)", PAGE)))


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


def test_benchmarks_are_there():
    names = re.findall(
        r"python -m tests\.benchmarks (\w+)", (ROOT / "README.md").read_text()
    )
    known = (ROOT / "tests" / "benchmarks" / "__main__.py").read_text()
    assert names and all(name == "NAME" or f'"{name}"' in known for name in names)


def test_every_room_is_in_the_file_tree():
    """A folder that README does not name was forgotten, or should not be there."""
    text = (ROOT / "README.md").read_text()
    start = text.index("```\napp.py")
    tree = text[start : text.index("```", start + 3)]
    rooms = [
        path.parent.name
        for top in ("core", "precompute")
        for path in sorted((ROOT / top).glob("*/__init__.py"))
    ]
    assert len(rooms) > 10
    assert [name for name in rooms if f"{name}/" not in tree] == []


def test_the_paper_s_equations_point_at_code():
    """Every dotted name in the table of equations can be imported."""
    text = (ROOT / "README.md").read_text()
    table = text[text.index("| paper | code |") : text.index("Where the code leaves")]
    for name in re.findall(r"`((?:core|precompute)\.[\w.]+)`", table):
        module, _, rest = name.partition(".")
        found = import_module(module)
        for part in rest.split("."):
            if not hasattr(found, part):
                found = import_module(f"{found.__name__}.{part}")
            else:
                found = getattr(found, part)
