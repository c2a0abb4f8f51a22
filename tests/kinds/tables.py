"""Tables beside images: what in them fits no image, and what is wrong with them."""

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kinds import Case
from tests.kinds.folders import images

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


def absolute(folder: Path) -> Path:
    root = images(folder / "set", "a/1.png")
    text = f"file_name,caption\n{root / 'a' / '1.png'},A cat\n"
    (root / "metadata.csv").write_text(text)
    return root


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


CASES = [
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
        says=("A table is not used. Line 1 of 'old.jsonl' is not a JSON object.",),
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
        "'metadata.csv' is not UTF-8 text. Save it again, as UTF-8.",
    ),
    told(
        "a quotation mark that is not closed",
        table("metadata.csv", 'file_name,caption\n1.png,A cat\n2.png,"A dog\n'),
        "'metadata.csv' could not be read as a table (what begins after line 2 has a "
        "quotation mark that is not closed)",
    ),
    told(
        "a line that is not a JSON object",
        table("metadata.jsonl", JSONL + '["3.png"]\n'),
        "Line 3 of 'metadata.jsonl' is not a JSON object.",
    ),
    told(
        "lines of JSON within each other a thousand times",
        table("metadata.jsonl", "[" * 100_000 + "\n"),
        "Line 1 of 'metadata.jsonl' is not a JSON object.",
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
