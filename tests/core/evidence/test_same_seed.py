"""What the second ground truth says of methods: LDS and slope, by share removed."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence.evaluation import size_of_changes, slope_error
from core.evidence.same_seed import (
    FRESH,
    OWN_MODEL,
    SAME,
    SHIPPED,
    SameSeed,
    read_same_seed,
    same_seed_table,
)
from core.evidence.stored import CEILING, LENS, MODEL, Evidence

SAMPLES, SUBSETS, IMAGES = 5, 6, 40
SHARES = (0.1, 0.5)


def rows(kind, fraction, subset, seed, values) -> list[dict]:
    """Return what one model measured of the samples, with a band beside the whole."""
    which = {"kind": kind, "fraction": fraction, "subset": subset, "seed": seed}
    which |= {"method": "", "about": -1}
    return [
        which
        | {"sample_id": i, "measurement": "loss", "low": low, "high": low, "value": v}
        for i, value in enumerate(values)
        for low, v in ((-1, value), (0, 100 * value))
    ]


@pytest.fixture(scope="module")
def made() -> SimpleNamespace:
    """Return a truth, evidence of fresh seeds, and the numbers that they are made of.

    The truth of seed 0 is four times what true scores predict, and a little noise.
    """
    g = np.random.default_rng(0)
    scores = g.normal(size=(SAMPLES, IMAGES))
    kept = {(f, m): g.random(IMAGES) >= f for f in SHARES for m in range(SUBSETS)}
    table, known = [], {}
    for seed in (0, 1):
        full = known["full", seed] = 50 + g.normal(size=SAMPLES)
        table += rows("same-seed", 0.0, -1, seed, full)
        for (share, m), mask in kept.items():
            if seed == 0 or m < SUBSETS - 2:
                change = 4 * scores @ ~mask / IMAGES + 0.3 * g.normal(size=SAMPLES)
                known[share, m, seed] = change
                table += rows("same-seed", share, m, seed, full + change)
    measured = pd.DataFrame(table).sample(frac=1, random_state=0)
    masks = pd.DataFrame([(*key, mask) for key, mask in kept.items()])
    masks = masks.set_axis(["fraction", "subset", "kept"], axis=1)
    predicted = np.stack([scores @ ~mask / IMAGES for mask in kept.values()], 1)
    own = [
        {"method": "ekfac", "measurement": "loss", "sample_id": i, "mean": 0.0}
        | {"damping": d, "relative_damping": d, "predicted": (1 - 2 * sign) * row}
        for sign, d in enumerate((np.nan, 0.5))
        for i, row in enumerate(predicted.astype(np.float32))
    ]
    values = g.normal(size=(2, SUBSETS, SAMPLES))
    fresh = pd.DataFrame([
        row
        for seed in (0, 1)
        for m in range(SUBSETS)
        for row in rows("half", 0.0, m, seed, values[seed, m])
    ])
    lens = dict(zip(LENS, ("ekfac", "loss", -1, -1, np.nan, 64, ""), strict=True))
    shipped = [
        lens | {"sample_id": i, "source": "exact", "scores": row, "predicted": None}
        for i, row in enumerate(scores)
    ]
    half_masks = np.stack([kept[0.5, m] for m in range(SUBSETS)])
    evidence = Evidence({"num_draws": 64}, half_masks, fresh, pd.DataFrame(shipped))
    truth = SameSeed(measured, masks, pd.DataFrame(own))
    return SimpleNamespace(
        truth=truth, evidence=evidence, known=known, values=values, predicted=predicted
    )


def measured_of(made, share, seed=0, count=SUBSETS) -> np.ndarray:
    """Return the true changes (Q, M)."""
    return np.stack([made.known[share, m, seed] for m in range(count)], 1)


def each_lds(first, second) -> list[float]:
    """Return the rank correlations over subsets, by scipy."""
    return [spearmanr(*pair)[0] for pair in zip(first, second, strict=True)]


def test_changes_are_those_against_the_full_model_of_the_same_seed(made):
    """Whatever the order of the rows; bands of timesteps do not count."""
    for seed, count in ((0, SUBSETS), (1, SUBSETS - 2)):
        found = made.truth.changes("loss", 0.5, seed)
        wanted = measured_of(made, 0.5, seed, count)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_lds_and_slope_by_share_are_those_by_hand(made):
    """Against scipy and least squares; own scores, shipped ones and another seed."""
    table = same_seed_table(made.truth, made.evidence, "loss")
    assert (table["truth"] == SAME).sum() == 2 * 4
    for number, share in enumerate(SHARES):
        measured = measured_of(made, share)
        part = made.predicted[:, number * SUBSETS : (number + 1) * SUBSETS]
        found = table[(table["removed"] == f"{share:.0%}") & (table["truth"] == SAME)]
        own = found[found["scores"] == OWN_MODEL].set_index("default")
        x, y = (v - v.mean(1, keepdims=True) for v in (part, measured))
        slope = np.polyfit(x.ravel(), y.ravel(), 1)[0]
        for default, sign in ((True, 1), (False, -1)):
            row = own.loc[default]
            wanted = sign * np.mean(each_lds(part, measured))
            assert row["lds"] == pytest.approx(wanted, abs=1e-6)
            assert row["slope"] == pytest.approx(sign * slope, rel=1e-5)
        assert own.loc[False, "relative_damping"] == 0.5
        shipped = found[found["scores"] == SHIPPED].iloc[0]
        assert shipped["slope"] == pytest.approx(slope, rel=1e-5)
        assert shipped["lds"] == pytest.approx(own.loc[True, "lds"])
        for name, places in (("first_half", slice(0, 3)), ("second_half", slice(3, 6))):
            wanted = np.mean(each_lds(part[:, places], measured[:, places]))
            assert own.loc[True, name] == pytest.approx(wanted, abs=1e-6)
        (other,) = found[found["method"] == CEILING].itertuples()
        pair = (measured_of(made, share, seed, SUBSETS - 2) for seed in (1, 0))
        assert other.lds == pytest.approx(np.mean(each_lds(*pair)))
        assert (other.subsets, other.scores) == (SUBSETS - 2, "seed 1")
        size = np.sqrt(np.mean((measured / made.known["full", 0][:, None]) ** 2))
        np.testing.assert_allclose(found["change"], size)


def test_fresh_seeds_stand_below(made):
    """The random halves of the evidence, by the shipped scores, and two seeds."""
    table = same_seed_table(made.truth, made.evidence, "loss")
    fresh = table[table["truth"] == FRESH].set_index("method")
    assert set(fresh["removed"]) == {"50%"}
    both = made.values.transpose(0, 2, 1)
    part = made.predicted[:, SUBSETS:]
    wanted = np.mean(each_lds(part, both.mean(0)))
    assert fresh.loc["ekfac", "lds"] == pytest.approx(wanted, abs=1e-6)
    assert fresh.loc[CEILING, "lds"] == pytest.approx(np.mean(each_lds(*both)))


def test_a_part_of_the_models_gives_a_part_of_the_table(made):
    """Sizes without a second seed, scores that were not computed, too few subsets."""
    measured = made.truth.measured
    part = measured[(measured["seed"] == 0) & (measured["subset"] < 2)]
    found = same_seed_table(SameSeed(part, made.truth.masks), made.evidence, "loss")
    found = found[found["truth"] == SAME]
    assert set(found["scores"]) == {SHIPPED} and set(found["subsets"]) == {2}
    assert found["lds"].isna().all() and (found["change"] > 0).all()
    with pytest.raises(LookupError, match="measured by 'elbo'. Measured: loss."):
        same_seed_table(made.truth, made.evidence, "elbo")


def test_the_slopes_error_is_that_of_drawing_anew():
    """Samples and subsets of a known law, drawn many times: the spread of the slope."""
    g = np.random.default_rng(3)
    slopes, errors = [], []
    for _ in range(300):
        x = g.normal(size=(12, 16)) * g.gamma(2, size=(12, 1))
        y = 0.5 * x + g.normal(size=(12, 1)) * x * 0.2 + g.normal(size=(1, 16))
        slopes.append(size_of_changes(x, y))
        errors.append(slope_error(x, y))
    assert 0.8 < np.median(errors) / np.std(slopes) < 1.6
    assert np.isnan(slope_error(x[:2], y[:2]))


def test_tables_are_read_together_and_damage_is_told(made, tmp_path):
    """One file per model; masks and scores beside them are none of them."""
    table = made.truth.measured
    evidence = tmp_path / "toy-evidence-0123"
    with pytest.raises(LookupError, match="retrain --collection toy --same-seed"):
        read_same_seed(evidence)
    folder = evidence / "same-seed"
    folder.mkdir(parents=True)
    for number, (_, part) in enumerate(table.groupby(["seed", "fraction", "subset"])):
        part.to_parquet(folder / f"without-{number:03d}-0.parquet", index=False)
    packed = [np.packbits(mask).tobytes() for mask in made.truth.masks["kept"]]
    made.truth.masks.assign(kept=packed).to_parquet(folder / "masks.parquet")
    read = read_same_seed(evidence)
    order = [*MODEL, "sample_id", "low"]
    found, wanted = (
        part.sort_values(order).reset_index(drop=True)
        for part in (read.measured, table)
    )
    pd.testing.assert_frame_equal(found, wanted)
    assert read.scores is None
    for mask, true in zip(read.masks["kept"], made.truth.masks["kept"], strict=True):
        np.testing.assert_array_equal(mask[:IMAGES], true)
    made.truth.scores.to_parquet(folder / "scores.parquet")
    pair = (
        SameSeed(read.measured, read.masks, made.truth.scores),
        read_same_seed(evidence),
    )
    tables = [same_seed_table(one, made.evidence, "loss") for one in pair]
    pd.testing.assert_frame_equal(*tables)
    (folder / "without-003-0.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match="'without-003-0.parquet' in .* is damaged"):
        read_same_seed(evidence)
