"""What the second ground truth says of seeds: changes, and how far two seeds agree."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from core.evidence.same_seed import changes, read_same_seed, same_seed_table

SAMPLES, SUBSETS = 5, 6


def rows(kind, fraction, subset, seed, values) -> list[dict]:
    """Return what one model measured of the samples, with a band beside the whole."""
    which = {"kind": kind, "fraction": fraction, "subset": subset, "seed": seed}
    return [
        which
        | {"sample_id": i, "measurement": "loss", "low": low, "high": low, "value": v}
        for i, value in enumerate(values)
        for low, v in ((-1, value), (0, 100 * value))
    ]


@pytest.fixture(scope="module")
def measured() -> tuple[pd.DataFrame, dict]:
    """Return tables of two seeds, and the values in them."""
    g = np.random.default_rng(0)
    table, known = [], {}
    for seed in (0, 1):
        full = known["full", seed] = 50 + g.normal(size=SAMPLES)
        table += rows("same-seed", 0.0, -1, seed, full)
        for share in (0.1, 0.5):
            for m in range(SUBSETS if seed == 0 else SUBSETS - 2):
                change = known.get((share, m, 0), np.zeros(SAMPLES))
                change = known[share, m, seed] = change + share * g.normal(size=SAMPLES)
                table += rows("same-seed", share, m, seed, full + change)
    return pd.DataFrame(table).sample(frac=1, random_state=0), known


def test_changes_are_those_against_the_full_model_of_the_same_seed(measured):
    """Whatever the order of the rows; bands of timesteps do not count."""
    table, known = measured
    for seed, count in ((0, SUBSETS), (1, SUBSETS - 2)):
        found = changes(table, "loss", 0.5, seed)
        wanted = np.stack([known[0.5, m, seed] for m in range(count)], 1)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_the_table_says_how_far_seeds_agree(measured):
    """Against scipy, on the subsets that both seeds have; fresh seeds beside them."""
    table, known = measured
    g = np.random.default_rng(1)
    values = g.normal(size=(2, SUBSETS, SAMPLES))
    fresh = pd.DataFrame([
        row
        for seed in (0, 1)
        for m in range(SUBSETS)
        for row in rows("half", 0.0, m, seed, values[seed, m])
    ])
    found = same_seed_table(table, fresh, "loss").set_index("removed")
    assert found.index.tolist() == ["10%", "50%", "fresh seeds"]
    assert found["models"].tolist() == [10, 10, 12]
    assert found["subsets"].tolist() == [4, 4, 6]
    for name, share in (("10%", 0.1), ("50%", 0.5)):
        first, second = (
            np.stack([known[share, m, seed] for m in range(4)], 1) for seed in (0, 1)
        )
        each = [spearmanr(*pair)[0] for pair in zip(first, second, strict=True)]
        np.testing.assert_allclose(found.loc[name, "agreement"], np.mean(each))
        wanted = np.stack([known[share, m, 0] for m in range(SUBSETS)], 1)
        wanted = np.sqrt(np.mean((wanted / known["full", 0][:, None]) ** 2))
        np.testing.assert_allclose(found.loc[name, "change"], wanted)
    each = [spearmanr(values[0, :, i], values[1, :, i])[0] for i in range(SAMPLES)]
    np.testing.assert_allclose(found.loc["fresh seeds", "agreement"], np.mean(each))


def test_a_part_of_the_models_gives_a_part_of_the_table(measured):
    """Sizes without a second seed have changes and no agreement yet."""
    table, _ = measured
    part = table[(table["seed"] == 0) | (table["subset"] < 0)]
    found = same_seed_table(part, table[:0], "loss").set_index("removed")
    assert found.loc["10%", "subsets"] == 0 and found["agreement"].isna().all()
    assert found.loc["10%", "change"] > 0
    with pytest.raises(LookupError, match="measured by 'elbo'. Measured: loss."):
        same_seed_table(part, table[:0], "elbo")


def test_tables_are_read_together_and_damage_is_told(measured, tmp_path):
    """One file per model; the masks beside them are none of them."""
    table, _ = measured
    evidence = tmp_path / "toy-evidence-0123"
    with pytest.raises(LookupError, match="retrain --collection toy --same-seed"):
        read_same_seed(evidence)
    folder = evidence / "same-seed"
    folder.mkdir(parents=True)
    for number, (_, part) in enumerate(table.groupby(["seed", "fraction", "subset"])):
        part.to_parquet(folder / f"without-{number:03d}-0.parquet", index=False)
    pd.DataFrame({"kept": [b"x"]}).to_parquet(folder / "masks.parquet")
    order = ["seed", "fraction", "subset", "sample_id", "low"]
    found = read_same_seed(evidence).sort_values(order).reset_index(drop=True)
    wanted = table.sort_values(order).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, wanted)
    (folder / "without-003-0.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match="'without-003-0.parquet' in .* is damaged"):
        read_same_seed(evidence)
