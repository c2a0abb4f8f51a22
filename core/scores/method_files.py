"""What the methods of `baselines` need beyond a collection: files beside it.

A file is `COLLECTION-method-METHOD-FINGERPRINT.safetensors`; the fingerprint is of the
settings that decide its content, and its facts say which model it belongs to.
`precompute.stages.methods` writes them. Says where they lie, how features are stored,
and refuses a file of another collection.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.collection.store import Collection
from core.curvature.basis import Curvature, eigenbasis_from
from core.files import tensor_files
from core.files.whole import Damaged
from core.index.full import balance
from core.index.projection import Projection, checksum, make_projection
from core.index.sketch import pack_signs
from core.methods import METHODS, with_features
from core.model.parameters import Layout
from core.scores.baselines import per_coordinate


def method_path(root: Path, name: str, kind: str, settings: dict) -> Path:
    """Return where a file made with some settings lies."""
    text = json.dumps(settings, sort_keys=True)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
    return root / f"{name}-method-{kind}-{fingerprint}.safetensors"


def pack_features(features: Tensor) -> dict[str, Tensor]:
    """Return features (N, k) in half precision, each row over its largest entry.

    Only the storage is short: a method computes in float32 (App. J.4). With a scale of
    its own no row loses more than 2^-11 of its largest entry.
    """
    scale = features.abs().amax(1)
    divisor = torch.where(scale > 0, scale, torch.ones_like(scale))
    return {"codes": (features / divisor[:, None]).half(), "scale": scale}


def pack_as_signs(features: Tensor) -> dict[str, Tensor]:
    """Return features (N, k), k a multiple of 8, as signs with a scale for each row.

    For products without an inverse: more features of one bit say more than fewer of 16
    in the same room.
    """
    bits, scale = pack_signs(features)
    return {"signs": torch.from_numpy(bits), "scale": torch.from_numpy(scale)}


def unpack_features(tensors: dict[str, Tensor]) -> Tensor:
    """Return the features (N, k) in float32."""
    if "signs" in tensors:
        signs = torch.from_numpy(np.unpackbits(tensors["signs"].numpy(), axis=1))
        return (2 * signs.float() - 1) * tensors["scale"][:, None]
    return tensors["codes"].float() * tensors["scale"][:, None]


@dataclass(frozen=True)
class MethodFile:
    """An open file.

    Attributes:
        path: Where it lies.
        facts: `settings` (what decides the content), `seconds`, `bytes`, `denoiser`
            (sha256 of the model), and, for features, `num_params` and `projection` (its
            checksum).
        tensors: As stored.
    """

    path: Path
    facts: dict
    tensors: dict[str, Tensor]

    @cached_property
    def features(self) -> Tensor:
        """Features of all training examples, shape (N, k), float32."""
        return unpack_features(self.tensors)

    @cached_property
    def projection(self) -> Projection:
        """The projection that made the features, on the CPU.

        Raises:
            ValueError: If this program draws other random numbers.
        """
        method = self.facts["settings"]["method"]
        made = make_projection(
            method["projection"],
            self.facts["num_params"],
            method["dim"],
            self.facts["settings"]["seed"],
        )
        if checksum(made) != self.facts["projection"]:
            raise ValueError(
                "This version of torch draws other random numbers than the one that "
                f"made '{self.path.name}': projection {checksum(made)} here, "
                f"{self.facts['projection']} there. Delete the file and make it again "
                "with `python -m precompute methods`."
            )
        return made

    def query_features(self, rotated: Tensor, layout: Layout) -> Tensor:
        """Return features (Q, k) of query gradients that go with the training ones.

        Args:
            rotated: In the main eigenbasis, shape (Q, P).
            layout: Of the model.
        """
        if "layer_damping" in self.tensors:  # DataInf
            damping = self.tensors["layer_damping"].to(rotated.device)
            rotated = rotated * per_coordinate(balance(damping).rsqrt(), layout)
        return self.projection.apply(rotated).cpu()

    def curvature(self, layout: Layout, eigenvalues: str) -> Curvature:
        """Return the other curvature.

        Args:
            layout: Of the model.
            eigenvalues: "ekfac" or "kfac".
        """
        basis = eigenbasis_from(self.tensors, layout)
        return Curvature(basis, self.tensors[eigenvalues])


def load_method(collection: Collection, method: str) -> MethodFile:
    """Return the file that a method needs; `find_method` raises where there is none."""
    path, facts = find_method(collection, method)  # which has read all of it once
    return MethodFile(path, facts, tensor_files.read_tensors(path)[0])


def find_method(collection: Collection, method: str) -> tuple[Path, dict]:
    """Return path and facts of the file that a method needs.

    Of several, the one whose features took the most draws, and of these the one of
    most features.

    Raises:
        LookupError: If there is none.
        ValueError: If those there are belong to another collection.
    """
    kind = METHODS[method].file
    paths = _paths(collection, kind)
    if not paths:
        only = "curvature" if kind.startswith("curvature") else kind
        features = with_features().get(kind)
        source = "" if features is None or features.outputs else _FROM_INDEX
        raise LookupError(
            f"What '{method}' needs did not come with collection '{collection.name}'. "
            f"Make it with `python -m precompute methods --collection "
            f"{collection.name} --only {only}`{source}."
        )
    own = _of_model(collection, paths)
    if not own:
        other, denoiser = read_facts(paths[0]), collection.denoiser_sha256()
        raise ValueError(
            f"'{paths[0].name}' belongs to the model {other['denoiser'][:12]}; "
            f"collection '{collection.name}' has the model {denoiser[:12]}. Make it "
            "again with `python -m precompute methods --collection "
            f"{collection.name}`."
        )
    best = max(own, key=lambda path: _strength(own[path]))
    stored = own[best]["settings"]
    collection.require_settings({k: v for k, v in stored.items() if k != "method"})
    return best, own[best]


def method_files(collection: Collection, method: str) -> list[MethodFile]:
    """Return all files of a method, the one that answers first, then by strength."""
    best, _ = find_method(collection, method)
    kind = METHODS[method].file
    own = _of_model(collection, _paths(collection, kind))
    rest = sorted(
        (path for path in own if path != best), key=lambda p: _strength(own[p])
    )
    return [_read(path) for path in (best, *reversed(rest))]


def _read(path: Path) -> MethodFile:
    """Return an open file, all of it read."""
    return MethodFile(path, read_facts(path), tensor_files.read_tensors(path)[0])


def _paths(collection: Collection, kind: str) -> list[Path]:
    pattern = f"{collection.name}-method-{kind}-{'[0-9a-f]' * 12}.safetensors"
    return sorted(collection.path.parent.glob(pattern))


def _of_model(collection: Collection, paths: list[Path]) -> dict[Path, dict]:
    """Return the facts of those files that belong to the collection's model."""
    facts = {path: read_facts(path) for path in paths}
    denoiser = collection.denoiser_sha256()
    return {path: one for path, one in facts.items() if one["denoiser"] == denoiser}


def _strength(facts: dict) -> tuple[int, int]:
    """Return how many draws features took, and how many there are."""
    return facts.get("draws", 0), facts["settings"]["method"].get("dim", 0)


_FROM_INDEX = "; it reads the full index, which `build` leaves behind"


def method_cost(collection: Collection, method: str) -> tuple[float, float]:
    """Return the seconds and bytes of what a method needs; NaN where not recorded.

    A method whose file did not come along raises a LookupError.
    """
    method_facts, costs = METHODS[method], collection.meta("costs")
    if method_facts.reads == "images":
        array = method_facts.array
        return float("nan"), collection.array(array).nbytes if array else 0.0
    sketch = collection.meta("sketch")["dim"] // 8 * len(collection.labels())
    if method_facts.file is None or not method_facts.file_required:
        curvature = costs["curvature"] if method_facts.preconditioner else 0.0
        kinds = {s.layout["kind"]: s.num_bytes for s in collection.shards()}
        return costs["gradients"] + curvature, kinds["eigenvectors"] + sketch
    facts = find_method(collection, method)[1]
    # Features with draws of their own need none of the collection's gradients.
    alone = facts["settings"]["method"].get("source") == "own draws"
    seconds = facts["seconds"] + (0.0 if alone else costs["gradients"])
    return seconds, facts["bytes"] + (0 if "projection" in facts else sketch)


def read_facts(path: Path) -> dict:
    """Return the facts of a file.

    Raises:
        ValueError: If it is damaged or not a file of a method.
    """
    try:
        return tensor_files.read_facts(path)
    except Damaged as error:
        name = path.name.split("-method-")[0]
        raise ValueError(
            f"'{path.name}' is damaged or no file of a method. Delete it and make it "
            f"again with `python -m precompute methods --collection {name}`."
        ) from error
