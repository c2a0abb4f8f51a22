"""What the evidence says, in plain sentences, whichever way it comes out.

Each function takes tables of `core.evidence.tables` and returns text for people. Two
figures are told apart where they differ by more than twice the larger of their errors;
they rest on the same subsets, so that is careful. Knows no page.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from core.config import COLLECTIONS, CollectionConfig, preset_of
from core.evidence.evaluation import FEWEST_HALVES, Calibration
from core.evidence.stored import CEILING, RANDOM
from core.evidence.trust import number, plus_minus
from core.files.texts import minus
from core.lenses import MEASUREMENTS, METHODS

ERRORS = 2  # standard errors that tell two figures apart
ALIKE = 0.95  # correlation of two models' costs above which they rank samples alike
TOO_FEW = "There are too few retrained models to rank anything by; train more."
_SCORED = ["scored_low", "scored_high"]
_WITHIN = ["within", "standard_error"]
DRAWS = " training draws"  # end of the name of a variant of the index


# --- words --------------------------------------------------------------------------


def method_name(method: str) -> str:
    """Return what to call a method where space is short."""
    names = {CEILING: "retraining with another seed", RANDOM: "random scores"}
    if method in METHODS:
        return METHODS[method].title.replace(" influence", "")
    return names.get(method, method)


def measured_name(measurement: str) -> str:
    """Return what to call a measurement inside a sentence."""
    title = MEASUREMENTS[measurement].title if measurement in MEASUREMENTS else None
    if title is None or title.isupper():
        return title or measurement
    return title[0].lower() + title[1:]


def cost_name(measurement: str) -> str:
    """Return what to call the measured value, which rises with a picture's cost."""
    known = MEASUREMENTS.get(measurement)
    return known.cost if known else measured_name(measurement)


def unit_of(measurement: str) -> str:
    """Return the unit of a measurement, "" where it is not known."""
    return MEASUREMENTS[measurement].unit if measurement in MEASUREMENTS else ""


def setting_name(changed: str, setting: object) -> str:
    """Return what to call a row of the ablation table."""
    if changed == "query draws":
        return f"{setting} draws of the sample"
    if changed == "scored":
        return measured_name(str(setting))
    if str(setting).endswith(DRAWS):
        return f"{setting.removesuffix(DRAWS)} draws of each picture"
    return "default" if setting == "as asked" else f"{setting}"


def listed(parts: Iterable[str]) -> str:
    """Return phrases as one: "a, b and c"."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def size_of(num_bytes: float) -> str:
    """Return bytes in thousands or millions, e.g. "12.3 kB"."""
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.3g} kB"
    return f"{num_bytes / 1e6:.3g} MB"


def change_of(value: float, error: float) -> str:
    """Return a change with its sign, to two digits of its error, "+0.302 ± 0.012"."""
    if not np.isfinite(error) or error <= 0:
        return minus(f"{value:+.3g}")
    digits = max(1 - int(np.floor(np.log10(error))), 0)
    return minus(f"{value:+,.{digits}f} ± {error:,.{digits}f}")


def lds_of(row) -> str:
    """Return the LDS of a row with its error over samples."""
    return plus_minus(row["lds"], row["standard_error"])


def error_of(*rows) -> float:
    """Return the largest error of LDS rows, over samples or over subsets."""
    errors = [row[name] for row in rows for name in ("standard_error", "subset_error")]
    return float(np.nanmax(errors)) if np.isfinite(errors).any() else float("inf")


def are_apart(first, second) -> bool:
    """Return whether two LDS rows can be told apart."""
    return abs(first["lds"] - second["lds"]) > ERRORS * error_of(first, second)


# --- LDS ----------------------------------------------------------------------------


def lds_finding(table: pd.DataFrame) -> str:
    """Return which method ranks subsets best, beside the ceiling and chance."""
    ranked = table[table["lds"].notna()]
    ceiling = ranked[ranked["method"] == CEILING]
    methods = ranked[~ranked["method"].isin([CEILING, RANDOM])]
    if methods.empty or methods["num_subsets"].max() < FEWEST_HALVES:
        return TOO_FEW
    best = methods.loc[methods["lds"].idxmax()]
    said = f"{method_name(best['method'])} ranks subsets with LDS {lds_of(best)}"
    others = methods[methods["method"].isin(["ekfac", "clip"])]
    others = others[others["method"] != best["method"]]
    for _, row in others.iterrows():
        near = "" if are_apart(best, row) else " (too near to tell apart)"
        said += f", {method_name(row['method'])} with {number(row['lds'])}{near}"
    if len(ceiling):
        said += f"; retraining with another seed reaches {lds_of(ceiling.iloc[0])}"
    said += "; chance is 0."
    if abs(best["lds"]) <= ERRORS * error_of(best):
        said += " Even the best is within two standard errors of chance."
    if not len(ceiling):
        said += (
            " How much is possible was not measured: that takes halves that were "
            "trained with two seeds."
        )
    return said


def error_note(table: pd.DataFrame) -> str:
    """Return what the error bars of an LDS table are, and what they leave out."""
    rows = table[~table["method"].isin([CEILING])]
    if rows.empty:
        return ""
    said = f"± is one standard error over {rows['num_samples'].max()} samples."
    if rows["subset_error"].notna().any():
        said += (
            f" All rows share the same {rows['num_subsets'].max()} retrained models, "
            f"which adds up to {number(rows['subset_error'].max())} (jackknife)."
        )
    few = table[table["method"] == CEILING]
    if len(few) and few["num_subsets"].iloc[0] < rows["num_subsets"].max():
        said += f" The ceiling rests on {few['num_subsets'].iloc[0]} of them."
    return said


# --- what was varied -----------------------------------------------------------------


def damping_finding(table: pd.DataFrame) -> str:
    """Return what each method would gain by another damping."""
    parts, gains = [], False
    for method, rows in table[table["lds"].notna()].groupby("method", sort=False):
        own = rows[rows["default"]]
        if own.empty:
            continue
        own, best = own.iloc[0], rows.loc[rows["lds"].idxmax()]
        name = method_name(method)
        gain = best["lds"] - own["lds"]
        if gain < 0.005:  # what two digits would print as nothing
            parts.append(f"{name} ranks best at its own damping ({number(own['lds'])})")
            continue
        gains = True
        times = minus(f"{best['relative']:.2g}")
        far = "more" if are_apart(own, best) else "no more"
        parts.append(
            f"{name} would gain {number(gain)} at {times} times the mean eigenvalue, "
            f"which is {far} than two standard errors"
        )
    if not parts:
        return "No damping was varied."
    said = "; ".join(parts) + "."
    if gains:
        said += " The best was picked on these same subsets, which flatters it."
    return said


def draw_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the ablation table that are about Monte Carlo draws."""
    trained = table["setting"].astype(str).str.endswith(DRAWS)
    rows = table[(table["changed"] == "query draws") | trained]
    counts = rows["setting"].astype(str).str.removesuffix(DRAWS).astype(int)
    return rows.assign(draws=counts).sort_values(["changed", "draws"], ascending=False)


def draws_finding(table: pd.DataFrame) -> str:
    """Return what more Monte Carlo draws change, of the sample and of each picture."""
    rows = draw_rows(table[table["lds"].notna()])
    said = []
    for changed, what in (
        ("query draws", "of the sample"),
        ("gradients", "of each training picture"),
    ):
        part = rows[rows["changed"] == changed]
        if len(part) < 2:
            continue
        many, few = part.iloc[0], part.iloc[-1]
        said.append(
            f"With {few['draws']} draws {what} the LDS is {number(few['lds'])}, with "
            f"{many['draws']} {number(many['lds'])}: {_difference(few, many)}."
        )
    return " ".join(said) or "The number of draws was not varied."


def _difference(first, second) -> str:
    """Return whether two rows can be told apart, in words."""
    if are_apart(first, second):
        return f"a clear difference of {number(abs(second['lds'] - first['lds']))}"
    return "too near to tell apart"


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
        f"The smallest ({names[0]}, {size_of(small['bytes'])} a picture) ranks with "
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


# --- changes ------------------------------------------------------------------------


def change_finding(found: Calibration, method: str, measurement: str) -> str:
    """Return how near a method's calibrated predictions come to measured changes."""
    unit = unit_of(measurement)
    said = (
        f"Calibrated on other halves, {method_name(method)} misses the measured change "
        f"by {minus(f'{found.error:.3g}')} {unit} (root mean square); no prediction "
        f"misses it by {minus(f'{found.spread:.3g}')}. "
    )
    if found.explained > 0:
        said += f"That explains {found.explained:.0%} of the variance. "
    else:
        said += "So it predicts the size of a change no better than nothing does. "
    width = minus(f"{found.half_width:.3g}")
    return said + f"Nine of ten changes lie within ± {width} of the map."


def rise_finding(observations: pd.DataFrame, measurement: str) -> str:
    """Return how often leaving out half of the pictures made a sample harder.

    And whether that is the paper's Observation 2: far more rises than are predicted.
    """
    shares = {
        name: observations[observations["observation"] == f"share of rises{name}"]
        for name in ("", ", trained again", ", predicted")
    }
    shares = {
        name: rows.iloc[0]
        for name, rows in shares.items()
        if len(rows) and np.isfinite(rows["figure"].iloc[0])
    }
    if "" not in shares:
        return ""
    said = (
        f"Without half of the pictures the {cost_name(measurement)} of a sample rose "
        f"in {_percent(shares[''])} of the cases"
    )
    if ", trained again" in shares:
        said += (
            ", against the model that drew it; against one trained again on every "
            f"picture, in {_percent(shares[', trained again'])}"
        )
    if ", predicted" not in shares:
        return f"{said}."
    found, foretold = shares.get(", trained again", shares[""]), shares[", predicted"]
    more = found["figure"] - foretold["figure"]
    errors = (row["standard_error"] for row in (found, foretold))
    holds = "holds here" if more > ERRORS * np.hypot(*errors) else "does not show here"
    return (
        f"{said}. EK-FAC predicts a rise in {_percent(foretold)}. So the paper's "
        f"observation that more costs rise than influence predicts {holds}; scores "
        "only say how a half differs from the average half."
    )


def _percent(row) -> str:
    """Return a share with its error, "97% ± 1%"."""
    error = row["standard_error"]
    return f"{row['figure']:.0%}" + (f" ± {error:.0%}" if np.isfinite(error) else "")


def proxy_finding(observations: pd.DataFrame) -> str:
    """Return whether scores for much noise stand in for little noise, or the reverse.

    The paper's Observation 1; "" where the noise levels were not scored one by one.
    """
    rows = observations.set_index("observation")
    if "higher less lower" not in rows.index:
        return ""
    own, higher, lower, gap = (
        rows.loc[name]
        for name in (
            "own timesteps",
            "higher timesteps",
            "lower timesteps",
            "higher less lower",
        )
    )
    said = (
        "Scores for higher noise levels predict the cost at lower ones with LDS "
        f"{plus_minus(higher['figure'], higher['standard_error'])}, the reverse gives "
        f"{plus_minus(lower['figure'], lower['standard_error'])} (jackknife over "
        "halves). The paper's observation that higher levels are the better stand-ins "
    )
    clear = abs(gap["figure"]) > ERRORS * gap["standard_error"]
    if not clear:
        said += "can neither be confirmed nor refuted here"
    else:
        said += "holds here" if gap["figure"] > 0 else "is the other way round here"
    better = "still better" if own["figure"] > higher["figure"] else "no better"
    return f"{said}; a level's own scores are {better}, with {number(own['figure'])}."


def timestep_finding(table: pd.DataFrame) -> str:
    """Return whether the scores of some noise levels predict the cost there."""
    bands = table[(table["low"] >= 0) & (table["scored_low"] >= 0)]  # of EK-FAC alone
    bands = bands[bands["lds"].notna()]
    same = (bands[["low", "high"]].to_numpy() == bands[_SCORED].to_numpy()).all(1)
    if not same.any():
        return "The noise levels were not scored one by one for this measurement."
    best = bands.loc[bands.groupby(["low", "high"])["lds"].idxmax()]
    own = (best[["low", "high"]].to_numpy() == best[_SCORED].to_numpy()).all(1)
    said = (
        "Scores for a range of noise levels predict the cost in that range with LDS "
        f"{number(bands.loc[same, 'lds'].mean())} on average"
    )
    if (~same).any():
        said += (
            f", the cost in other ranges with {number(bands.loc[~same, 'lds'].mean())}"
        )
    return f"{said}; its own scores are the best for {own.sum()} of {len(best)} ranges."


def removal_finding(table: pd.DataFrame, measurement: str) -> str:
    """Return what leaving out the top influences did, against random pictures."""
    means = table[table["sample_id"] == -1]
    if means.empty:
        return "No model was trained without the pictures that matter most."
    rows = means[means["fraction"] == means["fraction"].max()]
    rows = rows.sort_values("excess", ascending=False)
    parts = [
        f"{method_name(row['method'])} "
        f"{change_of(row['excess'], row['standard_error'])}"
        for _, row in rows.iterrows()
    ]
    unit = unit_of(measurement)
    return (
        f"How much more a sample's {cost_name(measurement)} rises without the "
        f"{rows['fraction'].iloc[0]:.0%} of the pictures that matter most for it than "
        f"without as many random ones{unit and f', in {unit}'}: {listed(parts)}."
    )


def collapse_finding(table: pd.DataFrame, measurement: str) -> str:
    """Return whether models that share no picture become one as they see more."""
    if table.empty:
        return "No two models were trained on pictures that they do not share."
    small, large = table.iloc[0], table.iloc[-1]
    name, unit = cost_name(measurement), unit_of(measurement)
    spread = minus(f"{large['spread']:.3g}")
    said = (
        f"From {small['num_pictures']:,.0f} to {large['num_pictures']:,.0f} pictures "
        f"each, the {name} of a sample differs between the two models by "
        f"{_difference_of(small)}, then {_difference_of(large)}"
        f"{unit and f' {unit}'}, while samples differ among each other by "
        f"{spread}; the correlation over samples goes from "
        f"{number(small['correlation'])} to {number(large['correlation'])}."
    )
    if np.isfinite(large["drawn"]):
        said += (
            f" Pictures that both draw from one seed are {small['drawn']:.0%}, then "
            f"{large['drawn']:.0%} as far apart as pictures of different seeds."
        )
    fell = small["difference"] - large["difference"]
    errors = np.hypot(small["standard_error"], large["standard_error"])
    if fell > ERRORS * errors and large["correlation"] > ALIKE:
        return said + " So they become one, as the paper observed."
    return said + " That is not the agreement that the paper observed."


def _difference_of(row) -> str:
    """Return how far two models' costs are apart, with its error over samples."""
    return change_of(row["difference"], row["standard_error"]).lstrip("+")


def group_finding(summary: pd.DataFrame, measurement: str) -> str:
    """Return how well it was foretold what leaving out whole groups does.

    Args:
        summary: Of `core.evidence.tables.group_summary`.
        measurement: What was measured.
    """
    if summary.empty:
        return "No model was trained without a whole group of pictures."
    count = int(summary["num_groups"].iloc[0])
    without = "a group" if count == 1 else f"each of {count} groups"
    if np.isfinite(summary["within"]).all():
        ranked = summary.sort_values("within", ascending=False)
        within = "among the groups, for one sample, "
        figures = [plus_minus(*row) for row in ranked[_WITHIN].itertuples(index=False)]
    else:
        ranked = summary.sort_values("correlation", ascending=False)
        within, figures = "", [number(value) for value in ranked["correlation"]]
    named = [method_name(method) for method in ranked["method"]]
    parts = [f"{name} {said}" for name, said in zip(named, figures, strict=True)]
    controls = ranked["controls"].iloc[0]
    beyond = ", beyond that of as many random pictures left out," if controls else ""
    said = (
        f"Trained again without {without}, {ranked['num_samples'].iloc[0]} samples: "
        f"{within}predicted and measured change of the {cost_name(measurement)}"
        f"{beyond} have a rank correlation of {listed(parts)}."
    )
    if count > 1:
        firsts = [
            f"{row['first']:.0%} of the samples by {method_name(row['method'])}"
            for _, row in ranked.iterrows()
        ]
        said += (
            " The group that was foretold to matter most is the one that did for "
            f"{listed(firsts)}; guessing gives {ranked['chance'].iloc[0]:.0%}"
        )
        own = ranked["own"].iloc[0]
        said += f", the sample's own group {own:.0%}." if own > 0 else "."
    own = summary[summary["method"] == "ekfac"]
    size = own["size"].iloc[0] if len(own) else np.nan
    if np.isfinite(size):
        said += f" EK-FAC's sizes have to be taken times {minus(f'{size:.2g}')}."
    return said


# --- without retraining -------------------------------------------------------------


def stored_finding(quality: dict) -> str:
    """Return what was measured of a collection when it was built, in one sentence."""
    said = {
        "reliability": "with other draws of the training gradients, the order of its "
        "scores agrees to {}",
        "sketch_agreement": "the sketch agrees with the exact order to {}",
        "index_agreement": "the full index to {}",
        "exact_again": "asked again with all noise new, stored answers agree to {}",
        "sketch_again": "answers by the sketch to {}",
    }
    parts = [
        words.format(number(quality[name]))
        for name, words in said.items()
        if quality.get(name) is not None
    ]
    if not parts:
        return "Nothing was measured when the collection was built."
    return f"Measured when it was built: {listed(parts)} (Spearman)."


def command_flags(config: CollectionConfig) -> str:
    """Return what names a collection and its preset in a command."""
    flags, preset = f"--collection {config.name}", preset_of(config)
    return flags if preset in (None, "cpu") else f"{flags} --preset {preset}"


def untested_finding(config: CollectionConfig) -> str:
    """Return what was not measured of a collection, and the commands that do."""
    said = (
        "How well these scores rank random halves of the pictures was not measured: no "
        "model was trained again on such halves. "
    )
    if config.train.imported:
        return said + (
            "Its model was trained elsewhere, so there is no recipe here to train it "
            "again by."
        )
    flags, why = command_flags(config), "Do it with "
    if config.train.start_from:
        why = (
            "Its model went on from weights that had seen every picture, so only a "
            "build that starts anew can be tested"
        )
        if config.name not in COLLECTIONS:
            return f"{said}{why}."
        flags, why = (
            f"--collection {config.name} --preset gpu",
            f"{why}: build that, then ",
        )
    return (
        f"{said}{why}`python -m precompute retrain {flags}`, then "
        f"`python -m precompute evidence {flags}`."
    )
