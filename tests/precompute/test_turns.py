"""Two commands that would write the same files: the second is refused at its start."""

import os
import subprocess
import sys

import pytest

from core.files.locks import alone
from precompute import __main__ as command
from precompute.machinery.turns import IN_ROOT, IN_WORK, taken_turn
from tests.helpers.server import ROOT
from tests.precompute.test_own import run

HOLDS = """
import sys, time
from pathlib import Path
from precompute.machinery.turns import taken_turn
root, work = map(Path, sys.argv[1:3])
with taken_turn(sys.argv[3], "mine", root, work):
    print("ready", flush=True)
    time.sleep(60)
"""


def holder(root, work, verb="build") -> subprocess.Popen:
    """Return a process that is in the middle of a command on 'mine'."""
    words = [sys.executable, "-c", HOLDS, str(root), str(work), verb]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_a_second_build_is_refused_until_the_first_is_killed(
    tmp_path, monkeypatch, capsys
):
    """At once, before its images are read; the lock dies with its process."""
    root, work = tmp_path / "root", tmp_path / "work"
    did = []
    monkeypatch.setattr(command, "run", lambda options: did.append(options.verb))
    words = ["build", "--collection", "mine", "--root", root, "--work", work]
    with holder(root, work) as process:
        assert run(monkeypatch, *words) == 1 and did == []
        said = capsys.readouterr().err
        assert said.startswith("Another command is at work on 'mine'")
        assert said.count("\n") == 1
        process.kill()
    assert run(monkeypatch, *words) == 0 and did == ["build"]


@pytest.mark.parametrize(
    ("first", "second", "meets"),
    [
        ("build", "train", True),
        ("fidelity", "build", True),
        ("methods", "methods", True),
        ("answers", "answers", True),
        ("retrain", "retrain", True),
        ("evidence", "evidence", True),
        ("methods", "answers", False),
        ("build", "retrain", False),
    ],
)
def test_commands_meet_where_they_write_the_same_files(tmp_path, first, second, meets):
    root, work = tmp_path / "root", tmp_path / "work"
    with holder(root, work, first) as process:
        try:
            if meets:
                with pytest.raises(ValueError, match="at work on 'mine'"):
                    with taken_turn(second, "mine", root, work):
                        pass
            else:
                with taken_turn(second, "mine", root, work):
                    pass
            with taken_turn(second, "yours", root, work):
                pass
        finally:
            process.kill()


def test_every_verb_that_makes_something_takes_a_turn():
    (verbs,) = [
        action.choices for action in command.parser()._actions if action.dest == "verb"
    ]
    making = set(verbs) - {*command.QUICK, "import-model", "clip"}
    assert making == IN_WORK.keys() | IN_ROOT.keys()


def test_parts_of_one_work_are_done_at_once(tmp_path):
    root, work = tmp_path / "root", tmp_path / "work"
    with taken_turn("retrain", "mine", root, work, "0/2"):
        with taken_turn("retrain", "mine", root, work, "1/2"):
            pass
        with (
            pytest.raises(ValueError),
            taken_turn("retrain", "mine", root, work, "0/2"),
        ):
            pass


def test_the_other_processes_of_torchrun_are_the_same_command(tmp_path, monkeypatch):
    root, work = tmp_path / "root", tmp_path / "work"
    with taken_turn("build", "mine", root, work):
        monkeypatch.setenv("RANK", "1")
        with taken_turn("build", "mine", root, work):
            pass


def test_folders_that_got_nothing_go_again(tmp_path):
    path = tmp_path / "a" / "b" / ".lock"
    with pytest.raises(KeyError), alone(path, "busy"):
        assert path.exists()
        raise KeyError
    assert os.listdir(tmp_path) == []
    with alone(path, "busy"):
        (tmp_path / "a" / "kept").touch()
    assert os.listdir(tmp_path) == ["a"] and os.listdir(tmp_path / "a") == ["kept"]
