"""A small collection with a row in every table."""

import os

import numpy as np

from core.collection.publish import CollectionWriter
from core.collection.schema import Sample, Shard, StoredAnswer
from core.drawing import Drawing

HOSTILE = 'O\'Hara "q" -- ; ünïcödé 猫 \n\t\\ <script>alert(1)</script> \x00 𝄞'
SAMPLE = Sample(3, Drawing(None, 2**62, "ddim", 50, 2.0), {"note": HOSTILE})
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # sha256
LENS = {"method": "ekfac", "damping": 1e-8}
SETTINGS = {"data": {"limit": 32, "keep": (("group", ("a",)),)}, "seed": 0}


def write_examples(writer, ids=(0, 1, 2)):
    writer.put_examples(
        ids,
        [i % 2 for i in ids],
        [f"image {i}".encode() for i in ids],
        [{"name": f"name {i}"} for i in ids],
    )


def write_everything(writer):
    """Fill every table."""
    write_examples(writer)
    writer.put_meta("settings", SETTINGS)
    writer.put_classes([("noto", "Food & Drink"), ("fluent", HOSTILE)])
    writer.put_array("curvature/0", np.arange(6.0).reshape(2, 3))
    writer.put_bytes("denoiser", os.urandom(200_000))
    x_0 = np.ones((1, 2, 2), np.float32)
    writer.put_sample(SAMPLE, b"png", x_0)
    answer = StoredAnswer(np.array([0.125, -2, 3]), np.full(3, np.nan), 0.5, "sketch")
    writer.put_answer(3, LENS, answer)
    writer.put_evaluation("lds", "ekfac", {"mean": 0.25, "masks": [1, 2]})
    (writer.root / "shards").mkdir(exist_ok=True)
    (writer.root / "shards" / "0.bin").write_bytes(b"abc")
    writer.put_shard(Shard("shards/0.bin", 0, 3, {"bits": 8}, "|i1", 3, ABC))


def publish(root, name="glyphs", fill=write_everything):
    with CollectionWriter(root, name) as writer:
        fill(writer)
        return writer.publish()


def everything(collection):
    """Return all that can be read, as one comparable text."""
    ids = collection.examples().index
    samples = collection.samples()
    return repr((
        collection.meta("settings"),
        collection.classes(),
        collection.examples().to_dict("index"),
        collection.labels(),
        collection.images(ids),
        [
            (collection.blob if n == "denoiser" else collection.array)(n)
            for n in collection.arrays()
        ],
        samples,
        [collection.sample_image(s.sample_id) for s in samples],
        [collection.answer(s.sample_id, LENS) for s in samples],
        collection.evaluations(),
        collection.shards(),
    ))
