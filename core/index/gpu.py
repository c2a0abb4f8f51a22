"""The full index on a GPU: resident where it fits, otherwise streamed.

Streaming copies the next examples from page-locked memory on a stream of its own while
the present ones are multiplied. On a CPU the same code runs without streams; there
`GradientIndex.scores` is faster, which decodes in the cache.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from core.index.full import BLOCK, GradientIndex

PIECE_BYTES = 1 << 28  # of codes that are copied and multiplied at a time
DECODED_BYTES = 1 << 30  # of float32 that a piece is decoded into at a time
KEPT_FREE = 4 << 30  # bytes of GPU memory that a resident index leaves to the model

Piece = tuple[Tensor, Tensor]  # codes and scales of some examples


class DeviceIndex:
    """A gradient index whose products are computed on a device.

    Args:
        index: On disk.
        device: Where to multiply.
        resident: Whether to keep all codes there after the first question; None for
            whether they fit.
    """

    def __init__(
        self,
        index: GradientIndex,
        device: torch.device | str,
        resident: bool | None = None,
    ):
        self.index, self.device = index, torch.device(device)
        self.resident = self._fits() if resident is None else resident
        self._kept: list[Piece] | None = None

    def _fits(self) -> bool:
        if self.device.type != "cuda":
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        return self.index.num_bytes + KEPT_FREE <= free

    def scores(
        self, queries: Tensor, on_rows: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Return inner products (Q, N), as `GradientIndex.scores` does.

        The index is read once for all queries.

        Args:
            queries: Rotated queries times `balance`, shape (Q, P), float32.
            on_rows: Called with (examples done, examples in all); may raise to stop.
        """
        queries, parts, done, kept = queries.to(self.device), [], 0, []
        for piece in self._kept or self._streamed():
            if self.resident and self._kept is None:
                kept.append(piece)
            parts.append(_products(queries, *piece, self.index.bits))
            done += len(piece[0])
            if on_rows is not None:
                on_rows(done, self.index.num_examples)
        if kept:
            self._kept = kept
        return torch.cat(parts, dim=1).cpu().numpy()

    def _streamed(self) -> Iterator[Piece]:
        """Yield all pieces on the device, each while the next one is being copied."""
        if self.device.type != "cuda":
            yield from map(_to_tensors, self.index.pieces(PIECE_BYTES))
            return
        side, ready = torch.cuda.Stream(self.device), None
        for piece in self.index.pieces(PIECE_BYTES):
            pinned = [tensor.pin_memory() for tensor in _to_tensors(piece)]
            with torch.cuda.stream(side):
                copied = tuple(t.to(self.device, non_blocking=True) for t in pinned)
                arrived = side.record_event()
            if ready is not None:
                yield self._when_arrived(*ready)
            ready = copied, arrived
        yield self._when_arrived(*ready)

    def _when_arrived(self, piece: Piece, arrived: torch.cuda.Event) -> Piece:
        """Return the piece after making the present stream wait for its copy."""
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(arrived)
        for tensor in piece:
            tensor.record_stream(stream)  # not to be freed before it is used
        return piece


def _to_tensors(piece: tuple[np.ndarray, np.ndarray]) -> Piece:
    codes, scales = piece
    return torch.from_numpy(np.array(codes)), torch.from_numpy(np.array(scales))


def _products(queries: Tensor, codes: Tensor, scales: Tensor, bits: int) -> Tensor:
    """Return inner products (Q, B) of queries with packed examples, float64."""
    rows = max(1, DECODED_BYTES // (4 * queries.shape[1]))
    return torch.cat(
        [
            _decoded_products(queries, c, s, bits)
            for c, s in zip(codes.split(rows), scales.split(rows), strict=True)
        ],
        dim=1,
    )


def _decoded_products(
    queries: Tensor, codes: Tensor, scales: Tensor, bits: int
) -> Tensor:
    """Return the products, whole blocks first, then the short one at the end."""
    full, rest = divmod(queries.shape[1], BLOCK)
    width = BLOCK * bits // 8
    total = torch.zeros(
        len(queries), len(codes), dtype=torch.float64, device=queries.device
    )
    for num_blocks, block, first, begin in (
        (full, BLOCK, 0, 0),
        (1, rest, full, full * width),
    ):
        if num_blocks * block == 0:
            continue
        end = begin + num_blocks * -(-block * bits // 8)
        part = codes[:, begin:end].unflatten(1, (num_blocks, -1))
        values = _decode(part, bits)[..., :block]  # (B, blocks, block)
        asked = queries[:, first * BLOCK : first * BLOCK + num_blocks * block]
        asked = asked.unflatten(1, (num_blocks, block))
        by_block = torch.einsum("bnk,qnk->qbn", values, asked).double()
        total += (by_block * scales[:, first : first + num_blocks]).sum(2)
    return total


def _decode(codes: Tensor, bits: int) -> Tensor:
    """Return the codes of bytes (..., w) as float32, shape (..., w 8 / bits)."""
    if bits == 8:
        return codes.view(torch.int8).float()
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    fields = (codes.unsqueeze(-2) >> shifts[:, None]) & (2**bits - 1)
    fields = fields.flatten(-2).float()
    return fields - 8 if bits == 4 else 2 * fields - 1
