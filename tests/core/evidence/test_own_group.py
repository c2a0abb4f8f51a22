"""What a label says of groups, against loops and against figures made by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence.own_group import (
    LABEL,
    compared,
    over_groups,
    own_group_finding,
    own_group_table,
)
from core.evidence.stored import evidence_of
from core.evidence.tables import make_table
from core.explorer.explorer import open_explorer


def test_figures_are_those_of_a_loop():
    """Over samples of a group first, then over groups."""
    rng = np.random.default_rng(0)
    predicted, measured = rng.normal(size=(2, 12, 4))
    own = np.repeat([0, 1, 2], [2, 6, 4])
    share = np.eye(4)[own]
    found = compared(predicted, measured, share)
    per_group = {"first": [], "order": [], "others": []}
    for group in range(3):
        rows = [i for i in range(12) if own[i] == group]
        hits = [predicted[i].argmax() == measured[i].argmax() for i in rows]
        whole = [spearmanr(predicted[i], measured[i]).statistic for i in rows]
        rest = [j for j in range(4) if j != group]
        part = [spearmanr(predicted[i, rest], measured[i, rest])[0] for i in rows]
        for name, values in zip(per_group, (hits, whole, part), strict=True):
            per_group[name].append(np.mean(values))
    for name, values in per_group.items():
        assert found[name] == pytest.approx(np.mean(values))
        error = np.std(values, ddof=1) / 3**0.5
        assert found[f"{name}_error"] == pytest.approx(error)
    assert found["num_samples"] == 12 and found["num_groups"] == 3
    order = rng.permutation(12)
    again = compared(predicted[order], measured[order], share[order])
    assert again == pytest.approx(found)


def test_the_label_is_right_where_the_own_group_matters_most():
    """Four groups, the own one far ahead: it orders them by 0.775, as ties allow."""
    rng = np.random.default_rng(1)
    share = np.eye(4)[np.arange(8) % 4]
    measured = 10 * share + rng.normal(size=share.shape)
    found = compared(share, measured, share)
    assert found["first"] == 1 and found["order"] == pytest.approx(0.7746, abs=1e-4)
    assert np.isnan(found["others"])  # equal for all others: nothing is said of them


def test_errors_are_over_groups_not_samples():
    """A hundred samples of two groups are two values."""
    group = np.repeat([0, 1], 50)
    mean, error = over_groups(np.where(group, 3.0, 1.0), group)
    assert (mean, error) == (2.0, 1.0)


def test_the_table_holds_the_label_beside_methods(tiny_collection, tested_collection):
    explorer = open_explorer("glyphs", tested_collection)
    evidence = evidence_of(tested_collection, explorer.config)
    explorer.close()
    table = own_group_table(evidence, "loss")
    assert LABEL in set(table["method"]) and "ekfac" in set(table["method"])
    assert np.isnan(table.set_index("method").loc[LABEL, "others"])
    pd.testing.assert_frame_equal(make_table(evidence, "own-group", "loss"), table)


def test_the_sentence_says_whichever_it_is():
    columns = ["method", "first", "others", "others_error"]
    ekfac = ("ekfac", 0.66, -0.15, 0.09)
    table = pd.DataFrame([(LABEL, 1.0, np.nan, np.nan), ekfac], columns=columns)
    assert own_group_finding(table) == (
        "The sample's own group mattered most for 100%; EK-FAC names the group that "
        "did for 66%. A label alone says that much. EK-FAC orders the other groups "
        "with −0.15 ± 0.09 (Spearman), within two standard errors of chance."
    )
    table = pd.DataFrame(
        [("ekfac", 0.9, 0.5, 0.1), (LABEL, 0.4, np.nan, np.nan)], columns=columns
    )
    text = own_group_finding(table)
    assert "That is more than a label says." in text and "beyond chance" in text
    assert own_group_finding(table[:0]) == ""
