"""The READMEs' tables of evidence, made of the files that ship.

    python -m tests.helpers.readme_tables

puts them into the READMEs; `tests/test_readme.py` finds them there, cell by cell.
"""

import re
from pathlib import Path

import pandas as pd

from core.config import DATA_DIR
from core.evidence.stored import Evidence, evidence_folder, read_evidence
from core.evidence.tables import make_table
from core.presets import collection_config

ROOT = Path(__file__).resolve().parents[2]
LDS_METHODS = {
    "the most a predictor can reach": "reachable",
    "one more retraining, another seed": "retraining",
    "EK-FAC, empirical Fisher": "ekfac-fisher",
    "**EK-FAC** (the default)": "ekfac",
    "K-FAC": "kfac",
    "EK-FAC, reduce": "ekfac-reduce",
    "DataInf": "datainf",
    "Pixels": "pixel",
    "TRAK": "trak",
    "Small CLIP similarity": "clip",
    "D-TRAK": "d-trak",
}
SIZES = (  # what is varied, the setting, and what to call it
    ("method", "own damping", "as the app asks: damping 0.001 of the mean eigenvalue"),
    ("damping", "6.8e-08", "damping 1e-8, the paper's"),
    ("damping", "0.1", "damping 0.1 of the mean eigenvalue"),
    ("damping", "1", "damping 1"),
    ("damping", "10", "damping 10"),
    ("group", "the 2% that matter most", "without the 2% that matter most"),
    ("group", "the 10% that matter most", "without the 10% that matter most"),
    ("group", "a whole group", "without a whole class, 48% and 52%"),
)


def shipped_evidence(name: str) -> Evidence:
    """Return what retraining measured on a shipped collection."""
    config = collection_config(name, "cpu")
    return read_evidence(evidence_folder(DATA_DIR / "collections", config))


def figures(mean: float, error: float, digits: int = 2) -> str:
    """Return a figure with its error as tables have it."""
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}".replace("-", "−")


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return (
        "\n"
        .join(f"| {' | '.join(cells)} |" for cells in lines)
        .replace("| --- ", "|---")
        .replace("--- |", "---|")
    )


def lds_rows() -> str:
    """Return the table of LDS of the first README."""
    evidence, names = shipped_evidence("fashion2"), ("loss", "elbo", "log-probability")
    columns = [make_table(evidence, "lds", name).set_index("method") for name in names]
    rows = [
        [title, *(figures(*c.loc[method, ["lds", "standard_error"]]) for c in columns)]
        for title, method in LDS_METHODS.items()
    ]
    return table(["method", "loss", "ELBO", "log-probability"], rows)


def sizes_rows() -> str:
    """Return the table of sizes of EK-FAC, of the loss."""
    found = make_table(shipped_evidence("fashion2"), "sizes", "loss")
    found = found[found["method"] == "ekfac"].set_index(["varied", "setting"])
    rows = []
    for varied, setting, title in SIZES:
        row = found.loc[[(varied, setting)]].iloc[0]
        order = "" if pd.isna(row["lds"]) else f"{row['lds']:.2f}"
        rows.append([title, figures(row["slope"], row["slope_error"], 3), order])
    return table(["EK-FAC", "measured over predicted", "LDS"], rows)


def made() -> dict[tuple[str, str], str]:
    """Return every table by its README and its first line."""
    tables = {"README.md": lds_rows(), "tests/README.md": sizes_rows()}
    return {(name, text.splitlines()[0]): text for name, text in tables.items()}


def main() -> None:
    """Put the tables into the READMEs."""
    for (name, first), text in made().items():
        path = ROOT / name
        old = re.compile(re.escape(first) + r"\n(\|.*\n)+")
        path.write_text(old.sub(lambda _, new=text: f"{new}\n", path.read_text()))
        print(f"{name}: {first}")


if __name__ == "__main__":
    main()
