"""What is being made in a folder of collections right now, for observers.

A command at work keeps a small hidden file there, `.NAME.PROCESS.running`, and removes
it at its end. A killed one leaves it behind. The file is ignored once its process is
gone or has been silent for long.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

SUFFIX = ".running"
EVERY = 1.0  # seconds between two writings
SILENCE = 600.0  # seconds after which a process of another machine counts as gone
SAME = 5.0  # seconds by which the clock may shift what counts as one start


@dataclass(frozen=True)
class Running:
    """A command at work.

    Attributes:
        collection: The name of what it makes.
        verb: Of the command, such as "build".
        stage: What it does at present, in a word; "" before its first step.
        done: Steps of this stage that are done.
        total: Steps of this stage; 0 while unknown.
        seconds_left: Of this stage; None while unknown.
        started: When the command began, seconds since 1970.
        process: Its number on its machine.
        born: When that process started, seconds since 1970; numbers are reused.
        machine: The name of that machine.
    """

    collection: str
    verb: str
    stage: str
    done: int
    total: int
    seconds_left: float | int | None
    started: float | int
    process: int
    born: float | int
    machine: str

    @property
    def fraction(self) -> float:
        """Share of the stage that is done, in [0, 1]."""
        return min(max(self.done / self.total, 0.0), 1.0) if self.total else 0.0


KINDS = {field.name: field.type for field in fields(Running)}


class Announcement:
    """The file of this process, rewritten now and then.

    Args:
        folder: Of the collections.
        collection: The name of what is made.
        verb: Of the command.
    """

    def __init__(self, folder: Path, collection: str, verb: str):
        process = psutil.Process()
        self._facts = Running(
            collection=collection,
            verb=verb,
            stage="",
            done=0,
            total=0,
            seconds_left=None,
            started=time.time(),
            process=process.pid,
            born=process.create_time(),
            machine=_machine(),
        )
        self._path = folder / f".{collection}.{os.getpid()}{SUFFIX}"
        self._next = 0.0

    def say(
        self, stage: str, done: int, total: int, seconds_left: float | None
    ) -> None:
        """Say how far the work is, at most every second.

        Where nothing can be written nothing happens: what is made matters more.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        values = asdict(self._facts) | {
            "stage": stage,
            "done": done,
            "total": total,
            "seconds_left": seconds_left,
        }
        part = self._path.with_name(self._path.name + ".part")
        with suppress(OSError):  # not `written_whole`: waiting for the disk takes long
            part.write_text(json.dumps(values))
            os.replace(part, self._path)

    def end(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def seconds_left(done: float, total: float, elapsed: float) -> float | None:
    """Return what the rest takes at the pace so far, in seconds; None before any."""
    return elapsed / done * (total - done) if done > 0 and total > 0 else None


@contextmanager
def announced(folder: Path, collection: str, verb: str) -> Iterator[Announcement]:
    """Say in a folder of collections that one is being made, for a `with` block.

    Files that killed processes left are removed.

    Yields:
        What says how far it is.
    """
    with suppress(OSError):
        for path in folder.glob(f".*{SUFFIX}*"):
            if _read(path) is None:
                path.unlink(missing_ok=True)
    announcement = Announcement(folder, collection, verb)
    announcement.say("", 0, 0, None)
    try:
        yield announcement
    finally:
        announcement.end()


def running(folder: Path) -> list[Running]:
    """Return the commands at work in a folder of collections, the oldest first."""
    found = map(_read, folder.glob(f".*{SUFFIX}"))
    return sorted(filter(None, found), key=lambda one: (one.started, one.process))


def _read(path: Path) -> Running | None:
    """Return what a file says, None where it is damaged or its process is gone."""
    try:
        values = json.loads(path.read_text())
        found = Running(**{name: values[name] for name in KINDS})
        silent = time.time() - path.stat().st_mtime > SILENCE
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not all(isinstance(values[name], kind) for name, kind in KINDS.items()):
        return None
    gone = (
        silent
        if found.machine != _machine()
        else not _is_alive(found.process, found.born)
    )
    return None if gone else found


def _machine() -> str:
    return socket.gethostname()


def _is_alive(number: int, born: float) -> bool:
    """Return whether the process of this machine that started then still runs."""
    try:
        process = psutil.Process(number)
        same = abs(process.create_time() - born) < SAME
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False
    except psutil.AccessDenied:
        return True
