"""Which commands on one collection wait for no other: at most one of a kind at a time.

Two that write the same files are refused at their start, not after an hour. Processes
of one torchrun are one command: the first of them asks for all.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from core.collection.schema import NAME_PATTERN
from core.config import DATA_DIR
from core.files.locks import alone

# Verb -> the locks it holds, in its folder of work and in that of the collections.
IN_WORK = {
    "train": "making",
    "curvature": "making",
    "samples": "making",
    "gradients": "making",
    "fidelity": "making",
    "build": "making",
    "retrain": "retrain",
    "evidence": "evidence",
    "unroll": "unrolled",
    "smoothness": "unrolled",  # both keep the states of the same training
}
IN_ROOT = {
    "gradients": "making",
    "build": "making",
    "methods": "methods",
    "answers": "answers",
    "errors": "errors",
    "evidence": "evidence",
}


@contextmanager
def taken_turn(
    verb: str,
    collection: str | None,
    root: Path,
    work: Path | None,
    part: str | None = None,
) -> Iterator[None]:
    """Hold the locks of a command for a `with` block.

    Args:
        verb: Of the command.
        collection: That it makes something for; None for none.
        root: Folder of the published collections.
        work: Folder of unfinished work; None for `data/work`.
        part: Of the work that is this command's, such as "0/2"; other parts may be done
            at the same time.

    Yields:
        Nothing.

    Another command that holds one of them raises the ValueError of `alone`.
    """
    named = collection is not None and NAME_PATTERN.fullmatch(collection)
    if not named or int(os.environ.get("RANK", 0)) != 0:
        yield
        return
    share = "" if part is None else "-" + part.replace("/", "-of-")
    busy = (
        f"Another command is at work on '{collection}' (`{verb}` would write the same "
        "files). Wait for it, or stop it first; the page Collections shows how far "
        "it is."
    )
    with ExitStack() as stack:
        if verb in IN_WORK:
            folder = (work or DATA_DIR / "work") / collection
            path = folder / f".{IN_WORK[verb]}{share}.lock"
            stack.enter_context(alone(path, busy))
        if verb in IN_ROOT:
            path = root / f".{collection}.{IN_ROOT[verb]}{share}.lock"
            stack.enter_context(alone(path, busy))
        yield
