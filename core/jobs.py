"""One worker in front of the model: jobs wait in line, show progress, can be stopped.

A web page must not compute for seconds in its own thread: any click would interrupt it,
and two visitors would compute at the same time. So work goes to a queue with one worker
thread. Equal keys mean equal results: whoever asks for a key that is waiting, running
or kept joins that job. This file knows neither pages nor models.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.answers import Cancelled, Progress

WAITING, RUNNING, DONE, STOPPED, FAILED = (
    "waiting",
    "running",
    "done",
    "stopped",
    "failed",
)

Work = Callable[[Progress], Any]


@dataclass(frozen=True)
class Report:
    """How far a job is at one moment.

    Attributes:
        status: WAITING, RUNNING, DONE, STOPPED or FAILED.
        ahead: Jobs that must end before this one starts.
        fraction: Share of the current step that is done, in [0, 1].
        doing: The current step in words.
        seconds_left: Estimate for the current step; None before there is a rate.
    """

    status: str
    ahead: int
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
        self.status = WAITING
        self.result: Any = None
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

    def run(self) -> None:
        """Do the work and keep its result or its error."""
        self.status = RUNNING
        try:
            self.result = self.work(self.progress)
            self.status = DONE
        except Cancelled:
            self.status = STOPPED
        except Exception as error:  # the worker must outlive any job
            if not isinstance(error, (ValueError, LookupError)):
                logging.getLogger(__name__).exception("Job %s failed", self.key)
            self.error, self.status = error, FAILED
        finally:
            self.finished.set()

    def report(self, ahead: int) -> Report:
        """Return how far the job is, with an estimate of the time left."""
        done, total, doing = self._step
        first, since = self._step_start
        left = None
        if self.status == RUNNING and done > first:
            left = (time.monotonic() - since) / (done - first) * (total - done)
        fraction = min(max(done / total, 0.0), 1.0) if total > 0 else 0.0
        return Report(self.status, ahead, fraction, doing, left)


class JobQueue:
    """Runs one job at a time and keeps the latest results."""

    def __init__(self, max_kept: int = 32):
        """Start with an empty line and no worker.

        Args:
            max_kept: Finished results to keep; the least recently asked goes first.
        """
        self._max_kept = max_kept
        self._line: list[Job] = []  # the first one runs
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._changed = threading.Condition()
        self._worker: threading.Thread | None = None

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
                    job.owners.add(owner)
                    return job
            job = Job(key, work)
            job.owners.add(owner)
            self._line.append(job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._serve, daemon=True)
                self._worker.start()
            self._changed.notify_all()
            return job

    def leave(self, job: Job, owner: str) -> None:
        """Take an owner off a job, and stop the job when nobody wants it any more."""
        with self._changed:
            job.owners.discard(owner)
            if job.owners:
                return
            job.stop()
            if job.status == WAITING and job in self._line:
                self._line.remove(job)
                job.status = STOPPED
                job.finished.set()

    def report(self, job: Job) -> Report:
        """Return how far a job is and how many stand before it."""
        with self._changed:
            ahead = self._line.index(job) if job in self._line else 0
        return job.report(ahead)

    def _serve(self) -> None:
        """Run the jobs in line, for ever."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._line)
                job = self._line[0]
                # Under the lock, so that `leave` cannot take a job that is starting.
                job.status = RUNNING
            job.run()
            with self._changed:
                self._line.remove(job)
                if job.status == DONE:
                    self._kept[job.key] = job
                    while len(self._kept) > self._max_kept:
                        self._kept.popitem(last=False)
