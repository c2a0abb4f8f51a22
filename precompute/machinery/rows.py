"""Rows of numbers on disk, written in any order and read whole."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from core.files.whole import reserve
from core.index.full import create_once
from precompute.machinery.progress import Bar


class Rows:
    """Per-example results on disk, chunk by chunk: a kill loses one chunk."""

    def __init__(self, folder: Path, num_examples: int, chunk: int, shapes: dict):
        """Open or create the files.

        A row holds all entries of an example, so that a chunk is one piece of the file
        and one flush writes it.

        Args:
            folder: Where the arrays lie.
            num_examples: N.
            chunk: Examples written together.
            shapes: Name -> (dtype, shape of one example's entry).
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.num_examples, self.chunk = folder, num_examples, chunk
        row = np.dtype([(name, *entry) for name, entry in shapes.items()])
        self.rows = self._open("rows", row, (num_examples,))
        self.arrays = {name: self.rows[name] for name in shapes}
        self.done = self._open("done", "u1", (-(-num_examples // chunk),))

    def _open(
        self, name: str, dtype: str | np.dtype, shape: tuple[int, ...]
    ) -> np.memmap:
        path = self.folder / f"{name}.npy"

        def make(new: Path) -> None:
            np.lib.format.open_memmap(new, "w+", dtype, shape)
            reserve(new, new.stat().st_size)

        create_once(path, make)
        return np.lib.format.open_memmap(path, "r+")

    def chunks(self, part: tuple[int, int] = (0, 1)) -> list[range]:
        """Return the positions of every chunk of one part of several."""
        which, parts = part
        return [
            range(i * self.chunk, min((i + 1) * self.chunk, self.num_examples))
            for i in range(which, len(self.done), parts)
        ]

    def missing(self, part: tuple[int, int] = (0, 1)) -> list[range]:
        """Return those chunks that are not finished."""
        return [
            chunk
            for chunk in self.chunks(part)
            if not self.done[chunk.start // self.chunk]
        ]

    def unfinished(self, part: tuple[int, int], name: str) -> Iterator[range]:
        """Yield the missing chunks of one part of several, with a progress bar."""
        whole, missing = (
            sum(map(len, chunks)) for chunks in (self.chunks(part), self.missing(part))
        )
        with Bar(total=whole, desc=name, initial=whole - missing) as bar:
            for positions in self.missing(part):
                yield positions
                bar.update(len(positions))

    def write(self, positions: range, **entries: np.ndarray) -> None:
        """Store the entries of a chunk, then mark it as finished."""
        for name, entry in entries.items():
            self.arrays[name][positions.start : positions.stop] = entry
        self.rows.flush()
        self.done[positions.start // self.chunk] = 1
        self.done.flush()

    def forget(self) -> None:
        """Mark every chunk as unfinished."""
        self.done[:] = 0
        self.done.flush()
