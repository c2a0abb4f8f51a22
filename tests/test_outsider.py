"""Published figures, from the files alone, by an outsider who read data/README.md.

Numpy and pandas only: nothing of ours is imported, so that no error of ours is shared.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
(FOLDER,) = (ROOT / "data" / "collections").glob("fashion2-evidence-*")
NAMES = {
    "EK-FAC, empirical Fisher": "ekfac-fisher",
    "**EK-FAC** (the default)": "ekfac",
    "K-FAC": "kfac",
    "EK-FAC, reduce": "ekfac-reduce",
    "DataInf": "datainf",
    "TRAK": "trak",
    "Small CLIP similarity": "clip",
    "D-TRAK": "d-trak",
    "Patches, without the model": "patches",
    "Pixels": "pixel",
}
MEASUREMENTS = ("loss", "elbo", "log-probability")


@pytest.fixture(scope="module")
def files() -> dict:
    """Return the tables and the recipe."""
    names = ("masks", "measured", "scores")
    found = {name: pd.read_parquet(FOLDER / f"{name}.parquet") for name in names}
    return found | {"recipe": json.loads((FOLDER / "recipe.json").read_text())}


def kept(files) -> np.ndarray:
    """Return which images each half keeps, (M, N)."""
    rows = files["masks"].sort_values("subset")["kept"]
    bits = [np.unpackbits(np.frombuffer(row, np.uint8)) for row in rows]
    return np.stack(bits)[:, : files["recipe"]["num_examples"]] == 1


def measured(files, measurement, seed=0) -> pd.DataFrame:
    """Return the costs of a seed, a row a sample and a column a half."""
    rows = files["measured"].query(
        "kind == 'half' and seed == @seed and measurement == @measurement and low == -1"
    )
    return rows.pivot(index="sample_id", columns="subset", values="value")


def predicted(files, method, measurement) -> np.ndarray:
    """Return predicted changes, (Q, M)."""
    asked = "elbo" if measurement == "log-probability" else measurement
    rows = files["scores"]
    rows = rows[rows["method"].eq(method) & rows["measurement"].isin([asked, ""])]
    rows = rows[rows["damping"].isna() & rows["variant"].eq("") & rows["low"].eq(-1)]
    rows = rows[rows["num_draws"].eq(files["recipe"]["num_draws"])]
    scores = np.stack(list(rows.sort_values("sample_id")["scores"])).astype(float)
    masks = kept(files)
    return np.stack([scores[:, ~mask].sum(1) / masks.shape[1] for mask in masks], 1)


def spearman(first, second) -> np.ndarray:
    """Return the rank correlation of each pair of rows."""
    pairs = zip(first, second, strict=True)
    return np.array([pd.Series(a).rank().corr(pd.Series(b).rank()) for a, b in pairs])


def printed(values: np.ndarray) -> str:
    """Return a mean and its standard error as tables have it."""
    error = np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.2f} ± {error:.2f}".replace("-", "−")


def readme_rows() -> dict[str, list[str]]:
    """Return the cells of the table of LDS in the first README, by method."""
    text = (ROOT / "README.md").read_text()
    lines = text[text.index("| method | loss | ELBO") :].splitlines()[2:]
    lines = lines[: next(i for i, line in enumerate(lines) if line[:1] != "|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def test_lds_is_what_the_readme_says(files):
    """Of every method in its table, by all three measurements."""
    known = {name: cells for name, cells in readme_rows().items() if name in NAMES}
    assert len(known) >= 8
    for name, cells in known.items():
        for measurement, cell in zip(MEASUREMENTS, cells, strict=True):
            costs = measured(files, measurement).to_numpy()
            found = spearman(predicted(files, NAMES[name], measurement), costs)
            assert printed(found) == cell, (name, measurement)


def test_what_can_be_reached_is_what_the_readme_says(files):
    """One more retraining, and its root; no half has more than one seed in the cost."""
    rows = readme_rows()
    for number, measurement in enumerate(MEASUREMENTS):
        one, two = (measured(files, measurement, seed) for seed in (0, 1))
        assert len(two.columns) < len(one.columns)  # so the cost is of seed 0 alone
        found = spearman(two.to_numpy(), one[two.columns].to_numpy())
        assert printed(found) == rows["one more retraining, another seed"][number]
        most = rows["the most a predictor can reach"][number].split(" ± ")[0]
        assert f"{np.mean(found) ** 0.5:.2f}" == most


def test_the_slope_is_what_the_readme_says(files):
    """Actual changes of the loss, of those that EK-FAC predicts."""
    x, y = predicted(files, "ekfac", "loss"), measured(files, "loss").to_numpy()
    x, y = (values - values.mean(1, keepdims=True) for values in (x, y))
    slope = np.polyfit(x.ravel(), y.ravel(), 1)[0]
    text = (ROOT / "README.md").read_text()
    said = re.search(r"actual changes of the loss are ([\d.]+) of the predicted", text)
    assert f"{slope:.3f}" == said[1]
