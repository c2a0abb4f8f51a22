"""How far scores were tested by retraining: what there is, and the mark beside scores.

Evidence is read once for all visitors, and again when it changes.
"""

from dataclasses import dataclass

import streamlit as st

from core.evidence.changes import calibration
from core.evidence.evaluation import Calibration
from core.evidence.stored import Evidence
from core.evidence.trust import UNTESTED, Trust, lens_trust
from core.explorer.explorer import Answer, Explorer, Lens
from core.report.parts import Part
from pages.parts.words import sentence, text


@dataclass(frozen=True)
class Retraining:
    """What retraining says of a collection's scores.

    Attributes:
        version: Changes with the evidence; names it in a cache, with the collection.
        evidence: None where there is none that tests this collection's scores.
        missing: Whether that is because nothing was retrained.
        why_not: What is wrong with it otherwise, as Markdown.
    """

    version: int
    evidence: Evidence | None = None
    missing: bool = False
    why_not: str = ""

    @property
    def untested(self) -> bool:
        """Whether no model was trained again that scores could be ranked against."""
        return self.missing or bool(self.evidence and not self.evidence.num_halves)


@st.cache_resource(max_entries=4, show_spinner="Reading the evidence")
def _read(collection: str, version: int, _explorer: Explorer) -> Retraining:
    """Return a collection's evidence; keyed by values."""
    try:
        return Retraining(version, _explorer.evidence())
    except LookupError:
        return Retraining(version, missing=True)
    except ValueError as error:
        return Retraining(version, why_not=sentence(error))


def find_evidence(explorer: Explorer) -> Retraining:
    """Return what retraining says of a collection's scores, if it says anything."""
    try:
        version = explorer.evidence_version()
    except ValueError as error:  # settings of another version of the program
        return Retraining(0, why_not=sentence(error))
    return _read(explorer.fingerprint, version, explorer)


@st.cache_data(max_entries=64, show_spinner=False)
def calibrated(
    collection: str, version: int, method: str, measurement: str, _evidence: Evidence
) -> Calibration:
    """Return the map from a method's predicted changes to measured ones.

    Keyed by values; evidence that allows none raises the errors of `calibration`.
    """
    return calibration(_evidence, method, measurement)


@st.cache_data(max_entries=512, show_spinner=False)
def _trust(collection: str, version: int, lens: Lens, source: str, _evidence):
    """Return how well a lens was found to rank subsets; keyed by values."""
    return lens_trust(
        _evidence, lens.method, lens.measurement, lens.timesteps, lens.damping, source
    )


def trust_of(explorer: Explorer, lens: Lens, source: str = "") -> Trust | None:
    """Return how well a lens was found to rank subsets, None where nobody tested.

    Args:
        explorer: The collection.
        lens: How the scores were asked.
        source: Where they come from, as in an answer.
    """
    retraining = find_evidence(explorer)
    lens = lens.canonical()
    if retraining.evidence is None or lens.region is not None:
        return None
    return _trust(
        explorer.fingerprint, retraining.version, lens, source, retraining.evidence
    )


def part_of(explorer: Explorer, answer: Answer) -> Part:
    """Return an answer as part of a report, with how far its lens was tested."""
    evidence = find_evidence(explorer).evidence
    groups = evidence is not None and not evidence.groups.empty
    return Part(answer, trust_of(explorer, answer.lens, answer.source), groups)


def mark(explorer: Explorer, lens: Lens, source: str = "") -> tuple[str, str]:
    """Return how far the scores of a lens were tested, and what that rests on.

    Both are Markdown; the arguments are those of `trust_of`.
    """
    tested = trust_of(explorer, lens, source)
    if tested is not None:
        words = f":small[:material/science: {text(tested.words)}]"
        return words, text(tested.meaning)
    why = "No model was retrained to see whether this ranking holds."
    retraining = find_evidence(explorer)
    if retraining.evidence is not None and retraining.untested:
        why = (
            "No model was retrained on random halves to see whether this ranking "
            "holds; some were retrained without whole groups."
        )
    elif retraining.evidence is not None:
        why = (
            "Retraining tested other rankings of this collection, not this one: it "
            "asks about a region, or was never scored for that."
        )
    words = f":small[:material/science_off: {UNTESTED}]"
    return words, text(f"{why} See the page Evidence.")


def show_mark(explorer: Explorer, lens: Lens, source: str = "") -> None:
    """Show that mark under what it is about; the arguments as above."""
    words, meaning = mark(explorer, lens, source)
    st.caption(words, help=meaning)
