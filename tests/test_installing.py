"""What installs the app elsewhere: uv or pip, Docker, a Space, a dev container.

Neither Docker nor a Space is at hand here, so what can be read is read: files exist,
settings are known to Streamlit, the folder of a Space is whole.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import streamlit.config as streamlit_config
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / ".docker" / "Dockerfile").read_text()
END = (ROOT / ".space" / "Dockerfile.end").read_text()
LARGE = 10_000_000  # bytes; the Hub takes larger files by Git LFS alone
FAKE = """#!/bin/sh
echo "$0 $@" >> "{log}"
for last; do true; done
case "$1 $2" in
"venv"*|"-m venv") mkdir -p "$last/bin" && cp "$0" "$last/bin/python";;
esac
"""


def instructions(text: str) -> list[tuple[str, str]]:
    """Return a Dockerfile's instructions with their arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def test_every_instruction_is_one_of_docker_s():
    known = {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "USER", "ENV", "EXPOSE", "CMD"}
    known |= {"HEALTHCHECK"}
    found = instructions(DOCKERFILE + END)
    assert found[0][0] == "FROM" and {name for name, _ in found} <= known
    for name, words in found:
        if name == "COPY":
            sources = [w for w in words.split() if not w.startswith("--")][:-1]
            assert all((ROOT / source).exists() for source in sources)
        if name == "CMD":
            command = json.loads(words)
            assert command[:2] == ["streamlit", "run"] and (ROOT / command[2]).is_file()
    users = [words for name, words in found if name == "USER"]
    assert users == ["user"] and "--uid 1000" in DOCKERFILE


def test_settings_are_those_that_streamlit_knows():
    """Every STREAMLIT_ variable is an option, under the name Streamlit looks for."""
    options = {
        option.env_var for option in streamlit_config.get_config_options().values()
    }
    named = set(re.findall(r"STREAMLIT_\w+(?==)", DOCKERFILE + END))
    assert len(named) >= 5 and named <= options
    served = (ROOT / "pages" / "parts" / "served.py").read_text()
    for variable in set(re.findall(r"AFTERIMAGE_\w+", DOCKERFILE + END)):
        assert f'"{variable}"' in served


def test_the_image_has_what_the_app_imports_and_no_test_tool(tmp_path):
    """The shell of its RUN, on our list; torch by itself, from its own index."""
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    (run,) = [words for name, words in instructions(DOCKERFILE) if "app.txt" in words]
    cut, torch = [part for part in run.split("&&") if "pip" not in part]
    for part in (cut, torch):
        subprocess.run(part, shell=True, cwd=tmp_path, check=True)
    app = (tmp_path / "app.txt").read_text()
    assert "streamlit==" in app and "duckdb==" in app and "psutil==" in app
    assert "pytest" not in app and "playwright" not in app and "ruff" not in app
    names = re.findall(r"^(\w+)==", (tmp_path / "torch.txt").read_text(), re.M)
    assert names == ["torch", "torchvision"]


@pytest.mark.parametrize("with_uv", [True, False], ids=["uv", "pip"])
def test_make_installs_with_uv_where_it_is(tmp_path, with_uv):
    """Once; the second call runs nothing. Programs are stand-ins that keep a log."""
    log, tools = tmp_path / "log", tmp_path / "tools"
    tools.mkdir()
    for name in ("uv", "python3") if with_uv else ("python3",):
        (tools / name).write_text(FAKE.format(log=log))
        (tools / name).chmod(0o755)
    for name in ("make", "sh", "cmp", "cp", "mkdir", "echo", "env"):
        os.symlink(shutil.which(name), tools / name)
    command = ["make", "install", f"VENV={tmp_path / 'venv'}"]
    for _ in range(2):
        done = subprocess.run(
            command, cwd=ROOT, env={"PATH": str(tools)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    calls = log.read_text().splitlines()
    assert len(calls) == 2 and all("-r requirements.txt" in c for c in calls[1:])
    assert all(("/uv " in call) == with_uv for call in calls)
    installed = (tmp_path / "venv" / "installed.txt").read_bytes()
    assert installed == (ROOT / "requirements.txt").read_bytes()


def test_the_folder_of_a_space_is_whole(tmp_path):
    """What git tracks and the app needs; large files by LFS; the app's own port."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git: make space copies what git tracks")
    folder = tmp_path / "space"
    command = ["make", "space", "SPACE=user/name", f"SPACE_FOLDER={folder}"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "https://huggingface.co/spaces/user/name" in said.stdout
    facts = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    made = (folder / "Dockerfile").read_text()
    assert facts["sdk"] == "docker" and f"EXPOSE {facts['app_port']}\n" in made
    assert len(facts["short_description"]) <= 60 and made == DOCKERFILE + END
    for name in ("visit.py", "core/config.py", ".streamlit/config.toml"):
        assert (folder / name).is_file()
    assert list((folder / "data" / "collections").glob("*.current"))
    assert not (folder / "tests").exists() and not (folder / "data" / "work").exists()
    by_lfs = re.findall(
        r"^\*(\.\w+) filter=lfs", (folder / ".gitattributes").read_text(), re.M
    )
    large = [p for p in folder.rglob("*") if p.is_file() and p.stat().st_size > LARGE]
    assert large and all(path.suffix in by_lfs for path in large)
    without = subprocess.run(
        ["make", "space"], cwd=ROOT, capture_output=True, text=True
    )
    assert without.returncode and "Name the Space" in without.stdout


def test_the_dev_container_s_commands_are_ours():
    made = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert made["forwardPorts"] == [8501]
    words = shlex.split(made["postCreateCommand"])
    assert words[-2:] == ["make", "install"] and "chromium" in words
    assert re.search(r"^install:", (ROOT / "Makefile").read_text(), re.M)
