"""Images in tables: parquet, and what Hugging Face saves."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from core.data.datasets import read_set
from core.data.sets import write_set
from core.data.sources import find_source
from tests.helpers import layouts
from tests.helpers.layouts import pixels, png
from tests.kinds import Case, Found
from tests.kinds.folders import images
from tests.kinds.tables import parquet

PNG = [png(picture) for picture in pixels(3, 0, 8)]
IMAGES = {f"set.parquet, row {row}": {} for row in range(3)}


def write(folder: Path, made: pa.Table, beside: str = "", text: str = "") -> Path:
    root = folder / "set"
    root.mkdir()
    pq.write_table(made, root / "set.parquet")
    if beside:
        (root / beside).write_text(text)
    return root


def write_more(root: Path, made: pa.Table) -> Path:
    pq.write_table(made, root / "more.parquet")
    return root


COLUMNS = [
    Case(
        "images in tables",
        "two columns of bytes, one called image",
        parquet({"mask": PNG, "image": PNG}, "set.parquet"),
        IMAGES,
        says=("A column of 'set.parquet' that holds no text is not read: 'mask'.",),
    ),
    Case(
        "images in tables",
        "two columns of bytes, one of them images",
        parquet({"a": [b"1", b"2", b"3"], "b": PNG}, "set.parquet"),
        IMAGES,
        says=("is not read: 'a'.",),
    ),
    Case(
        "images in tables",
        "long and short bytes, and of one length",
        parquet(
            {
                "image": pa.array(PNG, pa.large_binary()),
                "hash": pa.array([b"12"] * 3, pa.binary(2)),
            },
            "set.parquet",
        ),
        IMAGES,
        says=("is not read: 'hash'.", "columns: none"),
    ),
    Case(
        "images in tables",
        "two columns of images that nothing tells apart",
        parquet({"before": PNG, "after": PNG}, "set.parquet"),
        refused="'set.parquet' has several columns of images: 'before' and 'after'. "
        "Call the one with the training images 'image'.",
    ),
    Case(
        "images in tables",
        "a column of images beside their masks, as files",
        parquet(
            {
                "scan_mask": [{"bytes": data, "path": None} for data in PNG],
                "scan": [{"bytes": data, "path": None} for data in PNG],
            },
            "set.parquet",
        ),
        IMAGES,
    ),
    Case(
        "images in tables",
        "a heading twice",
        lambda folder: write(
            folder,
            pa.Table.from_arrays([PNG, ["a"] * 3, ["b"] * 3], ["image", "x", "x"]),
        ),
        {place: {"x": "a", "x_2": "b"} for place in IMAGES},
        says=("'set.parquet' has more than one column 'x'",),
    ),
    Case(
        "images in tables",
        "id beside source_id",
        parquet({"image": PNG, "id": [5, 6, 7], "source_id": [1, 2, 3]}, "set.parquet"),
        {
            "set.parquet, row 0": {"id": "5", "source_id": "1"},
            **dict(list(IMAGES.items())[1:]),
        },
    ),
    Case(
        "images in tables",
        "times, lists, and class numbers that no name has",
        parquet(
            {
                "image": PNG,
                "when": pa.array([1, 2, 3], pa.timestamp("ns", "UTC")),
                "tags": [["a", "b"], [], None],
                "boxes": [{"x": 1}] * 3,
            },
            "set.parquet",
        ),
        {
            "set.parquet, row 0": {"tags": "a, b"},
            "set.parquet, row 1": {"tags": ""},
            "set.parquet, row 2": {"tags": ""},
        },
        says=("is not read: 'boxes'.",),
    ),
    Case(
        "images in tables",
        "an empty cell and one that is no image",
        parquet({"image": [PNG[0], None, b"none"]}, "set.parquet"),
        {"set.parquet, row 0": {}},
        says=("skipped: 2", "row 1: The cell is empty."),
    ),
    Case(
        "images in tables",
        "image files and a table beside parquet that holds images",
        lambda folder: images(
            write(folder, pa.table({"image": PNG}), "list.csv", "a\n1\n"), "1.png"
        ),
        IMAGES,
        says=(
            "1 file beside parquet files that hold images, not read: '1.png'.",
            "1 table beside images that are not files, not read: 'list.csv'.",
        ),
    ),
    Case(
        "images in tables",
        "parquet without images beside one with",
        lambda folder: write_more(
            write(folder, pa.table({"image": PNG})), pa.table({"a": [1]})
        ),
        IMAGES,
        says=("Parquet files that hold no images are not read: 'more.parquet'.",),
    ),
    Case(
        "images in tables",
        "only columns of other things",
        parquet({"a": [1], "b": ["x"]}, "set.parquet"),
        refused="No images were found in 'set', which holds 'set.parquet'.",
    ),
    Case(
        "images in tables",
        "texts that are no UTF-8",
        lambda folder: write(
            folder,
            pa.Table.from_arrays(
                [
                    pa.array(PNG),
                    pa.StringArray.from_buffers(
                        3,
                        pa.array([0, 1, 2, 3], pa.int32()).buffers()[1],
                        pa.py_buffer(b"\xff\xfe\xfd"),
                    ),
                ],
                ["image", "x"],
            ),
        ),
        refused="'set.parquet' could not be read as a table",
    ),
]


def kept(path: Path) -> Found:
    """Return the rows of the set that is made of the images at a path, by their ids."""
    with TemporaryDirectory() as folder:
        made, _ = write_set(find_source(path).read(), Path(folder), "a=b", 8)
        rows = read_set(made).to_pylist()
    return Found("", {f"{row['id']}": row for row in rows})


def saved(**changed):
    """Return what writes a data set as Hugging Face saves it, with files changed."""

    def make(folder: Path) -> Path:
        root = layouts.saved(folder / "set")
        for name, found in changed.items():
            path = root / f"{name}.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | found))
        return root

    return make


SAVED = "a data set that Hugging Face saved"
SETS = [
    Case(
        "images in tables",
        "id beside source_id, kept as a set",
        parquet({"image": PNG, "id": [5, 6, 7], "source_id": [1, 1, 1]}, "set.parquet"),
        {str(number): {"id": number, "source_id": "1"} for number in range(3)},
        ask=kept,
    ),
    Case(
        SAVED,
        "data files out of its folder",
        saved(state={"_data_files": [{"filename": "../other.arrow"}]}),
        refused="'set' names the data file",
    ),
    Case(
        SAVED,
        "a data file that is gone",
        saved(state={"_data_files": [{"filename": "gone.arrow"}]}),
        refused="'gone.arrow' is missing, which belongs to the data set.",
    ),
    Case(
        SAVED,
        "data files without names",
        saved(state={"_data_files": ["data-00000-of-00002.arrow"]}),
        refused="holds no list of '_data_files'.",
    ),
    Case(SAVED, "features that are none", saved(dataset_info={"features": [1]}), 20),
    Case(
        SAVED,
        "names of classes that are none",
        saved(
            dataset_info={
                "features": {
                    "img": {"_type": "Image"},
                    "label": {"_type": "ClassLabel", "names": None},
                }
            }
        ),
        20,
        says=("classes: 8: 0 1, 1 2",),
    ),
]


CASES = [*COLUMNS, *SETS]
