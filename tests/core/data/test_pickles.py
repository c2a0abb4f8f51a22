"""Batches as Python and numpy of any time write them, and pickles that attack."""

import os
import pickle
import tracemalloc
from collections import OrderedDict

import numpy as np
import pytest

from core.data.sets import image_of
from core.data.sources import find_source, selected
from core.data.sources.pickles import unpickled
from tests.helpers import layouts

IMAGES, NUMBERS = layouts.pixels(4, 0), [3, 0, 7, 3]
DATA, FILES = layouts.rows(IMAGES), [b"1.png", b"2.png", b"3.png", b"4.png"]


def of_numpy_1(data: bytes) -> bytes:
    """Return a pickle with the module paths of numpy 1; frames keep their lengths."""
    return data.replace(b"numpy._core.", b"numpy.core.")


def python_3(value, protocol: int) -> bytes:
    return pickle.dumps(value, protocol)


LABELS = {
    "numbers": NUMBERS,
    "numpy integers": [np.int64(number) for number in NUMBERS],
    "small numpy integers": [np.uint8(number) for number in NUMBERS],
    "big-endian integers": list(np.array(NUMBERS, ">i4")),
    "an array": np.array(NUMBERS),
    "an array of columns": np.array(NUMBERS, np.int16)[:, None],
    "an array of objects": np.array(NUMBERS, dtype=object),
    "whole fractions": np.array(NUMBERS, np.float32),
    "a tuple": tuple(NUMBERS),
}
BATCHES = {
    "text keys": {"data": DATA, "labels": NUMBERS},
    "bytes keys": {
        b"data": DATA,
        b"labels": NUMBERS,
        b"filenames": [b"1.png", b"2", b"3", b"4"],
    },
    "an ordered dictionary": OrderedDict(data=DATA, labels=NUMBERS),
    "columns first": {"data": np.asfortranarray(DATA), "labels": NUMBERS},
    "every second row": {"data": DATA.repeat(2, 0)[::2], "labels": NUMBERS},
    **{name: {"data": DATA, "labels": labels} for name, labels in LABELS.items()},
}
METAS = {
    "text": {"label_names": layouts.CLASSES},
    "bytes": {b"label_names": [name.encode() for name in layouts.CLASSES]},
    "an array": {"label_names": np.array(layouts.CLASSES)},
    "numpy texts": {"label_names": [np.str_(name) for name in layouts.CLASSES]},
}


def read(folder) -> list:
    return list(selected(find_source(folder), "train"))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_batches_of_today_are_read(batch, protocol, tmp_path):
    """Pixel by pixel with their classes, whatever wrote them."""
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch, protocol))
    meta = pickle.dumps(METAS["text"], protocol)
    (tmp_path / "batches.meta").write_bytes(meta)
    records = read(tmp_path)
    assert [record.facts["label"] for record in records] == [
        layouts.CLASSES[number] for number in NUMBERS
    ]
    for record, image in zip(records, IMAGES, strict=True):
        np.testing.assert_array_equal(np.asarray(image_of(record)), image)


@pytest.mark.parametrize("meta", METAS.values(), ids=METAS)
def test_class_names_of_today_are_read(meta, tmp_path):
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(BATCHES["text keys"], 5))
    (tmp_path / "batches.meta").write_bytes(pickle.dumps(meta, 5))
    assert [r.facts["label"] for r in read(tmp_path)] == [
        "cat",
        "airplane",
        "horse",
        "cat",
    ]


def test_numpy_1_and_2_name_their_parts_differently(tmp_path):
    """Both are read; the shorter name is tried in a protocol without lengths."""
    path = tmp_path / "batch"
    for protocol in (2, 3):
        data = pickle.dumps({"labels": [np.int64(7)], "data": DATA}, protocol)
        assert b"numpy._core" in data
        path.write_bytes(of_numpy_1(data))
        found = unpickled(path)
        assert found["labels"] == [7]
        np.testing.assert_array_equal(found["data"], DATA)


def test_names_may_end_as_pickles_do(tmp_path):
    (tmp_path / "data_batch_1.pkl").write_bytes(pickle.dumps(BATCHES["text keys"]))
    assert len(read(tmp_path)) == 4


class Runs:
    """Calls something when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def filling(name: bytes) -> bytes:
    """Return a pickle that changes the attributes of a function it may name."""
    text = b"X\x0c\x00\x00\x00__defaults__"
    return b"\x80\x02" + name + b"N}" + text + b"NsX\x01\x00\x00\x00x\x86b."


RECORDS = np.zeros(2, [("a", "O"), ("b", "i8")])
HUGE = pickle.dumps({"data": DATA}, 2).replace(b"M\x00\x0c", b"J\xff\xff\xff\x7f")
BROKEN = "is not a whole pickle of a batch"
ATTACKS = {
    "command": (Runs(os.system, "touch hacked"), "asks for 'posix.system'"),
    "in a batch": ({"data": Runs(os.system, "touch x")}, "asks for 'posix.system'"),
    "evaluation": (Runs(eval, "1"), "asks for 'builtins.eval'"),
    "attribute": (Runs(getattr, 1, "real"), "asks for 'builtins.getattr'"),
    "numpy's loader": (Runs(np.load, "x"), "asks for 'numpy"),
    "dotted": (
        b"\x80\x04\x8c\x05numpy\x8c\x07dtype.x\x93.",
        "asks for 'numpy.dtype.x'",
    ),
    "nobody's": (b"\x80\x02cmultiarray\nscalar\n.", "asks for 'multiarray.scalar'"),
    "outside": (b"\x80\x02X\x01\x00\x00\x00xQ.", "asks for 'something outside of it'"),
    "filling a function": (filling(b"c_codecs\nencode\n"), "that fills others"),
    "filling a class": (filling(b"cnumpy\nndarray\n"), "that fills others"),
    "old protocol": (b"\x80\x02(S'touch hacked'\niposix\nsystem\n.", "posix.system"),
    "records": ({"data": RECORDS}, "an array of records"),
    "dates": ({"data": np.zeros(2, "M8[s]")}, "values of kind 'M8'"),
    "gigabytes of zeros": ({"data": Runs(bytes, 10**10)}, f"{BROKEN} (TypeError)"),
    "a billion things": (
        b"\x80\x02Nr\xff\xff\xff\x7f.",
        "is a pickle of something",
    ),
    "a text of terabytes": (b"\x80\x04\x8d\x00\x00\x00\x00\x04\x00\x00\x00x.", BROKEN),
    "a shape of terabytes": (HUGE, BROKEN),
    "cut": (pickle.dumps({"data": DATA})[:100], BROKEN),
    "cut in a name": (pickle.dumps({"data": DATA}, 2)[:30], BROKEN),
    "a list": ([1, 2], "is a pickle of something"),
}


@pytest.mark.parametrize("value, said", ATTACKS.values(), ids=ATTACKS)
def test_a_pickle_runs_nothing(value, said, tmp_path, monkeypatch):
    """It ends in a sentence, and takes no more memory than the file has."""
    monkeypatch.chdir(tmp_path)
    data = value if isinstance(value, bytes) else pickle.dumps(value)
    (tmp_path / "batch").write_bytes(data)
    tracemalloc.start()
    with pytest.raises(ValueError) as found:
        unpickled(tmp_path / "batch")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said in str(found.value) and str(found.value).endswith(".")
    assert os.listdir(tmp_path) == ["batch"] and most < 5e6
    np.testing.assert_array_equal(  # and none changes what is read afterwards
        _again(tmp_path)["data"], DATA
    )


def _again(folder) -> dict:
    path = folder / "again"
    path.write_bytes(
        pickle.dumps({"data": DATA, "labels": [np.int64(1)], "x": b"\xff"}, 2)
    )
    return unpickled(path)


@pytest.mark.parametrize(
    "labels, said",
    {
        "halves": ([0.5, 1, 2, 3], "not whole numbers"),
        "nothing": ([None] * 4, "not whole numbers"),
        "too few": ([1, 2], "4 images and 2 values"),
        "unnamed": ([1, 2, 3, 10], "the class number 10, but only 10 classes"),
        "negative": ([1, 2, 3, -1], "the class number -1, but only 10 classes"),
    }.values(),
)
def test_labels_that_fit_no_class(labels, said, tmp_path):
    batch = {"data": DATA, "labels": labels}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch))
    (tmp_path / "batches.meta").write_bytes(pickle.dumps(METAS["text"]))
    with pytest.raises(ValueError, match=said):
        read(tmp_path)


def test_labels_that_are_names_already(tmp_path):
    batch = {"data": DATA, "labels": ["cat", b"dog", "cat", "owl"]}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch))
    assert [r.facts["label"] for r in read(tmp_path)] == ["cat", "dog", "cat", "owl"]
