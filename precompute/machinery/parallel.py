"""Several processes that share one job, started by torchrun.

`torchrun --nproc-per-node=G -m precompute VERB ...` starts G processes with a rank
each. They split the examples and add up their sums with torch.distributed: nccl where
each has a GPU, gloo on CPUs. Processes on several nodes share one folder of work, so
that has to lie on a shared filesystem. Without torchrun there is one process, rank 0 of
1, and nothing here does anything.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed

T = TypeVar("T")

# Waiting for another process is normal: one of them may train for days.
PATIENCE = timedelta(days=30)


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Join the other processes that torchrun started, if any, for a `with` block."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    backend = "nccl" if torch.device(device).type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def parse_part(text: str) -> tuple[int, int]:
    """Return (i, n) for "i/n": this process is the i-th of n, counted from 0.

    Raises:
        ValueError: If the text is not "i/n", or i is not below n.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError(
            f"'{text}' is not a part of the work. Give the process's number and how "
            "many there are, such as 0/2 and 1/2."
        )
    return int(match[1]), int(match[2])


def own_device(device: str | None) -> str:
    """Return the device of this process: its own GPU, where there are several.

    Args:
        device: What was asked for; None for the GPU where there is one.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and "LOCAL_RANK" in os.environ:
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return device


def rank_and_size() -> tuple[int, int]:
    """Return (number of this process, number of processes)."""
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def add_up(sums: dict[str, Tensor]) -> None:
    """Add every other process's sums, of the same names, to this one's."""
    if distributed.is_initialized():
        for name in sorted(sums):
            distributed.all_reduce(sums[name])


def first_one_first(make: Callable[[], T]) -> T:
    """Return `make()`, called by rank 0 first and then by the others.

    For what saves its result and loads it the next time: it is made once, and every
    process gets the same bits.
    """
    rank, size = rank_and_size()
    if size == 1 or rank == 0:
        result = make()
        wait_for_all()
        return result
    wait_for_all()
    return make()


def wait_for_all() -> None:
    """Wait until every process is here."""
    if distributed.is_initialized():
        distributed.barrier()
