"""What removing a group is predicted to change, as the page What if shows it."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import streamlit as st

from core import numbers
from core.answers import Answer, Query, Uncertainty
from core.evidence import names, untested
from core.evidence.evaluation import Calibration
from core.explorer import groups
from core.explorer.explorer import Explorer, Lens
from core.files import texts
from core.methods import METHODS
from core.report import group_figures
from core.report.left_out import LeftOut, against_words, change_words, printed
from pages.parts import lens_views, link, trust
from pages.parts.group_picker import Group
from pages.parts.words import column_name, column_word, heading, sentence, text

SHOWN = 12  # members of the group that are shown


BARS = 16  # values of a label that have a bar; the table has all


def addends(answer: Answer) -> np.ndarray:
    """Return scores whose sum over N is printed: an attribution is not divided by N."""
    is_change = answer.lens.kind == "influence"
    return answer.scores if is_change else answer.scores * len(answer.scores)


@st.cache_data(max_entries=64, show_spinner=False)
def random_changes(
    collection: str, query: str, lens: Lens, size: int, seed: int, _scores: np.ndarray
) -> np.ndarray:
    """Return the predicted changes of random groups of a size; keyed by values."""
    members = groups.random_members(len(_scores), size, seed)
    return groups.changes(_scores, members)


@dataclass(frozen=True)
class Prediction:
    """What scores say of removing a group.

    Attributes:
        change: Predicted, the sum of the scores over N.
        error: Its standard error, NaN where there is none.
        others: The changes of random groups of the same size.
        sized: What retrained models make of it, or why nothing, as Markdown.
        left_out: All of it in sentences.
    """

    change: float
    error: float
    others: np.ndarray = field(repr=False)
    sized: groups.Calibrated | str
    left_out: LeftOut


def predict(
    explorer: Explorer,
    query: Query,
    answer: Answer,
    group: Group,
    uncertainty: Uncertainty | None,
) -> Prediction:
    """Return what removing a group would change, beside random groups of its size."""
    error = float("nan")
    if uncertainty is not None:
        error = float(uncertainty.of_groups(group.members[None])[0])
    scores = addends(answer)
    change = float(groups.changes(scores, group.members[None])[0])
    seed = int(explorer.provenance["settings"]["seed"])
    key = explorer.fingerprint, query.key, answer.lens
    others = random_changes(*key, group.size, seed, scores)
    sized = sized_by_retraining(explorer, answer, group, change)
    known = None if isinstance(sized, str) else sized
    below = groups.share_below(change, others)
    raw = change, error
    left_out = LeftOut(
        group.name,
        group.size,
        change_words(answer, group.whose, group.size, raw, below, known),
        against_words(below),
    )
    return Prediction(change, error, others, sized, left_out)


def show_prediction(found: Prediction) -> None:
    """Say what is predicted, the verdict first."""
    verdict, dot, rest = found.left_out.change.partition(". ")
    if not verdict.startswith("Predicted"):
        verdict, dot, rest = "Predicted: an order only", ".", found.left_out.change
    st.markdown(f"### {text(verdict + dot.strip())}\n{text(rest)}")
    st.caption(text(found.left_out.against))


def show_random(answer: Answer, group: Group, found: Prediction) -> None:
    """Show the random groups of the same size, and where the group stands."""
    change, others = found.change, found.others
    scale = numbers.signed_scale(max(abs(change), np.abs(others).max()))
    title = change_title(answer, scale)
    heading(
        "Against random removals",
        f"{len(others)} random removals of {group.size:,} images",
    )
    st.plotly_chart(
        group_figures.random_histogram(
            others * scale.factor, change * scale.factor, title
        ),
        config=lens_views.CHART,
        key="random_groups",
        alt=f"{title} of {len(others)} random removals, and of this group: "
        f"larger than {groups.share_below(change, others):.0%} of them.",
    )


def calibration_of(explorer: Explorer, lens: Lens) -> Calibration | str:
    """Return the map from a lens's predictions to changes, or why there is none."""
    retraining = trust.find_evidence(explorer)
    if retraining.untested:
        return sentence(LookupError(untested.untested_finding(explorer.config)))
    if retraining.evidence is None:
        return retraining.why_not
    key = (explorer.fingerprint, retraining.version, lens.method, lens.measurement)
    try:
        return trust.calibrated(*key, retraining.evidence)
    except (LookupError, ValueError) as error:
        return sentence(error)


def sized_by_retraining(
    explorer: Explorer, answer: Answer, group: Group, change: float
) -> groups.Calibrated | str:
    """Return what retrained models make of a change, or why nothing, as Markdown."""
    lens = answer.lens
    if lens.kind != "influence":
        return (
            f"{text(METHODS[lens.method].title)} gives an order, not a size: compare "
            "the group with random removals only."
        )
    if lens.timesteps or lens.region or lens.damping is not None:
        return (
            "The size is not calibrated: retrained models were measured as a whole, "
            "not at some noise levels or on a part of the image."
        )
    calibrated = calibration_of(explorer, lens)
    if isinstance(calibrated, str):
        return f"The size is not calibrated. {calibrated}"
    prediction = groups.beyond_chance(change, group.size, answer.scores)
    return groups.calibrated(calibrated, prediction)


def show_size(answer: Answer, group: Group, found: Prediction) -> None:
    """Say what retrained models make of the size of the change; the raw score."""
    change, error = found.change, found.error
    heading("How large is that really?", "What retrained models say of the size")
    if isinstance(found.sized, str):
        st.caption(found.sized)
    else:
        show_calibrated(found.sized)
    with st.expander("Raw score"):
        total = float(answer.scores[group.members].sum())
        facts = {
            "Sum of the scores": texts.minus(f"{total:.6g}"),
            "Mean score of a member": texts.minus(f"{total / group.size:.6g}"),
            "Training images": f"{len(answer.scores):,}",
            "Predicted change = sum ÷ images": texts.minus(f"{change:.6g}"),
            "Its standard error": texts.minus(f"{error:.3g}")
            if np.isfinite(error)
            else "none",
        }
        if answer.lens.kind != "influence":
            facts = dict(list(facts.items())[:3])
        st.dataframe(
            pd.DataFrame(facts.items(), columns=["what", "value"]),
            hide_index=True,
            width="stretch",
            height="content",
            alt="The raw score of the group",
        )


def show_calibrated(size: groups.Calibrated) -> None:
    """Show the calibrated change with its interval, and what they rest on."""
    number, low, high = printed(size)
    st.metric(
        "calibrated change",
        number,
        label_visibility="collapsed",
        help="What was measured after such predictions, when models were "
        "retrained on random halves of the images",
    )
    words = (
        "Expected beyond a random removal of the same size; 90% of measured changes "
        f"lie from {low} to {high}. That was learnt where halves of the images were "
        "removed, "
    )
    if size.explained > 0:
        words += f"and explains {size.explained:.0%} of how much they differ."
    else:
        words += "where it predicted sizes no better than chance."
    if not size.tested:
        words += (
            " No prediction as large as this one was tested: take the change as a "
            "bound, the interval does not hold for it."
        )
    st.caption(text(words))


def show_all_values(
    explorer: Explorer, query: Query, answer: Answer, uncertainty: Uncertainty | None
) -> None:
    """Show the predicted change for every value of a label, and offer the table."""
    columns = explorer.facets
    if not columns:
        return
    column = st.segmented_control(
        "Every value of a label",
        columns,
        required=True,
        format_func=lambda name: text(column_name(explorer.name, name)),
        help="One bar for each value: what removing all its images would change",
        **link.bind("shares", columns, columns[0]),
    )
    values = explorer.examples.table.loc[answer.example_ids, column]
    table = groups.change_table(addends(answer), values, uncertainty)
    shown = groups.most_telling(table, BARS)
    scale = numbers.signed_scale(shown["change"].abs().max())
    printed = shown.assign(
        change=shown["change"] * scale.factor,
        standard_error=shown["standard_error"] * scale.factor,
    )
    what = "change" if answer.lens.kind == "influence" else "score"
    words = "; ".join(f"{r.group} {scale.number(r.change)}" for r in shown.itertuples())
    word = column_word(explorer.name, column)
    st.plotly_chart(
        group_figures.change_bars(printed, change_title(answer, scale)),
        config=lens_views.CHART,
        key="value_bars",
        alt=f"{change_title(answer, scale)} for each {word}: {words}",
    )
    if len(table) > len(shown):
        st.caption(
            f"The {len(shown)} with the largest effect of {len(table):,}; the table "
            "has all. A value with more images has more to lose."
        )
    st.download_button(
        "All values as a table (CSV)",
        lambda: texts.safe_csv(groups.named_table(table, column, what)),
        file_name=texts.file_name(explorer.name, column, query.key, ending="csv"),
        mime="text/csv",
        icon=":material/download:",
        help=f"Images, {what} and standard error of every value",
        on_click="ignore",
    )


def change_title(answer: Answer, scale: numbers.Scale) -> str:
    """Return what an axis of changes shows."""
    if answer.lens.kind == "influence":
        name = f"predicted change of the {names.cost_name(answer.lens.measurement)}"
    else:
        name = f"score by {METHODS[answer.lens.method].title}"
    return f"{name} ({scale.unit})" if scale.unit else name
