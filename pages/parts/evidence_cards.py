"""The cards of the page Evidence: a figure each, and the sentence that it amounts to.

Not a page.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from core import numbers
from core.evidence import (
    ablation,
    changes,
    collapse,
    damping,
    lds,
    names,
    redrawn,
    removal,
    timesteps,
    untested,
)
from core.evidence.changes import calibration
from core.evidence.evaluation import Calibration
from core.evidence.groups import group_finding, group_summary
from core.evidence.stored import CEILING, NOTHING, RANDOM, Evidence
from core.evidence.tables import make_table
from core.explorer import groups
from core.explorer.explorer import Explorer
from core.files import images
from core.files.texts import file_name, minus, safe_csv
from core.methods import METHODS
from core.report import comparison, evidence_figures
from pages.parts import components, lens_views, link
from pages.parts.words import heading, sentence, text

REFERENCES = {CEILING: "exact retraining", RANDOM: "random scores"}
KINDS = ["influence", "attribution", "similarity", "other"]
SETTINGS = ["as usual", "changed"]
MANY = 1500  # dots that a figure can hold and stay quick


@dataclass(frozen=True)
class Asked:
    """What the page is asked about.

    Attributes:
        explorer: The collection.
        evidence: About its scores.
        version: Of the evidence.
        measurement: What was measured in every retrained model.
    """

    explorer: Explorer
    evidence: Evidence
    version: int
    measurement: str

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of the evidence; errors are those of `make_table`."""
        key = (self.explorer.fingerprint, self.version, name, self.measurement)
        return cached_table(*key, self.evidence)

    def calibration(self, method: str) -> Calibration:
        """Return the map from a method's predicted changes to measured ones."""
        key = (self.explorer.fingerprint, self.version, method, self.measurement)
        return cached_calibration(*key, self.evidence)


@st.cache_data(max_entries=64, show_spinner="Comparing with the retrained models")
def cached_table(
    collection: str, version: int, name: str, measurement: str, _evidence: Evidence
) -> pd.DataFrame:
    """Return a table of the evidence; keyed by values."""
    return make_table(_evidence, name, measurement)


@st.cache_data(max_entries=64, show_spinner=False)
def cached_calibration(
    collection: str, version: int, method: str, measurement: str, _evidence: Evidence
) -> Calibration:
    """Return a calibration; keyed by values."""
    return calibration(_evidence, method, measurement)


# --- parts of a card ----------------------------------------------------------------


def card(place, show: Callable[[Asked], None], asked: Asked) -> None:
    """Show one card, or in its place the sentence why it cannot be made."""
    with place.container(border=True, height="stretch"):
        try:
            show(asked)
        except (LookupError, ValueError) as error:
            st.info(sentence(error))


def say(title: str, note: str, finding: str) -> None:
    """Show a card's title and what its figure says."""
    heading(title, note)
    st.markdown(text(finding))


def chart(figure, key: str, alt: str) -> None:
    """Show a figure; the finding beside it serves those who do not see it."""
    st.plotly_chart(figure, config=lens_views.CHART, key=key, alt=alt)


def show_commands(explorer: Explorer, option: str, add: bool = True) -> None:
    """Show how to retrain the models that a card lacks.

    Args:
        explorer: The collection.
        option: Which models `retrain` shall train.
        add: Whether to what is stored already.
    """
    flags = untested.command_flags(explorer.config)
    missing, adding = (" --missing", " --add") if add else ("", "")
    st.code(
        f"python -m precompute retrain {flags} {option}{missing}\n"
        f"python -m precompute evidence {flags}{adding}",
        language="bash",
        wrap_lines=True,
    )


def offer(asked: Asked, table: pd.DataFrame, name: str) -> None:
    """Offer a table as a file."""
    st.download_button(
        "These figures (CSV)",
        safe_csv(table),
        file_name=file_name(asked.explorer.name, name, asked.measurement, ending="csv"),
        mime="text/csv",
        icon=":material/download:",
        type="tertiary",
        key=f"download_{name}",
        help="The same table as `python -m precompute evidence --table`",
        on_click="ignore",
    )


def lds_points(
    table: pd.DataFrame, titles: list[str], tones: list[str]
) -> pd.DataFrame:
    """Return LDS rows as the figure wants them."""
    return pd.DataFrame({
        "name": titles,
        "value": table["lds"].to_numpy(),
        "error": table["standard_error"].to_numpy(),
        "tone": tones,
    })


# --- cards --------------------------------------------------------------------------


def show_lds(asked: Asked) -> None:
    """Show how well each method ranks random halves of the pictures."""
    table = asked.table("lds")
    finding = lds.lds_finding(table)
    say(
        "Which method predicts what retraining does?",
        "LDS: rank correlation over random halves; 1 is the same order, 0 is chance",
        finding,
    )
    outside = table["method"].isin([CEILING, RANDOM])
    known = table[table["lds"].notna()].set_index("method")
    references = {
        name: (known.at[method, "lds"], known.at[method, "standard_error"])
        for method, name in REFERENCES.items()
        if method in known.index
    }
    rows = table[~outside]
    kinds = [
        METHODS[method].kind if method in METHODS else "other"
        for method in rows["method"]
    ]
    left, right = st.columns([0.55, 0.45], gap="medium")
    with left:
        named = rows["method"].map(names.method_name).tolist()
        figure = evidence_figures.points(
            lds_points(rows, named, kinds), "LDS", KINDS, references
        )
        chart(figure, "lds", finding)
    with right:
        show_lds_table(table)
        offer(asked, table, "lds")
    st.caption(text(lds.error_note(table)))


def show_lds_table(table: pd.DataFrame) -> None:
    """Show the LDS as numbers."""
    shown = pd.DataFrame({
        "method": [
            REFERENCES.get(name, names.method_name(name)) for name in table["method"]
        ],
        "LDS": table["lds"],
        "±": table["standard_error"],
        "± halves": table["subset_error"],
        "scored": table["scored"],
    })
    # A styled number is sorted as a number, and has the minus sign that people read.
    printed = dict.fromkeys(["LDS", "±", "± halves"], lambda x: minus(f"{x:.3f}"))
    st.dataframe(
        shown.style.format(printed, na_rep="–"),
        hide_index=True,
        width="stretch",
        height="content" if len(shown) <= 12 else 460,
        column_config={
            "± halves": st.column_config.NumberColumn(
                help="Error from having few retrained models (jackknife)"
            ),
            "scored": st.column_config.TextColumn(
                help="What the scores were about; own: the method knows only one thing"
            ),
        },
        alt="LDS of every method with its errors",
    )


def show_damping(asked: Asked) -> None:
    """Show what another damping makes of the ranking."""
    table = asked.table("damping")
    finding = damping.damping_finding(table)
    say("Damping", "A ring marks the damping that the app uses", finding)
    if table.empty:
        return
    frame = table.assign(name=table["method"].map(names.method_name))
    chart(evidence_figures.damping_curves(frame), "damping_sweep", finding)
    offer(asked, table, "damping")


def show_ablation(asked: Asked, title: str, rows: pd.DataFrame, finding: str) -> None:
    """Show what one change of EK-FAC's settings does to the LDS."""
    note = "LDS of EK-FAC; of rows with equal draws one thing is changed"
    say(title, note, finding)
    if len(rows) < 2:
        return
    usual = asked.evidence.recipe["num_draws"]
    titles = []
    for row in rows.itertuples():
        name = ablation.setting_name(row.changed, row.setting)
        sized = row.changed == "gradients" and np.isfinite(row.bytes)
        name = f"{name}, {numbers.size_of(row.bytes)}" if sized else name
        other = row.changed == "gradients" and row.num_draws != usual
        titles.append(f"{name}, {row.num_draws} draws" if other else name)
    tones = [SETTINGS[not default] for default in rows["default"]]
    chart(
        evidence_figures.points(lds_points(rows, titles, tones), "LDS", SETTINGS, {}),
        f"ablation_{title}",
        finding,
    )


def show_draws(asked: Asked) -> None:
    """Show what more Monte Carlo draws change."""
    table = asked.table("ablation")
    rows = ablation.draw_rows(table)
    show_ablation(asked, "Monte Carlo draws", rows, ablation.draws_finding(table))
    offer(asked, table, "ablation")


def show_formats(asked: Asked) -> None:
    """Show what storing gradients in fewer bytes loses."""
    table = asked.table("ablation")
    rows = ablation.format_rows(table).sort_values("bytes", ascending=False)
    finding = ablation.format_finding(table)
    show_ablation(asked, "How gradients are kept", rows, finding)


def show_substitution(asked: Asked) -> None:
    """Show what scores for one measurement say of another."""
    table = asked.table("ablation")
    rows = table[table["changed"] == "scored"]
    finding = ablation.substitution_finding(table, asked.measurement)
    show_ablation(asked, "Another measurement’s scores", rows, finding)


def show_changes(asked: Asked) -> None:
    """Show predicted against measured changes of one method."""
    table = asked.table("changes")
    methods = [name for name in table["method"].unique() if name != RANDOM]
    heading(
        "Predicted against measured change",
        "A dot is a sample in a model retrained on half of the pictures; both changes "
        "are against the average half",
    )
    if not methods:
        st.markdown("There are no scores to compare with what was measured.")
        return
    method = chosen_method(methods, "compared")
    found = asked.calibration(method)
    finding = changes.change_finding(found, method, asked.measurement)
    st.markdown(text(finding))
    chart(
        change_figure(asked, table[table["method"] == method], found),
        "changes",
        finding,
    )
    rises = changes.rise_finding(asked.table("observations"), asked.measurement)
    st.markdown(text(rises))
    offer(asked, table, "changes")


def chosen_method(methods: list[str], key: str) -> str:
    """Show a choice among methods, named `key` in the address; return the chosen."""
    usual = "ekfac" if "ekfac" in methods else methods[0]
    return st.selectbox(
        "Method",
        methods,
        format_func=names.method_name,
        help="Whose predictions are compared with what was measured",
        **link.bind(key, methods, usual),
    )


def change_figure(asked: Asked, rows: pd.DataFrame, found: Calibration):
    """Return the scatter of one method's changes, with the map between them."""
    both = rows[["predicted", "measured"]]
    centred = both - both.groupby(rows["sample_id"]).transform("mean")
    frame = pd.DataFrame({
        "x": centred["predicted"],
        "y": centred["measured"],
        "id": rows["sample_id"],
        "name": [
            f"sample {row.sample_id}, half {row.subset}" for row in rows.itertuples()
        ],
    })
    x, y = (frame[name].to_numpy() for name in "xy")
    frame = frame.iloc[comparison.scatter_positions(x, y, MANY)]
    places = np.linspace(x.min(), x.max(), 80)
    line = pd.DataFrame({"x": places, "y": found(places)})
    return evidence_figures.calibrated_scatter(
        frame,
        line,
        found.half_width,
        f"predicted change{'' if predicts_size(rows) else ', no unit'}",
        f"measured change, {names.unit_of(asked.measurement)}",
    )


def predicts_size(rows: pd.DataFrame) -> bool:
    """Return whether the method of some changes predicts their size, not only order."""
    method = rows["method"].iloc[0]
    return method in METHODS and METHODS[method].kind == "influence"


def show_timesteps(asked: Asked) -> None:
    """Show which noise levels' scores predict which noise levels' cost."""
    table = asked.table("timesteps")
    finding = timesteps.timestep_finding(table)
    finding += f" {timesteps.proxy_finding(asked.table('observations'))}".rstrip()
    say(
        "Which noise levels predict which",
        "LDS of EK-FAC’s scores for the noise levels of a row, against the cost at "
        "those of a column",
        finding,
    )
    own = table[table["method"] == "ekfac"]
    if own.empty:
        return
    heat = own.pivot(
        index=["scored_low", "scored_high"], columns=["low", "high"], values="lds"
    )
    largest = float(np.nanmax(np.abs(heat.to_numpy()), initial=0.0)) or 1.0
    columns = [band_name(*band) for band in heat.columns]
    rows = [
        {
            "label": band_name(*scored),
            "cells": [
                heat_cell(value, largest, band_name(*scored), column)
                for value, column in zip(heat.loc[scored], columns, strict=True)
            ],
        }
        for scored in heat.index
    ]
    components.matrix(columns, rows, "timestep_lds", alt=finding, layout="heat")
    offer(asked, table, "timesteps")


def heat_cell(value: float, largest: float, scored: str, measured: str) -> dict:
    """Return a cell of the table of noise levels."""
    if not np.isfinite(value):
        return {"text": "–", "strength": 0.0}
    title = f"scores for noise {scored}, cost at noise {measured}"
    shown = numbers.number(value)
    return {"text": shown, "strength": value / largest, "title": title}


def band_name(low: int, high: int) -> str:
    """Return what to call a range of timesteps in a small table."""
    return "all" if low < 0 else f"{low}–{high}"


def show_removal(asked: Asked) -> None:
    """Show what leaving out the top influences does, against random pictures."""
    table = asked.table("removal")
    finding = removal.removal_finding(table, asked.measurement)
    say(
        "Retrained without the top influences",
        "Change of the cost beyond that of as many random pictures left out",
        finding,
    )
    if table.empty:
        show_commands(asked.explorer, "--removals")
        return
    rows = table[table["sample_id"] == -1].sort_values(
        ["fraction", "excess"], ascending=False
    )
    tones = [f"without {fraction:.0%}" for fraction in rows["fraction"]]
    titles = [
        f"{names.method_name(row.method)}, {row.fraction:.0%}"
        for row in rows.itertuples()
    ]
    frame = pd.DataFrame({
        "name": titles,
        "value": rows["excess"].to_numpy(),
        "error": rows["standard_error"].to_numpy(),
        "tone": tones,
    })
    tones = list(dict.fromkeys(tones))
    title = f"beyond random removal, {names.unit_of(asked.measurement)}"
    references = {"random removal": (0.0, np.nan)}
    chart(evidence_figures.points(frame, title, tones, references), "removal", finding)
    samples = table.loc[table["sample_id"] >= 0, "sample_id"].nunique()
    st.caption(f"± is one standard error over {samples} samples.")
    show_removal_pictures(asked, table)
    offer(asked, table, "removal")


def show_removal_pictures(asked: Asked, table: pd.DataFrame) -> None:
    """Show the samples as models drew them without what matters most for each."""
    fraction = table["fraction"].max()
    rows = redrawn.removal_rows(asked.evidence, fraction)
    if not rows:
        return
    excess = table[table["fraction"] == fraction].set_index(["method", "sample_id"])
    unit = names.unit_of(asked.measurement)
    samples = sorted(rows[0][1])
    shown = []
    for method, pictures in rows:
        label = {
            NOTHING: "nothing removed",
            RANDOM: f"random {fraction:.0%}",
        }.get(method, f"top {fraction:.0%} by {names.method_name(method)}")
        cells = []
        for sample in samples:
            cell = picture_cell(pictures, sample, label)
            if (method, sample) in excess.index:
                change = excess.at[(method, sample), "excess"]
                cell["text"] = numbers.change_of(change, np.nan)
                cell["title"] += f": {cell['text']} {unit} beyond random removal"
            cells.append(cell)
        shown.append({"label": label, "cells": cells})
    alt = (
        "The same samples, from the same seeds, as models drew them that were trained "
        f"without {fraction:.0%} of the pictures"
    )
    st.caption(f"{alt}. Under each, its change beyond random removal.")
    columns = [f"{sample}" for sample in samples]
    components.matrix(columns, shown, "removal_pictures", alt=alt)


def show_drawn(rows: list[tuple[str, redrawn.Pictures]], key: str, alt: str) -> None:
    """Show the samples as several models drew them, a row per model and its name."""
    samples = sorted(rows[0][1])
    shown = [
        {
            "label": label,
            "cells": [picture_cell(pictures, sample, label) for sample in samples],
        }
        for label, pictures in rows
    ]
    st.caption(f"{alt}.")
    components.matrix([f"{sample}" for sample in samples], shown, key, alt=alt)


def picture_cell(pictures: redrawn.Pictures, sample: int, label: str) -> dict:
    """Return a cell with the picture of a sample, or a dash."""
    if sample not in pictures:
        return {"text": "–", "strength": 0.0}
    source = images.data_uri(images.png(pictures[sample]))
    return {"src": source, "title": f"sample {sample}, {label}"}


def show_groups(asked: Asked) -> None:
    """Show what leaving out whole groups did, against what was foretold."""
    table = asked.table("groups")
    summary = group_summary(table)
    finding = group_finding(summary, asked.measurement)
    say(
        "Whole groups, really left out",
        "A dot is a sample in a model that was trained without one group",
        finding,
    )
    if table.empty:
        show_group_commands(asked.explorer)
        return
    method = chosen_method(summary["method"].tolist(), "grouped")
    rows = table[table["method"] == method]
    tones = ["its own group", "another group", "sample of no class"]
    own = rows["share"] > 0.5
    frame = pd.DataFrame({
        "predicted": rows["predicted"],
        "error": rows["standard_error"],
        "measured": rows["measured"],
        "name": [f"sample {r.sample_id} without {r.group}" for r in rows.itertuples()],
        "tone": np.where(rows["share"].isna(), tones[2], np.where(own, *tones[:2])),
    })
    unit = names.unit_of(asked.measurement)
    figure = evidence_figures.group_scatter(
        frame,
        [tone for tone in tones if (frame["tone"] == tone).any()],
        f"predicted change{f', {unit}' if predicts_size(rows) else ', no unit'}",
        f"measured change, {unit}",
    )
    chart(figure, "groups_left_out", finding)
    controls = int(table["controls"].min())
    against = "Changes are against the same training with every picture."
    if controls:
        models = "a model" if controls == 1 else f"{controls} models"
        against = (
            f"Changes are beyond that of {models} trained without as many random "
            "pictures, which were trained for as long."
        )
    st.caption(
        f"{against} All these models began with the same random weights; each was "
        "trained once, so what chance adds to a training is in every dot."
    )
    show_group_pictures(asked)
    offer(asked, table, "groups")


def show_group_commands(explorer: Explorer, add: bool = True) -> None:
    """Show how to leave out each group of the first label, where that is possible."""
    labels = groups.facets(explorer.examples.table)
    if labels and not explorer.config.train.imported:
        show_commands(explorer, f"--without {labels[0]}", add)


def show_group_pictures(asked: Asked) -> None:
    """Show the samples as models drew them that never saw a group."""
    rows = redrawn.group_rows(asked.evidence)
    if not rows:
        return
    words = {NOTHING: "nothing removed", RANDOM: "as many random"}
    named = [(words.get(name, f"without {name}"), drawn) for name, drawn in rows]
    alt = "The same samples, from the same seeds, as these models drew them"
    show_drawn(named, "group_pictures", alt)


def show_collapse(asked: Asked) -> None:
    """Show how alike models become that share no picture, as they see more."""
    table = asked.table("collapse")
    finding = collapse.collapse_finding(table, asked.measurement)
    say(
        "Two models that share no picture",
        "How alike they are, by the number of pictures that each was trained on",
        finding,
    )
    if table.empty:
        show_commands(asked.explorer, "--disjoint")
        return
    chart(evidence_figures.collapse_curves(table), "collapse", finding)
    rows = redrawn.disjoint_rows(asked.evidence)
    if rows:
        named = [
            (f"{count:,} pictures, model {'AB'[side]}", pictures)
            for count, side, pictures in rows
        ]
        alt = "What both models of each pair draw from the same seeds"
        show_drawn(named, "disjoint_pictures", alt)
    offer(asked, table, "collapse")


def show_stored(explorer: Explorer) -> None:
    """Show what was measured without retraining."""
    finding = untested.stored_finding(explorer.provenance.get("quality") or {})
    say(
        "What takes no retraining",
        "Whether the scores are what was meant, not whether they come true",
        finding,
    )
    st.page_link(
        "pages/collections.py",
        label="All of it on the page Collections",
        icon=":material/arrow_forward:",
    )
