"""What a figure was measured on."""

import platform
from importlib.metadata import version
from pathlib import Path

import torch

PACKAGES = ("torch", "diffusers", "curvlinops-for-pytorch", "numpy", "numba")


def facts() -> dict:
    """Return the machine, its threads, and the versions of what counts."""
    return {
        "machine": processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def processor() -> str:
    """Return the GPU's name; without one, the CPU's."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    names = Path("/proc/cpuinfo")
    lines = names.read_text().splitlines() if names.exists() else []
    models = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return models[0] if models else platform.machine()
