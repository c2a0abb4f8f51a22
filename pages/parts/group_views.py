"""What leaving a group out changes, as the page Groups shows it."""

import numpy as np
import pandas as pd
import streamlit as st

from core import numbers
from core.answers import Answer, Query, Uncertainty
from core.evidence import names, redrawn, untested
from core.evidence.evaluation import Calibration
from core.evidence.groups import group_changes
from core.evidence.left_out import group_members
from core.evidence.stored import NOTHING, Evidence
from core.explorer import groups
from core.explorer.explorer import Explorer, Lens
from core.files import images, texts
from core.methods import METHODS
from core.report import group_figures
from core.report.left_out import LeftOut, printed
from pages.parts import components, lens_views, link, trust
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


def show_change(left_out: LeftOut, below: float) -> None:
    """Say what leaving the group out would change, and whether that is special."""
    st.markdown(f"#### {text(left_out.change)}")
    st.markdown(f"{text(left_out.against)} {standing(below)}")


def standing(below: float) -> str:
    """Return what a place among random groups means, in words."""
    if below > 0.975:
        return "Few random groups make this image as much more likely."
    if below < 0.025:
        return "Few random groups make this image as much less likely."
    return "A random group does as much."


def show_random(
    group: Group, change: float, others: np.ndarray, title: str, scale: numbers.Scale
) -> None:
    """Show the random groups of the same size, and where the group stands."""
    heading(
        "Against random groups",
        f"{len(others)} groups of {group.size:,}, drawn by chance from all images",
    )
    st.plotly_chart(
        group_figures.random_histogram(
            others * scale.factor, change * scale.factor, title
        ),
        config=lens_views.CHART,
        key="random_groups",
        alt=f"{title} of {len(others)} random groups, and of this group: "
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
            "the group with random groups only."
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


def show_size(
    answer: Answer,
    group: Group,
    change: float,
    error: float,
    sized: groups.Calibrated | str,
) -> None:
    """Say what retrained models make of the size of the change; the raw score."""
    heading("How large is that really?", "What models trained again say of the size")
    if isinstance(sized, str):
        st.caption(sized)
    else:
        show_calibrated(sized)
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
    number, ends = printed(size)
    st.metric(
        "calibrated change",
        number,
        label_visibility="collapsed",
        help="What was measured after such predictions, when models were trained "
        "again on random halves of the images",
    )
    words = (
        f"Expected beyond a random group of the same size; nine of ten measured "
        f"changes lie within {ends}. That was learnt where "
        "halves of the images were left out, "
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


def show_left_out(
    explorer: Explorer, query: Query, group: Group, lens: Lens, change: float
) -> None:
    """Say what happened where a model was really trained without this group."""
    evidence = trust.find_evidence(explorer).evidence
    if evidence is None or evidence.groups.empty or query.kind != "gallery":
        return
    if lens.timesteps or lens.region:
        return
    sample = query.facts["sample_id"]
    changes = group_changes(evidence, lens.measurement)
    for name in changes.index.unique("group") if len(changes) else ():
        members = group_members(name, explorer.examples.table)
        if (name, sample) not in changes.index:
            continue
        if not np.array_equal(members, group.members):
            continue
        with st.container(border=True):
            show_really(changes.loc[(name, sample)], lens, change)
            show_redrawn(evidence, query, name)


def show_really(row: pd.Series, lens: Lens, predicted: float) -> None:
    """Say what a training without the group changed, and what was predicted.

    Args:
        row: A row of `group_changes`.
        lens: How the scores were asked.
        predicted: The change that they predict.
    """
    scale = numbers.signed_scale(row[["change", "random", "measured"]].abs().max())

    def number(value: float, scale: numbers.Scale = scale) -> str:
        return text(f"{scale.number(value)} {scale.unit}".strip())

    heading(
        "Measured: retrained without the group", "By models that were trained again"
    )
    words = (
        f"Without the group its {text(names.cost_name(lens.measurement))} "
        f"changed by **{number(row['change'])}**"
    )
    if row["controls"]:
        words += (
            f", after a random removal of the same size by {number(row['random'])}: "
            f"**{number(row['measured'])}** beyond chance"
        )
    if lens.kind == "influence":  # often far larger, so on a scale of its own
        words += (
            f"; predicted: {number(predicted, numbers.signed_scale(abs(predicted)))}"
        )
    st.markdown(f"{words}.")
    st.caption(
        "All began with the same random weights and were trained once, so what chance "
        "adds to a training is in the change. More on the page Evidence."
    )


def show_redrawn(evidence: Evidence, query: Query, name: str) -> None:
    """Show the sample as the models with and without the group drew it."""
    drawn, sample = dict(redrawn.group_rows(evidence)), query.facts["sample_id"]
    if name not in drawn or sample not in drawn[name]:
        return
    labels = {NOTHING: "trained on every image", name: f"without {name}"}
    cells = [
        {
            "src": images.data_uri(images.png(drawn[model][sample])),
            "title": label,
        }
        for model, label in labels.items()
    ]
    rows = [{"label": "drawn again", "cells": cells}]
    alt = "This image from the same seed, as both models draw it"
    components.matrix(list(labels.values()), rows, "really_drawn", alt=alt)


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
        help="One bar for each value: what leaving out all its images would change",
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
