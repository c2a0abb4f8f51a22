"""Do standard errors hold? Answers of the gallery, asked again with all draws new.

By lens (loss, ELBO, trajectory, a region, a band of noise levels) and by what answers
(stored, sketch, and the full index where it is there): how often a 90% interval holds,
and real over printed error, for the ten images that an answer shows and for random
ones. Each half of the samples is tested with errors that the other half told;
`precompute.stages.coverage` says what is compared. Resumable: the repeats lie in
`data/work`.
"""

import time
from pathlib import Path

from core.config import DATA_DIR
from core.explorer.explorer import open_explorer
from core.index.sketch import BLOCK
from precompute.stages.coverage import Trial, all_lenses, crossed
from tests.benchmarks import machine

QUERIES, REPEATS = 8, 10
FACTORS = (2, 4, 8)  # sketches larger than the collection's, to say what they would buy


def run(
    collection: str,
    root: Path | None,
    queries: int = QUERIES,
    repeats: int = REPEATS,
    work: Path | None = None,
    sizes: bool = False,
) -> dict:
    """Return coverage and real over printed error, by kind of answer.

    Args:
        collection: Its name.
        root: Folder of the published collections; None for `data/collections`.
        queries: Samples of each half, spread over the gallery.
        repeats: Of the draws of the queries and of the training gradients each.
        work: Folder of unfinished work; None for `data/work`.
        sizes: Whether to try sketches of other sizes, too; it takes twice as long.
    """
    started = time.time()
    explorer = open_explorer(collection, root)
    own = explorer.config.gradients.sketch_dim
    count = -(-explorer.engine.basis.layout.num_params // BLOCK) * BLOCK
    larger = (own * factor for factor in FACTORS if own * factor < count)
    dims = (*larger, count) if sizes else ()
    trial = Trial(all_lenses(explorer), 2 * queries, repeats, dims)
    _, found = crossed(explorer, work or DATA_DIR / "work", trial)
    explorer.close()
    lines = [
        f"{kind}: {what} {stood['coverage']:.3f} held, "
        f"real/printed {stood['ratio']:.2f} ({stood['count']})"
        for kind, parts in found["kinds"].items()
        for what, stood in parts.items()
    ]
    lines += [
        f"asked again with all noise new, {form}: Spearman {value:.3f}"
        for form, value in found["agreement"].items()
    ]
    lines += [
        f"the same by a sketch of {size} bytes an image: Spearman {value:.3f}"
        for size, value in found["sizes"].items()
    ]
    seconds = round(time.time() - started, 1)
    facts = {"collection": collection, **machine.facts(), "seconds": seconds}
    return {**facts, **found, "lines": lines}
