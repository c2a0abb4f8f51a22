"""Sentences about the evidence, whichever way it comes out; tables by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from core import numbers
from core.evidence import (
    ablation,
    changes,
    collapse,
    damping,
    groups,
    lds,
    removal,
    timesteps,
    untested,
)
from core.evidence.evaluation import Calibration
from core.evidence.groups import group_summary, group_table
from core.evidence.tables import make_table
from core.presets import collection_config, preset_of
from tests.helpers.toy_evidence import full_evidence


def lds_rows(*rows: tuple, **columns) -> pd.DataFrame:
    """Return an LDS table of (method, lds, standard error, subset error)."""
    table = pd.DataFrame(
        rows, columns=["method", "lds", "standard_error", "subset_error"]
    )
    return table.assign(num_samples=20, num_subsets=32, scored="loss", **columns)


CEILING = ("retraining", 0.35, 0.03, 0.05)
MOST = ("reachable", 0.59, 0.03, 0.04)
CHANCE = ("random", 0.01, 0.02, 0.03)


def test_the_lds_beside_ceiling_and_chance():
    """As the design says it, whatever the order of the rows."""
    table = lds_rows(CHANCE, ("ekfac", 0.21, 0.02, 0.03), CEILING, MOST)
    said = lds.lds_finding(table)
    assert said == (
        "EK-FAC ranks subsets with LDS 0.21 ± 0.02; one more retraining reaches "
        "0.35 ± 0.03, the most a predictor can reach is 0.59 ± 0.03; chance is 0."
    )
    assert lds.lds_finding(table[::-1]) == said


def test_another_method_may_be_best():
    rows = [("ekfac", 0.21, 0.02, 0.03), ("trak", 0.3, 0.02, 0.03)]
    said = lds.lds_finding(lds_rows(*rows, ("clip", -0.1, 0.02, 0.03), CEILING))
    assert said.startswith(
        "TRAK ranks subsets with LDS 0.30 ± 0.02, EK-FAC with 0.21, Small CLIP "
        "with −0.10; "
    )


def test_methods_that_cannot_be_told_apart_are_said_to_be_so():
    rows = [("ekfac", 0.26, 0.02, 0.03), ("trak", 0.3, 0.02, 0.03)]
    said = lds.lds_finding(lds_rows(*rows, CEILING))
    assert "EK-FAC with 0.26 (too near to tell apart)" in said


def test_a_few_halves_rank_nothing():
    few = lds_rows(("ekfac", 1.0, 0.0, 0.0)).assign(num_subsets=7)
    assert lds.lds_finding(few) == lds.TOO_FEW


def test_a_best_method_near_zero_is_called_chance():
    """Within two of the larger error; the samples' own is often too small."""
    chance = "within two standard errors of chance"
    assert chance in lds.lds_finding(lds_rows(("ekfac", 0.05, 0.01, 0.03)))
    assert chance not in lds.lds_finding(lds_rows(("ekfac", 0.07, 0.01, 0.03)))


def test_a_missing_ceiling_is_said():
    said = lds.lds_finding(lds_rows(("ekfac", 0.21, 0.02, 0.03)))
    assert said.endswith("that takes halves that were trained with two seeds.")


def test_nothing_to_rank_says_so():
    for table in (
        lds_rows(),
        lds_rows(("ekfac", np.nan, np.nan, np.nan)),
        lds_rows(CHANCE),
    ):
        assert lds.lds_finding(table) == lds.TOO_FEW


def test_the_error_note_names_both_errors_and_the_ceilings_fewer_subsets():
    table = lds_rows(("ekfac", 0.21, 0.02, 0.04), CEILING)
    table.loc[1, "num_subsets"] = 8
    assert lds.error_note(table) == (
        "± is one standard error over 20 samples. All rows share the same 32 retrained "
        "models, which adds up to 0.04 (jackknife). Both ceilings rest on 8 of them, "
        "which adds 0.05 to one more retraining."
    )


def test_damping_says_what_another_would_gain():
    rows = [
        ("ekfac", 0.30, 0.01, 0.01),
        ("ekfac", 0.20, 0.01, 0.01),
        ("trak", 0.10, 0.01, 0.02),
        ("trak", 0.15, 0.01, 0.02),
        ("trak", 0.13, 0.01, 0.02),
    ]
    default, relative = [True, False, True, False, False], [1e-3, 1, 1e-3, 0.1, 1]
    table = lds_rows(*rows, default=default, relative=relative)
    said = damping.damping_finding(table)
    assert "EK-FAC ranks best at its own damping (0.30); TRAK would gain 0.05" in said
    assert "at 0.1 times the mean eigenvalue, which is more than two" in said
    near = table.assign(subset_error=0.1)
    assert "which is no more than two standard errors" in damping.damping_finding(near)
    assert damping.damping_finding(table[:0]) == "No damping was varied."


def ablation_rows(*rows: tuple) -> pd.DataFrame:
    """Return an ablation table of (changed, setting, default, bytes, lds)."""
    columns = ["changed", "setting", "default", "bytes", "lds"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(standard_error=0.01, subset_error=0.02, num_draws=64)


def test_draws_compare_the_fewest_with_the_most():
    """Numbers count as numbers: 256 is more than 64."""
    table = ablation_rows(
        ("query draws", 256, False, np.nan, 0.22),
        ("query draws", 64, True, np.nan, 0.21),
        ("query draws", 16, False, np.nan, 0.10),
        ("gradients", "32 training draws", False, np.nan, 0.2),
        ("gradients", "64 training draws", False, np.nan, 0.21),
        ("gradients", "as asked", True, 1e6, 0.21),
    )
    assert ablation.draws_finding(table) == (
        "With 16 draws of the sample the LDS is 0.10, with 256 0.22: a clear "
        "difference of 0.12. With 32 draws of each training image the LDS is 0.20, "
        "with 64 0.21: too near to tell apart."
    )
    assert ablation.draws_finding(table[:1]) == "The number of draws was not varied."


def test_formats_compare_the_smallest_with_the_largest():
    table = ablation_rows(
        ("gradients", "as asked", True, 1.9e6, 0.21),
        ("gradients", "sketch", False, 12_288, 0.14),
        ("gradients", "32 training draws", False, np.nan, 0.5),
        ("query draws", 64, True, np.nan, 0.21),
    )
    assert ablation.format_finding(table) == (
        "The smallest (sketch, 12.3 kB an image) ranks with LDS 0.14 ± 0.01, the "
        "largest (default, 1.9 MB) with 0.21 ± 0.01: a clear difference of 0.07."
    )
    more = ablation_rows(("gradients", "1-bit index", False, 9e6, 0.9))
    more = pd.concat([table, more.assign(num_draws=256)])  # not to be compared
    assert ablation.format_finding(more) == ablation.format_finding(table)
    assert "equal draws" in ablation.format_finding(more[1:])
    assert "Only one way" in ablation.format_finding(table[:1])


def test_substituted_scores_are_set_beside_the_own():
    table = ablation_rows(
        ("scored", "loss", True, np.nan, 0.21), ("scored", "elbo", False, np.nan, 0.20)
    )
    said = ablation.substitution_finding(table, "loss")
    assert said == (
        "Scores for the training loss rank halves by the training loss with LDS 0.21 ± "
        "0.01; in their place, scores for the ELBO 0.20 (too near to tell apart)."
    )
    assert "Only scores for one" in ablation.substitution_finding(table[:1], "loss")


def test_changes_are_explained_or_not():
    found = Calibration(np.zeros(1), np.zeros(1), 0.8, 1.0, 1.3, 0.04)
    said = changes.change_finding(found, "ekfac", "elbo")
    assert "by 0.8 nats (root mean square); no prediction misses it by 1." in said
    assert "That explains 36% ± 4% of the variance." in said
    assert said.endswith("Nine of ten changes lie within ± 1.3 of the map.")
    worse = replace(found, error=1.1)
    assert "no better than nothing" in changes.change_finding(worse, "clip", "elbo")


def test_the_share_of_rises_has_its_error():
    table = pd.DataFrame(
        [("share of rises", 0.967, 0.011, 32)],
        columns=["observation", "figure", "standard_error", "num_subsets"],
    )
    said = changes.rise_finding(table, "loss")
    assert said.endswith("training loss of a sample rose in 97% ± 1% of the cases.")
    assert changes.rise_finding(table[:0], "loss") == ""


@pytest.mark.parametrize("name", ["elbo", "log-probability"])
def test_what_is_said_to_rise_is_a_cost(name):
    """A bound or a probability falls where its negative, which is measured, rises."""
    evidence = full_evidence({}, 40)
    for said in (
        changes.rise_finding(make_table(evidence, "observations", name), name),
        removal.removal_finding(make_table(evidence, "removal", "loss"), name),
        collapse.collapse_finding(make_table(evidence, "collapse", "loss"), name),
    ):
        assert f"negative {'ELBO' if name == 'elbo' else name}" in said


def test_rises_are_set_beside_those_that_were_predicted():
    """And against a model that has not drawn the samples either."""
    rows = [
        ("share of rises", 0.97, 0.005, 32),
        ("share of rises, trained again", 0.83, 0.01, 32),
        ("share of rises, predicted", 0.53, 0.03, 32),
    ]
    columns = ["observation", "figure", "standard_error", "num_subsets"]
    table = pd.DataFrame(rows, columns=columns)
    said = changes.rise_finding(table, "loss")
    assert "against one trained again on every image, in 83% ± 1%." in said
    assert "EK-FAC predicts a rise in 53% ± 3%" in said and "holds here" in said
    table.loc[1, "figure"] = 0.55
    assert "does not show here" in changes.rise_finding(table, "loss")
    table.loc[2, "observation"] += " by centred scores"
    said = changes.rise_finding(table, "loss")
    assert said.endswith("average half, not whether a cost rises.")


def test_stand_ins_among_the_noise_levels_are_judged():
    """Observation 1 of the paper: it holds, the reverse does, or neither is clear."""
    names = ["own timesteps", "higher timesteps", "lower timesteps"]
    for gap, verdict in (
        (0.1, "holds here"),
        (-0.1, "is the other way round here"),
        (0.03, "can neither be confirmed nor refuted here"),
    ):
        figures = [0.24, 0.15 + gap / 2, 0.15 - gap / 2, gap]
        table = pd.DataFrame({
            "observation": [*names, "higher less lower"],
            "figure": figures,
            "standard_error": 0.03,
        })
        said = timesteps.proxy_finding(table)
        assert verdict in said and said.endswith("still better, with 0.24.")
    assert timesteps.proxy_finding(table[:3]) == ""


def test_noise_levels_are_averaged_on_and_off_the_diagonal():
    """The whole range (-1) counts for neither; a row that is best elsewhere is none."""
    rows = [
        (0, 10, 0, 10, 0.5),
        (10, 20, 0, 10, 0.1),
        (0, 10, 10, 20, 0.4),
        (10, 20, 10, 20, 0.3),
        (-1, -1, 0, 10, 0.9),
    ]
    table = pd.DataFrame(
        rows, columns=["scored_low", "scored_high", "low", "high", "lds"]
    )
    assert timesteps.timestep_finding(table) == (
        "Scores for a range of noise levels predict the cost in that range with LDS "
        "0.40 on average, the cost in other ranges with 0.25; its own scores are the "
        "best for 1 of 2 ranges."
    )
    assert "not scored one by one" in timesteps.timestep_finding(table[4:])


def test_removal_is_printed_to_the_digits_of_its_error():
    rows = [
        ("ekfac", 0.1, -1, 0.302, 0.0123),
        ("clip", 0.1, -1, -0.05, 0.2),
        ("ekfac", 0.02, -1, 9.0, 1.0),
        ("ekfac", 0.1, 0, 9.0, 1.0),
    ]
    columns = ["method", "fraction", "sample_id", "excess", "standard_error"]
    table = pd.DataFrame(rows, columns=columns)
    assert removal.removal_finding(table, "loss") == (
        "How much more a sample's training loss rises without the 10% of the images "
        "that matter most for it than after a random removal of the same size, in "
        "squared error: EK-FAC +0.302 ± 0.012 and Small CLIP −0.05 ± 0.20."
    )
    assert removal.removal_finding(table[:0], "loss").startswith("No model was trained")


@pytest.mark.parametrize(
    ("value", "error", "printed"),
    [
        (0.302, 0.0123, "+0.302 ± 0.012"),
        (-1234.5, 56.0, "−1,234 ± 56"),
        (0.5, float("nan"), "+0.5"),
        (0.0, 0.0, "+0"),
    ],
)
def test_changes_are_printed_with_their_sign(value, error, printed):
    assert numbers.change_of(value, error) == printed


def test_what_was_stored_is_one_sentence():
    quality = {"reliability": 0.918, "sketch_agreement": 0.873, "index_agreement": None}
    assert untested.stored_finding(quality) == (
        "Measured when it was built: with other draws of the training gradients, the "
        "order of its scores agrees to 0.92 and the sketch agrees with the exact order "
        "to 0.87 (Spearman)."
    )
    assert untested.stored_finding({}).startswith("Nothing was measured")


@pytest.mark.parametrize(
    ("collection", "preset", "flags"),
    [
        ("fashion2", "cpu", "--collection fashion2`"),
        ("fashion2", "tiny", "--collection fashion2 --preset tiny`"),
        ("glyphs", "tiny", "--collection glyphs --preset tiny`"),
        ("glyphs", "cpu", "--collection glyphs --preset gpu`"),
    ],
)
def test_the_command_is_that_of_the_preset(collection, preset, flags):
    """A model that went on from other weights cannot be retrained, only rebuilt."""
    config = collection_config(collection, preset)
    assert preset_of(config) == preset
    said = untested.untested_finding(config)
    assert f"python -m precompute retrain {flags}" in said
    assert f"python -m precompute evidence {flags}" in said
    assert ("went on from weights" in said) == bool(config.train.start_from)


def test_what_cannot_be_retrained_has_no_command():
    """A model from elsewhere; one's own that went on from weights."""
    config = collection_config("fashion2", "tiny")
    train = {"trained elsewhere": {"imported": "a folder"}}
    train["seen every image"] = {"start_from": "w.safetensors"}
    for why, changed in train.items():
        own = replace(config, name="mine", train=replace(config.train, **changed))
        said = untested.untested_finding(own)
        assert why in said and "python" not in said


def test_settings_of_no_preset_are_not_named():
    config = collection_config("fashion2")
    own = replace(config, train=replace(config.train, num_steps=7))
    assert preset_of(own) is None and preset_of(replace(config, name="mine")) is None
    assert "--preset" not in untested.untested_finding(own)


@pytest.mark.parametrize("measurement", ["loss", "elbo", "log-probability"])
def test_every_table_has_a_sentence(measurement):
    """Of stored evidence, also where a measurement has rows in few tables."""
    evidence = full_evidence({}, num_examples=60)
    tables = {
        name: make_table(evidence, name, measurement)
        for name in ("lds", "damping", "ablation", "timesteps", "observations")
    }
    said = [
        lds.lds_finding(tables["lds"]),
        damping.damping_finding(tables["damping"]),
        ablation.draws_finding(tables["ablation"]),
        ablation.format_finding(tables["ablation"]),
        ablation.substitution_finding(tables["ablation"], measurement),
        timesteps.timestep_finding(tables["timesteps"]),
        changes.rise_finding(tables["observations"], measurement),
    ]
    assert all(one.endswith(".") and "nan" not in one for one in said), said


def test_the_collapse_is_told_from_the_smallest_to_the_largest_pair():
    """What differs between models stands beside what differs between samples."""
    table = pd.DataFrame({
        "num_pictures": [31, 500],
        "correlation": [0.4, 0.93],
        "difference": [2.0, 0.25],
        "standard_error": [0.3, 0.04],
        "spread": [3.0, 1.5],
        "drawn": [0.8, 0.31],
    })
    said = collapse.collapse_finding(table, "loss")
    assert "From 31 to 500 images each" in said
    assert "differs between the two models by 2.00 ± 0.30, then 0.250 ± 0.040" in said
    assert said.endswith("not the agreement that the paper observed.")
    nearer = table.assign(correlation=[0.4, 0.97])
    assert "become one" in collapse.collapse_finding(nearer, "loss")
    assert "among each other by 1.5" in said and "from 0.40 to 0.93" in said
    assert "80%, then 31% as far apart" in said
    assert "No two models" in collapse.collapse_finding(table[:0], "loss")


def test_groups_left_out_are_told_with_what_guessing_gives():
    """Rank correlation, the group that mattered most, and how far sizes are off."""
    evidence = full_evidence({}, 40, num_samples=6)
    summary = group_summary(group_table(evidence, "loss"))
    said = groups.group_finding(summary, "loss")
    assert "without each of 3 groups, 6 samples" in said
    assert "among the groups, for one sample, predicted and measured change" in said
    assert "beyond that of random removals of the same size" in said
    assert "a rank correlation of EK-FAC 1.00 ± 0.00 and Small CLIP" in said
    assert "100% of the samples by EK-FAC" in said and "guessing gives 33%, the" in said
    assert "the sample's own group 100%." in said
    assert said.endswith("EK-FAC's sizes have to be taken times 2.")
    one = full_evidence({}, 40, num_samples=6, groups=("house=a",))
    said = groups.group_finding(group_summary(group_table(one, "loss")), "loss")
    assert "without a group, 6 samples" in said and "guessing" not in said
    nothing = full_evidence({}, 40, groups=())
    summary = group_summary(group_table(nothing, "loss"))
    assert "without a whole group" in groups.group_finding(summary, "loss")


def test_models_without_groups_are_offered_with_what_they_cost():
    config = collection_config("glyphs", "tiny")
    said = untested.twins_offer(config, "design house", 4, {"train": 600.0})
    assert said == (
        "To have any image drawn again by models that never saw one of these groups: "
        "`python -m precompute retrain --collection glyphs --preset tiny --without "
        "'design house'`. It trains 7 models, at most 70 min where this one took 10 "
        "min."
    )
    assert "It trains 7 models." in untested.twins_offer(config, "style", 4, {})
    elsewhere = replace(config, train=replace(config.train, imported="a.safetensors"))
    assert untested.twins_offer(elsewhere, "style", 4, {}) == ""
