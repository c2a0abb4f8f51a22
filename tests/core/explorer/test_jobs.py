"""The queue in front of the model: order, joining, progress, a cancel that stops."""

import threading
import time
from types import SimpleNamespace

from core.explorer.jobs import DONE, FAILED, STOPPED, WAITING, JobQueue

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
        raise ValueError("This image is too small.")

    queue = JobQueue()
    bad = queue.ask("bad", "ann", fail)
    good = queue.ask("good", "ann", lambda progress: "fine")
    assert good.finished.wait(PATIENCE)
    assert (bad.status, str(bad.error)) == (FAILED, "This image is too small.")
    assert good.result == "fine"


def test_time_left_follows_the_rate_of_the_current_step(monkeypatch):
    """Half way after t seconds leaves t seconds; a new step starts afresh."""
    queue, gate, reached = JobQueue(), threading.Event(), threading.Event()
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr("core.explorer.jobs.time", clock)

    def work(progress):
        progress(0, 10, "one")
        now[0] += 20
        progress(5, 10, "one")
        reached.set()
        gate.wait(PATIENCE)
        progress(0, 10, "two")

    job = queue.ask("a", "ann", work)
    assert reached.wait(PATIENCE)
    report = queue.report(job)
    assert (report.fraction, report.seconds_left) == (0.5, 20)
    gate.set()
    assert job.finished.wait(PATIENCE)
    assert job.report().doing == "two"
    assert job.report().seconds_left is None


def test_job_that_has_not_started_says_so():
    """While another job runs, the next one waits."""
    queue, gate = JobQueue(), threading.Event()
    queue.ask("first", "ann", held(gate))
    second = queue.ask("second", "bob", lambda progress: None)
    assert queue.report(second).status == WAITING
    gate.set()
    assert second.finished.wait(PATIENCE)


def test_what_is_shown_early_is_there_until_the_end():
    queue, shown, gate = JobQueue(), threading.Event(), threading.Event()

    def work(job):
        job(1, 2, "Measuring")
        job.show("half")
        shown.set()
        gate.wait(5)
        return "whole"

    job = queue.ask("a", "me", work)
    assert shown.wait(5) and job.early == "half" and job.result is None
    gate.set()
    assert job.finished.wait(5)
    assert job.result == "whole" and job.early is None


def test_visitors_take_turns():
    """Who asks much waits for others between; nobody waits for two jobs of one."""
    queue, gate, ran = JobQueue(), threading.Event(), []
    queue.ask("first", "ann", held(gate))
    asked = [("ann", 1), ("ann", 2), ("ann", 3), ("bob", 1), ("cem", 1), ("bob", 2)]
    jobs = {
        name: queue.ask(
            str(name), name[0], lambda progress, name=name: ran.append(name)
        )
        for name in asked
    }
    order = [("bob", 1), ("cem", 1), ("ann", 1), ("bob", 2), ("ann", 2), ("ann", 3)]
    ahead = {name: queue.report(job, name[0]).ahead for name, job in jobs.items()}
    assert sorted(ahead, key=ahead.get) == order
    assert [queue.report(jobs[name], name[0]).people for name in order[:3]] == [1, 2, 2]
    gate.set()
    wait_until(lambda: len(ran) == len(order))
    assert ran == order


def test_who_asks_again_at_once_starves_nobody():
    """A visitor whose every answer leads to a question lets a waiting one pass."""
    queue, ran = JobQueue(), []

    def ask_on(number):
        def work(progress):
            ran.append(("ann", number))
            if number < 20:
                queue.ask(f"ann {number + 1}", "ann", ask_on(number + 1))
            time.sleep(0.002)

        return work

    gate = threading.Event()
    queue.ask("held", "zoe", held(gate))
    queue.ask("ann 1", "ann", ask_on(1))
    for number in range(3):
        queue.ask(f"bob {number}", "bob", lambda p, n=number: ran.append(("bob", n)))
    gate.set()
    wait_until(lambda: len(ran) == 23)
    places = [ran.index(("bob", number)) for number in range(3)]
    assert places[0] <= 1 and places[1] <= 3 and places[2] <= 5, ran


def test_a_cancelled_question_costs_no_turn():
    """Who takes a question back and asks another stands where the first one stood."""
    queue, gate = JobQueue(), threading.Event()
    queue.ask("held", "ann", held(gate))
    for _ in range(5):
        job = queue.ask("mistake", "bob", lambda progress: None)
        queue.leave(job, "bob")
    job = queue.ask("meant", "bob", lambda progress: None)
    other = queue.ask("other", "cem", lambda progress: None)
    assert [queue.report(one).ahead for one in (job, other)] == [1, 2]
    gate.set()


def test_people_are_counted_not_questions():
    """Two questions of one visitor and one's own are one person before."""
    queue, gate = JobQueue(), threading.Event()
    queue.ask("held", "ann", held(gate))
    queue.ask("mine before", "bob", lambda progress: None)
    queue.ask("ann 2", "ann", lambda progress: None)
    mine = queue.ask("mine", "bob", lambda progress: None)
    report = queue.report(mine, "bob")
    assert (report.people, report.ahead) == (1, 3)
    gate.set()


def test_the_job_of_one_who_went_away_stops(monkeypatch):
    """After a while of patience, whether it waits or runs; others' jobs go on."""
    monkeypatch.setattr("core.explorer.jobs.LOOK_EVERY", 0.01)
    monkeypatch.setattr("core.explorer.jobs.PATIENCE", 1.0)
    gone, gate = set(), threading.Event()
    queue = JobQueue(is_there=lambda owner: owner not in gone)
    running = queue.ask("running", "ann", held(gate))
    waiting = queue.ask("waiting", "ann", lambda progress: None)
    shared = queue.ask("shared", "ann", lambda progress: "kept")
    queue.ask("shared", "bob", lambda progress: "kept")
    time.sleep(0.2)
    assert not running.finished.is_set()
    gone.add("ann")
    time.sleep(0.04)
    gone.clear()  # back in time, as when a page is loaded again
    time.sleep(1.2)
    assert not running.finished.is_set()
    gone.add("ann")
    assert shared.finished.wait(PATIENCE)
    assert (running.status, waiting.status) == (STOPPED, STOPPED)
    assert shared.result == "kept"
    gate.set()


def test_what_is_kept_of_visitors_is_bounded():
    """Thousands who came and went leave nothing in the queue."""
    queue = JobQueue(max_kept=2)
    for number in range(500):
        job = queue.ask(str(number), f"visitor {number}", lambda progress: None)
        assert job.finished.wait(PATIENCE)
    wait_until(lambda: not queue._line)
    assert len(queue._turns) < 5 and len(queue._kept) == 2
