"""What does each setting of the scores change? Draws, formats, substitutions."""

import pandas as pd

from core.evidence.lds import _difference, lds_of
from core.evidence.names import measured_name
from core.evidence.stored import (
    FIGURES,
    PREDICTED_BY,
    Evidence,
    default_lens,
    figures,
    same_lens,
)
from core.numbers import listed, number, size_of


def ablation_table(evidence: Evidence, measurement: str) -> pd.DataFrame:
    """Return what EK-FAC's LDS becomes when one thing about the question is changed.

    `changed` is "query draws", "scored" (another measurement's scores in its place) or
    a variant of the index; `setting` its value, `bytes` the size per training image
    where that is what changed. `num_draws` are the query's, more where the variants of
    the index are compared: rows of equal draws differ in one thing only.
    """
    target, rows = evidence.target(measurement), []
    plain = default_lens(evidence, "ekfac", PREDICTED_BY.get(measurement, measurement))
    sizes = evidence.recipe.get("bytes_per_example", {})
    for lens in evidence.lenses():
        for column, changed in {
            "num_draws": "query draws",
            "measurement": "scored",
            "variant": "gradients",
        }.items():
            # Gradients that are kept otherwise were asked with more draws.
            free = ("variant", "num_draws") if lens["variant"] else (column,)
            if column not in free[:1] or not same_lens(lens, plain, *free):
                continue
            predicted = evidence.predicted(lens, target)
            if predicted is None:
                continue
            setting = lens[column] or "as asked"
            facts = {
                "changed": changed,
                "setting": setting,
                "default": lens[column] == plain[column],
                "bytes": sizes.get(setting, float("nan")),
                "num_draws": lens["num_draws"],
            }
            rows.append(facts | figures(predicted, target.to_numpy()))
    columns = ["changed", "setting", "default", "bytes", "num_draws", *FIGURES]
    return pd.DataFrame(rows, columns=columns).sort_values(
        ["changed", "default", "lds"], ascending=[True, False, False], ignore_index=True
    )


DRAWS = " training draws"  # end of the name of a variant of the index


def setting_name(changed: str, setting: object) -> str:
    """Return what to call a row of the ablation table."""
    if changed == "query draws":
        return f"{setting} draws of the sample"
    if changed == "scored":
        return measured_name(str(setting))
    if str(setting).endswith(DRAWS):
        return f"{setting.removesuffix(DRAWS)} draws of each image"
    return "default" if setting == "as asked" else f"{setting}"


def draw_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the ablation table that are about Monte Carlo draws."""
    trained = table["setting"].astype(str).str.endswith(DRAWS)
    rows = table[(table["changed"] == "query draws") | trained]
    counts = rows["setting"].astype(str).str.removesuffix(DRAWS).astype(int)
    return rows.assign(draws=counts).sort_values(["changed", "draws"], ascending=False)


def draws_finding(table: pd.DataFrame) -> str:
    """Return what more Monte Carlo draws change, of the sample and of each image."""
    rows = draw_rows(table[table["lds"].notna()])
    sentences = []
    for changed, what in (
        ("query draws", "of the sample"),
        ("gradients", "of each training image"),
    ):
        part = rows[rows["changed"] == changed]
        if len(part) < 2:
            continue
        many, few = part.iloc[0], part.iloc[-1]
        sentences.append(
            f"With {few['draws']} draws {what} the LDS is {number(few['lds'])}, with "
            f"{many['draws']} {number(many['lds'])}: {_difference(few, many)}."
        )
    return " ".join(sentences) or "The number of draws was not varied."


def format_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the ablation table that are about storing gradients."""
    other = table["setting"].astype(str).str.endswith(DRAWS)
    return table[(table["changed"] == "gradients") & ~other]


def format_finding(table: pd.DataFrame) -> str:
    """Return what the smallest way to store gradients loses against the largest."""
    rows = format_rows(table[table["lds"].notna()]).dropna(subset=["bytes"])
    if rows["bytes"].nunique() < 2:
        return "Only one way to store gradients was tested."
    small = rows.loc[rows["bytes"].idxmin()]
    rows = rows[rows["num_draws"] == small["num_draws"]]  # nothing else may differ
    if rows["bytes"].nunique() < 2:
        return "No two ways to store gradients were tested with equal draws."
    large = rows.loc[rows["bytes"].idxmax()]
    names = [setting_name("gradients", row["setting"]) for row in (small, large)]
    return (
        f"The smallest ({names[0]}, {size_of(small['bytes'])} an image) ranks with "
        f"LDS {lds_of(small)}, the largest ({names[1]}, {size_of(large['bytes'])}) "
        f"with {lds_of(large)}: {_difference(small, large)}."
    )


def substitution_finding(table: pd.DataFrame, measurement: str) -> str:
    """Return what scores for other measurements say of what was measured."""
    rows = table[(table["changed"] == "scored") & table["lds"].notna()]
    own, others = (
        rows[rows["default"].astype(bool)],
        rows[~rows["default"].astype(bool)],
    )
    if own.empty or others.empty:
        return "Only scores for one measurement were tested."
    own = own.iloc[0]
    instead = [
        f"scores for the {setting_name('scored', row['setting'])} {number(row['lds'])} "
        f"({_difference(own, row)})"
        for _, row in others.iterrows()
    ]
    return (
        f"Scores for the {setting_name('scored', own['setting'])} rank halves by the "
        f"{measured_name(measurement)} with LDS {lds_of(own)}; in their place, "
        f"{listed(instead)}."
    )
