"""The one door to the large files beside a collection, each held against its checksum.

Eigenvectors, the gradient index and the model lie beside a collection's file, which
catalogues them with their checksums. Whoever needs one opens it here (the model with
`Collection.denoiser`), so that a flipped byte is a sentence and never a number. Files
that carry a checksum of their own have their own doors: `core.files.tensor_files`,
`core.scores.method_files`, `core.scores.group_errors`, `core.evidence.stored`.
"""

from pathlib import Path

from core.collection.schema import damaged, file_sha256
from core.collection.store import Collection
from core.curvature.basis import Eigenbasis, eigenbasis_from
from core.files.tensor_files import read_tensors
from core.index.full import GradientIndex
from core.model.parameters import Layout


def open_eigenbasis(collection: Collection, layout: Layout) -> Eigenbasis:
    """Return the Kronecker eigenbasis, on the CPU; errors of `beside` pass through."""
    tensors, _ = read_tensors(collection.beside("eigenvectors"), sealed=False)
    return eigenbasis_from(tensors, layout)


def open_index(collection: Collection, num_params: int) -> GradientIndex | None:
    """Return the full index, or None where its shards did not come along.

    Each file is held against its checksum before it is first read.

    Args:
        collection: That catalogues it.
        num_params: P.

    Raises:
        ValueError: If a file of it has another size than it was published with.
    """
    shards = [s for s in collection.shards() if s.layout["kind"] == "codes"]
    paths = [collection.shard_path(shard) for shard in shards]
    if not paths or not all(path.exists() for path in paths):
        return None
    folder, checksums = paths[0].parent, {}
    for shard in collection.shards():
        path = collection.shard_path(shard)
        if path.parent != folder:
            continue
        if not path.is_file() or path.stat().st_size != shard.num_bytes:
            raise ValueError(damaged(path, "what the collection was built of"))
        checksums[path] = shard.sha256

    def check(path: Path) -> None:
        if file_sha256(path) != checksums.get(path):
            raise ValueError(damaged(path, "what the collection was built of"))

    num_examples, bits = sum(s.num_examples for s in shards), index_bits(collection)
    return GradientIndex(folder, num_examples, num_params, bits, check)


def index_bits(collection: Collection) -> int:
    """Return how many bits of a coordinate the full index keeps, there or not."""
    shards = [s for s in collection.shards() if s.layout["kind"] == "codes"]
    # Collections of before there was a choice hold 8 bits and do not say so.
    return shards[0].layout.get("bits", 8) if shards else 8
