"""What the page Timesteps shows of a gallery, as a small file beside the collection.

Of each gallery image the scores over bands of noise levels, for the training images
that a page shows first, and the image forming out of noise. Read with numpy alone, so
that no page waits for the model. A damaged file, or one of other errors or other sizes,
is as good as none: the page computes then.
"""

import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from core.answers import Answer, BandAnswers, Forming
from core.config import CollectionConfig
from core.files.images import image_of
from core.files.whole import written_whole
from core.scores.error_files import errors_path

BANDS = 8  # of noise levels, where an answer is divided over them
TOPS = 5  # strongest training images at each level
ROWS = 8  # strongest over all levels
STRIP = 6  # images in a strip of the page Explore, each of which has a curve
QUALITY = 50  # of the expected images, as WebP

UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    KeyError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


def levels_path(root: Path, config: CollectionConfig) -> Path:
    """Return where the file lies, beside the collection's."""
    return root / f"{config.name}-timesteps-{config.answers_fingerprint()}.npz"


def recipe(root: Path, config: CollectionConfig) -> str:
    """Return what decides a file besides its name: the errors' laws and the sizes."""
    laws = errors_path(root, config)
    text = laws.read_bytes() if laws.exists() else b""
    sizes = BANDS, TOPS, ROWS, STRIP, QUALITY
    return f"{hashlib.sha256(text).hexdigest()} {sizes}"


def shown_first(bands: BandAnswers, answer: Answer) -> np.ndarray:
    """Return the places of the training images that pages show, ascending, shape (K,).

    Args:
        bands: Scores of all training images over bands, shape (B, N).
        answer: The answer to the whole, whose strips the page Explore shows.
    """
    best = np.argsort(-bands.scores, axis=-1, kind="stable")[:, :TOPS]
    whole = np.argsort(-bands.scores.sum(0), kind="stable")[:ROWS]
    strips = answer.top(STRIP), answer.neutral(STRIP), answer.opposing(STRIP)
    return np.unique(np.concatenate([best.ravel(), whole, *strips]))


@dataclass(frozen=True)
class NoiseImages:
    """What an image is mixed with where the autoencoder is linear, as Eq. 1 has it.

    Attributes:
        noise: The noise of all levels, decoded, shape (C, H, W).
        ground: Latents of zero, decoded, same shape.
    """

    noise: np.ndarray
    ground: np.ndarray

    def noisy(self, pixels: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Return an image at noise levels, uint8, shape (L, C, H, W).

        Args:
            pixels: The image, uint8, shape (C, H, W). What it lost when it was clipped,
                rounded and finished is lost here, too: some grey levels on average.
            share: Of the noise in the variance, shape (L,).
        """
        share = share[:, None, None, None]
        image, noise = np.sqrt(1 - share), np.sqrt(share)
        mixed = image * (pixels / 127.5 - 1) + noise * self.noise
        mixed += (1 - image - noise) * self.ground
        return ((mixed + 1) * 127.5).round().clip(0, 255).astype(np.uint8)


class StoredLevels:
    """The file's arrays, and what they say of a gallery image.

    Args:
        arrays: Of `levels_arrays`.
    """

    def __init__(self, arrays: dict[str, np.ndarray]):
        self._arrays = arrays
        self._places = {int(one): at for at, one in enumerate(arrays["samples"])}
        self._starts = np.r_[0, np.cumsum(arrays["counts"])]
        self._files = np.r_[0, np.cumsum(arrays.get("sizes", []))].astype(int)

    def __contains__(self, sample: int) -> bool:
        """Return whether a gallery image is in the file."""
        return sample in self._places

    def bands(self, sample: int, note: str) -> BandAnswers:
        """Return a gallery image's scores over bands, for the images shown first.

        Args:
            sample: Its id.
            note: What a reader should know of how it was asked.
        """
        arrays, at = self._arrays, self._places[sample]
        part = slice(*self._starts[at : at + 2])
        return BandAnswers(
            tuple(arrays["edges"].tolist()),
            arrays["example_ids"][part].astype(np.int64),
            arrays["scores"][:, part].astype(np.float64),
            arrays["standard_errors"][:, part].astype(np.float64),
            arrays["values"][at],
            str(arrays["sources"][at]),
            note,
        )

    def forming(self, sample: int, pixels: np.ndarray) -> Forming | None:
        """Return a gallery image forming out of noise, None where that is not stored.

        Args:
            sample: Its id.
            pixels: The image, uint8, shape (C, H, W).
        """
        arrays, at = self._arrays, self._places[sample]
        if "expected" not in arrays:
            return None
        file = arrays["expected"][slice(*self._files[at : at + 2])].tobytes()
        images = NoiseImages(arrays["noise"], arrays["ground"])
        share = arrays["share"]
        noisy = images.noisy(pixels, share)
        return Forming(arrays["timesteps"], share, noisy, _unstacked(file, pixels))


def _stacked(images: np.ndarray) -> bytes:
    """Return images (L, C, H, W) one below the other as a WebP file."""
    levels, channels, height, width = images.shape
    column = images.swapaxes(0, 1).reshape(channels, levels * height, width)
    file = io.BytesIO()
    image_of(column).save(file, "WEBP", quality=QUALITY, method=6)
    return file.getvalue()


def _unstacked(file: bytes, like: np.ndarray) -> np.ndarray:
    """Return the images of `_stacked`, each of the shape of another, (L, C, H, W)."""
    channels, height, width = like.shape
    image = Image.open(io.BytesIO(file)).convert("L" if channels == 1 else "RGB")
    column = np.asarray(image).reshape(-1, height, width, channels)
    return column.transpose(0, 3, 1, 2)


def levels_arrays(
    found: dict[int, tuple[BandAnswers, np.ndarray, Forming]],
    mixed_with: NoiseImages | None,
) -> dict[str, np.ndarray]:
    """Return the arrays of a file.

    Args:
        found: Of every gallery image its scores over bands, the places of those to be
            kept (`shown_first`), and the image forming out of noise.
        mixed_with: None where the autoencoder is not linear; how the image forms is
            then not stored, for that takes too much room.
    """
    parts = [
        (bands.example_ids[kept], bands.scores[:, kept], bands.standard_errors[:, kept])
        for bands, kept, _ in found.values()
    ]
    ids, scores, errors = zip(*parts, strict=True)
    first, _, forming = next(iter(found.values()))
    arrays = {
        "samples": np.array(list(found), np.int32),
        "sources": np.array([bands.source for bands, _, _ in found.values()]),
        "values": np.stack([bands.values for bands, _, _ in found.values()]),
        "edges": np.array(first.edges, np.int32),
        "counts": np.array([len(one) for one in ids], np.int32),
        "example_ids": np.concatenate(ids).astype(np.int32),
        "scores": np.concatenate(scores, axis=1).astype(np.float32),
        "standard_errors": _three_digits(np.concatenate(errors, axis=1)),
    }
    if mixed_with is None:
        return arrays
    files = [_stacked(one.expected) for _, _, one in found.values()]
    return arrays | {
        "timesteps": forming.timesteps,
        "share": forming.noise,
        "noise": mixed_with.noise.astype(np.float16),
        "ground": mixed_with.ground.astype(np.float16),
        "sizes": np.array([len(file) for file in files], np.int32),
        "expected": np.frombuffer(b"".join(files), np.uint8),
    }


def _three_digits(values: np.ndarray) -> np.ndarray:
    """Return numbers as float32, sure to a thousandth: zeros take no room in a file."""
    bits = values.astype(np.float32).view(np.uint32) + np.uint32(0x2000)
    return (bits & np.uint32(0xFFFFC000)).view(np.float32)


def write_levels(path: Path, arrays: dict[str, np.ndarray], made_by: str) -> None:
    """Write the arrays whole or not at all, with a checksum of all of them.

    Args:
        path: Of `levels_path`.
        arrays: Of `levels_arrays`.
        made_by: Of `recipe`.
    """
    arrays = arrays | {"recipe": np.array(made_by)}
    with written_whole(path) as file:
        np.savez_compressed(file, sha256=np.array(_checksum(arrays)), **arrays)


def read_levels(path: Path, made_by: str) -> StoredLevels | None:
    """Return what is stored, None where there is nothing whole by that recipe.

    The arguments are those of `write_levels`.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        whole = str(arrays.pop("sha256")) == _checksum(arrays)
        if not whole or str(arrays.pop("recipe")) != made_by:
            return None
        return StoredLevels(arrays)
    except UNREADABLE:
        return None


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    checksum = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        checksum.update(f"{name} {array.dtype} {array.shape}".encode())
        checksum.update(array.tobytes())
    return checksum.hexdigest()
