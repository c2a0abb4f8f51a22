"""Paths in tables that lead out of the folder that was given."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from precompute.imports.selection import Selection
from tests.kinds import Case, look
from tests.kinds.folders import images
from tests.kinds.tables import CAT, table


def elsewhere(folder: Path) -> Path:
    """Write a table that names images out of its folder."""
    images(folder, "other/9.png")
    root = images(folder / "set", "1.png")
    text = (
        f"file_name,caption\n1.png,A cat\n../other/9.png,A dog\n{folder}/other/9.png,\n"
    )
    (root / "metadata.csv").write_text(text)
    return root


def path_cells(paths, cell=str):
    """Return what writes a parquet file of paths, and an image inside and outside."""

    def make(folder: Path) -> Path:
        images(folder, "out.png")
        root = folder / "set"
        root.mkdir()
        images(root / "images", "in.png")
        (root / "images" / "in.png").rename(root / "in.data")
        (root / "link").symlink_to(folder / "out.png")
        (root / "circle").symlink_to("circle")
        pq.write_table(
            pa.table({"image": [cell(str(path).format(folder)) for path in paths]}),
            root / "set.parquet",
        )
        return root / "set.parquet"

    return make


CASES = [
    Case(
        "paths out of the folder",
        "in a table beside images",
        elsewhere,
        {"1.png": CAT},
        says=(
            "2 of 3 rows in 'metadata.csv' name files outside of the folder: '../ot",
        ),
    ),
    Case(
        "paths out of the folder",
        "in a table beside images, allowed",
        elsewhere,
        3,
        ask=partial(look, selection=Selection("all", allow_outside=True)),
    ),
    Case(
        "paths out of the folder",
        "in cells of a parquet file",
        path_cells(["in.data", "../out.png", "{}/out.png", "gone.png"]),
        {"set.parquet, row 0": {}},
        says=(
            "skipped: 3",
            "row 1: Its path, '../out.png', lies outside of the folder that was given. "
            "To read such files, add --allow-outside.",
            "row 3: There is no file at 'gone.png'.",
        ),
    ),
    Case(
        "paths out of the folder",
        "in cells with a path and no bytes",
        path_cells(
            ["in.data", "../out.png"], lambda path: {"bytes": None, "path": path}
        ),
        {"set.parquet, row 0": {}},
        says=("row 1: Its path, '../out.png', lies outside",),
    ),
    Case(
        "paths out of the folder",
        "in cells, by a link, in a circle, with a zero byte, and too long",
        path_cells(["in.data", "link", "circle", "in\0", "x" * 300]),
        {"set.parquet, row 0": {}},
        says=(
            "row 1: Its path, 'link', lies outside",
            "row 2: There is no file at 'circle'.",
            "row 3: There is no file at 'in\ufffd'.",
            "row 4: There is no file at 'xxx",
        ),
    ),
    Case(
        "paths out of the folder",
        "in a table, with a zero byte and too long, allowed",
        table("metadata.csv", f"file_name\n1.png\n2.png\n../a\0\n../{'x' * 300}\n"),
        2,
        says=("2 of 4 rows in 'metadata.csv' name no image here: '../a\ufffd' and",),
        ask=partial(look, selection=Selection("all", allow_outside=True)),
    ),
    Case(
        "paths out of the folder",
        "in cells of a parquet file, allowed",
        path_cells(["in.data", "../out.png", "{}/out.png"]),
        3,
        ask=partial(look, selection=Selection("all", allow_outside=True)),
    ),
]
