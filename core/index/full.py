"""The gradient index: training gradients in the balanced eigenbasis, 8, 4 or 1 bit.

A training gradient is rotated into the Kronecker eigenbasis, and each coordinate is
divided by its root mean square over the training set, so that one block scale fits all.
Eigenvalues and damping act on the query alone: one index serves every damping, K-FAC,
EK-FAC and the plain inner product. Shards are memory-mapped files of consecutive
examples.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.files.whole import reserve
from core.index.kernels import block_products, encode_blocks, packed_bytes

BLOCK = 4096  # coordinates that share a scale
SHARD_EXAMPLES = 256
PIECE_BYTES = 1 << 27  # of codes between two calls of `on_rows`


def _in_order(work: Callable, items: Iterable, num_threads: int) -> Iterator:
    """Yield what work returns for each item, in order, so many at once."""
    with ThreadPoolExecutor(num_threads) as pool:
        waiting = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > 2 * num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:  # the caller gave up
                one.cancel()


def balance(rms: Tensor) -> Tensor:
    """Return divisors of shape (P,): `rms`, with 1 where nothing varies."""
    return torch.where(rms > 0, rms, torch.ones((), dtype=rms.dtype))


def create_once(path: Path, make: Callable[[Path], object]) -> None:
    """Make a file if it is not there, so that another process's is never replaced."""
    if path.exists():
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make(new)
        with suppress(FileExistsError):  # another process was quicker
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def unpack(codes: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Return the codes (N, count) of whole blocks as `kernels` packs them."""
    if bits == 8:
        return codes.view(np.int8).astype(np.float32)
    mask, width = 2**bits - 1, BLOCK * bits // 8
    blocks = [
        (part >> (bits * k)) & mask
        for part in np.split(codes, range(width, codes.shape[1], width), axis=1)
        for k in range(8 // bits)
    ]
    values = np.concatenate(blocks, axis=1)[:, :count].astype(np.float32)
    return values - 8 if bits == 4 else 2 * values - 1


@dataclass(frozen=True)
class GradientIndex:
    """Training gradients on disk.

    Attributes:
        folder: Where the shards lie.
        num_examples: N.
        num_params: P.
        bits: Per coordinate: 8, 4 or 1.
        check: Called with each file before it is first read; raises if it is damaged.
    """

    folder: Path
    num_examples: int
    num_params: int
    bits: int = 8
    check: Callable[[Path], None] | None = None

    block = BLOCK
    shard_examples = SHARD_EXAMPLES

    @property
    def num_blocks(self) -> int:
        """Return the number of scales per example."""
        return -(-self.num_params // BLOCK)

    def shard_names(self) -> list[str]:
        """Return the file names of all shards: codes and scales in turn."""
        firsts = range(0, self.num_examples, SHARD_EXAMPLES)
        return [
            f"{kind}-{first:07d}.bin"
            for first in firsts
            for kind in ("codes", "scales")
        ]

    def _widths(self) -> dict[str, int]:
        """Return the bytes per example of each kind of file."""
        return {
            "codes": packed_bytes(self.num_params, BLOCK, self.bits),
            "scales": 4 * self.num_blocks,
        }

    def _shard(self, first: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
        """Return codes and scales of the shard that begins with example `first`.

        Raises:
            ValueError: If the file holds another number of bits per coordinate.
        """
        count = min(SHARD_EXAMPLES, self.num_examples - first)
        width = self._widths()["codes"]
        path = self.folder / f"codes-{first:07d}.bin"
        if path.stat().st_size != count * width:
            stored = 8 * path.stat().st_size / (count * self.num_params)
            raise ValueError(
                f"'{path}' holds {stored:.3g} bits for each of {count} x "
                f"{self.num_params} coordinates and was opened as an index of "
                f"{self.bits}. Open it as what it is, or build it again."
            )
        codes = np.memmap(path, np.uint8, mode, shape=(count, width))
        scales = np.memmap(
            self.folder / f"scales-{first:07d}.bin",
            "<f4",
            mode,
            shape=(count, self.num_blocks),
        )
        return codes, scales

    def _mapped(self, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what `_shard` does for reading, mapped once.

        To map a file anew for every question costs a third of reading it.
        """
        if first not in self._maps:
            if self.check is not None:
                for kind in self._widths():
                    self.check(self.folder / f"{kind}-{first:07d}.bin")
            self._maps[first] = self._shard(first, "r")
        return self._maps[first]

    @cached_property
    def _maps(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        return {}

    def rms(self) -> Tensor:
        """Return the root mean square of every coordinate, shape (P,), float32."""
        path = self.folder / "rms.bin"
        if self.check is not None:
            self.check(path)
        return torch.from_numpy(np.fromfile(path, "<f4"))

    def create(self) -> None:
        """Make the files of all shards that do not exist yet, filled with zeros."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for first in range(0, self.num_examples, SHARD_EXAMPLES):
            count = min(SHARD_EXAMPLES, self.num_examples - first)
            for kind, width in self._widths().items():
                path = self.folder / f"{kind}-{first:07d}.bin"
                create_once(path, lambda new, size=count * width: reserve(new, size))

    def write(self, first: int, balanced: Tensor) -> None:
        """Store balanced gradients (B, P) of the examples from position `first` on.

        The bits are the same whatever pieces the gradients are written in.
        """
        values = balanced.cpu().contiguous().numpy()
        stop = first + len(values)
        for shard in range(first - first % SHARD_EXAMPLES, stop, SHARD_EXAMPLES):
            begin, end = max(first, shard), min(stop, shard + SHARD_EXAMPLES)
            codes, scales = self._shard(shard, "r+")
            rows = slice(begin - shard, end - shard)
            encode_blocks(
                values[begin - first : end - first],
                codes[rows],
                scales[rows],
                BLOCK,
                self.bits,
                torch.get_num_threads(),
            )
            codes.flush()
            scales.flush()

    def columns(self, start: int, stop: int) -> Tensor:
        """Return coordinates [start, stop) of all balanced gradients, shape (N, n).

        Reads only the blocks that hold them.
        """
        first, last = start // BLOCK, -(-stop // BLOCK)
        count = min(last * BLOCK, self.num_params) - first * BLOCK
        begin = packed_bytes(first * BLOCK, BLOCK, self.bits)
        end = packed_bytes(first * BLOCK + count, BLOCK, self.bits)
        parts = []
        for shard in range(0, self.num_examples, SHARD_EXAMPLES):
            codes, scales = self._mapped(shard)
            values = unpack(codes[:, begin:end], self.bits, count)
            repeated = np.repeat(scales[:, first:last], BLOCK, axis=1)[:, :count]
            parts.append(values * repeated)
        skipped = start - first * BLOCK
        return torch.from_numpy(np.concatenate(parts))[:, skipped:][:, : stop - start]

    @property
    def num_bytes(self) -> int:
        """Return the bytes of all codes and scales."""
        return self.num_examples * sum(self._widths().values())

    def pieces(self, num_bytes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield codes and scales of consecutive examples, of about a given size.

        A piece never crosses a shard and holds at least one example.
        """
        rows = max(1, num_bytes // self._widths()["codes"])
        for shard in range(0, self.num_examples, SHARD_EXAMPLES):
            codes, scales = self._mapped(shard)
            for first in range(0, len(codes), rows):
                part = slice(first, first + rows)
                yield codes[part], scales[part]

    def scores(
        self,
        queries: Tensor,
        on_rows: Callable[[int, int], None] | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> np.ndarray:
        """Return inner products (Q, N) of preconditioned queries with the index.

        The index is read once for all queries; `piece_bytes` changes no bit of the
        result.

        Args:
            queries: Preconditioned, times `balance`, shape (Q, P), float32.
            on_rows: Called with (examples done, examples in all); may raise to stop.
            piece_bytes: Of codes between two calls of `on_rows`.
        """
        queries, threads = queries.cpu().contiguous().numpy(), torch.get_num_threads()
        # Each thread takes whole pieces: of a million images there are thousands of
        # shards, and dividing every one took several times as long as reading it.
        share = -(-self.num_examples // (2 * threads)) * self._widths()["codes"]
        pieces, parts, done = self.pieces(min(piece_bytes, share)), [], 0

        def products(piece: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
            return block_products(queries, *piece, BLOCK, self.bits, 1)

        for part in _in_order(products, pieces, threads):
            parts.append(part)
            done += part.shape[1]
            if on_rows is not None:
                on_rows(done, self.num_examples)
        return np.concatenate(parts, axis=1)
