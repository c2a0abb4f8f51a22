"""Batches of CIFAR's kind as pickles: of today, of attackers, damaged."""

import pickle

from tests.core.data import test_pickles
from tests.kinds import Case


def batch(value):
    """Return what writes a batch, and the names of its classes beside it."""

    def make(folder):
        data = value if isinstance(value, bytes) else pickle.dumps(value, 5)
        (folder / "data_batch_1").write_bytes(data)
        names = pickle.dumps(test_pickles.METAS["bytes"], 5)
        (folder / "batches.meta").write_bytes(names)
        return folder

    return make


CASES = [
    *(
        Case(
            "batches of today", name, batch(value), 4, says=("classes: 3: airplane 1",)
        )
        for name, value in test_pickles.BATCHES.items()
    ),
    *(
        Case("pickles that attack", name, batch(value), refused=said)
        for name, (value, said) in test_pickles.ATTACKS.items()
    ),
]
