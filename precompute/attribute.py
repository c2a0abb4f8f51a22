"""The headless answer: scores of all training pictures for one picture, as CSV."""

from pathlib import Path

import pandas as pd
from tqdm import tqdm

from core.columns import beside
from core.explorer import Answer, Explorer, Lens, Query
from core.files import written_whole
from core.texts import safe_csv

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


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a CSV so that a reader sees all of it or nothing.

    Raises:
        ValueError: If the folder does not exist or cannot be written.
    """
    try:
        with written_whole(path) as file:
            file.write(safe_csv(table, DIGITS).encode())
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be written ({error.strerror}). Choose a folder that "
            "exists."
        ) from error
