"""Tensors and facts in one file that is known to be whole: safetensors with a checksum.

Knows nothing of what the tensors mean.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.files.whole import Damaged


def tensors_file(tensors: dict[str, Tensor], facts: dict) -> bytes:
    """Return the file of some tensors, on the CPU, and facts: plain values."""
    text = json.dumps(facts)
    checksum = content_sha256(tensors, text)
    return _in_one_order(
        safetensors.torch.save(tensors, {"facts": text, "sha256": checksum})
    )


def _in_one_order(data: bytes) -> bytes:
    """Return a safetensors file with its metadata in the order of their names.

    The library has another order each time; equal content is to be equal bytes.
    """
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[start:]


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Return the tensors and the facts of a file, every bit as it was written.

    Raises:
        Damaged: If it is not whole.
    """
    text, checksum = _metadata(path)
    try:
        tensors = safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise Damaged(path.name) from error
    if content_sha256(tensors, text) != checksum:
        raise Damaged(path.name)
    return tensors, json.loads(text)


def read_facts(path: Path) -> dict:
    """Return the facts alone; `Damaged` as above, whatever part of the file it is."""
    try:
        now = path.stat()
    except OSError as error:
        raise Damaged(path.name) from error
    return json.loads(_whole_facts(path, now.st_mtime_ns, now.st_size, now.st_ino))


@lru_cache(maxsize=256)
def _whole_facts(path: Path, *version: int) -> str:
    """Return the facts of a file as text, which takes reading all of it once."""
    return json.dumps(read_tensors(path)[1])


def content_sha256(tensors: dict[str, Tensor], facts: str) -> str:
    """Return the checksum of facts as text, and of tensors with their names."""
    found = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def _metadata(path: Path) -> tuple[str, str]:
    """Return a file's facts as text and its checksum."""
    try:
        with safe_open(path, "pt") as file:
            text, checksum = (file.metadata()[name] for name in ("facts", "sha256"))
        json.loads(text)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise Damaged(path.name) from error
    return text, checksum
