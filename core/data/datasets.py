"""Image sources: a file or folder becomes examples with ids, pixels and metadata."""

import json
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from core.config import DATA_DIR, DataConfig, sets_folder
from core.files.images import decode_image
from core.seeds import keyed_seed


@dataclass(frozen=True)
class Dataset:
    """Training images in a fixed order.

    Attributes:
        ids: Example ids, shape (N,), int64, unique, ascending.
        pixels: Images, shape (N, C, H, W), uint8.
        labels: Class of each example, shape (N,), int64.
        class_names: One tuple of label values per class, in label order.
        label_columns: The metadata columns whose combination is the class.
        metadata: One row per example, without the image bytes.
        encoded: The images' own file bytes, as they came.
        held_out: The classes that none of the images is of, ascending.
    """

    ids: np.ndarray
    pixels: np.ndarray
    labels: np.ndarray
    class_names: tuple[tuple[str, ...], ...]
    label_columns: tuple[str, ...]
    metadata: pd.DataFrame
    encoded: tuple[bytes, ...]
    held_out: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Return the number of examples N."""
        return len(self.ids)

    def images(self, index=slice(None)) -> Tensor:
        """Return the images at `index` as float32 in [-1, 1], shape (B, C, H, W)."""
        return torch.from_numpy(self.pixels[index]).float() / 127.5 - 1

    def restricted(self, kept: np.ndarray) -> "Dataset":
        """Return the examples where `kept` (N,) is true, with the same classes."""
        return replace(
            self,
            ids=self.ids[kept],
            pixels=self.pixels[kept],
            labels=self.labels[kept],
            metadata=self.metadata[kept].reset_index(drop=True),
            encoded=tuple(compress(self.encoded, kept)),
        )


def dataset_path(config: DataConfig) -> Path:
    """Return where the data set lies.

    A relative path is inside the folder of users' own sets, otherwise inside `data/`.
    """
    users = sets_folder() / config.path  # an absolute path stays itself
    return users if users.exists() else DATA_DIR / config.path


def load_credits(config: DataConfig) -> dict:
    """Return the credits beside a data set.

    Returns:
        `column`: the metadata column that decides the credit; `lines`: its values ->
        credit line; `changes`: what was changed. Without a file, no lines.
    """
    path = dataset_path(config).with_suffix(".credits.json")
    if not path.exists():
        return {"column": None, "lines": {}, "changes": ""}
    return json.loads(path.read_text())


def load_origin(config: DataConfig) -> dict:
    """Return where a user's images came from, as `precompute.imports.origin` wrote it.

    Nothing for the sets that are shipped, and for those made before it was kept.
    """
    path = dataset_path(config).with_suffix(".origin.json")
    return json.loads(path.read_text()) if path.exists() else {}


def read_set(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Return a data set's file as a table.

    Args:
        path: The file.
        columns: That are read; None reads all.

    Raises:
        ValueError: If it is damaged.
    """
    try:
        # read_table would take a folder called "a=b" above the file for a column.
        return pq.ParquetFile(path).read(columns)
    except pa.ArrowException:
        raise ValueError(
            f"The data set '{path.name}' is damaged. Get the file again, or import the "
            "images again."
        ) from None


def load_dataset(config: DataConfig) -> Dataset:
    """Return the examples that the settings select.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        ValueError: If the file lacks a column, or the filters keep nothing.
    """
    path = dataset_path(config)
    if not path.exists():
        raise FileNotFoundError(
            f"There is no data set at '{path}'. Give the path of a parquet file with "
            "an 'image' column."
        )
    table = read_set(path).to_pandas()
    needed = {
        "id",
        "image",
        *config.label_columns,
        *(column for column, _ in config.keep),
    }
    missing = sorted(needed - set(table.columns))
    if missing:
        raise ValueError(
            f"'{path.name}' has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, table.columns))}. "
            "Name existing columns in the settings."
        )
    for column, allowed in config.keep:
        table = table[table[column].isin(allowed)]
    if config.complete:
        table = complete_only(table, config.label_columns)
    table = table.sort_values("id").reset_index(drop=True)
    if config.limit is not None and config.complete:
        table = whole_values(table, config.label_columns[-1], config.limit)
    elif config.limit is not None:
        table = table.head(config.limit)
    if table.empty:
        raise ValueError(
            f"No image of '{path.name}' passes the filters {dict(config.keep)}. "
            "Loosen them."
        )
    label_values = list(
        map(tuple, table[list(config.label_columns)].astype(str).values)
    )
    class_names = tuple(sorted(set(label_values)))
    position = {name: label for label, name in enumerate(class_names)}
    labels = np.array([position[value] for value in label_values], dtype=np.int64)
    held_out = held_out_classes(class_names, config.held_out)
    shown = ~np.isin(labels, held_out)
    table, labels = table[shown].reset_index(drop=True), labels[shown]
    encoded = tuple(table.pop("image"))
    size = (config.channels, config.image_size, config.image_size)
    pixels = np.stack([decode_image(data, size) for data in encoded])
    return Dataset(
        ids=table["id"].to_numpy(np.int64),
        pixels=pixels,
        labels=labels,
        class_names=class_names,
        label_columns=config.label_columns,
        metadata=table,
        encoded=encoded,
        held_out=held_out,
    )


def complete_only(table: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """Return the rows whose last label occurs with all combinations of the others."""
    others = table[list(columns[:-1])].astype(str).agg("\x1f".join, axis=1)
    present = others.groupby(table[columns[-1]]).nunique()
    complete = present.index[present == others.nunique()]
    return table[table[columns[-1]].isin(complete)]


def whole_values(table: pd.DataFrame, column: str, limit: int) -> pd.DataFrame:
    """Return all rows of as many values of a column as come first and fit a limit."""
    values = table[column].drop_duplicates()
    counts = table[column].value_counts().reindex(values)
    return table[table[column].isin(values[(counts.cumsum() <= limit).to_numpy()])]


def held_out_classes(
    class_names: tuple[tuple[str, ...], ...], share: float
) -> tuple[int, ...]:
    """Return the classes that training never sees, ascending.

    The values of the last column come in a random order; the first ones lose one value
    of the first column each, which take turns. So none loses more than one, and all
    lose equally many.

    Raises:
        ValueError: If classes are not pairs, or so many cannot be held out.
    """
    if not share:
        return ()
    count = round(share * len(class_names))
    lasts = sorted({names[-1] for names in class_names})
    if len(class_names[0]) != 2 or not 0 < count <= len(lasts):
        raise ValueError(
            f"data.held_out is {share:g}: {count} of {len(class_names)} classes. It "
            "takes two label columns, and every value of the last one can lose one "
            f"class: choose a share up to {len(lasts) / len(class_names):.2g}, or 0."
        )
    g = torch.Generator().manual_seed(keyed_seed(0, "held out"))
    order = torch.randperm(len(lasts), generator=g)
    firsts = sorted({names[0] for names in class_names})
    pairs = {
        (firsts[turn % len(firsts)], lasts[position])
        for turn, position in enumerate(order[:count].tolist())
    }
    return tuple(i for i, names in enumerate(class_names) if names in pairs)
