"""A few images in every layout that users' data sets come in."""

import csv
import gzip
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse"]
CLASSES += ["ship", "truck"]
STYLES = ["art_nouveau", "baroque", "realism", "ukiyo_e"]
PER_BATCH = 4


def pixels(count: int, seed: int, size: int = 32) -> np.ndarray:
    """Return uint8 images of coloured squares, shape (count, size, size, 3)."""
    rng = np.random.default_rng(seed)
    return (
        rng
        .integers(0, 256, (count, 4, 4, 3), np.uint8)
        .repeat(size // 4, 1)
        .repeat(size // 4, 2)
    )


def batches(names: list[str], seed: int = 0) -> dict[str, tuple[np.ndarray, list[int]]]:
    """Return (images, labels) of five training batches and a test batch."""
    made = {}
    for k, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        labels = [(k + i) % len(names) for i in range(PER_BATCH)]
        made[name] = pixels(PER_BATCH, seed + k), labels
    return made


class _Python2(pickle._Pickler):
    """Writes text as Python 2 wrote its strings, as the published batches have it."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_text(self, text):
        data = text if isinstance(text, bytes) else text.encode("latin1")
        short = len(data) < 256
        self.write(b"U" + bytes([len(data)]) if short else b"T")
        self.write(b"" if short else struct.pack("<i", len(data)))
        self.write(data)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = save_text


def dump(value, path: Path) -> None:
    """Pickle a value as Python 2 and an old numpy did."""
    file = io.BytesIO()
    _Python2(file, protocol=2).dump(value)
    old = file.getvalue().replace(b"cnumpy._core.multiarray", b"cnumpy.core.multiarray")
    path.write_bytes(old)


def rows(pictures: np.ndarray) -> np.ndarray:
    """Return images as CIFAR has them: all red, all green, all blue."""
    return pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)


def python_batches(folder: Path, names: list[str], meta: str, key: str) -> Path:
    """Write batches as cifar-10-batches-py or artbench-10-batches-py has them."""
    folder.mkdir(parents=True)
    for name, (pictures, labels) in batches(names).items():
        dump({"data": rows(pictures).copy(), "labels": labels}, folder / name)
    dump({key: names, "num_vis": 3072}, folder / meta)
    return folder


def cifar_python(folder: Path) -> Path:
    """Write CIFAR-10 in Python batches."""
    path = folder / "cifar-10-batches-py"
    return python_batches(path, CLASSES, "batches.meta", "label_names")


def cifar_archive(folder: Path) -> Path:
    """Write CIFAR-10 in Python batches, as the archive that is published."""
    folder.mkdir(parents=True)
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(cifar_python(folder / "unpacked"), "cifar-10-batches-py")
    return path


def cifar_binary(folder: Path) -> Path:
    """Write CIFAR-10 in binary records."""
    return binary_batches(folder / "cifar-10-batches-bin", CLASSES)


def binary_batches(folder: Path, names: list[str]) -> Path:
    """Write batches in binary records."""
    folder.mkdir(parents=True)
    for name, (pictures, labels) in batches(names).items():
        marked = np.column_stack([np.array(labels, np.uint8), rows(pictures)])
        (folder / f"{name}.bin").write_bytes(marked.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n")
    return folder


def cifar_100(folder: Path, binary: bool) -> Path:
    """Write CIFAR-100, whose images have a coarse and a fine label."""
    path = folder / ("cifar-100-binary" if binary else "cifar-100-python")
    path.mkdir(parents=True)
    fine, coarse = [f"fine{i}" for i in range(100)], [f"coarse{i}" for i in range(20)]
    for k, split in enumerate(("train", "test")):
        pictures, labels = pixels(PER_BATCH, k), [99, 0, 7, 7]
        groups = [19, 0, 1, 1]
        if binary:
            marked = np.column_stack([groups, labels, rows(pictures)]).astype(np.uint8)
            (path / f"{split}.bin").write_bytes(marked.tobytes())
        else:
            batch = {"data": rows(pictures).copy()}
            batch |= {"fine_labels": labels, "coarse_labels": groups}
            dump(batch, path / split)
    if binary:
        (path / "fine_label_names.txt").write_text("\n".join(fine))
        (path / "coarse_label_names.txt").write_text("\n".join(coarse))
    else:
        names = {"fine_label_names": fine, "coarse_label_names": coarse}
        dump(names, path / "meta")
    return path


def artbench_batches(folder: Path) -> Path:
    """Write ArtBench in Python batches, its table above as Kaggle nests it."""
    artbench_table(folder)
    path = folder / "artbench-10-python" / "artbench-10-batches-py"
    return python_batches(path, STYLES, "meta", "styles").parent.parent


def artbench_files(folder: Path) -> Path:
    """Write ArtBench as image files by split and style, its table beside."""
    artbench_table(folder)
    root = folder / "artbench-10-imagefolder-split"
    for name, split, style, picture, _ in art(folder):
        path = root / split / style / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path, lossless=True)
    return root


def art(folder: Path):
    """Yield (file name, split, style, pixels, row in the split) of ArtBench."""
    for k, (batch, (pictures, labels)) in enumerate(batches(STYLES).items()):
        split = "test" if batch == "test_batch" else "train"
        for i, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
            row = i if split == "test" else k * PER_BATCH + i
            name = f"jane-doe-{i}_the-sea-{split}-{row}.webp"
            yield name, split, STYLES[label], picture, row


def artbench_table(folder: Path) -> None:
    """Write ArtBench-10.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["name", "artist", "url", "is_public_domain", "length", "width"]
    columns += ["label", "split", "cifar_index"]
    with (folder / "ArtBench-10.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for name, split, style, _, row in art(folder):
            url = f"https://example.invalid/{name}"
            facts = [f"jane-doe-{row % PER_BATCH}", url, "True", 256, 256]
            table.writerow([name, *facts, style, split, row])


def training_pictures() -> tuple[np.ndarray, list[str]]:
    """Return the images of the training batches and their class names, in order."""
    made = list(batches(CLASSES).values())[:-1]
    labels = [CLASSES[label] for _, numbers in made for label in numbers]
    return np.concatenate([pictures for pictures, _ in made]), labels


def image_folder(folder: Path, split: str = "") -> Path:
    """Write the training images as files by class, under a split if one is named."""
    root = folder / "pictures"
    for i, (picture, label) in enumerate(zip(*training_pictures(), strict=True)):
        path = root / split / label / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    return root


def table() -> pa.Table:
    """Return the training images as Hugging Face keeps them."""
    pictures, labels = training_pictures()
    files = [{"bytes": png(picture), "path": None} for picture in pictures]
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    label = {"names": CLASSES, "_type": "ClassLabel"}
    features = {"img": {"_type": "Image"}, "label": label}
    numbers = [CLASSES.index(label) for label in labels]
    made = pa.table({
        "img": pa.array(files, image),
        "label": pa.array(numbers, pa.int64()),
    })
    info = json.dumps({"info": {"features": features}})
    return made.replace_schema_metadata({b"huggingface": info.encode()})


def png(picture: np.ndarray) -> bytes:
    """Return the bytes of a PNG file."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def parquet(folder: Path) -> Path:
    """Write a parquet file as the hub has it."""
    path = folder / "plain_text" / "train-00000-of-00001.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table(), path)
    return folder


def saved(folder: Path, shards: int = 2) -> Path:
    """Write what `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True, exist_ok=True)
    made, names = table(), []
    cuts = np.linspace(0, made.num_rows, shards + 1).astype(int)
    for i, (first, stop) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        names.append(f"data-{i:05d}-of-{shards:05d}.arrow")
        with pa.ipc.new_stream(str(folder / names[-1]), made.schema) as stream:
            stream.write_table(made.slice(first, stop - first))
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    info = json.loads(made.schema.metadata[b"huggingface"])["info"]
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return folder


def saved_splits(folder: Path) -> Path:
    """Write what `DatasetDict.save_to_disk` writes; both splits are the same."""
    for split in ("train", "test"):
        saved(folder / split, 1)
    splits = json.dumps({"splits": ["train", "test"]})
    (folder / "dataset_dict.json").write_text(splits)
    return folder


def idx(folder: Path, packed: bool) -> Path:
    """Write grey images and their labels as MNIST has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, name in enumerate(("train", "t10k")):
        pictures = pixels(PER_BATCH, k, 28)[..., 0]
        arrays = {"images-idx3": pictures, "labels-idx1": np.arange(PER_BATCH)}
        for kind, array in arrays.items():
            header = struct.pack(">I", 0x0800 + array.ndim)
            header += struct.pack(f">{array.ndim}I", *array.shape)
            data = header + array.astype(np.uint8).tobytes()
            path = folder / f"{name}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)
    return folder
