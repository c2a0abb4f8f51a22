"""How long does a new question take, by its draws and by what answers it?

The model is loaded and the index was read once, as for a visitor who has asked before;
no gradient is kept. How far the order agrees with an independent repeat says `errors`.
"""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.explorer.explorer import Explorer, Lens, open_explorer
from tests.benchmarks import machine

QUERIES = 5
DRAWS = (64, 128, 256, 512)


def run(collection: str, root: Path | None) -> dict:
    """Return the median seconds of a new question, on the clock and on all cores.

    Args:
        collection: Its name.
        root: Folder of the published collections; None for `data/collections`.
    """
    explorer = open_explorer(collection, root)
    forms = ["sketch"]
    if explorer.engine.scoring.indexed is not None:
        forms.append("full")
    samples = [int(sample) for sample in explorer.gallery.index[: QUERIES + 1]]
    rows = []
    for form in forms:
        for draws in DRAWS:
            lens = Lens(num_draws=draws, form=form)
            took = [seconds(explorer, sample, lens) for sample in samples][1:]
            clock, cores = np.median(took, axis=0).round(2).tolist()
            rows.append({"form": form, "draws": draws, "clock": clock, "cores": cores})
    explorer.close()
    lines = [
        f"{row['form']}, {row['draws']} draws: {row['clock']} s, "
        f"{row['cores']} s of all cores together"
        for row in rows
    ]
    facts = {"collection": collection, **machine.facts(), "queries": QUERIES}
    return {**facts, "rows": rows, "lines": lines}


def seconds(explorer: Explorer, sample: int, lens: Lens) -> tuple[float, float]:
    """Return the seconds of one question, on the clock and on all cores.

    A gallery sample as if it were new: no answer is stored under its key, and none of
    its gradients kept.
    """
    key = f"new {sample} {lens.form} {lens.num_draws}"
    query = replace(explorer.query_from_gallery(sample), key=key)
    clock, cores = time.perf_counter(), time.process_time()
    explorer.answer(query, lens)
    return time.perf_counter() - clock, time.process_time() - cores
