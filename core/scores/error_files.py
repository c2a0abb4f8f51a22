"""The laws of a collection's errors, as a file beside it, and what they say of answers.

`core.scores.errors` says what the laws are.
"""

import hashlib
import json
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np

from core.collection.schema import StoredAnswer, lens_key
from core.collection.store import Collection
from core.config import CollectionConfig, config_from_dict
from core.files.whole import written_whole
from core.lenses import Lens
from core.scores.errors import Asked, ErrorModel, Law, answer_kind, question_kind


def errors_path(root: Path, config: CollectionConfig) -> Path:
    """Return where the laws lie, beside the collection's file."""
    return root / f"{config.name}-errors-{config.answers_fingerprint()}.json"


def write_model(path: Path, model: ErrorModel) -> None:
    """Write the laws as JSON, with six digits: they are sure to some percent only.

    A checksum of the rest stands in it: a damaged file is refused.
    """
    facts = _rounded(asdict(model))
    text = json.dumps({**facts, "sha256": _checksum(facts)}, indent=1)
    with written_whole(path) as file:
        file.write(text.encode() + b"\n")


def _checksum(facts: dict) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read_model(path: Path) -> ErrorModel | None:
    """Return the laws of a collection, or None where it records none.

    Raises:
        ValueError: If the file is damaged.
    """
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_text())
        if facts.pop("sha256") != _checksum(facts):
            raise ValueError(path.name)
        laws = {name: Law(**facts[name]) for name in ("training", "query", "sketch")}
        answers = {
            lens: {sample: Asked(**asked) for sample, asked in by_sample.items()}
            for lens, by_sample in facts["answers"].items()
        }
        return ErrorModel(
            **laws,
            sketch_size=float(facts["sketch_size"]),
            again=dict(facts.get("again", {})),  # none before it was measured
            unseen=dict(facts.get("unseen", {})),
            coverage=dict(facts["coverage"]),
            answers=answers,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"'{path.name}' is damaged. Get it again from where it came, or delete it "
            "and make it again with `python -m precompute errors`."
        ) from error


class StoredErrors:
    """The errors of a collection's stored answers.

    They are stored beside the scores. Where an earlier model wrote them, the file of
    the laws says of every such answer what this one needs to tell them anew.

    Attributes:
        coverage: How errors stood a test by other draws; empty without one.
        agreement: Spearman of scores with the same, asked again with all draws new, by
            form; empty without a test.
    """

    def __init__(self, collection: Collection):
        """Read the laws; `read_model` refuses a damaged file of them.

        Args:
            collection: An open collection.
        """
        self._collection = collection
        try:
            config = config_from_dict(collection.meta("settings"))
        except ValueError:  # of another version of this program: said where it matters
            self._model = None
        else:
            self._model = read_model(errors_path(collection.path.parent, config))
        tested = {} if self._model is None else self._model.coverage
        self.coverage = tested.get("kinds", {})
        self.agreement = tested.get("agreement", {})

    @cached_property
    def _images(self) -> tuple[np.ndarray, np.ndarray]:
        """Level of the noise and length of every training gradient, each (N,)."""
        level, lengths = map(self._collection.array, ("noise_level", "whitened_norm"))
        return level.astype(np.float64), lengths.astype(np.float64)

    def of(self, answer: StoredAnswer, sample: int, lens: dict) -> np.ndarray:
        """Return the standard errors of a stored answer, shape (N,).

        Args:
            answer: As stored.
            sample: Whose it is.
            lens: The key that it is stored under.
        """
        if self._model is None:
            return answer.standard_errors
        asked_as = {
            name: lens[name] for name in ("measurement", "region") if name in lens
        }
        question = question_kind(Lens(**asked_as, timesteps=lens.get("timesteps")))
        kind = answer_kind(question, answer.source)
        asked = self._model.answers.get(lens_key(lens), {}).get(str(sample))
        if asked is None:  # as the build wrote it, which had repeated nothing yet
            variance = np.square(answer.standard_errors)
        else:
            variance = self._model.variance(answer.scores, asked, *self._images)
        return np.sqrt(self._model.repeated(variance, answer.scores, kind))
