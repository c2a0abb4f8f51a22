"""Kill -9 in every stage of making a collection, start again: the same bytes.

Rounds of the tiny preset, each in a folder of its own. A round runs the commands that
make a collection one after another. In each stage a command is killed a few times, at a
random moment up to half of the time that the stage takes undisturbed, and run again.
At the end every file must be what an undisturbed run made, but for the seconds it took.

The processes are forked from this one, so that a kill does not cost the time that
torch takes to load.
"""

import hashlib
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import NoReturn

import core.engine.engine  # noqa: F401 - loaded once, before the processes are forked
import precompute.__main__ as main
from core.collection.schema import CONTENT_QUERIES
from core.collection.store import Collection, find_collection
from precompute.machinery.config import MeasureConfig
from precompute.machinery.workspace import load_tensors
from precompute.retraining import evidence
from tests.benchmarks import machine

NAME = "glyphs"
COMMANDS = {  # command -> its stages in order: name -> the function that begins it
    "build --preset tiny": {
        "train": "precompute.stages.stages.trained_weights",
        "curvature": "precompute.stages.stages.fit_curvature",
        "samples": "precompute.stages.stages.make_samples",
        "gradients": "precompute.stages.stages.gradient_stage",
        "fidelity": "precompute.stages.stages.measure_fidelity",
        "clip": "precompute.stages.publish.embed_examples",
        "publish": "precompute.stages.publish.put_facts",
    },
    "methods --only trak,d-trak,datainf": {
        "methods": "precompute.stages.methods.compute_methods"
    },
    "answers": {"answers": "precompute.stages.answers.store_answers"},
    "retrain --preset tiny --subsets 2 --seeds 2": {
        "retrain": "precompute.retraining.train.retrain_jobs"
    },
    "evidence --preset tiny": {
        "evidence": "precompute.retraining.evidence.make_evidence"
    },
}
STAGES = {stage: verb for verb, stages in COMMANDS.items() for stage in stages}
ROUNDS, KILLS = 2, 3  # the latter in every stage of a round
SEED = 0


@dataclass(frozen=True)
class Measured(MeasureConfig):
    """Measurements for a collection of the tiny preset."""

    num_samples: int = 2
    num_draws: int = 8
    num_bands: int = 2
    num_pictures: int = 2
    probability_draws: int = 0


def run(
    collection: str, root: Path | None, rounds: int = ROUNDS, times: int = KILLS
) -> dict:
    """Return how often each stage was killed and how many results differ."""
    started, kills, differ = time.monotonic(), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        took = undisturbed(Path(folder) / "whole")
        expected = everything(Path(folder) / "whole")
        for number in range(rounds):
            place = Path(folder) / str(number)
            chance = random.Random(f"{SEED}/{number}")
            kills += killed_round(place, took, chance, times)
            found = everything(place)
            names = expected.keys() | found.keys()
            differ += [
                f"round {number}: {name}"
                for name in sorted(names)
                if expected.get(name) != found.get(name)
            ]
    return {
        "kills": kills.total(),
        "rounds": rounds,
        "by_stage": dict(kills),
        "files_compared": len(expected),
        "differ": differ,
        "seconds": round(time.monotonic() - started),
        "seconds_undisturbed": {stage: round(t, 1) for stage, t in took.items()},
        "machine": machine.processor(),
    }


def undisturbed(root: Path) -> dict[str, float]:
    """Return the seconds that every stage takes, running all commands once."""
    took = {}
    for command, stages in COMMANDS.items():
        process, heard = start(command, root)
        begun = [(stage.strip(), time.monotonic()) for stage in heard]
        assert ended(process) == 0, (root / "log").read_text()
        assert [stage for stage, _ in begun] == list(stages)
        ends = [since for _, since in begun[1:]] + [time.monotonic()]
        for (stage, since), end in zip(begun, ends, strict=True):
            took[stage] = end - since
    return took


def killed_round(
    root: Path, took: dict[str, float], chance: random.Random, times: int
) -> Counter:
    """Return how often each stage was killed while a collection was made."""
    kills = Counter()
    for stage, command in STAGES.items():
        for _ in range(times):
            kills[
                kill_in(stage, command, root, chance.uniform(0, took[stage] / 2))
            ] += 1
        if stage == list(COMMANDS[command])[-1]:
            process, _ = start(command, root)
            assert ended(process) == 0, (root / "log").read_text()
    del kills[None]
    return kills


def kill_in(stage: str, command: str, root: Path, seconds: float) -> str | None:
    """Return the stage in which a command was killed, so long after `stage` began.

    None where it had done all before.
    """
    process, heard = start(command, root)
    for line in heard:
        if line.strip() == stage:
            break
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    status = ended(process)
    assert status in (0, -signal.SIGKILL), (root / "log").read_text()
    return None if status == 0 else ([stage] + heard.read().split())[-1]


def start(command: str, root: Path):
    """Return a process that runs a command, and a file of the stages it begins."""
    root.mkdir(exist_ok=True)
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        _be_a_command(command, root, writing)
    os.close(writing)
    return process, os.fdopen(reading)


def _be_a_command(command: str, root: Path, writing: int) -> NoReturn:
    """Do what a command does, in a process that was forked for it."""
    try:
        log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for stage, function in COMMANDS[command].items():
            say(stage, function, writing)
        for module in ("precompute.stages.curvature", "precompute.stages.features"):
            importlib.import_module(module).SAVE_EVERY = 0  # unfinished work, too
        evidence.MeasureConfig = Measured
        verb, *options = command.split()
        places = ["--root", str(root), "--work", str(root / "work")]
        sys.argv = ["precompute", verb, "--collection", NAME, *options, *places]
        os._exit(main.main())
    finally:
        traceback.print_exc()
        os._exit(70)


def say(stage: str, function: str, pipe: int) -> None:
    """Make a function say that its stage begins."""
    module, name = function.rsplit(".", 1)
    module = importlib.import_module(module)
    begin = getattr(module, name)

    @wraps(begin)
    def begin_aloud(*arguments, **more):
        os.write(pipe, f"{stage}\n".encode())
        return begin(*arguments, **more)

    setattr(module, name, begin_aloud)


def ended(process: int) -> int:
    """Return the exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


# --- what was made ------------------------------------------------------------------


def everything(root: Path) -> dict[str, str]:
    """Return the checksum of all that was published, without the seconds it took."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.is_dir() or name.parts[0] in ("work", "log"):
            continue
        if path.name.startswith(".") and path.suffix == ".lock":
            continue
        if path.suffix == ".duckdb" or path.suffix == ".current":
            continue  # named by its content, seconds included
        found[str(name)] = checksum(path)
    with Collection(find_collection(root, NAME)) as collection:
        collection.verify()
        for query in CONTENT_QUERIES:
            rows = collection._connection.execute(query).fetchall()
            found[query.split(" from ")[1].split()[0]] = digest(rows)
    found["collections"] = str(len(list(root.glob("*.duckdb"))))
    return found


def checksum(path: Path) -> str:
    """Return the sha256 of a file; of facts only those that equal runs share."""
    if path.suffix == ".safetensors" and "-method-" in path.name:
        tensors, facts = load_tensors(path)
        return digest(
            [(k, v.numpy().tobytes().hex()) for k, v in tensors.items()], facts
        )
    if path.name == "recipe.json":  # names the collection, seconds included
        return digest(json.loads(path.read_text()) | {"collection": ""})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(*values) -> str:
    """Return the sha256 of plain values, seconds left out."""
    return hashlib.sha256(repr(timeless(values)).encode()).hexdigest()


def timeless(value):
    """Return a value without the seconds that anything took."""
    if isinstance(value, dict):
        return {
            key: timeless(part)
            for key, part in sorted(value.items())
            if not key.startswith("seconds")
        }
    if isinstance(value, (list, tuple)):
        if value and value[0] == "costs":  # a row of the collection's facts
            return []
        return [timeless(part) for part in value]
    if isinstance(value, str) and value.startswith(("{", "[")):
        return timeless(json.loads(value))
    return value
