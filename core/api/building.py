"""Make a collection from Python: the commands of `precompute`, run one after another.

Each runs in a process of its own, as in a terminal: what it prints is shown, what it
has finished is kept if it is stopped, and its memory is free afterwards.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]  # of the program
TOLD = 4000  # bytes of output that are kept for an error's sentence


def build(
    name: str,
    data: str | Path | None = None,
    model: Any = None,
    lora: str | Path | None = None,
    preset: str | None = None,
    options: Iterable[str] = (),
    folder: str | Path | None = None,
) -> None:
    """Make a collection, or go on where the same call was stopped.

    What the commands refuse is a ValueError with their sentence.

    Args:
        name: Of the collection.
        data: Where the training images lie, in any layout that `--data` takes; None to
            go on with a collection whose settings are known.
        model: A diffusers pipeline, or the folder of one, that was trained on the
            images; None to train one.
        lora: File or folder of a LoRA on the model: its layers alone are attributed.
        preset: Of `build`, where a model is trained.
        options: More words for the command line, such as "--set", "seed=1": for
            `import-model` where there is a model, otherwise for `build`.
        folder: Where collections lie; None for the program's own.
    """
    images = [] if data is None else ["--data", _absolute(data)]
    options = list(map(str, options))
    rest = [] if preset is None else ["--preset", preset]
    if folder is not None:
        rest += ["--root", _absolute(folder)]
        rest += ["--work", str(Path(_absolute(folder)) / "work")]
    if model is None:
        _run("build", "--collection", name, *images, *rest, *options)
        return
    adapter = [] if lora is None else ["--lora", _absolute(lora)]
    with TemporaryDirectory() as saved:
        if hasattr(model, "save_pretrained"):
            model.save_pretrained(saved)
            model = saved
        where = [_absolute(model), "--collection", name]
        _run("import-model", *where, *images, *adapter, *options)
    _run("build", "--collection", name, *rest)


def _absolute(path: str | Path) -> str:
    """Return a path that means the same in the program's folder."""
    return str(Path(path).expanduser().absolute())


def _run(*words: str) -> None:
    """Run a verb and show what it prints.

    Raises:
        ValueError: If it fails, with the sentence that it ends with.
    """
    command = [sys.executable, "-m", "precompute", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    told = b""
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        while part := process.stdout.read1(TOLD):
            sys.stdout.write(part.decode(errors="replace"))
            told = (told + part)[-TOLD:]
    if process.returncode:
        lines = told.decode(errors="replace").replace("\r", "\n").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        raise ValueError(said[-1] if said else f"`{' '.join(command[1:])}` failed.")
