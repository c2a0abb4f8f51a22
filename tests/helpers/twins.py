"""Files as `retrain --without` leaves them beside a collection."""

from pathlib import Path

from core.files.tensor_files import read_tensors, write_tensors


def write_twin(
    path: Path, weights: bytes, group: str, share=0.25, number=-1, change=1.0
) -> None:
    """Write a model's file as `retrain --without` does, its weights changed."""
    tensors, header = read_tensors(weights, sealed=False)
    tensors = {name: one * change for name, one in tensors.items()}
    why = {"method": group, "fraction": share, "about": number, "seed": 0}
    write_tensors(path, tensors, header | {"facts": {"removed": why}})
