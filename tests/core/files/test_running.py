"""What is being made is said to those who look on, and to nobody any longer."""

import json
import os
import subprocess
import sys
import time
from argparse import Namespace

import pytest

from core.files.running import SUFFIX, announced, running, seconds_left
from precompute import __main__ as command
from precompute.machinery import progress
from precompute.machinery.progress import Bar, telling
from tests.helpers.server import ROOT
from tests.pages.test_app import app_runs_first, open_app  # noqa: F401

DIES = """
import os, sys
from pathlib import Path
from core.files.running import announced
with announced(Path(sys.argv[1]), "dead", "build"):
    os._exit(9)
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Write at every word."""
    monkeypatch.setattr("core.files.running.EVERY", 0.0)


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_command_is_seen_from_its_begin_to_its_end(tmp_path):
    with announced(tmp_path, "mine", "build") as announcement:
        (one,) = running(tmp_path)
        assert (one.collection, one.verb, one.stage) == ("mine", "build", "")
        assert one.process == os.getpid() and one.fraction == 0
        announcement.say("gradients", 30, 120, 8.5)
        (one,) = running(tmp_path)
        assert (one.stage, one.done, one.total) == ("gradients", 30, 120)
        assert one.fraction == 0.25 and one.seconds_left == 8.5
    assert running(tmp_path) == [] and files(tmp_path) == []


def test_an_error_ends_it_too(tmp_path):
    with pytest.raises(ValueError), announced(tmp_path, "mine", "build"):
        raise ValueError
    assert files(tmp_path) == []


def test_a_killed_command_counts_no_more_and_leaves_nothing_for_long(tmp_path):
    done = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], cwd=ROOT)
    assert done.returncode == 9
    assert len(files(tmp_path)) == 1 and running(tmp_path) == []
    with announced(tmp_path, "mine", "build"):
        assert [one.collection for one in running(tmp_path)] == ["mine"]
        assert len(files(tmp_path)) == 1


def test_the_number_of_a_dead_command_says_nothing_once_another_has_it(tmp_path):
    """This very process is not the one that, an hour ago, had its number."""
    with announced(tmp_path, "mine", "build"):
        (path,) = tmp_path.iterdir()
        values = json.loads(path.read_text())
        dead = tmp_path / f".dead.{os.getpid()}{SUFFIX}"
        dead.write_text(json.dumps(values | {"born": values["born"] - 3600}))
        assert [one.collection for one in running(tmp_path)] == ["mine"]
    with announced(tmp_path, "mine", "build"):
        assert not dead.exists()


def test_a_killed_command_that_nobody_waits_for_counts_no_more(tmp_path):
    """It stays in the table of processes, under its number and start."""
    with subprocess.Popen(
        [sys.executable, "-c", DIES, str(tmp_path)], cwd=ROOT
    ) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert len(files(tmp_path)) == 1 and running(tmp_path) == []


def test_one_of_another_machine_counts_until_it_is_silent(tmp_path):
    with announced(tmp_path, "mine", "build"):
        (path,) = tmp_path.iterdir()
        values = json.loads(path.read_text()) | {"machine": "other", "process": 1}
        other = tmp_path / f".other.1{SUFFIX}"
        other.write_text(json.dumps(values))
        assert len(running(tmp_path)) == 2
        long_ago = time.time() - 3600
        os.utime(other, (long_ago, long_ago))
        assert len(running(tmp_path)) == 1


@pytest.mark.parametrize("harm", ["", "{", "[]", '{"done": 1}', None])
def test_damaged_files_say_nothing(tmp_path, harm):
    with announced(tmp_path, "mine", "build"):
        (path,) = tmp_path.iterdir()
        values = json.loads(path.read_text())
        text = json.dumps(values | {"done": "7"}) if harm is None else harm
        (tmp_path / f".bad.1{SUFFIX}").write_text(text)
        assert [one.collection for one in running(tmp_path)] == ["mine"]


def test_where_nothing_can_be_written_the_work_goes_on(tmp_path):
    with announced(tmp_path / "nowhere", "mine", "build") as announcement:
        announcement.say("gradients", 1, 2, None)
    assert files(tmp_path) == []


def test_the_rest_takes_what_the_pace_so_far_says():
    """A quarter in 20 s leaves 60 s, in whatever steps it is counted."""
    for steps in (4, 400):
        assert seconds_left(steps / 4, steps, 20) == pytest.approx(60)
    assert seconds_left(8, 8, 20) == 0
    assert seconds_left(0, 8, 20) is None and seconds_left(3, 0, 20) is None


def test_bars_say_what_they_show(tmp_path):
    with telling(tmp_path, "mine", "build"):
        seen = []
        for _ in Bar(range(3, 8), "gradients", 8, initial=3, mininterval=0):
            time.sleep(0.01)
            seen += running(tmp_path)
    assert {one.stage for one in seen} == {"gradients"}
    assert [one.done for one in seen] == [3, 4, 5, 6, 7]
    assert {one.total for one in seen} == {8}
    assert all(0 < one.seconds_left < 60 for one in seen[1:])
    assert progress._announcements == [] and files(tmp_path) == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["build"], ["build"]),
        (["methods"], ["methods"]),
        (["evidence", "--table", "lds"], []),
        (["plan"], []),
    ],
)
def test_commands_that_make_something_are_looked_on(tmp_path, monkeypatch, more, told):
    seen = []

    def run(options: Namespace) -> None:
        seen.extend(running(tmp_path))

    monkeypatch.setattr(command, "run", run)
    arguments = [*more, "--collection", "glyphs", "--root", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["precompute", *arguments])
    assert command.main() == 0
    assert [one.verb for one in seen] == told and files(tmp_path) == []


def test_the_collections_page_shows_what_is_being_made(tmp_path, monkeypatch):
    """Also in a folder where there is no collection yet, and only while it runs."""
    with announced(tmp_path, "my_own", "build") as announcement:
        announcement.say("gradients", 1200, 5000, 125.0)
        app = open_app(tmp_path, monkeypatch, "pages/collections.py")
        (bar,) = app.get("progress")
        said = bar.proto.text.replace("\\", "")
        assert "my_own" in said and "gradients · 1,200 of 5,000" in said
        assert "about 2 min left" in said and bar.proto.value == 24
    app.run()
    assert not app.exception and len(app.get("progress")) == 0
