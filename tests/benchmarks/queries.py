"""How fast is the full index read? Against copying the same bytes, both from cache."""

import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from core.index.full import SHARD_EXAMPLES, GradientIndex
from core.measure.draws import keyed_generator
from tests.benchmarks.machine import facts

PARAMS = 1_859_152  # of Glyphs
SHARDS = {8: 2, 4: 4, 1: 8}  # 1 GB, for one bit half of it
BATCH = 16
QUERIES = (1, 5, 32)  # a question asks with five: the mean and its four folds
REPEATS = 3
SECONDS = 5.0  # after which a call is not repeated


def random_index(folder: Path, bits: int) -> GradientIndex:
    """Return an index of the same normal numbers, again and again."""
    first = GradientIndex(folder, SHARD_EXAMPLES, PARAMS, bits)
    first.create()
    generator = keyed_generator(0, "query benchmark")
    vectors = torch.randn(BATCH, PARAMS, generator=generator)
    for position in range(0, SHARD_EXAMPLES, BATCH):
        first.write(position, vectors)
    index = GradientIndex(folder, SHARD_EXAMPLES * SHARDS[bits], PARAMS, bits)
    for name in set(index.shard_names()) - set(first.shard_names()):
        kind = name.split("-")[0]
        shutil.copyfile(folder / f"{kind}-0000000.bin", folder / name)
    return index


def seconds(call: Callable[[], object]) -> float:
    """Return the shortest time of a few calls, after one that warms up."""
    call()
    times = []
    while len(times) < REPEATS and sum(times) < SECONDS:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def copy_seconds(index: GradientIndex) -> float:
    """Return how long it takes to copy all codes, with as many threads as a query."""
    names = [name for name in index.shard_names() if name.startswith("codes")]
    codes = [np.memmap(index.folder / name, np.uint8, "r") for name in names]
    threads = torch.get_num_threads()
    parts = [part for shard in codes for part in np.array_split(shard, threads)]
    copies = [np.empty_like(part, subok=False) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return seconds(lambda: list(pool.map(np.copyto, copies, parts)))


def measured(bits: int) -> dict:
    """Return gigabytes of codes a second, copied and queried."""
    with tempfile.TemporaryDirectory() as folder:
        index = random_index(Path(folder), bits)
        gigabytes = index.num_bytes / 1e9
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
                "billion_products_per_second": round(
                    count * index.num_examples * PARAMS / took / 1e9, 1
                ),
            }
    return {
        "examples": index.num_examples,
        "gigabytes": round(gigabytes, 3),
        "copy_gigabytes_per_second": round(copied, 2),
        "queries": timings,
    }


def run(collection: str, root: Path | None) -> dict:
    """Return how fast each number of bits is read; the index is random."""
    bits = {count: measured(count) for count in SHARDS}
    lines = [
        f"{count} bits, {queries} queries: {timing['of_copy']} of copying"
        for count, result in bits.items()
        for queries, timing in result["queries"].items()
    ]
    return {"num_params": PARAMS, **facts(), "bits": bits, "lines": lines}
