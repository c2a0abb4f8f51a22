"""What the files of methods are made from, and where they go.

Needs a published collection and its data set only.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from core.collection.schema import bytes_sha256
from core.collection.store import Collection, find_collection
from core.config import CollectionConfig, MethodConfig, config_from_dict
from core.curvature.basis import Eigenbasis
from core.data.datasets import Dataset, load_dataset
from core.files.tensor_files import write_tensors
from core.index.full import GradientIndex
from core.index.projection import MAX_DIM, Projection, checksum, make_projection
from core.methods import METHODS
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser
from core.model.parameters import parameter_layout
from core.scores.beside import index_bits, open_eigenbasis, open_index
from core.scores.method_files import method_path, pack_as_signs, pack_features
from precompute.machinery.parallel import rank_and_size
from precompute.machinery.workspace import Workspace, open_workspace

# DataInf scales every layer by its size of gradient, so that many directions count and
# few features say little: Spearman with exact scores 0.55 at 768. Sixteen times as many
# signs take the same room and give 0.83 (160 Glyphs, 24 queries).
SIGNS_PER_FEATURE = 16


@dataclass(frozen=True)
class MethodStage:
    """What every part needs.

    Attributes:
        config: The settings of the collection.
        recorded: The same as the collection recorded them.
        settings: Those of the methods.
        dataset: The training set.
        denoiser: The model.
        basis: The main eigenbasis, on the model's device.
        sha256: Of the model.
        bits: Of the full index, per coordinate.
        index: The full index, where it is there.
        workspace: Where unfinished work lies.
        root: Where the files go.
    """

    config: CollectionConfig
    recorded: dict
    settings: MethodConfig
    dataset: Dataset
    denoiser: Denoiser
    basis: Eigenbasis
    sha256: str
    bits: int
    index: GradientIndex | None
    workspace: Workspace
    root: Path

    def dim(self, kind: str) -> int:
        """Return how many features a method keeps of a gradient."""
        if METHODS[kind].features.layerwise:
            return min(SIGNS_PER_FEATURE * self.settings.dim, MAX_DIM)
        return self.settings.dim

    def projection(self, kind: str) -> Projection:
        """Return the projection of a method, on the CPU."""
        return make_projection(
            self.settings.projection,
            self.basis.layout.num_params,
            self.dim(kind),
            self.config.seed,
        )

    def content(self, method: dict, *stages: str) -> dict:
        """Return the settings that decide a file's content."""
        return {
            **{
                name: self.recorded[name]
                for name in ("data", "model", "train", *stages)
            },
            "seed": self.config.seed,
            "method": method,
        }

    def feature_settings(self, kind: str, from_index: bool) -> dict:
        """Return the settings that decide the features of a method."""
        method = {"dim": self.dim(kind), "projection": self.settings.projection}
        if from_index:
            source = {"source": "index", "bits": self.bits}
            return self.content(method | source, "curvature", "gradients")
        draws = {"source": "own draws", "num_draws": self.settings.num_draws}
        return self.content(method | draws, "curvature")

    def path(self, kind: str, settings: dict) -> Path:
        """Return where a file goes."""
        return method_path(self.root, self.config.name, kind, settings)

    def write(
        self,
        kind: str,
        settings: dict,
        tensors: dict[str, Tensor],
        seconds: float,
        **facts,
    ) -> None:
        """Write a file with its facts; only the first process does."""
        if rank_and_size()[0] != 0:
            return
        facts |= {
            "method": kind,
            "collection": self.config.name,
            "denoiser": self.sha256,
            "settings": settings,
            "seconds": round(seconds, 3),
            "bytes": sum(value.nbytes for value in tensors.values()),
        }
        write_tensors(self.path(kind, settings), tensors, {"facts": facts})

    def write_features(
        self, kind: str, settings: dict, tensors: dict[str, Tensor], **facts
    ) -> None:
        """Write `features` of a method, packed, and what else belongs to them."""
        pack = pack_as_signs if METHODS[kind].features.layerwise else pack_features
        packed = pack(tensors["features"])
        others = {name: value for name, value in tensors.items() if name != "features"}
        facts |= {
            "num_params": self.basis.layout.num_params,
            "projection": checksum(self.projection(kind)),
        }
        self.write(kind, settings, packed | others, **facts)


def open_stage(
    root: Path, name: str, work: Path | None, device: str, settings: MethodConfig
) -> MethodStage:
    """Return what every part needs, out of a published collection.

    Errors of `core.scores.beside` pass through.

    Raises:
        ValueError: If the data set holds other images than the collection.
    """
    with Collection(find_collection(root, name)) as collection:
        recorded = collection.meta("settings")
        config = config_from_dict(recorded)
        dataset = load_dataset(config.data)
        if not np.array_equal(dataset.ids, collection.examples().index):
            raise ValueError(
                f"The data set '{config.data.path}' holds other images than "
                f"collection '{name}'. Build the collection again."
            )
        weights = collection.denoiser()
        denoiser = denoiser_from_bytes(weights).to(device)
        layout = parameter_layout(denoiser.unet)
        basis = open_eigenbasis(collection, layout)
        index, bits = open_index(collection, layout.num_params), index_bits(collection)
    return MethodStage(
        config,
        recorded,
        settings,
        dataset,
        denoiser,
        basis.to(device),
        bytes_sha256(weights),
        bits,
        index,
        open_workspace(config, work),
        root,
    )
