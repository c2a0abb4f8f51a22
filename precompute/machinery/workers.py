"""Threads that each work on an example of their own.

A pass over one example spreads badly over several threads: its layers are small, and
all threads wait for each other after every one. One thread per example keeps every core
busy, and what a thread computes does not depend on how many there are.
"""

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

MOST_WORKERS = 8  # beyond, they wait for Python's lock; more processes go further

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h


@contextmanager
def example_workers(device: torch.device) -> Iterator[ThreadPoolExecutor]:
    """Share torch's threads among workers, one each, for a `with` block.

    A GPU has one worker: one example keeps it busy.

    Yields:
        The workers.
    """
    threads = torch.get_num_threads()
    count = min(threads, MOST_WORKERS) if device.type == "cpu" else 1
    keep_freed_memory()
    pool = ThreadPoolExecutor(
        count, initializer=torch.set_num_threads, initargs=(threads // count,)
    )
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the workers' setting reaches some libraries


def keep_freed_memory() -> None:
    """Have the process keep freed memory for the next pass, where the system can.

    By default glibc hands a thread's large blocks back and asks for fresh pages each
    time, which takes a fifth of the pass.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_ARENA_MAX, 1)
