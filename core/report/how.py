"""How an answer was measured: the sentences behind the one line above its strips.

Plain values in, sentences out; knows neither Streamlit nor where they stand.
"""

import numpy as np

from core.answers import Answer
from core.measurements import MEASUREMENTS
from core.methods import METHODS, has_timesteps, measures
from core.numbers import plain
from core.report import reading

SOURCES = {
    "exact": "Exact: every training gradient was multiplied in full precision.",
    "full index": "Full index: every training gradient, stored with few bits a number.",
    "sketch": "Sketch: training gradients were shortened at random, so that an answer "
    "takes a second.",
    "projection": "Projection: gradients were shortened at random, as the method says.",
}


def how_measured(answer: Answer) -> list[str]:
    """Return how an answer was measured, one sentence or two each.

    What a score means, what the measurement is now, where the numbers come from, what
    ± covers, and what else there is to know of the question.
    """
    lens, method = answer.lens, METHODS[answer.lens.method]
    said = [method.meaning]
    if measures(lens.method):
        facts = MEASUREMENTS[lens.measurement]
        said.append(f"{facts.title}: {facts.meaning}")
        if np.isfinite(answer.value):
            now = f"{plain(answer.value)} {facts.unit}"
            said.append(f"The {facts.cost} of this image is {now} now.")
    if has_timesteps(lens.method):
        said.append(SOURCES.get(answer.source, f"Source: {answer.source}."))
    said.append(reading.error_note(answer))
    unit = reading.scale(answer).unit
    if unit and not reading.is_similarity(lens):
        said.append(f"Printed numbers are in {unit.removeprefix('×')}.")
    if answer.note:
        said.append(answer.note[:1].upper() + answer.note[1:].rstrip(".") + ".")
    return said
