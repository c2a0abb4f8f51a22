"""What becomes of 10,000 damaged image files, and what the largest ones take.

Memory is the process's own peak above what it held before; Linux only.
"""

import ctypes
import gc
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from PIL import Image

from core.files.images import KINDS, MAX_PIXELS, PROGRESSIVE, open_image
from tests.benchmarks import machine
from tests.helpers.picture_files import encoded, is_read, mutated_files, whole_files

COUNT = 10_000
LARGEST = {  # kind of file: mode, how it is saved, share of the pixels
    "PNG": ("RGBA", {"compress_level": 1}, KINDS["PNG"]),
    "JPEG": ("RGB", {}, KINDS["JPEG"]),
    "progressive JPEG": ("CMYK", {"progressive": True, "quality": 20}, PROGRESSIVE),
    "GIF": ("P", {}, KINDS["GIF"]),
    "TIFF": ("RGBA", {"compression": "tiff_deflate"}, KINDS["TIFF"]),
    "WEBP": ("RGBA", {"lossless": True, "method": 0}, KINDS["WEBP"]),
    "AVIF": ("RGBA", {"speed": 10, "subsampling": "4:4:4"}, KINDS["AVIF"]),
    "JPEG2000": ("RGBA", {"quality_layers": [50]}, KINDS["JPEG2000"]),
}


def run(collection: str, root: Path | None, count: int = COUNT) -> dict:
    """Return how many files were refused, and the most memory that reading took."""
    counts, files = Counter(), whole_files()
    for data in files:  # loads the decoders
        is_read(data)
    found = {kind: largest(kind) for kind in LARGEST}

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated_files(files))
    def damaged(data: bytes) -> None:
        counts["accepted" if is_read(data) else "refused"] += 1

    start, before = time.monotonic(), fresh_peak()
    with warnings.catch_warnings(action="ignore"):
        damaged()
    seconds, peak = time.monotonic() - start, memory("VmHWM") - before
    return {
        "files": sum(counts.values()),
        **counts,
        "peak_megabytes": round(peak / 1e6),
        "seconds": round(seconds),
        "largest": found,
        "machine": machine.processor(),
    }


def largest(kind: str) -> dict:
    """Return what reading a file with as many pixels as its kind may have takes."""
    # Another process writes the file: what it took would count as free room here.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        side, data = other.submit(largest_file, kind).result()
    before, start = fresh_peak(), time.monotonic()
    with warnings.catch_warnings(action="ignore"):
        open_image(data)
    return {
        "megapixels": round(side * side / 1e6, 1),
        "file_megabytes": round(len(data) / 1e6, 1),
        "peak_megabytes": round((memory("VmHWM") - before) / 1e6),
        "seconds": round(time.monotonic() - start, 1),
    }


def largest_file(kind: str) -> tuple[int, bytes]:
    """Return the side and the bytes of a square image with all that is allowed."""
    mode, options, share = LARGEST[kind]
    side = int((share * MAX_PIXELS) ** 0.5)
    return side, encoded(stripes(side).convert(mode), kind.split()[-1], **options)


def stripes(side: int) -> Image.Image:
    """Return an image that its file can be much smaller than."""
    ramp = np.arange(side, dtype=np.uint16) // 16 % 256
    picture = Image.fromarray(np.broadcast_to(ramp.astype(np.uint8), (side, side)))
    return Image.merge("RGB", (picture, picture.transpose(4), picture.transpose(1)))


def fresh_peak() -> int:
    """Return the bytes that this process holds, from where its peak now counts."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> int:
    """Return a figure of this process's memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
