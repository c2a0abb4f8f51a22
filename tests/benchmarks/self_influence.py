"""Does a training image find itself? Ranks of 20 images among all, seed 0.

An image that the model was trained on is asked about with noise of its own; if
influence means anything, it is among its own most influential images.
"""

import time
from pathlib import Path

import numpy as np
import torch

from core.explorer.explorer import Explorer, Lens, open_explorer
from core.measure.draws import keyed_generator

COUNT = 20
METHODS_COUNT = 10


def drawn_examples(ids: np.ndarray, count: int = COUNT) -> list[int]:
    """Return the training images drawn with seed 0."""
    order = torch.randperm(len(ids), generator=keyed_generator(0, "self-influence"))
    return [int(ids[i]) for i in order[:count].tolist()]


def run(
    collection: str,
    root: Path | None,
    num_draws: int = 64,
    forms: tuple[str, ...] = ("sketch", "full"),
) -> dict:
    """Return each image's own rank under the sketch and, if here, the full index."""
    explorer = open_explorer(collection, root)
    explorer.engine.warm_up()
    if explorer.engine.scoring.indexed is None:
        forms = tuple(form for form in forms if form != "full")
    result = {
        "collection": f"{collection} {explorer.fingerprint[:12]}",
        "num_examples": explorer.num_examples,
        "num_draws": num_draws,
        "device": explorer.device_name,
    }
    for form in forms:
        result[form] = own_ranks(explorer, Lens(num_draws=num_draws, form=form), COUNT)
    return result


def own_ranks(explorer: Explorer, lens: Lens, count: int) -> dict:
    """Return the ranks that images have among all when they are the query."""
    ranks, seconds = [], []
    for example in drawn_examples(explorer.examples.table.index.to_numpy(), count):
        started = time.time()
        query = explorer.query_from_example(example)
        if lens.method == "journey-trak":  # the model did not draw it
            query = explorer.inverted(query)
        answer = explorer.answer(query, lens)
        seconds.append(time.time() - started)
        own = int(np.flatnonzero(answer.example_ids == example)[0])
        ranks.append(int(answer.ranks()[own]))
    return {
        "ranks": ranks,
        "among_ten": sum(rank <= 10 for rank in ranks),
        "seconds_per_query": round(float(np.median(seconds)), 2),
    }


def run_methods(collection: str, root: Path | None, num_draws: int = 64) -> dict:
    """Return each of ten images' own rank under every method that can answer.

    Methods whose files are not there are listed with the sentence that says why.
    """
    explorer = open_explorer(collection, root)
    explorer.engine.warm_up()
    facts = explorer.method_facts().set_index("method")
    result = {
        "collection": f"{collection} {explorer.fingerprint[:12]}",
        "num_examples": explorer.num_examples,
        "num_draws": num_draws,
        "device": explorer.device_name,
        "left_out": facts["why_not"][~facts["available"]].to_dict(),
    }
    for method in facts.index[facts["available"]]:
        lens = Lens(method, num_draws=num_draws)
        result[method] = own_ranks(explorer, lens, METHODS_COUNT)
    return result
