"""Dictionaries in pickle files, read without running anything.

A pickle is a program. Here it may only make numbers, text, lists, dictionaries and
arrays; what it calls to make them are stand-ins of this module, never what it names, so
that no version of numpy and no argument matters. Knows nothing of images.
"""

import os
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

KINDS = re.compile(r"[?bB]|[biufSU]\d{1,9}")  # of numbers and text, as dtypes name them
MOST_SIZE = 1 << 20  # bytes of one text in an array


class _Kind:
    """What stands for a dtype: its name, and the order of its bytes."""

    def __init__(self, name="", *_):
        self.name = name.decode("latin1") if isinstance(name, bytes) else name
        self.order = "="
        if not isinstance(self.name, str):
            raise ValueError("a dtype without a name")

    def __setstate__(self, state):
        _, order, *fields = state
        if any(field is not None for field in fields[:3]):
            raise ValueError("an array of records")
        self.order = order.decode() if isinstance(order, bytes) else order

    def made(self) -> np.dtype:
        """Return the dtype; a ValueError for others than numbers and text."""
        if self.name == "O8" or not KINDS.fullmatch(self.name):
            raise ValueError(f"values of kind '{self.name}'")
        kind = np.dtype(self.name).newbyteorder(
            "=" if self.order == "|" else self.order
        )
        if kind.itemsize > MOST_SIZE:
            raise ValueError("values that are too long")
        return kind


class _Array:
    """What stands for an array until the file was read."""

    def __init__(self, *_):
        self.data, self.kind, self.shape, self.order = b"", None, (0,), "C"

    def __setstate__(self, state):
        _, self.shape, self.kind, columns_first, self.data = state
        self.order = "F" if columns_first else "C"

    def made(self) -> np.ndarray | list:
        """Return the array, or the list that an array of objects holds."""
        if isinstance(self.data, list):
            return self.data
        data = self.data.encode("latin1") if isinstance(self.data, str) else self.data
        shape = tuple(map(int, self.shape))
        if isinstance(self.kind, _Kind) and min(shape, default=0) >= 0:
            values = np.frombuffer(data, self.kind.made())
            return values.reshape(shape, order=self.order)
        raise ValueError("an array of another kind")


def _from_buffer(data, kind, shape, order, *_) -> _Array:
    array = _Array()
    array.data, array.kind, array.shape, array.order = data, kind, shape, order
    return array


def _scalar(kind, data=b"") -> int | float | str | bytes | bool:
    array = _from_buffer(data, kind, (1,), "C")
    return array.made()[0].item()


def _encoded(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"bytes in '{encoding}'")
    return text.encode("latin1")


def _bytes(text="", *_) -> bytes:
    return _encoded(text) if isinstance(text, str) else bytes(memoryview(text))


STAND_INS = {
    ("multiarray", "_reconstruct"): _Array,
    ("multiarray", "scalar"): _scalar,
    ("numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encoded,
    ("collections", "OrderedDict"): dict,
    ("builtins", "bytes"): _bytes,
    ("builtins", "bytearray"): _bytes,
}


@dataclass
class _Forbidden(Exception):
    """A pickle that asks for more than data."""

    name: str


class _Bounded:
    """A file of which no more is asked than it has: a pickle may ask for terabytes."""

    def __init__(self, file: BinaryIO):
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def read(self, size: int) -> bytes:
        if size > self._size - self._file.tell():
            raise EOFError
        return self._file.read(size)

    def readline(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line


# The Python version: that in C takes gigabytes for a pickle of a few bytes which says
# that it will remember a billion things.
class _Reader(pickle._Unpickler):
    dispatch = dict(pickle._Unpickler.dispatch)

    def find_class(self, module: str, name: str):
        """Return what stands for a class or function that data need."""
        inner = re.fullmatch(r"numpy\.(?:_core|core)\.(\w+)", module)
        home = inner[1] if inner else module.replace("__builtin__", "builtins")
        if (home, name) not in STAND_INS or (home == "multiarray" and not inner):
            raise _Forbidden(f"{module}.{name}")
        return STAND_INS[home, name]

    def persistent_load(self, pid):
        """Refuse what lies outside of the file."""
        raise _Forbidden("something outside of it")

    def load_build(self):
        """Fill what was made; not the stand-ins themselves, which stay as they are."""
        if type(self.stack[-2]) not in (_Array, _Kind):
            raise _Forbidden("something that fills others")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


def unpickled(path: Path) -> dict:
    """Return the dictionary in a pickle, its keys as text, with arrays in place.

    Raises:
        ValueError: If it is damaged, no dictionary, or asks for more than data.
    """
    try:
        with path.open("rb") as file:
            content = _Reader(_Bounded(file), encoding="latin1").load()
        if isinstance(content, dict):
            return {
                text_of(key): value.made() if isinstance(value, _Array) else value
                for key, value in content.items()
                if isinstance(key, str | bytes)
            }
    except _Forbidden as error:
        raise ValueError(
            f"'{path.name}' asks for '{error.name}', which no batch of images needs, "
            "so it was not opened. Get the file from its publisher."
        ) from None
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(
            f"'{path.name}' is not a whole pickle of a batch ({_why(error)}). Get the "
            "file again."
        ) from None
    raise ValueError(
        f"'{path.name}' is a pickle of something else than the dictionary of a CIFAR "
        "batch. Get the file again."
    )


def _why(error: Exception) -> str:
    return str(error) if type(error) is ValueError else type(error).__name__


def text_of(value) -> str:
    """Return a text that may be bytes, as Python 2 and today's Python write it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
