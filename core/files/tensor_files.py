"""Tensors and facts in one file: safetensors, each fact a JSON text in the header.

A sealed file carries a checksum of all that it says, so that a flipped bit is `Damaged`
and never a number. Models (`core.model.checkpoint`) are not sealed: their bytes name
them. Knows nothing of what the tensors mean. Loads torch when the first file is opened.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from core.files.whole import Damaged, written_whole

if TYPE_CHECKING:
    from torch import Tensor

SEAL = "sha256"  # the header's entry with the checksum
UNREADABLE = (SafetensorError, OSError, KeyError, TypeError, ValueError)


def tensors_file(
    tensors: "dict[str, Tensor]", header: dict[str, object], sealed: bool = True
) -> bytes:
    """Return the file of some tensors; equal content is equal bytes.

    Args:
        tensors: On any device.
        header: What is said of them, plain values by name.
        sealed: Whether the file carries a checksum.
    """
    return b"".join(_pieces(tensors, header, sealed))


def write_tensors(
    path: Path, tensors: "dict[str, Tensor]", header: dict[str, object]
) -> None:
    """Write a sealed file; it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        for piece in _pieces(tensors, header, sealed=True):
            file.write(piece)


def read_tensors(
    source: Path | bytes, sealed: bool = True
) -> "tuple[dict[str, Tensor], dict[str, object]]":
    """Return the tensors of a file, on the CPU, and its header, as they were written.

    Args:
        source: The file, or its bytes.
        sealed: Whether the file must carry a checksum; if not, it is held against the
            one that it has. Files of unfinished work were not always sealed.

    Raises:
        Damaged: If it is not whole.
    """
    import safetensors.torch

    try:
        texts = _texts(source)
        header = {name: json.loads(texts[name]) for name in texts if name != SEAL}
        if isinstance(source, bytes):
            tensors = safetensors.torch.load(source)
        else:
            tensors = safetensors.torch.load_file(source)
        checksum = texts.pop(SEAL) if sealed else texts.pop(SEAL, None)
    except UNREADABLE as error:
        raise Damaged(_name(source)) from error
    if checksum is not None and content_sha256(tensors, texts) != checksum:
        raise Damaged(_name(source))
    return tensors, header


def read_header(source: Path | bytes) -> dict:
    """Return a file's header alone, not held against the checksum: that needs all.

    Raises:
        Damaged: If it cannot be read.
    """
    try:
        texts = _texts(source)
        return {name: json.loads(texts[name]) for name in texts if name != SEAL}
    except UNREADABLE as error:
        raise Damaged(_name(source)) from error


def read_facts(path: Path) -> dict:
    """Return the facts of a sealed file; `Damaged`, whatever part of the file it is."""
    try:
        now = path.stat()
    except OSError as error:
        raise Damaged(path) from error
    return json.loads(_whole_facts(path, now.st_mtime_ns, now.st_size, now.st_ino))


@lru_cache(maxsize=256)
def _whole_facts(path: Path, *version: int) -> str:
    """Return the facts of a file as text, which takes reading all of it once."""
    return json.dumps(read_tensors(path)[1]["facts"])


def content_sha256(tensors: "dict[str, Tensor]", texts: dict[str, str]) -> str:
    """Return the checksum of a header's texts, and of tensors with their names."""
    import torch

    # Files that hold facts alone were sealed before there were others.
    alone = texts["facts"] if texts.keys() == {"facts"} else None
    checksum = hashlib.sha256((alone or json.dumps(texts, sort_keys=True)).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        checksum.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        checksum.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return checksum.hexdigest()


def _pieces(
    tensors: "dict[str, Tensor]", header: dict[str, object], sealed: bool
) -> tuple[bytes, memoryview]:
    """Return a file as its header, in the order of the names, and the tensors' bytes.

    The library has another order each time.
    """
    import safetensors.torch

    tensors = {name: value.cpu().contiguous() for name, value in tensors.items()}
    texts = {name: json.dumps(value) for name, value in header.items()}
    if sealed:
        texts[SEAL] = content_sha256(tensors, texts)
    data = memoryview(safetensors.torch.save(tensors, texts))
    start = 8 + int.from_bytes(data[:8], "little")
    found = json.loads(bytes(data[8:start]))
    found["__metadata__"] = dict(sorted(found["__metadata__"].items()))
    text = json.dumps(found, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, data[start:]


def _texts(source: Path | bytes) -> dict[str, str]:
    """Return the texts in a file's header by name; none where it has none."""
    if isinstance(source, bytes):
        length = int.from_bytes(source[:8], "little")
        return json.loads(source[8 : 8 + length]).get("__metadata__", {})
    with safe_open(source, "numpy") as file:
        return file.metadata() or {}


def _name(source: Path | bytes) -> Path | str:
    return source if isinstance(source, Path) else "model"
