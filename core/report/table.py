"""An answer as a table with its metadata, and as the CSV that the command writes."""

import pandas as pd

from core.answers import Answer
from core.columns import beside
from core.files.texts import safe_csv

DIGITS = "%.9g"  # of the numbers that are written


def answer_table(answer: Answer, examples: pd.DataFrame) -> pd.DataFrame:
    """Return example_id, score, standard_error, rank and the metadata, best first.

    Args:
        answer: Over N examples.
        examples: Metadata, indexed by example id.
    """
    ours = {
        "score": answer.scores,
        "standard_error": answer.standard_errors,
        "rank": answer.ranks(),
    }
    ids = pd.Index(answer.example_ids, name="example_id")
    table = pd.DataFrame(ours, ids).sort_values("rank", kind="stable")
    return beside(table, examples)


def answer_csv(answer: Answer, examples: pd.DataFrame) -> str:
    """Return that table as a CSV file that a spreadsheet does not obey."""
    return safe_csv(answer_table(answer, examples), DIGITS)
