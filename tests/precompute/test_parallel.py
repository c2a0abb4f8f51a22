"""Several processes under torchrun give what one gives, and survive a death."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from core.presets import collection_config
from precompute.machinery.workspace import open_workspace

CONFIG = collection_config("glyphs", "tiny")


def command(verb: str, folder: Path, processes: int) -> list[str]:
    """Return the command line of a verb on the tiny collection."""
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone"]
        start += [f"--nproc-per-node={processes}"]
    line = ["-m", "precompute", verb, "--collection", "glyphs", "--preset", "tiny"]
    line += ["--device", "cpu", "--threads", "1", "--root", str(folder / "root")]
    return [*start, *line, "--work", str(folder / "work")]


def run(verb: str, folder: Path, processes: int = 1) -> None:
    """Run a verb to its end."""
    done = subprocess.run(
        command(verb, folder, processes), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def index_bytes(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of the full index."""
    (index,) = (folder / "root").glob("glyphs-index-*")
    return {path.name: path.read_bytes() for path in sorted(index.iterdir())}


def copied(folder: Path, single: Path) -> Path:
    """Return a new folder with everything up to the curvature, from another one."""
    work = folder / "work" / "glyphs"
    work.mkdir(parents=True)
    for name in ("denoiser", "train", "curvature", "samples", "queries"):
        for path in (single / "work" / "glyphs").glob(f"{name}-*.safetensors"):
            shutil.copy(path, work)
    return folder


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> Path:
    """Return the folder of a run by one process, up to the gradients."""
    folder = tmp_path_factory.mktemp("single")
    run("gradients", folder)
    return folder


def test_two_processes_fit_the_same_curvature(single, tmp_path):
    """K-FAC's eigenvalues, products of the factors', agree to 1e-6."""
    work = tmp_path / "work" / "glyphs"
    work.mkdir(parents=True)
    for path in (single / "work" / "glyphs").glob("denoiser-*.safetensors"):
        shutil.copy(path, work)
    run("curvature", tmp_path, processes=2)
    alone = open_workspace(CONFIG, single / "work").load("curvature", "curvature")[0]
    shared = open_workspace(CONFIG, tmp_path / "work").load("curvature", "curvature")[0]
    largest = float(alone["kfac"].max())
    torch.testing.assert_close(
        shared["kfac"], alone["kfac"], rtol=1e-6, atol=1e-9 * largest
    )
    # Directions without curvature may be turned among themselves, so only the sum of
    # the corrected eigenvalues, the trace, is the same.
    torch.testing.assert_close(
        shared["corrected"].sum(), alone["corrected"].sum(), rtol=1e-3, atol=0
    )
    assert not list(work.glob("factors*")), "checkpoints stay behind"


def test_two_processes_write_the_same_index_even_after_a_death(single, tmp_path):
    """One of two is killed; started again, they end in one process's very bytes."""
    folder = copied(tmp_path, single)
    job = subprocess.Popen(
        command("gradients", folder, processes=2),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        victim = first_writer(job, folder)
        os.kill(victim, signal.SIGKILL)
        assert job.wait(60) != 0, "the death of a process goes unnoticed"
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    run("gradients", folder, processes=2)
    assert index_bytes(folder) == index_bytes(single)


def test_kills_in_the_gradients_lose_one_chunk_each_and_change_no_bit(single, tmp_path):
    """Kill -9 after some chunks, a random moment into the next: finished ones stay."""
    folder = copied(tmp_path, single)
    moments = np.random.default_rng(0).uniform(0, 0.1, 2)
    for chunks, moment in zip((1, 4), moments, strict=True):
        job = subprocess.Popen(
            command("gradients", folder, 1),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while len(before := finished(folder)) < chunks:
            assert job.poll() is None, "the job ended before it could be disturbed"
            time.sleep(0.002)
        time.sleep(moment)
        job.kill()
        job.wait()
        assert before <= finished(folder)
        kept = kept_rows(folder, finished(folder))
    last = finished(folder)
    run("gradients", folder)
    assert kept_rows(folder, last) == kept, "finished chunks are computed again"
    assert len(finished(folder)) == 8
    assert index_bytes(folder) == index_bytes(single)
    for name, values in rows_of(folder).items():
        np.testing.assert_array_equal(values, rows_of(single)[name])


def record_file(folder: Path, name: str) -> np.ndarray:
    """Return one of the files of the gradients' rows; empty where there is none."""
    found = list((folder / "work" / "glyphs").glob(f"records-*.d/{name}.npy"))
    return np.load(found[0]) if found else np.zeros(0)


def finished(folder: Path) -> set[int]:
    """Return the numbers of the finished chunks."""
    return set(np.flatnonzero(record_file(folder, "done")).tolist())


def kept_rows(folder: Path, chunks: set[int]) -> bytes:
    """Return the rows of some chunks, the seconds they took included."""
    chunk = CONFIG.gradients.chunk
    rows = record_file(folder, "rows")
    return b"".join(rows[chunk * i : chunk * (i + 1)].tobytes() for i in sorted(chunks))


def rows_of(folder: Path) -> dict[str, np.ndarray]:
    """Return every entry of the rows but the seconds."""
    rows = record_file(folder, "rows")
    return {name: rows[name] for name in rows.dtype.names if name != "seconds"}


def first_writer(job: subprocess.Popen, folder: Path) -> int:
    """Return a worker's process id, once the first chunk of gradients is written."""
    for _ in range(600):
        time.sleep(0.1)
        done = list((folder / "work" / "glyphs").glob("records-*.d/done.npy"))
        if done and any(done[0].read_bytes()[128:]):
            break
        assert job.poll() is None, "the job ended before it could be disturbed"
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    return int(children[-1])
