"""A collection whose every text is an attack; its images and scores are real."""

import json
import os
from dataclasses import replace
from pathlib import Path

from core.config import CollectionConfig
from core.data.datasets import Dataset
from core.presets import collection_config
from precompute.stages.publish import publish
from precompute.stages.stages import Computed, compute

SCRIPT = "<img src=x onerror=alert(1)>"
TEXTS = (
    SCRIPT,
    "**bold** [a](javascript:alert(1)) ![i](http://evil.example/i.png)",
    '=HYPERLINK("http://evil.example","x")',
    "$x^2$ :material/home: :red[no] `code` ~~gone~~",
    "<b>fat</b><br><a href='http://evil.example'>here</a> &lt;i&gt;",
    "two\nlines\n\n# heading\n- item",
    "turned \u202e gnp.exe",
    "long " + "very" * 100,
    "</script><script>alert(1)</script>",
    "{{ 7 * 7 }} {% raw %} %{x} ${alert(1)}",
    "@SUM(A1)",
    "bell \x07 and \x1b[31mred\x1b[0m caf\\xe9",  # a folder's name of any bytes
    "2020-01-01",
)


def hostile(dataset: Dataset) -> Dataset:
    """Return a data set with attacks for names; each label value becomes one."""
    table = dataset.metadata.copy()
    styles = sorted(table["style"].unique())
    table["style"] = table["style"].map(dict(zip(styles, TEXTS, strict=False)))
    table["name"] = [TEXTS[i % len(TEXTS)] for i in range(len(table))]
    classes = {
        old: tuple(
            TEXTS[styles.index(value)] if column == "style" else f"{value} {SCRIPT}"
            for column, value in zip(dataset.label_columns, old, strict=True)
        )
        for old in dataset.class_names
    }
    for place, column in enumerate(dataset.label_columns):
        if column != "style":
            table[column] = [
                classes[dataset.class_names[label]][place] for label in dataset.labels
            ]
    table[f"tint {TEXTS[1]}"] = [str(i % 2) for i in range(len(table))]
    names = tuple(classes[old] for old in dataset.class_names)
    return replace(dataset, metadata=table, class_names=names)


def made_already(tiny: Path, root: Path) -> tuple[CollectionConfig, Computed]:
    """Return the tiny collection as it is before it is published, into another folder.

    Args:
        tiny: The folder of the tiny collection and of its finished work.
        root: Gets what lies beside the collection.
    """
    config = collection_config("glyphs", "tiny")
    made = compute(config, tiny, tiny / "work", "cpu")  # nothing is left to do
    for path in filter(Path.is_dir, tiny.iterdir()):
        if path.name != "work":
            (root / path.name).mkdir()
            for file in path.iterdir():
                os.link(file, root / path.name / file.name)
    return config, made


def publish_hostile(tiny: Path, root: Path) -> Path:
    """Publish the tiny collection once more, with attacks for names; return the folder.

    Args:
        tiny: The folder of the tiny collection and of its finished work.
        root: Where to.
    """
    config, made = made_already(tiny, root)
    data = replace(config.data, path=str(root / "hostile.parquet"))
    dataset = hostile(made.model.dataset)
    lines = {style: f"{style} {SCRIPT}" for style in dataset.metadata["style"]}
    credits = {"column": "style", "lines": lines, "changes": ""}
    (root / "hostile.credits.json").write_text(json.dumps(credits))
    attacked = replace(config, data=data, title=f"Glyphs {SCRIPT} **x**")
    publish(attacked, root, replace(made, model=replace(made.model, dataset=dataset)))
    return root
