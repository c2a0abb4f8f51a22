"""Tables and captions beside images, images in tables, and exact duplicates."""

import json
import unicodedata
import zipfile
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from core.datasets import read_set
from core.sets import write_set
from core.sources import find_source
from precompute.own import Selection
from tests import layouts
from tests.kinds import Case, Found, look
from tests.kinds.folders import images
from tests.layouts import pixels, png

KIND = "tables beside images"
CAT = {"caption": "A cat"}


def beside(files: dict[str, str | bytes], *names: str):
    """Return what writes images and, beside them, files of these contents."""

    def make(folder: Path) -> Path:
        root = images(folder / "set", *(names or ("1.png", "2.png")))
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = content.encode() if isinstance(content, str) else content
            path.write_bytes(data)
        return root

    return make


def table(name: str, text: str | bytes, *names: str):
    """Return what writes images and one table beside them."""
    return beside({name: text}, *names)


def parquet(columns: dict, name: str = "metadata.parquet", *names: str):
    """Return what writes images, where some are named, and a parquet table."""

    def make(folder: Path) -> Path:
        root = images(folder / "set", *names)
        root.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), root / name)
        return root

    return make


def told(name: str, make, refused: str, **more) -> Case:
    """Return a case of a table that is refused."""
    return Case(KIND, name, make, refused=refused, **more)


BOTH = {"1.png": {"caption": "A cat"}, "2.png": {"caption": "A dog"}}
CSV = "file_name,caption\n1.png,A cat\n2.png,A dog\n"
JSONL = "".join(
    json.dumps({"file_name": f"{i}.png", "caption": said}) + "\n"
    for i, said in ((1, "A cat"), (2, "A dog"))
)
QUIET = ("note:",)

# The same two captions, however a table is written.
WRITTEN = {
    "CSV": table("metadata.csv", CSV),
    "CSV with a byte order mark": table("metadata.csv", "\ufeff" + CSV),
    "CSV in UTF-16": table("metadata.csv", CSV.encode("utf-16")),
    "CSV with line ends of Windows": table("metadata.csv", CSV.replace("\n", "\r\n")),
    "CSV with line ends of old Macs": table("metadata.csv", CSV.replace("\n", "\r")),
    "CSV with semicolons": table("metadata.csv", CSV.replace(",", ";")),
    "CSV with semicolons, mark and commas in texts": table(
        "metadata.csv",
        "\ufefffile_name;caption;more\n1.png;A cat;a, b\n2.png;A dog;c, d\n",
    ),
    "CSV that Excel says the separator of": table(
        "metadata.csv", "sep=;\r\n" + CSV.replace(",", ";")
    ),
    "CSV with blanks after commas": table("metadata.csv", CSV.replace(",", ", ")),
    "CSV with empty rows and columns": table(
        "metadata.csv", "file_name,caption,,\n1.png,A cat,,\n,,,\n2.png,A dog,,\n,,,\n"
    ),
    "TSV": table("metadata.tsv", CSV.replace(",", "\t")),
    "CSV in capitals": table("METADATA.CSV", CSV.replace("file_name", "File Name")),
    "JSON lines": table("metadata.jsonl", JSONL),
    "JSON lines with a mark and line ends of Windows": table(
        "metadata.jsonl", "\ufeff" + JSONL.replace("\n", "\r\n")
    ),
    "parquet": parquet(
        {"file_name": ["1.png", "2.png"], "caption": ["A cat", "A dog"]},
        "metadata.parquet", "1.png", "2.png",
    ),
    "another name of the table": table("captions.csv", CSV),
    "another name of the column": table("list.csv", CSV.replace("file_name", "image")),
    "a column of numbers before": table(
        "metadata.csv", ",file_name,caption\n0,1.png,A cat\n1,2.png,A dog\n"
    ),
    "two tables, a caption each": beside({
        "a.csv": "file_name,caption\n1.png,A cat\n2.png,\n",
        "b.jsonl": '{"file_name": "2.png", "caption": "A dog"}\n'
        '{"file_name": "1.png"}\n',
    }),
}  # fmt: skip

COMPOSED = unicodedata.normalize("NFC", "é.png")
APART = unicodedata.normalize("NFD", COMPOSED)

# How a row may name the one image that it means: file on the disk, name in the table.
NAMED = {
    "composed letters in the table": (APART, COMPOSED),
    "letters apart in the table": (COMPOSED, APART),
    "another separator": ("a/b/1.png", "a\\b\\1.png"),
    "a leading dot": ("a/1.png", "./a/1.png"),
    "two separators": ("a/1.png", "a//1.png"),
    "another letter case": ("A/1.PNG", "a/1.png"),
    "all of it at once": (f"Ä/{APART}", f".\\ä\\{COMPOSED.upper()}"),
    "blanks around": ("1.png", " 1.png "),
}


def named(on_disk: str, in_table: str):
    row = {"file_name": in_table, "caption": "A cat"}
    return table("metadata.jsonl", json.dumps(row), on_disk)


def absolute(folder: Path) -> Path:
    root = images(folder / "set", "a/1.png")
    text = f"file_name,caption\n{root / 'a' / '1.png'},A cat\n"
    (root / "metadata.csv").write_text(text)
    return root


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


def archive_and_table(folder: Path) -> Path:
    root = images(folder / "set", "1.png")
    with zipfile.ZipFile(root / "images.zip", "w") as archive:
        archive.write(root / "1.png", "1.png")
    (root / "1.png").unlink()
    (root / "metadata.csv").write_text("file_name,caption\n1.png,A cat\n")
    return root


def archive_and_images(folder: Path) -> Path:
    root = archive_and_table(folder)
    return images(root, "2.png")


PNG = [png(picture) for picture in pixels(3, 0, 8)]
IMAGES = {f"set.parquet, row {row}": {} for row in range(3)}

TABLES = [
    *(
        Case(KIND, name, make, BOTH, says=("columns: caption",), never=QUIET)
        for name, make in WRITTEN.items()
    ),
    *(
        Case(KIND, name, named(*names), {names[0]: CAT}, never=QUIET)
        for name, names in NAMED.items()
    ),
    Case(KIND, "an absolute path inside", absolute, {"a/1.png": CAT}, never=QUIET),
    Case(
        KIND,
        "a name that two images have but for letter case",
        table("metadata.csv", "file_name,caption\nA.PNG,A cat\n", "a.png", "a.Png"),
        {"a.png": {"name": "a"}, "a.Png": {"name": "a"}},
        says=("1 of 1 row in 'metadata.csv' names no image here: 'A.PNG'.",),
    ),
    Case(
        KIND,
        "a name that one image has to the letter",
        table("metadata.csv", "file_name,caption\na.png,A cat\n", "a.png", "A.png"),
        {"a.png": CAT, "A.png": {}},
        says=("1 of 2 images has no row in 'metadata.csv': 'A.png'.",),
    ),
    Case(
        KIND,
        "rows that name no file",
        table(
            "metadata.csv",
            CSV + "3.png,Gone\n4.png,Gone\n5.png,Gone\n6.png,Gone\n,Unnamed\n",
        ),
        BOTH,
        says=(
            "note: 5 of 7 rows in 'metadata.csv' name no image here: '3.png', '4.png', "
            "'5.png' and 2 more.",
        ),
    ),
    Case(
        KIND,
        "files without a row",
        table("metadata.csv", CSV, *(f"{i}.png" for i in range(1, 7))),
        6,
        says=(
            "note: 4 of 6 images have no row in 'metadata.csv': '3.png', '4.png', "
            "'5.png' and 1 more.",
        ),
    ),
    Case(
        KIND,
        "an image named twice",
        table("metadata.csv", CSV + "./1.png,A lynx\n"),
        BOTH,
        says=(
            "1 of 3 rows in 'metadata.csv' names an image again: './1.png'. Its first "
            "row is used.",
        ),
    ),
    Case(
        KIND,
        "file_name beside mask_file_name, which comes first",
        table(
            "metadata.csv",
            "mask_file_name,file_name,caption\nmasks/1.png,1.png,A cat\n",
            "1.png", "masks/1.png",
        ),
        {"1.png": CAT | {"mask_file_name": "masks/1.png"}},
        says=(
            "1 image that only 'mask_file_name' of 'metadata.csv' names is not for "
            "training: 'masks/1.png'.",
        ),
    ),
    Case(
        KIND,
        "a column of conditioning images",
        table(
            "metadata.jsonl",
            '{"image": "1.png", "conditioning_image": "2.png", "text": "A cat"}\n',
        ),
        {"1.png": {"text": "A cat"}},
        says=("that only 'conditioning_image' of 'metadata.jsonl' names",),
    ),
    Case(
        KIND,
        "image_file_name beside depth_file_name",
        table(
            "metadata.csv",
            "depth_file_name,image_file_name,caption\n2.png,1.png,A cat\n",
        ),
        {"1.png": CAT},
    ),
    Case(
        KIND,
        "rows that name each other's images",
        table("metadata.csv", "file_name,next\n1.png,2.png\n2.png,1.png\n"),
        {"1.png": {"next": "2.png"}, "2.png": {"next": "1.png"}},
        never=QUIET,
    ),
    told(
        "two columns of files, neither the training images",
        table("metadata.csv", "input_file_name,output_file_name\n1.png,2.png\n"),
        "'metadata.csv' names files in several columns, 'input_file_name' and "
        "'output_file_name'. Call the one with the training images 'file_name'.",
    ),
    Case(
        KIND,
        "two tables that differ",
        beside({"a.csv": CSV, "b.csv": CSV.replace("cat", "lynx")}),
        BOTH,
        says=(
            "'a.csv' and 'b.csv' differ in 'caption' of 1 image: '1.png'. 'a.csv' is "
            "used.",
        ),
    ),
    Case(
        KIND,
        "a table for half of the images beside a whole one",
        beside({"metadata.csv": CSV, "artists.tsv": "file\tartist\n2.png\tAnn\n"}),
        {"1.png": CAT, "2.png": {"caption": "A dog", "artist": "Ann"}},
        says=("1 of 2 images has no row in 'artists.tsv': '1.png'.",),
    ),
    Case(
        KIND,
        "a table in each folder",
        beside(
            {f"{c}/metadata.csv": f"file_name,caption\n1.png,A {c}\n" for c in "ab"},
            "a/1.png", "b/1.png",
        ),
        {f"{c}/1.png": {"caption": f"A {c}", "label": c} for c in "ab"},
        never=QUIET,
    ),
    Case(
        KIND,
        "a table for each split",
        beside({
            "train.csv": "file_name,caption\n1.png,A cat\n",
            "test.csv": "file_name,caption\n2.png,A dog\n",
        }),
        {"1.png": CAT | {"split": "train"}, "2.png": {"split": "test"}},
        never=QUIET,
    ),
    Case(
        KIND,
        "a column of splits, as people write them",
        table("metadata.csv", "file_name,split\n1.png,Training\n2.png,val\n"),
        {"1.png": {"split": "train"}, "2.png": {"split": "validation"}},
    ),
    Case(
        KIND,
        "another table that names no files",
        beside({"metadata.csv": CSV, "sales.csv": "year,price\n2001,5\n"}),
        BOTH,
        says=("A table is not used. 'sales.csv' has the columns 'year' and 'price'.",),
    ),
    Case(
        KIND,
        "another table that is damaged",
        beside({"metadata.csv": CSV, "old.jsonl": "[1\n"}),
        BOTH,
        says=("A table is not used. Line 1 of 'old.jsonl' is no JSON object.",),
    ),
    Case(
        KIND,
        "files of other kinds that could be tables",
        beside({"metadata.csv": CSV, "notes.json": "{}", "list.xlsx": b"PK"}),
        BOTH,
        says=("2 files of kinds that are not read: 'list.xlsx' and 'notes.json'.",),
    ),
    Case(
        KIND,
        "lines of JSON with other ends of lines in texts",
        table(
            "metadata.jsonl",
            '{"file_name": "1.png", "caption": "A\u2028cat\u0085"}\n',
            "1.png",
        ),
        {"1.png": {"caption": "A\u2028cat\u0085"}},
    ),
    Case(
        KIND,
        "the same heading twice",
        table(
            "metadata.csv",
            "file_name,caption,caption\n1.png,A cat,Ein Kater\n",
            "1.png",
        ),
        {"1.png": CAT | {"caption_2": "Ein Kater"}},
        says=(
            "'metadata.csv' has more than one column 'caption'; the later one is read "
            "as 'caption_2'.",
        ),
    ),
    Case(
        KIND,
        "the same name twice in a line of JSON",
        table(
            "metadata.jsonl",
            '{"file_name": "1.png", "caption": "A cat", "caption": "Ein Kater"}\n',
            "1.png",
        ),
        {"1.png": CAT | {"caption_2": "Ein Kater"}},
        says=("'metadata.jsonl' has more than one column 'caption'",),
    ),
    Case(
        KIND,
        "texts with commas and without quotation marks",
        table("metadata.csv", "file_name,caption\n1.png,A cat, asleep\n", "1.png"),
        {"1.png": CAT},
        says=(
            "'metadata.csv' has 1 row with more cells than headings, whose rest is not "
            "read: 'line 2'. Put texts that contain ',' in quotation marks.",
        ),
    ),
    Case(
        KIND,
        "lists and objects in lines of JSON",
        table(
            "metadata.jsonl",
            '{"file_name": "1.png", "tags": ["cat", "red"], "boxes": {"x": [1]}}\n',
            "1.png",
        ),
        {"1.png": {"tags": "cat, red"}},
        says=("A column of 'metadata.jsonl' that holds no text is not read: 'boxes'.",),
    ),
    Case(
        KIND,
        "half a letter in a line of JSON",
        table(
            "metadata.jsonl",
            '{"file_name": "1.png", "caption": "A \\ud83d"}\n',
            "1.png",
        ),
        {"1.png": {"caption": "A \ufffd"}},
    ),
    told(
        "metadata without a column of files",
        table("metadata.csv", "artist,year\nAnn,2001\n"),
        "'metadata.csv' has the columns 'artist' and 'year'. It needs 'file_name'",
    ),
    told(
        "metadata without headings",
        table("metadata.csv", "1.png,A cat\n2.png,A dog\n"),
        "The first line of 'metadata.csv' names an image, not the columns. It needs",
    ),
    told(
        "metadata in another encoding",
        table("metadata.csv", CSV.replace("cat", "chât").encode("latin-1")),
        "'metadata.csv' is no UTF-8 text. Save it again, as UTF-8.",
    ),
    told(
        "a quotation mark that is not closed",
        table("metadata.csv", 'file_name,caption\n1.png,A cat\n2.png,"A dog\n'),
        "'metadata.csv' could not be read as a table (what begins after line 2 has a "
        "quotation mark that is not closed)",
    ),
    told(
        "a line that is no JSON object",
        table("metadata.jsonl", JSONL + '["3.png"]\n'),
        "Line 3 of 'metadata.jsonl' is no JSON object.",
    ),
    told(
        "lines of JSON within each other a thousand times",
        table("metadata.jsonl", "[" * 100_000 + "\n"),
        "Line 1 of 'metadata.jsonl' is no JSON object.",
    ),
    told(
        "parquet that is none",
        table("metadata.parquet", b"PAR1 no more"),
        "'metadata.parquet' could not be read as a table",
    ),
    told(
        "the table itself in place of its folder",
        lambda folder: table("metadata.csv", CSV)(folder) / "metadata.csv",
        "'metadata.csv' is a table without images. Give the folder",
    ),
    told(
        "images in an archive beside the table",
        archive_and_table,
        "'set' holds 'images.zip' and no images out of archives. Give the path of the "
        "archive, or unpack it in this folder to use it with the tables there.",
    ),
    Case(
        KIND,
        "an archive beside images and their table",
        archive_and_images,
        {"2.png": {}},
        says=(
            "1 archive beside other files, not read: 'images.zip'. To use what is "
            "inside, unpack it in this folder.",
        ),
    ),
    Case(
        KIND,
        "a parquet table of paths to images beside it",
        parquet(
            {"image": ["1.png", "2.png"], "caption": ["A cat", "A dog"]},
            "train.parquet", "1.png", "2.png",
        ),
        BOTH,
        never=QUIET,
    ),
    Case(
        KIND,
        "columns of parquet that are no text",
        parquet(
            {
                "file_name": ["1.png"],
                "when": pa.array([1], pa.timestamp("ns")),
                "score": [float("nan")],
                "vector": [[0.1, 0.2]],
                "raw": pa.array([b"\xff"], pa.large_binary()),
            },
            "metadata.parquet", "1.png",
        ),
        {"1.png": {"when": "1970-01-01 00:00:00.000000001", "score": ""}},
        says=(
            "Columns of 'metadata.parquet' that hold no text are not read: 'vector' "
            "and 'raw'.",
        ),
    ),
]  # fmt: skip

OUTSIDE = [
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
            "1 table beside images that are no files, not read: 'list.csv'.",
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
        refused="No pictures were found in 'set', which holds 'set.parquet'.",
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


def captions(files: dict[str, str | bytes], *names: str):
    return beside(files, *(names or ("1.png", "2.png")))


CAPTIONS = [
    Case(
        "captions beside images",
        "text files",
        captions({"1.txt": "A cat\n", "2.txt": "\ufeffA dog"}),
        BOTH,
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "files called .caption",
        captions({"1.caption": "A cat\n", "2.caption": "A dog"}),
        BOTH,
        says=("skipped: 0",),
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "both, which differ",
        captions({"1.txt": "A cat", "1.caption": "A lynx", "2.caption": "A dog"}),
        BOTH,
        says=(
            "1 image with two caption files that differ: '1.png'. The '.txt' is used",
        ),
    ),
    Case(
        "captions beside images",
        "one image without, and a text without an image",
        captions({"1.txt": "A cat", "3.txt": "A bird"}),
        {"1.png": CAT, "2.png": {}},
        says=(
            "1 image without a caption file beside it: '2.png'.",
            "1 text file without an image of that name: '3.txt'.",
        ),
    ),
    Case(
        "captions beside images",
        "a name in other letters",
        captions({unicodedata.normalize("NFD", "É.TXT"): "A cat"}, "é.png"),
        {"é.png": CAT},
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "another image but for letter case",
        captions({"a.txt": "A cat"}, "a.png", "A.png"),
        {"a.png": CAT, "A.png": {"name": "A"}},
        says=("1 image without a caption file beside it: 'A.png'.",),
    ),
    Case(
        "captions beside images",
        "the name of the whole file",
        captions({"1.png.txt": "A cat", "2.png.txt": "A dog"}),
        BOTH,
        never=QUIET,
    ),
    Case(
        "captions beside images",
        "letters in another encoding",
        captions({"1.txt": "chât".encode("latin-1"), "2.txt": "A dog"}),
        {"1.png": {"caption": "ch\ufffdt"}, "2.png": {"caption": "A dog"}},
        says=(
            "1 caption file not in UTF-8, with letters that cannot be read: '1.txt'.",
        ),
    ),
    Case(
        "captions beside images",
        "a readme alone",
        captions({"README.txt": "Mine."}),
        {"1.png": {}, "2.png": {}},
        never=QUIET,
    ),
]


def twice(folder: Path) -> Path:
    root = images(folder / "set", "a/1.png", "a/2.png")
    for copy in ("a/3.png", "b/1.png"):
        (root / copy).parent.mkdir(exist_ok=True)
        (root / copy).write_bytes((root / "a/1.png").read_bytes())
    return root


DUPLICATES = [
    Case(
        "exact duplicates",
        "named",
        twice,
        4,
        says=(
            "pictures: 4\n",
            "note: 2 exact duplicates: 'a/3.png = a/1.png' and 'b/1.png = a/1.png'. 1 "
            "with another label than the first: 'b/1.png'. --drop-duplicates uses the "
            "first of each alone.",
        ),
    ),
    Case(
        "exact duplicates",
        "dropped",
        twice,
        {"a/1.png": {}, "a/2.png": {}},
        says=("pictures: 2\n", "classes: 1: a 2\n", "The first of each is used."),
        ask=partial(look, selection=Selection(drop_duplicates=True)),
    ),
]

CASES = [*TABLES, *OUTSIDE, *COLUMNS, *SETS, *CAPTIONS, *DUPLICATES]
