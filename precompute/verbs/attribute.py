"""The headless answer: scores of all training pictures for one picture, as CSV."""

import pandas as pd
from tqdm import tqdm

from core.columns import beside
from core.explorer.explorer import Answer, Explorer, Lens, Query

DIGITS = "%.9g"  # of the numbers that are written


def attribute(explorer: Explorer, query: Query, lens: Lens) -> Answer:
    """Return an answer, with a progress bar while it is computed."""
    with tqdm(desc="measuring", leave=False) as bar:

        def show(done: int, total: int, what: str) -> None:
            bar.total = total
            bar.set_description(what.lower(), refresh=False)
            bar.update(done - bar.n)

        return explorer.answer(query, lens, show)


def answer_table(explorer: Explorer, answer: Answer) -> pd.DataFrame:
    """Return example_id, score, standard_error, rank and the metadata, best first."""
    ours = {
        "score": answer.scores,
        "standard_error": answer.standard_errors,
        "rank": answer.ranks(),
    }
    ids = pd.Index(answer.example_ids, name="example_id")
    table = pd.DataFrame(ours, ids).sort_values("rank", kind="stable")
    return beside(table, explorer.examples.table)
