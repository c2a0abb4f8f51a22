"""Help, mistakes and printed tables take no time: nothing heavy is loaded for them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from precompute.__main__ import VERBS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numba", "diffusers", "open_clip", "scipy.stats", "core.data.sources")
# The promise is 1.5 s and 250 MB. With torch it would be 9 s and 1.1 GB.
SECONDS, MEGABYTES = 3.0, 350
# The memory is that of the program alone: what the system adds up of a process counts
# the one that started it, too.
PROGRAM = f"""
import atexit, json, runpy, sys, time

def tell():
    loaded = [name for name in {HEAVY} if name in sys.modules]
    lines = open("/proc/self/status").read().splitlines()
    peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    print(json.dumps([loaded, time.process_time(), int(peak) / 1024]), file=sys.stderr)

atexit.register(tell)
runpy.run_module("precompute", run_name="__main__")
"""
SHIPPED = "--collection fashion2"  # with evidence


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="not Linux")
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--help", 0),
        ("build --help", 0),
        ("evdence", 2),
        ("evidence --table", 2),
        ("build --collection glyphs --preset huge", 1),
        (f"build {SHIPPED} --set train.colour=red", 1),
        (f"evidence {SHIPPED} --table lds", 0),
    ],
)
def test_what_computes_nothing_takes_no_time(words, status):
    """In a fresh process: CPU time, peak of memory, and what was loaded."""
    command = [sys.executable, "-c", PROGRAM, *words.split()]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    loaded, seconds, megabytes = json.loads(ended.stderr.splitlines()[-1])
    assert ended.returncode == status and loaded == []
    assert seconds < SECONDS and megabytes < MEGABYTES


def test_every_verb_is_a_file():
    """The other files there are what several verbs have in common."""
    files = {path.stem for path in (ROOT / "precompute" / "verbs").glob("*.py")}
    common = {"__init__", "options", "settings"}
    assert files - common == {name.replace("-", "_") for name in VERBS}
