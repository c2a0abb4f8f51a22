"""How fast is the full index read? Against copying the same bytes, both from cache."""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from core.draws import keyed_generator
from core.index import GradientIndex
from tests.benchmarks.machine import facts

EXAMPLES, PARAMS = 512, 1_859_152  # the parameters of Glyphs; close to 1 GB
BATCH = 16
QUERIES = (1, 5, 32)  # a question asks with five: the mean and its four folds
REPEATS = 3


def random_index(folder: Path) -> GradientIndex:
    """Return an index of the same normal numbers, again and again."""
    index = GradientIndex(folder, EXAMPLES, PARAMS)
    index.create()
    generator = keyed_generator(0, "query benchmark")
    vectors = torch.randn(BATCH, PARAMS, generator=generator)
    for first in range(0, EXAMPLES, BATCH):
        index.write(first, vectors)
    return index


def seconds(call: Callable[[], object]) -> float:
    """Return the shortest time of a few calls, after one that warms up."""
    call()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def copy_seconds(index: GradientIndex) -> float:
    """Return how long it takes to copy all codes, with as many threads as a query."""
    names = [name for name in index.shard_names() if name.startswith("codes")]
    codes = [np.memmap(index.folder / name, np.int8, "r") for name in names]
    threads = torch.get_num_threads()
    parts = [part for shard in codes for part in np.array_split(shard, threads)]
    copies = [np.empty_like(part, subok=False) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return seconds(lambda: list(pool.map(np.copyto, copies, parts)))


def run(collection: str, root: Path | None) -> dict:
    """Return gigabytes of codes a second, copied and queried; the index is random."""
    gigabytes = EXAMPLES * PARAMS / 1e9
    with tempfile.TemporaryDirectory() as folder:
        index = random_index(Path(folder))
        copied = gigabytes / copy_seconds(index)
        timings = {}
        for count in QUERIES:
            generator = keyed_generator(count, "query benchmark")
            queries = torch.randn(count, PARAMS, generator=generator)
            took = seconds(lambda queries=queries: index.scores(queries))
            timings[count] = {
                "seconds": round(took, 3),
                "gigabytes_per_second": round(gigabytes / took, 2),
                "of_copy": round(gigabytes / took / copied, 3),
            }
    return {
        "gigabytes": round(gigabytes, 3),
        **facts(),
        "copy_gigabytes_per_second": round(copied, 2),
        "queries": timings,
    }
