"""A million training images: how long a question takes, and how much memory.

The index holds random vectors of `BYTES` bytes, as 8-bit numbers and as 1-bit ones.
Files are read as the system keeps them; memory is what the process holds besides them.
"""

import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from core.index.full import SHARD_EXAMPLES, GradientIndex
from core.measure.draws import keyed_generator
from tests.benchmarks.machine import facts
from tests.benchmarks.queries import copy_seconds, seconds

EXAMPLES, BYTES, QUERIES = 1_000_000, 2_048, 5
BITS = (8, 1)


def million(folder: Path, params: int, bits: int) -> GradientIndex:
    """Return the index; all shards but the last hold the same vectors."""
    first = GradientIndex(folder, SHARD_EXAMPLES, params, bits)
    first.create()
    generator = keyed_generator(0, "scale benchmark")
    first.write(0, torch.randn(SHARD_EXAMPLES, params, generator=generator))
    index = GradientIndex(folder, EXAMPLES, params, bits)
    rest = EXAMPLES % SHARD_EXAMPLES or SHARD_EXAMPLES
    for name in index.shard_names():
        kind, number = name.removesuffix(".bin").split("-")
        source = folder / f"{kind}-0000000.bin"
        if int(number) == 0:
            continue
        if int(number) + SHARD_EXAMPLES <= EXAMPLES:
            shutil.copyfile(source, folder / name)
        else:
            data = source.read_bytes()
            (folder / name).write_bytes(data[: len(data) // SHARD_EXAMPLES * rest])
    return index


def private_bytes() -> int:
    """Return the bytes of memory that are the process's own, mapped files left out."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(collection: str, root: Path | None) -> dict:
    """Return seconds of a question against a million images and of copying them."""
    result = {**facts(), "examples": EXAMPLES, "bits": {}, "lines": []}
    for bits in BITS:
        found = result["bits"][str(bits)] = measured(bits)
        one, five, copied = (
            found[f"seconds_{name}"]
            for name in ("one_query", "five_queries", "copying")
        )
        result["lines"].append(
            f"{bits} bits: one query {one:.2f} s, with its folds {five:.2f} s, copying "
            f"{copied:.2f} s, besides the files {found['private_megabytes']:.0f} MB"
        )
    return result


def measured(bits: int) -> dict:
    """Return the figures of an index of some bits a number."""
    params = 8 * BYTES // bits
    with tempfile.TemporaryDirectory() as folder:
        index = million(Path(folder), params, bits)
        generator = keyed_generator(1, "scale benchmark")
        queries = torch.randn(QUERIES, params, generator=generator)
        most, before = [0], private_bytes()

        def watch(done: int, of: int) -> None:
            most[0] = max(most[0], private_bytes() - before)

        started = time.perf_counter()
        scores = index.scores(queries, watch)
        first = time.perf_counter() - started
        one = seconds(lambda: index.scores(queries[:1]))
        five = seconds(lambda: index.scores(queries))
        copied = copy_seconds(index)
        same = bool(np.array_equal(scores[:, 0], scores[:, SHARD_EXAMPLES]))
    return {
        "numbers": params,
        "gigabytes": index.num_bytes / 1e9,
        "seconds_first": first,
        "seconds_one_query": one,
        "seconds_five_queries": five,
        "seconds_copying": copied,
        "private_megabytes": most[0] / 1e6,
        "equal_vectors_score_alike": same,
    }
