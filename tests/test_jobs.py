"""The queue in front of the model: order, joining, progress, a cancel that stops."""

import threading
import time

import pytest

from core.jobs import DONE, FAILED, STOPPED, WAITING, JobQueue

PATIENCE = 10  # seconds; far more than any job here takes


def held(gate: threading.Event, calls: list | None = None):
    """Return work that goes on, calling progress, until the gate opens."""

    def work(progress):
        step = 0
        while not gate.is_set():
            progress(step, 1000, "waiting")
            if calls is not None:
                calls.append(step)
            step += 1
            time.sleep(0.002)
        return "through"

    return work


def wait_until(condition):
    """Wait for something that another thread is about to make true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.002)


def test_result_is_there_when_the_job_is_done():
    """A job hands back what its work returned."""
    job = JobQueue().ask("a", "ann", lambda progress: 42)
    assert job.finished.wait(PATIENCE)
    assert (job.status, job.result) == (DONE, 42)


def test_cancel_stops_a_running_job_at_its_next_progress_call():
    """After the cancel the work makes no further step."""
    queue, calls = JobQueue(), []
    job = queue.ask("a", "ann", held(threading.Event(), calls))
    wait_until(lambda: len(calls) > 2)
    queue.leave(job, "ann")
    assert job.finished.wait(PATIENCE)
    steps = len(calls)
    time.sleep(0.05)
    assert (job.status, len(calls)) == (STOPPED, steps)


def test_cancelled_job_in_line_never_runs_and_frees_its_place():
    """Leaving the line is immediate, without waiting for the job that runs."""
    queue, gate, ran = JobQueue(), threading.Event(), []
    first = queue.ask("first", "ann", held(gate))
    second = queue.ask("second", "bob", lambda progress: ran.append("second"))
    third = queue.ask("third", "cem", lambda progress: ran.append("third"))
    assert queue.report(second).ahead == 1
    assert queue.report(third).ahead == 2
    queue.leave(second, "bob")
    assert second.status == STOPPED
    assert queue.report(third).ahead == 1
    gate.set()
    assert third.finished.wait(PATIENCE) and first.status == DONE
    assert ran == ["third"]


def test_equal_keys_share_one_job_that_outlives_one_of_its_owners():
    """The work runs once; it stops only when the last who asked has left."""
    queue, gate = JobQueue(), threading.Event()
    ann = queue.ask("same", "ann", held(gate))
    bob = queue.ask("same", "bob", held(gate))
    assert ann is bob
    queue.leave(ann, "ann")
    gate.set()
    assert bob.finished.wait(PATIENCE)
    assert bob.status == DONE


def test_stopped_job_is_not_joined_again():
    """Asking again after a cancel starts anew, even while the old job winds down."""
    queue, gate = JobQueue(), threading.Event()
    old = queue.ask("same", "ann", held(gate))
    queue.leave(old, "ann")
    new = queue.ask("same", "ann", lambda progress: "new")
    assert new is not old
    assert new.finished.wait(PATIENCE)
    assert new.result == "new"


def test_results_are_kept_up_to_the_bound():
    """The least recently asked result goes first; a kept one is not computed again."""
    queue, ran = JobQueue(max_kept=2), []

    def ask(key):
        job = queue.ask(key, "ann", lambda progress: ran.append(key))
        assert job.finished.wait(PATIENCE)
        wait_until(lambda: queue.report(job).ahead == 0 and not queue._line)

    for key in ("a", "b", "a", "c", "a", "b"):
        ask(key)
    assert ran == ["a", "b", "c", "b"]


def test_failure_keeps_the_sentence_and_the_worker_goes_on():
    """An error reaches the person who asked and nobody else."""

    def fail(progress):
        raise ValueError("This picture is too small.")

    queue = JobQueue()
    bad = queue.ask("bad", "ann", fail)
    good = queue.ask("good", "ann", lambda progress: "fine")
    assert good.finished.wait(PATIENCE)
    assert (bad.status, str(bad.error)) == (FAILED, "This picture is too small.")
    assert good.result == "fine"


def test_time_left_follows_the_rate_of_the_current_step():
    """Half way after t seconds leaves about t seconds; a new step starts afresh."""
    queue, gate, reached = JobQueue(), threading.Event(), threading.Event()

    def work(progress):
        progress(0, 10, "one")
        time.sleep(0.2)
        progress(5, 10, "one")
        reached.set()
        gate.wait(PATIENCE)
        progress(0, 10, "two")
        reached.set()
        gate.wait(PATIENCE)

    job = queue.ask("a", "ann", work)
    assert reached.wait(PATIENCE)
    report = queue.report(job)
    assert report.fraction == 0.5
    assert report.seconds_left == pytest.approx(0.2, abs=0.15)
    reached.clear()
    gate.set()
    assert job.finished.wait(PATIENCE)
    assert job.report(0).doing == "two"
    assert job.report(0).seconds_left is None


def test_job_that_has_not_started_says_so():
    """While another job runs, the next one waits."""
    queue, gate = JobQueue(), threading.Event()
    queue.ask("first", "ann", held(gate))
    second = queue.ask("second", "bob", lambda progress: None)
    assert queue.report(second).status == WAITING
    gate.set()
    assert second.finished.wait(PATIENCE)
