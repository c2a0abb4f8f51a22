"""One worker in front of the model: jobs wait in line, show progress, can be stopped.

A web page must not compute for seconds in its own thread: any click would interrupt it,
and two visitors would compute at the same time. So work goes to a queue with one worker
thread. Equal keys mean equal results: whoever asks for a key that is waiting, running
or kept joins that job. Visitors take turns, so that one who asks much delays the others
by one job at most, and the jobs of those who went away stop. This file knows neither
pages nor models.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.answers import Cancelled
from core.files.running import seconds_left

WAITING, RUNNING, DONE, STOPPED, FAILED = (
    "waiting",
    "running",
    "done",
    "stopped",
    "failed",
)

Work = Callable[["Job"], Any]

LOOK_EVERY = 0.5  # seconds between two looks at who is still there
PATIENCE = 5.0  # seconds that someone may be away, as when a page is loaded again


@dataclass(frozen=True)
class Report:
    """How far a job is at one moment.

    Attributes:
        status: WAITING, RUNNING, DONE, STOPPED or FAILED.
        ahead: Jobs that must end before this one starts.
        people: Others who wait for those jobs.
        fraction: Share of the current step that is done, in [0, 1].
        doing: The current step in words.
        seconds_left: Estimate for the current step; None before there is a rate.
    """

    status: str
    ahead: int
    people: int
    fraction: float
    doing: str
    seconds_left: float | None


class Job:
    """One piece of work and those who wait for it; made by `JobQueue.ask`."""

    def __init__(self, key: str, work: Work):
        """Create a job that has not started."""
        self.key = key
        self.work = work
        self.owners: set[str] = set()
        self.turn = 0  # when it runs: the lowest turn first, then who came first
        self.status = WAITING
        self.result: Any = None
        self.early: Any = None  # what the work showed before its end
        self.error: Exception | None = None
        self.finished = threading.Event()
        self._stop = threading.Event()
        self._step = (0, 1, "")  # done, in all, what
        self._step_start = (0, 0.0)  # done and clock when the step was first seen

    def stop(self) -> None:
        """Make the next progress call raise `Cancelled`."""
        self._stop.set()

    def progress(self, done: int, total: int, doing: str) -> None:
        """Note how far the work is; the work calls this often.

        Raises:
            Cancelled: If the job was asked to stop.
        """
        if self._stop.is_set():
            raise Cancelled(f"'{doing}' was stopped at {done} of {total}.")
        if doing != self._step[2] or done < self._step[0]:
            self._step_start = (done, time.monotonic())
        self._step = (done, total, doing)

    __call__ = progress  # the work is given the job, as its progress function

    def show(self, early: Any) -> None:
        """Note a first result, to be looked at while the work goes on."""
        self.early = early

    def run(self) -> None:
        """Do the work and keep its result or its error."""
        self.status = RUNNING
        try:
            self.result = self.work(self)
            self.status = DONE
        except Cancelled:
            self.status = STOPPED
        except Exception as error:  # the worker must outlive any job
            if not isinstance(error, (ValueError, LookupError)):
                logging.getLogger(__name__).exception("Job %s failed", self.key)
            self.error, self.status = error, FAILED
        finally:
            self.early = None  # its time is over, and answers are large
            self.finished.set()

    def report(self, ahead: int = 0, people: int = 0) -> Report:
        """Return how far the job is, with an estimate of the time left."""
        done, total, doing = self._step
        first, since = self._step_start
        left = None
        if self.status == RUNNING:
            elapsed = time.monotonic() - since
            left = seconds_left(done - first, total - first, elapsed)
        fraction = min(max(done / total, 0.0), 1.0) if total > 0 else 0.0
        return Report(self.status, ahead, people, fraction, doing, left)


class JobQueue:
    """Runs one job at a time and keeps the latest results."""

    def __init__(
        self,
        max_kept: int = 32,
        is_there: Callable[[str], bool] = lambda owner: True,
    ):
        """Start with an empty line and no worker.

        Args:
            max_kept: Finished results to keep; the least recently asked goes first.
            is_there: Returns whether an owner can still take a result; called often,
                from a thread of the queue.
        """
        self._max_kept, self._is_there = max_kept, is_there
        self._line: list[Job] = []  # the one that runs, then in the order they came
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._turn = 0  # of the job that started last
        self._turns: dict[str, int] = {}  # of each owner's last job
        self._away: dict[str, float] = {}  # since when an owner was not seen
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def ask(self, key: str, owner: str, work: Work) -> Job:
        """Return the job for a key: a kept one, one in line, or a new one.

        Args:
            key: Names the result by values; equal keys, equal results.
            owner: Who wants it; the job goes on while anyone does.
            work: Called with a progress function, which may raise `Cancelled`.

        Returns:
            The job; its result is there once its status is DONE.
        """
        with self._changed:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            for job in self._line:
                if job.key == key and not job._stop.is_set():
                    if owner not in job.owners:
                        job.owners.add(owner)
                        job.turn = min(job.turn, self._next_turn(owner))
                    return job
            job = Job(key, work)
            job.owners.add(owner)
            job.turn = self._turns[owner] = self._next_turn(owner)
            self._line.append(job)
            if not self._threads:
                self._threads = [
                    threading.Thread(target=target, daemon=True)
                    for target in (self._serve, self._look)
                ]
                for thread in self._threads:
                    thread.start()
            self._changed.notify_all()
            return job

    def _next_turn(self, owner: str) -> int:
        """Return the turn of an owner's next job: one after that of the last."""
        return max(self._turn, self._turns.get(owner, 0) + 1)

    def leave(self, job: Job, owner: str) -> None:
        """Take an owner off a job, and stop the job when nobody wants it any more."""
        with self._changed:
            job.owners.discard(owner)
            if job.owners:
                return
            job.stop()
            if job.status == WAITING and job in self._line:
                self._line.remove(job)
                if self._turns.get(owner) == job.turn:
                    self._turns[owner] -= 1  # it was not used
                job.status = STOPPED
                job.finished.set()

    def report(self, job: Job, owner: str = "") -> Report:
        """Return how far a job is, and how many stand before it and its owner."""
        with self._changed:
            order = self._order()
            before = order[: order.index(job)] if job in order else []
            people = set().union(*(other.owners for other in before)) - {owner}
        return job.report(len(before), len(people))

    def _order(self) -> list[Job]:
        """Return the jobs in the order in which they run."""
        return sorted(self._line, key=lambda job: (job.status == WAITING, job.turn))

    def _serve(self) -> None:
        """Run the jobs in line, for ever."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._line)
                job = self._order()[0]
                # Under the lock, so that `leave` cannot take a job that is starting.
                job.status = RUNNING
                self._turn = max(self._turn, job.turn)
                self._turns = {
                    owner: turn
                    for owner, turn in self._turns.items()
                    if turn >= self._turn  # lower ones decide nothing any more
                }
            job.run()
            with self._changed:
                self._line.remove(job)
                if job.status == DONE:
                    self._kept[job.key] = job
                    while len(self._kept) > self._max_kept:
                        self._kept.popitem(last=False)
                if not self._line:  # nobody waits, so nobody has to be let pass
                    self._turn, self._turns = 0, {}

    def _look(self) -> None:
        """Take those who went away off their jobs, for ever."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._line)
                waiting = [(job, owner) for job in self._line for owner in job.owners]
            now = time.monotonic()
            away = {owner for _, owner in waiting if not self._is_there(owner)}
            self._away = {owner: self._away.get(owner, now) for owner in away}
            for job, owner in waiting:
                if now - self._away.get(owner, now) >= PATIENCE:
                    self.leave(job, owner)
            time.sleep(LOOK_EVERY)
