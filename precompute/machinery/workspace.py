"""Where a stage leaves its results while a collection is being made.

A workspace is the folder `data/work/NAME`. The name of every result holds a fingerprint
of the settings that made it, those of the stages before it included, so that a stage
finds its own finished or unfinished result and never one made with other settings.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.config import DATA_DIR, CollectionConfig
from core.files.tensor_files import read_tensors, write_tensors
from core.files.whole import written_whole

if TYPE_CHECKING:
    from torch import Tensor

# Which settings decide a stage's result.
DEPENDS_ON = {
    "train": ("data", "model", "train"),
    "curvature": ("data", "model", "train", "curvature"),
    "samples": ("data", "model", "train", "curvature", "samples"),
    "gradients": ("data", "model", "train", "curvature", "samples", "gradients"),
}


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a kill at any moment leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        file.write(data)


def save_tensors(path: Path, tensors: "dict[str, Tensor]", **facts) -> None:
    """Write tensors and facts, plain values, as one sealed file."""
    write_tensors(path, tensors, {"facts": facts})


def load_tensors(path: Path) -> "tuple[dict[str, Tensor], dict]":
    """Return what `save_tensors` wrote, or wrote before files were sealed.

    A file that is not whole raises `Damaged`.
    """
    tensors, header = read_tensors(path, sealed=False)
    return tensors, header["facts"]


@dataclass(frozen=True)
class Workspace:
    """The folder of one collection in the making."""

    config: CollectionConfig
    folder: Path

    def path(self, stage: str, name: str) -> Path:
        """Return the path of a stage's result; `name` includes the suffix."""
        stem, suffix = name.rsplit(".", 1)
        fingerprint = self.config.fingerprint(*DEPENDS_ON[stage])
        return self.folder / f"{stem}-{fingerprint}.{suffix}"

    def save(
        self, stage: str, name: str, tensors: "dict[str, Tensor]", **facts
    ) -> None:
        """Write tensors and facts, plain values, as one sealed file."""
        save_tensors(self.path(stage, f"{name}.safetensors"), tensors, **facts)

    def load(self, stage: str, name: str) -> "tuple[dict[str, Tensor], dict] | None":
        """Return what `save` wrote, or None if there is nothing."""
        path = self.path(stage, f"{name}.safetensors")
        return load_tensors(path) if path.exists() else None

    def kept(
        self, stage: str, name: str, make: Callable[[], "dict[str, Tensor]"]
    ) -> "dict[str, Tensor]":
        """Return the tensors of a result, made only if there is nothing yet."""
        if (saved := self.load(stage, name)) is None:
            started = time.time()
            tensors = make()
            self.save(stage, name, tensors, seconds=time.time() - started)
            return tensors
        return saved[0]

    def forget(self, stage: str, *names: str) -> None:
        """Remove results that nothing needs any more, all processes' parts of them."""
        fingerprint = self.config.fingerprint(*DEPENDS_ON[stage])
        for name in names:
            for path in self.folder.glob(f"{name}*-{fingerprint}.safetensors"):
                path.unlink(missing_ok=True)


def workspace_of(config: CollectionConfig, root: Path | None = None) -> Workspace:
    """Return the workspace of a collection, whose folder may not be there."""
    return Workspace(config, (root or DATA_DIR / "work") / config.name)


def open_workspace(config: CollectionConfig, root: Path | None = None) -> Workspace:
    """Return the workspace of a collection, making its folder."""
    workspace = workspace_of(config, root)
    workspace.folder.mkdir(parents=True, exist_ok=True)
    return workspace
